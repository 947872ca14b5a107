"""Registration in the world: headers, formats and orientations do not matter, only where tissue is."""

import inspect
from dataclasses import fields, replace
from functools import cache, partial

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation

import vrnet
from tests.models import Flow, card, trained
from tests.phantoms import phantom
from vrnet import BadInput, Grid, Image, Trained, read_image, register_images, write_image
from vrnet.images.io import to_sitk
from vrnet.images.resample import coverage, resample_image
from vrnet.methods.parameters import value_in
from vrnet.registration.images import choose_slice_axis
from vrnet.verdict.rules import run_of
from vrnet.vocabulary import RegistrationOptions

tv_l1 = partial(register_images, method="TV-L1")
brief = partial(register_images, method="TV-L1(warps=5)")
"""With less to do, where it is asked whether two results are alike, and not how near they come to the truth."""
SIZES = {2: (80, 80), 3: (42, 36, 32)}
SPACING = {2: (2.4, 2.4), 3: (4.0, 4.0, 4.0)}


def oblique(d):
    return Rotation.from_euler("zyx", [0.4, 0.3 * (d == 3), -0.5 * (d == 3)]).as_matrix()[:d, :d]


@cache
def heart(d, is_fine=False):
    """A phantom patient somewhere in the world, obliquely: (fixed, moving, labels of either)."""
    shape, spacing = ((56, 48, 40), (3.0, 3.0, 3.0)) if is_fine else (SIZES[d], SPACING[d])
    patient = phantom(5, shape, spacing[0])
    pose = tuple(oblique(d).ravel().tolist())
    grid = Grid(shape, spacing, (-40.0, 25.0, 110.0)[:d], pose)
    parts = patient.fixed, patient.moving, patient.fixed_labels, patient.moving_labels
    return tuple(Image(part[0, 0].numpy(), grid) for part in parts)


@cache
def tv_l1_result(d):
    """The registration of the phantom heart by TV-L1, made once."""
    return tv_l1(*heart(d)[:2])


@cache
def brief_result(d):
    """The same with less to do."""
    return brief(*heart(d)[:2])


def every_second_voxel(image):
    """What takes an eighth of the time to measure."""
    array = image.array[(slice(None, None, 2),) * image.array.ndim]
    return Image(array, replace(image.grid, shape=array.shape, spacing=tuple(2 * h for h in image.grid.spacing)))


def median_difference(a, b, where):
    """Median distance, in mm, between two transforms over the labelled voxels of an image."""
    x = where.grid.points(np.argwhere(where.array > 0).astype(float)[::7])
    return np.median(np.linalg.norm(a.points(x) - b.points(x), axis=1))


@pytest.mark.parametrize(("which", "dtype", "offset"), [(0, np.float64, 2e6), (1, np.int64, 2**40)])
def test_an_image_of_too_little_contrast_beside_its_offset_is_called_that_and_not_constant(which, dtype, offset):
    """Warped images are float32, which could not show it either."""
    images = [replace(image, name=name) for image, name in zip(heart(2), ("a.nii", "b.nii"), strict=False)]
    scale = 1 if dtype == np.float64 else 200
    images[which] = images[which].with_array((scale * images[which].array).astype(dtype) + dtype(offset))
    with pytest.raises(BadInput, match=rf"^{'ab'[which]}\.nii has too little contrast .*: subtract its minimum first"):
        register_images(*images, "TV-L1")


def test_the_transform_takes_a_point_of_fixed_to_the_same_tissue_in_moving(d):
    """Labels brought by it, in SimpleITK, cover those of fixed far better than before."""
    fixed, moving, fixed_labels, moving_labels = heart(d)
    before, transform = to_sitk(moving_labels.array, moving.grid), tv_l1_result(d).transform.itk
    warped = sitk.Resample(before, transform, sitk.sitkNearestNeighbor)
    scores = []
    for other in (before, warped):
        overlap = sitk.LabelOverlapMeasuresImageFilter()
        overlap.Execute(to_sitk(fixed_labels.array, fixed.grid), sitk.Cast(other, sitk.sitkUInt8))
        scores.append(overlap.GetDiceCoefficient())
    assert scores[1] > scores[0] + 0.05


def test_warped_is_what_simpleitk_makes_of_moving_and_the_saved_transform(d, tmp_path):
    fixed, moving = heart(d)[:2]
    tv_l1_result(d).transform.save(tmp_path / "t.nii.gz")
    transform = sitk.DisplacementFieldTransform(sitk.ReadImage(str(tmp_path / "t.nii.gz")))
    expected = sitk.Resample(to_sitk(moving.array, moving.grid), to_sitk(fixed.array, fixed.grid), transform)
    inside = (slice(4, -4),) * d
    difference = np.abs(sitk.GetArrayFromImage(expected).T - tv_l1_result(d).warped.array)[inside]
    assert difference.max() < 1e-3 * np.ptp(moving.array)


@pytest.mark.parametrize(("d", "kind"), [(2, ".nrrd"), (3, ".mha")])
def test_the_format_does_not_matter(d, kind, tmp_path):
    for name, image in zip(("fixed", "moving"), heart(d)[:2], strict=True):
        write_image(image, tmp_path / f"{name}{kind}")
    result = brief(*(read_image(tmp_path / f"{name}{kind}") for name in ("fixed", "moving")))
    assert median_difference(result.transform, brief_result(d).transform, heart(d)[2]) < 0.05


def reorient(image, order, flips):
    """The image with axes permuted and turned round in array and header: the same voxels at the same places."""
    axes, d = image.grid.axes[:, order], len(order)
    corner = [n - 1 if flip else 0 for n, flip in zip(np.array(image.grid.shape)[order], flips, strict=True)]
    spacing = np.array(image.grid.spacing)[order]
    origin = image.grid.origin + axes @ (spacing * corner)
    signs = [-1.0 if flip else 1.0 for flip in flips]
    array = np.flip(image.array.transpose(order), [i for i in range(d) if flips[i]]).copy()
    grid = Grid(array.shape, tuple(spacing), tuple(origin), tuple((axes * signs).ravel()))
    return Image(array, grid)


@pytest.mark.parametrize(
    ("which", "order", "flips"),
    [("both", (1, 0, 2), (True, False, True)), ("moving alone", (2, 0, 1), (False, True, True))],
)
def test_the_orientation_of_the_arrays_does_not_matter(d, which, order, flips):
    order = [axis for axis in order if axis < d]
    fixed, moving, labels, _ = heart(d)
    turned = reorient(moving, order, flips[:d])
    x = np.argwhere(moving.array > 0.5)[:5].astype(float)
    assert_allclose(resample_image(turned, moving.grid).array, moving.array, atol=1e-4)
    assert_allclose(turned.grid.index(moving.grid.points(x)).round(3) % 1, 0, atol=1e-3)
    result = brief(reorient(fixed, order, flips[:d]) if which == "both" else fixed, turned)
    assert median_difference(result.transform, brief_result(d).transform, labels) < 0.05


@pytest.mark.release
def test_moving_may_lie_on_a_grid_of_its_own(d):
    """Moving resampled finely, turned and shifted in its header alone, gives the same motion."""
    fixed, moving, labels, _ = heart(d)
    spacing = tuple(0.6 * h for h in moving.grid.spacing)
    shape = tuple(int(1.9 * n) for n in moving.grid.shape)
    turned = oblique(d) @ oblique(d).T @ np.linalg.inv(oblique(d)).T
    centre = moving.grid.points((np.array(moving.grid.shape)[None] - 1) / 2)[0]
    origin = centre - turned @ (np.array(spacing) * (np.array(shape) - 1) / 2)
    other = resample_image(moving, Grid(shape, spacing, tuple(origin), tuple(turned.ravel())))
    result = tv_l1(fixed, other)
    assert result.warped.grid == fixed.grid
    assert median_difference(result.transform, tv_l1_result(d).transform, labels) < 0.35 * min(moving.grid.spacing)


def in_slices(image, h):
    """A volume, or a stack, in slices h apart."""
    n = int((image.grid.shape[2] - 1) * image.grid.spacing[2] / h) + 1
    return resample_image(image, Grid((*image.grid.shape[:2], n), (*image.grid.spacing[:2], h), image.grid.origin,
                               image.grid.direction))  # fmt: skip


def stack(is_fine=False):
    """The phantom heart in slices 15 mm apart: (fixed, moving)."""
    return [in_slices(image, 15.0) for image in heart(3, is_fine)[:2]]


def motion_in_slices(h, is_spaced):
    """Of the stack resampled in slices h apart; with voxels as they are, or taken as cubes."""
    a, b = (in_slices(image, h) for image in stack(True))
    field = vrnet.register(a.array, b.array, spacing=a.grid.spacing if is_spaced else None).field
    return vrnet.Transform.from_voxels(field, a.grid)


@pytest.mark.release
def test_a_thick_stack_and_its_resampling_give_the_same_motion():
    """Slices 15 mm apart, and the same stack resampled more finely: far closer than if voxels were taken as cubes."""
    labels = heart(3, True)[2]
    known, ignored = (motion_in_slices(15.0, is_spaced) for is_spaced in (True, False))
    still = vrnet.Transform(0 * known.displacement, known.grid)
    for finer in (7.5, 5.0):
        apart = median_difference(known, motion_in_slices(finer, True), labels)
        assert apart < 0.22 * median_difference(known, still, labels)
        assert apart < 0.65 * median_difference(ignored, motion_in_slices(finer, False), labels)


def test_thick_slices_are_registered_each_unless_told_otherwise():
    images = stack()
    assert register_images(*images, "identity").slice_axis == 2
    assert register_images(*images, "identity", slices="together").slice_axis is None
    assert register_images(*heart(3)[:2], "identity").slice_axis is None
    assert register_images(*heart(3)[:2], "identity", slices="each").slice_axis == 2
    with pytest.raises(BadInput, match="no slices"):
        register_images(*heart(2)[:2], slices="each")


@pytest.mark.release
@pytest.mark.parametrize(
    ("options", "method", "weights"),
    [({"match_intensities": True}, "short-axis", "short_axis.safetensors"),
     ({"slices": "together"}, "Gaussian-LNCC", None)],
)  # fmt: skip
def test_the_default_of_a_thick_stack_is_the_model_slice_by_slice(options, method, weights):
    result = register_images(*stack(), **options)
    assert (result.method, result.weights) == (method, weights)
    assert result.slice_axis == (2 if weights else None)
    fixed, moving = (image.array for image in stack())
    assert np.abs(result.warped.array - fixed).mean() < 0.7 * np.abs(moving - fixed).mean()


def test_the_default_of_an_image_is_the_model_and_of_a_volume_the_solver(d):
    result = register_images(*heart(d)[:2])
    name = {2: ("short-axis", "short_axis.safetensors"), 3: ("Gaussian-LNCC", None)}[d]
    assert (result.method, result.weights) == name
    still = vrnet.Transform(0 * result.transform.displacement, result.transform.grid)
    motion = median_difference(tv_l1_result(d).transform, still, heart(d)[2])
    assert median_difference(result.transform, tv_l1_result(d).transform, heart(d)[2]) < 0.4 * motion


def test_a_single_slice_stored_as_a_volume_is_a_slice():
    fixed, moving = (one_slice(image) for image in heart(3)[:2])
    result = tv_l1(fixed, moving)
    assert result.slice_axis == 2
    flat = vrnet.register(fixed.array[..., 0], moving.array[..., 0], "TV-L1", spacing=fixed.grid.spacing[:2])
    assert_allclose(result.transform.in_voxels()[:2, ..., 0], flat.field, atol=1e-4)
    assert_allclose(result.warped.array[5:-5, 5:-5, 0], flat.warped[5:-5, 5:-5], atol=2e-3)


def one_slice(image):
    """A single slice of a volume, as a volume."""
    grid = image.grid
    return Image(image.array[..., 20:21], Grid((*grid.shape[:2], 1), grid.spacing, grid.origin, grid.direction))


def test_rounding_in_a_header_does_not_change_how_a_stack_is_taken():
    """1.2 x 1.2 x 3.6 mm is 2.9999999 times as thick as wide in single precision, and 3 times in double."""
    shape = (24, 20, 5)
    for spacing in ((1.2, 1.2, 3.6), tuple(float(np.float32(h)) for h in (1.2, 1.2, 3.6))):
        assert choose_slice_axis(Grid.plain(shape, spacing), "auto") == 2


def test_where_moving_has_no_voxels_nothing_pulls_at_the_field(d):
    """Moving without a margin gives the motion that the whole of it gives, and no more than that outside."""
    fixed, moving, labels, _ = heart(d)
    margin = 12 if d == 2 else 6
    cut = (slice(margin, -margin),) * d
    origin = moving.grid.points(np.full((1, d), float(margin)))[0]
    array = moving.array[cut]
    small = Image(array, Grid(array.shape, moving.grid.spacing, tuple(origin.tolist()), moving.grid.direction))
    transform, whole = brief(fixed, small).transform, brief_result(d).transform
    assert median_difference(transform, whole, labels) < 0.2 * min(moving.grid.spacing)
    assert np.abs(transform.displacement).max() < 1.5 * np.abs(whole.displacement).max()


def test_to_a_model_of_images_scaled_each_alone_brightness_does_not_matter(d):
    """This holds also where moving has no voxels: there it is in-painted, as bright as the model sees it."""
    (fixed, moving, *_), seen = heart(d), []
    part = Grid((SIZES[d][0] // 2, *SIZES[d][1:]), SPACING[d], moving.grid.origin, moving.grid.direction)
    for gain in (1.0, 40.0):
        flow = Flow()
        half = Image(gain * moving.array[: SIZES[d][0] // 2] + gain, part)
        model = Trained.of(card(d=d, spacing=SPACING[d], normalisation="each"), flow, "w.safetensors")
        register_images(fixed, half, model, slices="together" if d == 3 else "auto", folds="keep")
        seen.append([I[0, 0].numpy() for I in flow.seen[0][:2]])
    for dark, bright in zip(*seen, strict=True):
        assert_allclose(bright, dark, atol=1e-4)


@pytest.mark.release
def test_matching_intensities_undoes_another_contrast(d):
    fixed, moving, labels, _ = heart(d)
    other = moving.with_array(30 + 500 * moving.array**0.8)
    plain, matched = (tv_l1(fixed, other, match_intensities=match, brightness="keep") for match in (False, True))
    off, near = (median_difference(result.transform, tv_l1_result(d).transform, labels) for result in (plain, matched))
    assert near < 0.5 * off
    assert matched.warped.array.max() > 100, "the warped image keeps its own intensities"


def test_images_far_apart_are_bad_input(d):
    fixed, moving = heart(d)[:2]
    away = Image(moving.array, Grid(moving.grid.shape, moving.grid.spacing, (9e3,) * d, moving.grid.direction))
    with pytest.raises(BadInput, match=r"do not overlap in space: .* `affine=\"rigid\"`"):
        register_images(fixed, away)


@cache
def misplaced(d):
    """The moving heart turned by 20° and shifted, far away in the world, and the turn itself; its labels too."""
    moving, labels = heart(d)[1], heart(d)[3]
    turn = Rotation.from_rotvec([0.1 * (d == 3), -0.1 * (d == 3), 0.32]).as_matrix()[:d, :d]
    direction = tuple((turn @ moving.grid.axes).ravel().tolist())
    away = replace(moving.grid, origin=(2e3,) * d, direction=direction)
    return replace(moving, grid=away), replace(labels, grid=away)


@cache
def aligned_result(d):
    return brief(heart(d)[0], misplaced(d)[0], affine="rigid")


def test_with_an_affine_start_it_does_not_matter_where_an_image_lies(d):
    """The whole transform brings the labels as near as that of the images in their places."""
    fixed_labels, labels = heart(d)[2], heart(d)[3]
    in_place = brief_result(d).transform.apply_labels(labels).array
    whole = aligned_result(d).transform.apply_labels(misplaced(d)[1]).array
    scores = [(found == fixed_labels.array)[fixed_labels.array > 0].mean() for found in (in_place, whole)]
    assert scores[1] > scores[0] - 0.01


@pytest.mark.release
def test_the_whole_transform_of_a_file_makes_warped_in_simpleitk_and_ants(d, tmp_path):
    ants = pytest.importorskip("ants", reason="ANTs is not installed: pip install antspyx")
    fixed, (moving, _), files = heart(d)[0], misplaced(d), [str(tmp_path / f"{n}.nii.gz") for n in ("f", "m", "t")]
    for image, file in zip((fixed, moving), files, strict=False):
        write_image(image, file)
    aligned_result(d).transform.save(files[2])
    warped = aligned_result(d).warped.array
    transform = sitk.DisplacementFieldTransform(sitk.ReadImage(files[2]))
    in_itk = sitk.Resample(
        sitk.ReadImage(files[1]), sitk.ReadImage(files[0]), transform, sitk.sitkLinear, float(moving.array.min())
    )
    in_ants = ants.apply_transforms(*map(ants.image_read, files[:2]), transformlist=[files[2]]).numpy()
    inside = coverage(moving.grid, fixed.grid, aligned_result(d).affine)
    for theirs in (sitk.GetArrayFromImage(in_itk).T, in_ants):
        assert np.median(np.abs(theirs - warped)[inside]) < 1e-4
        assert (np.abs(theirs - warped)[inside] < 1e-2).mean() > 0.99


@pytest.mark.release
def test_slices_are_registered_each_in_the_stack_that_is_seen_through_the_affine_map():
    """What is left after the affine map moves nothing across slices."""
    fixed, moving = (in_slices(image, 10.0) for image in heart(3)[:2])
    found = tv_l1(fixed, moving, affine="rigid")
    assert found.slice_axis == 2
    back = found.affine.itk.GetInverse()
    x = fixed.grid.points(np.argwhere(fixed.array > -1).astype(float)[::101])
    rest = fixed.grid.index(np.array([back.TransformPoint(p) for p in found.transform.points(x).tolist()]))
    assert_allclose(rest[:, 2], fixed.grid.index(x)[:, 2], atol=1e-4)
    assert np.abs(rest - fixed.grid.index(x)).max() > 0.5


def test_masks_are_seen_through_the_affine_map(d):
    """With all of moving inside, a mask of moving is where moving has voxels."""
    fixed, moving = heart(d)[0], misplaced(d)[0]
    everything = moving.with_array(np.ones(moving.grid.shape, np.uint8))
    known = aligned_result(d).affine
    found = brief(fixed, moving, affine=known, moving_mask=everything)
    assert_array_equal(found.transform.displacement, aligned_result(d).transform.displacement)


def test_an_affine_map_that_is_known_can_be_given(d):
    known = aligned_result(d).affine
    again = brief(heart(d)[0], misplaced(d)[0], affine=known)
    assert again.affine is known
    assert_array_equal(again.transform.displacement, aligned_result(d).transform.displacement)


def test_an_image_and_a_volume_are_bad_input():
    with pytest.raises(BadInput, match=r"2D and .* 3D"):
        register_images(heart(2)[0], heart(3)[0])


@pytest.mark.release
def test_the_uk_biobank_sample_registers_as_it_is(data_root):
    folder = next(path for path in (data_root / "ukbb_sample").rglob("sa_ED.nii.gz")).parent
    images = [read_image(folder / f"{name}.nii.gz") for name in ("sa_ED", "sa_ES", "label_sa_ED", "label_sa_ES")]
    result = register_images(*images[:2])
    warped = result.transform.apply_labels(images[3])
    for label in (1, 2, 3):
        before, after = (
            2 * ((images[2].array == label) & (other.array == label)).sum()
            / ((images[2].array == label).sum() + (other.array == label).sum())
            for other in (images[3], warped)
        )  # fmt: skip
        assert after > before + 0.1
    assert (result.method, result.slice_axis) == ("short-axis", 2)
    assert (
        np.abs(result.warped.array - images[0].array).mean() < 0.65 * np.abs(images[1].array - images[0].array).mean()
    )


def test_a_model_in_the_world_moves_as_far_whatever_its_own_spacing(d):
    """TV-L1 as if it were a model that works at 1.3 times the spacing of the images: the motion of TV-L1, in mm."""
    solver, h = vrnet.parse("TV-L1").build(d), tuple(1.3 * h for h in SPACING[d])
    fixed, moving, labels, _ = heart(d)
    result = register_images(fixed, moving, Trained.of(card("R-L1-1x1", d, h), solver, "w.safetensors"))
    still = vrnet.Transform(0 * result.transform.displacement, result.transform.grid)
    motion = median_difference(tv_l1_result(d).transform, still, labels)
    assert motion > SPACING[d][0]
    assert median_difference(result.transform, tv_l1_result(d).transform, labels) < 0.25 * motion
    assert (result.method, result.weights) == ("R-L1-1x1", "w.safetensors")
    assert tv_l1_result(d).weights is None


def test_weights_from_a_file_tell_their_own_parameters_and_scaling(d):
    """Not those of the untrained method of the same name, whose θ is that at the start."""
    method = Trained.of(card("R-L1-1x1", d, SPACING[d], "each"), Flow(), "w.safetensors")
    fixed, moving = (every_second_voxel(image) for image in heart(d)[:2])
    result, solved = (register_images(fixed, moving, each) for each in (method, "TV-L1"))
    assert result.metrics()["parameters"] == {}
    assert run_of(result).compares_structure
    assert solved.metrics()["parameters"]["lam"] == value_in(vrnet.parse("TV-L1").lam, d)
    assert not run_of(solved).compares_structure


@pytest.mark.release
@pytest.mark.parametrize(("slices", "order"), [("auto", (2, 0, 1)), ("each", (0, 1, 2))])
def test_a_2d_model_takes_slices_however_thin_in_the_plane_of_best_resolution(slices, order):
    """Slices 4 mm apart with voxels of 3 mm, that lie across the last axis and across the first."""
    images = [reorient(in_slices(image, 4.0), list(order), (False,) * 3) for image in heart(3)[:2]]
    result = register_images(*images, trained(spacing=(3.0, 3.0)), slices=slices)
    assert result.slice_axis == order.index(2)
    across = result.transform.grid.axes[:, result.slice_axis]
    assert np.abs(np.einsum("i,i...->...", across, result.transform.displacement)).max() < 1e-4
    assert np.abs(result.transform.displacement).max() > 0.3


def test_a_3d_model_takes_a_thick_stack_together():
    result = register_images(*stack(), trained(d=3, spacing=(3.0, 3.0, 12.0)))
    assert result.slice_axis is None
    across = result.transform.grid.axes[:, 2]
    assert np.abs(np.einsum("i,i...->...", across, result.transform.displacement)).max() > 0.1


@pytest.mark.parametrize(
    ("images", "model", "slices", "words"),
    [(3, 2, "together", "2D model: register slices one by one"), (3, 3, "each", "3D model: give it volumes"),
     (2, 3, "auto", "3D model: give it volumes"), (2, 2, "each", "no slices")],
)  # fmt: skip
def test_a_model_that_does_not_fit_the_images_is_refused_in_one_line(images, model, slices, words):
    with pytest.raises(BadInput, match=words) as raised:
        register_images(*heart(images)[:2], trained(d=model, spacing=SPACING[model]), slices=slices)
    assert len(str(raised.value).splitlines()) == 1


OPTIONS = [field.name for field in fields(RegistrationOptions)]


def test_every_option_is_an_argument_in_python_with_the_same_default_and_one_of_the_command(vrnet):
    arguments = inspect.signature(register_images).parameters
    assert {name: arguments[name].default for name in OPTIONS} == RegistrationOptions().as_json()
    status, out, _ = vrnet("register", "--help")
    assert status == 0
    assert [name for name in OPTIONS if f"--{name.replace('_', '-')}" not in out] == []


@pytest.mark.parametrize(("name", "value"), [("affine", "similarity"), ("match_intensities", 1), ("folds", None)])
def test_a_value_that_is_no_choice_is_bad_input_that_lists_the_choices(name, value, as_users_run):
    with pytest.raises(BadInput, match=f"{name} is {value!r}: give .* or "):
        register_images(*heart(2)[:2], **{name: value})
