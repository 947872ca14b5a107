"""The affine start, on hearts that were turned, moved and stretched by known maps."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from threading import Event

import numpy as np
import pytest
import SimpleITK as sitk
from scipy import ndimage
from scipy.spatial.transform import Rotation

from tests.phantoms import phantom
from vrnet import BadInput, Grid, Image, register_images
from vrnet.images.grid import Affine
from vrnet.images.io import to_sitk
from vrnet.images.resample import place_labels, resample_image
from vrnet.registration.affine import find_affine, make_levels
from vrnet.registration.masks import PairMasks

SIZES = {2: ((96, 96), 2.0), 3: ((42, 36, 32), 4.0)}


SLOW_IN_3D = pytest.mark.parametrize("d", [2, pytest.param(3, marks=pytest.mark.release)])
"""Each search in 3D takes seconds: three theorems are tried there every time, the others before a release."""


@cache
def heart(d):
    """A phantom's end-diastole, somewhere in the world, obliquely."""
    shape, spacing = SIZES[d]
    direction = Rotation.from_euler("zyx", [0.4, 0.3 * (d == 3), 0]).as_matrix()[:d, :d]
    grid = Grid(shape, (spacing,) * d, (-40.0, 25.0, 110.0)[:d], tuple(direction.ravel().tolist()))
    return Image(phantom(5, shape, spacing).fixed[0, 0].numpy(), grid)


@cache
def about_heart(d):
    """The mask of that heart, with a margin of 8 mm."""
    shape, spacing = SIZES[d]
    labels = phantom(5, shape, spacing).fixed_labels[0, 0].numpy()
    return heart(d).with_array(ndimage.binary_dilation(labels > 0, iterations=round(8 / spacing)))


def known(grid, kind, degrees, shift_mm, seed=0):
    """A turn about a random axis and a shift in a random direction; if affine, with up to 20 % of stretch per axis."""
    rng, d = np.random.default_rng(seed), len(grid.shape)
    axis = rng.standard_normal(3) if d == 3 else np.array([0.0, 0.0, 1.0])
    R = Rotation.from_rotvec(np.radians(degrees) * axis / np.linalg.norm(axis)).as_matrix()[:d, :d]
    stretch = np.diag(rng.uniform(0.8, 1.2, d)) if kind == "affine" else np.eye(d)
    shift = rng.standard_normal(d)
    return Affine(kind, R @ stretch, shift_mm * shift / np.linalg.norm(shift), grid.centre)


def misplace(image, affine):
    """The image moved by a map, on a grid with room for all of it: moving(affine(x)) = image(x)."""
    own = image.grid
    corners = np.array(list(product(*((-0.5, n - 0.5) for n in own.shape))))
    reached = own.index(affine.points(own.points(corners)))
    low, high = np.floor(reached.min(0)), np.ceil(reached.max(0))
    shape, origin = tuple(int(n) for n in high - low + 1), tuple(own.points(low[None])[0].tolist())
    place = origin, own.spacing, own.direction
    source = to_sitk(image.array.astype(np.float32), own)
    moved = sitk.Resample(source, shape, affine.itk.GetInverse(), sitk.sitkLinear, *place, float(image.array.min()))
    return Image(sitk.GetArrayFromImage(moved).T, Grid(shape, own.spacing, origin, own.direction), "moved")


def misplaced_heart(d, true):
    """(moving, masks) of the heart moved by a map, with the mask of both."""
    moving = misplace(heart(d), true)
    mask = place_labels(about_heart(d), moving.grid, true.inverse())
    return moving, PairMasks(about_heart(d), mask)


def error_mm(found, true, grid):
    """Median distance between two maps over a grid."""
    return np.median(distances_mm(found, true, grid.points(grid.lattice())))


def error_inside_mm(found, true, d):
    """The greatest distance between two maps inside the mask."""
    inside = heart(d).grid.points(np.argwhere(about_heart(d).array).astype(float))
    return distances_mm(found, true, inside).max()


def distances_mm(found, true, x):
    return np.linalg.norm(found.points(x) - true.points(x), axis=1)


@pytest.mark.parametrize(
    ("d", "kind", "degrees"),
    [(2, "rigid", 30), (2, "affine", 5), pytest.param(3, "rigid", 30, marks=pytest.mark.release), (3, "affine", 5)],
)
def test_a_known_misplacement_is_recovered(d, kind, degrees):
    true = known(heart(d).grid, kind, degrees, 30.0)
    found = find_affine(heart(d), misplace(heart(d), true), kind)
    assert found.kind == kind
    assert error_mm(found, true, heart(d).grid) < 0.5
    assert found.compose(true.inverse()).summary()["rotation_deg"] < 0.5


@SLOW_IN_3D
def test_contrast_does_not_matter(d):
    true = known(heart(d).grid, "rigid", 15, 10.0)
    moved = misplace(heart(d), true)
    inverted = moved.with_array(5e3 - 40 * moved.array)
    assert error_mm(find_affine(heart(d), inverted, "rigid"), true, heart(d).grid) < 0.5


@pytest.mark.release
def test_headers_may_have_lost_where_and_how_an_image_lies(d):
    """The voxels stay, and the header says the world's axes, a kilometre away."""
    plain = Grid.plain(heart(d).grid.shape, heart(d).grid.spacing)
    lost = Image(heart(d).array, replace(plain, origin=(1e6,) * d))
    x = heart(d).grid.lattice()
    found = find_affine(heart(d), lost, "rigid").points(heart(d).grid.points(x))
    assert np.median(np.linalg.norm(found - lost.grid.points(x), axis=1)) < 0.5


@pytest.mark.release
def test_a_stack_of_thick_slices_is_turned_in_space():
    """Nine slices 10 mm apart: they are never made thicker, whatever the level."""
    volume, h = heart(3), 10.0
    grid = replace(volume.grid, shape=(*volume.grid.shape[:2], 9), spacing=(4.0, 4.0, h))
    at = [int(k * h / 4) for k in range(9)]
    stack = Image(volume.array[..., at], grid)
    assert all(level.fixed.GetSize()[2] == 9 for level in make_levels(stack, stack))
    true = known(volume.grid, "rigid", 12, 20.0)
    found = find_affine(stack, misplace(volume, true), "rigid")
    assert error_mm(found, true, grid) < 2


@pytest.mark.release
@SLOW_IN_3D
def test_results_are_the_same_to_the_bit_on_any_number_of_threads(d):
    moving, masks = misplaced_heart(d, known(heart(d).grid, "rigid", 20, 15.0))
    masks = masks if d == 2 else PairMasks()  # by which a map is sought twice
    threads, found = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads(), []
    for count in (1, 7):
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(count)
        found.append(find_affine(heart(d), moving, "rigid", masks))
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)
    assert len({(each.matrix.tobytes(), each.translation.tobytes()) for each in found}) == 1


def test_alignments_that_overlap_leave_the_threads_of_itk_as_they_were(as_users_run):
    """The second begins in the middle of the first, and ends after it."""
    begun, end, before = Event(), Event(), sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    small = Image(heart(2).array[::3, ::3].copy(), Grid.plain((32, 32), (6.0, 6.0)))
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(3)
    with ThreadPoolExecutor(1) as pool:

        def start_second(done):
            pool.submit(find_affine, small, small, "rigid", progress=lambda done: begun.set() or end.wait(60))
            assert begun.wait(60)

        find_affine(small, small, "rigid", progress=start_second)
        end.set()
    found = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(before)
    assert found == 3


def test_too_few_slices_to_turn_are_bad_input():
    thin = Image(heart(3).array[..., :3], replace(heart(3).grid, shape=(42, 36, 3)))
    with pytest.raises(BadInput, match=r"42x36x3: .* 4 voxels along each axis"):
        find_affine(heart(3), thin, "rigid")


@pytest.mark.parametrize(
    ("d", "given"), [(2, "both"), pytest.param(3, "both", marks=pytest.mark.release), (2, "fixed"), (2, "moving")]
)
def test_a_known_misplacement_is_recovered_with_masks(d, given):
    true, told = known(heart(d).grid, "affine", 15, 20.0), []
    moving, masks = misplaced_heart(d, true)
    masks = masks if given == "both" else PairMasks(**{given: getattr(masks, given)})
    found = find_affine(heart(d), moving, "affine", masks, told.append)
    assert error_inside_mm(found, true, d) < 1
    assert np.array_equal(found.centre, heart(d).grid.centre)
    assert told == sorted(told)
    assert told[-1] == 1


@pytest.mark.release
def test_the_map_of_the_whole_is_kept_unless_the_inside_plainly_contradicts_it():
    """At end-systole the heart is smaller, and by a map that is millimetres off it is a little more alike."""
    true, (shape, spacing) = known(heart(3).grid, "rigid", 8, 20.0, seed=5), SIZES[3]
    patient = phantom(5, shape, spacing)
    systole = misplace(heart(3).with_array(patient.moving[0, 0].numpy()), true)
    labels = ndimage.binary_dilation(patient.moving_labels[0, 0].numpy() > 0, iterations=2)
    masks = PairMasks(about_heart(3), place_labels(heart(3).with_array(labels), systole.grid, true.inverse()))
    whole, found = (find_affine(heart(3), systole, "rigid", each) for each in (PairMasks(), masks))
    assert np.array_equal(whole.matrix, found.matrix)
    assert np.array_equal(whole.translation, found.translation)


def heart_moved_alone(d):
    """(moving, masks): the heart is turned by 15 degrees, and moved, and all around it is where it was."""
    moving, masks = misplaced_heart(d, known(heart(d).grid, "rigid", 15, 20.0))
    stayed = resample_image(heart(d), moving.grid).array
    return moving.with_array(np.where(masks.moving.array, moving.array, stayed)), masks


@cache
def found_without_masks(d):
    """The map of the heart moved alone as it is found without masks, once."""
    return find_affine(heart(d), heart_moved_alone(d)[0], "rigid")


@pytest.mark.parametrize(
    ("d", "which"), [(2, "both"), pytest.param(3, "both", marks=pytest.mark.release), (2, "moving"), (2, "wide")]
)
def test_what_stays_outside_the_mask_does_not_mislead(d, which):
    """Wide: the mask of fixed has far more inside than that of moving."""
    true = known(heart(d).grid, "rigid", 15, 20.0)
    moving, masks = heart_moved_alone(d)
    wide = about_heart(d).with_array(ndimage.binary_dilation(about_heart(d).array, iterations=round(32 / SIZES[d][1])))
    masks = replace(masks, fixed={"both": masks.fixed, "moving": None, "wide": wide}[which])
    assert error_inside_mm(found_without_masks(d), true, d) > 10
    assert error_inside_mm(find_affine(heart(d), moving, "rigid", masks), true, d) < 1


def test_masks_of_all_are_none():
    d = 2
    moving = misplace(heart(d), known(heart(d).grid, "rigid", 15, 20.0))
    masks = PairMasks(*(image.with_array(np.ones(image.grid.shape, bool)) for image in (heart(d), moving)))
    told = [], []
    given = zip((PairMasks(), masks), told, strict=True)
    found = [find_affine(heart(d), moving, "rigid", each, heard.append) for each, heard in given]
    assert np.array_equal(found[0].matrix, found[1].matrix)
    assert np.array_equal(found[0].translation, found[1].translation)
    assert told[0] == told[1], "it is sought once"


@pytest.mark.release
@SLOW_IN_3D
def test_masks_turn_with_their_images_before_a_start_is_sought(d):
    """How the axes are stored does not matter."""
    true = known(heart(d).grid, "rigid", 15, 20.0)
    moving, masks = heart_moved_alone(d)
    stored = [turn_storage(image) for image in (heart(d), moving, masks.fixed, masks.moving)]
    fixed, moving, fixed_mask, moving_mask = stored
    options = {"affine": "rigid", "fixed_mask": fixed_mask, "moving_mask": moving_mask}
    assert error_inside_mm(register_images(fixed, moving, "identity", **options).affine, true, d) < 1


def turn_storage(image):
    """The same image with its axes in another order, the first of them backward."""
    turned = image.reordered(range(len(image.grid.shape))[::-1])
    return replace(turned, array=np.flip(turned.array, 0).copy(), grid=turned.grid.flipped((0,)))


def test_a_mask_of_few_voxels_is_bad_input(d):
    few = heart(d).with_array(np.zeros(heart(d).grid.shape, bool))
    few.array[(slice(5, 8),) * d] = True
    with pytest.raises(BadInput, match=f"has {3**d} voxels inside: an affine start needs 100; give a larger mask"):
        find_affine(heart(d), heart(d), "rigid", PairMasks(moving=few))


BAD_MAPS = {
    "is 3D and the images are 2D: give": (2, np.eye(3), np.zeros(3)),
    "NaN or infinite numbers": (3, np.eye(3), np.full(3, np.inf)),
    "onto a plane or a line": (3, np.diag([1.0, 1.0, 0.0]), np.zeros(3)),
    "mirrors": (2, np.diag([-1.0, 1.0]), np.zeros(2)),
}


@pytest.mark.parametrize("words", BAD_MAPS)
def test_a_map_that_makes_no_sense_as_a_start_is_bad_input(words, as_users_run):
    d, matrix, shift = BAD_MAPS[words]
    with pytest.raises(BadInput, match=f"^the affine map .*{words}"):
        register_images(heart(d), heart(d), "identity", affine=Affine("affine", matrix, shift, np.zeros(len(shift))))


def test_a_map_between_units_of_length_is_one(d, as_users_run):
    grid, scale = heart(d).grid, 1e3
    affine = Affine("affine", scale * np.eye(d), np.zeros(d), np.zeros(d))
    there = replace(grid, spacing=tuple(scale * h for h in grid.spacing), origin=tuple(scale * x for x in grid.origin))
    found = register_images(heart(d), Image(heart(d).array, there), "identity", affine=affine)
    assert np.abs(found.warped.array - heart(d).array).max() < 1e-3
