"""What lies outside the masks has no influence on the result inside them; what a solver is given of two volumes."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import ndimage

import vrnet
from tests.models import Flow, card, trained
from tests.phantoms import phantom
from vrnet import BadInput, Grid, Image, InputWarning, Trained, Transform, parse, register, register_images, write_image
from vrnet.data.dataset import ACDC
from vrnet.fields.calculus import smooth, warp
from vrnet.fields.folds import smallest_determinant
from vrnet.images.grid import Affine
from vrnet.images.image import rescale_each, rescale_jointly
from vrnet.registration.arrays import Plan, solve
from vrnet.registration.masks import MARGIN, PairMasks, carry_on, compared_box, content_box, cut, fade_out, inpaint
from vrnet.registration.pair import PairResult
from vrnet.variational.linearize import Masks
from vrnet.variational.solver import fewest_voxels

SIZES, EDGE = {2: (96, 96), 3: (30, 30, 20)}, {2: 2.0, 3: 6.4}
METHODS = [("TV-L1", 2), ("Diffusion-L2", 3), ("short-axis", 2)]
BRIEF = {"TV-L1": "TV-L1(warps=5)", "Diffusion-L2": "Diffusion-L2(warps=5)"}
"""Solvers with less to do, where how near they come to the truth is not asked."""
BRIGHTNESS = 3.0
"""Of an artefact, where tissue has 1 at most."""


@cache
def heart(d):
    """A phantom patient: (fixed, moving, voxels of the heart, a mask with a margin around it)."""
    patient = phantom(5, SIZES[d], EDGE[d])
    fixed, moving, *labels = (
        part[0, 0].numpy() for part in (patient.fixed, patient.moving, patient.fixed_labels, patient.moving_labels)
    )
    inside = np.logical_or(*(label > 0 for label in labels))
    return fixed, moving, inside, ndimage.binary_dilation(inside, iterations=round(8 / EDGE[d]))


def add_artefact(image, mask):
    """Something bright beside the mask, on one side of it."""
    near = ndimage.binary_dilation(mask, iterations=6) & ~mask
    one_side = np.indices(mask.shape)[0] < np.argwhere(mask)[:, 0].mean()
    return np.where(near & one_side, BRIGHTNESS, image).astype(np.float32)


def median_change(a, b, where, edge):
    """Median distance, in mm, between two fields in voxels."""
    return np.median(edge * np.linalg.norm(a - b, axis=0)[where])


def changes(fixed, moving, inside, mask, name, edge, which):
    """How far an artefact in one image moves the result inside: (without masks, with that of this image, with both)."""
    spacing, found = (edge,) * fixed.ndim, []
    name = BRIEF.get(name, name)
    spoilt = [add_artefact(I, mask) if role == which else I for role, I in (("fixed", fixed), ("moving", moving))]
    for masks in ({}, {f"{which}_mask": mask}, {"fixed_mask": mask, "moving_mask": mask}):
        fields = [vrnet.register(*pair, name, spacing=spacing, **masks).field for pair in ((fixed, moving), spoilt)]
        found.append(median_change(*fields, inside, edge))
    return found


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "d", "which"), [("TV-L1", 2, "fixed"), ("Diffusion-L2", 3, "moving"), ("short-axis", 2, "moving")]
)
def test_an_artefact_outside_the_mask_changes_nothing_inside_and_without_a_mask_does(name, d, which, as_users_run):
    without, own, both = changes(*heart(d), name, EDGE[d], which)
    assert without > 0.1
    assert own == both == 0


@pytest.mark.release
@pytest.mark.parametrize(("name", "which"), [("short-axis", "fixed"), ("TV-L1", "moving")])
def test_the_same_holds_on_a_real_heart(name, which, data_root, as_users_run):
    sample = ACDC(data_root / "acdc").prepare("patient003", "evaluation")
    k = len(sample.fixed) // 2
    fixed, moving, *labels = (
        part[k, 0].numpy() for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels)
    )
    inside = np.logical_or(*(label > 0 for label in labels))
    mask = ndimage.binary_dilation(inside, iterations=5)
    without, own, both = changes(fixed, moving, inside, mask, name, sample.spacing[0], which)
    assert without > 0.1
    assert own == both == 0


@pytest.mark.parametrize(("name", "d"), METHODS)
def test_masks_around_the_heart_hardly_cost_accuracy(name, d, as_users_run):
    fixed, moving, inside, mask = heart(d)
    true = phantom(5, SIZES[d], EDGE[d]).field[0].numpy()
    whole, masked = (
        vrnet.register(fixed, moving, name, spacing=(EDGE[d],) * d, fixed_mask=m, moving_mask=m).field
        for m in (None, mask)
    )
    assert median_change(masked, true, inside, EDGE[d]) < 1.2 * median_change(whole, true, inside, EDGE[d])


@pytest.mark.parametrize(("name", "d"), METHODS)
def test_a_mask_of_ones_is_no_mask(name, d):
    fixed, moving, *_ = heart(d)
    ones, spacing = np.ones(SIZES[d], np.uint8), (EDGE[d],) * d
    name = BRIEF.get(name, name)
    plain = vrnet.register(fixed, moving, name, spacing=spacing)
    masked = vrnet.register(fixed, moving, name, spacing=spacing, fixed_mask=ones, moving_mask=2.0 * ones)
    assert np.array_equal(masked.field, plain.field)
    assert np.array_equal(masked.energies, plain.energies)


@pytest.mark.release
@pytest.mark.parametrize(("method", "d"), [("VoxelMorph-w4", 2), ("2xRC-Net-w2", 3), ("C-L1-2x1-w2", 3)])
def test_networks_see_nothing_of_what_is_outside(method, d):
    """Also slice by slice, where the masks do not reach every slice."""
    fixed, moving, _, mask = heart(3)
    mask = mask.copy()
    mask[..., :4] = False
    model, options = trained(method, d, (EDGE[3],) * d), {"slice_axis": 2 if d == 2 else None, "folds": "keep"}
    fields = [
        vrnet.register(fixed, image, model, spacing=(EDGE[3],) * 3, moving_mask=mask, **options).field
        for image in (moving, add_artefact(moving, mask))
    ]
    assert np.array_equal(*fields)
    assert not np.array_equal(fields[0], vrnet.register(fixed, moving, model, spacing=(EDGE[3],) * 3, **options).field)


def test_slices_that_are_registered_each_are_in_painted_each_from_itself():
    """Unless nothing of a slice is inside: then from its neighbours."""
    flow, brightness = Flow(), np.linspace(0, 1, 6, dtype=np.float32)
    slices = np.tile(brightness, (32, 32, 1))
    mask = np.zeros(slices.shape, bool)
    mask[14:16, 14:16] = True
    mask[..., 5] = False
    vrnet.register(slices, slices, Trained.of(card(), flow, "w.safetensors"), slice_axis=2, moving_mask=mask)
    values = [I1[0, 0] for _, I1, _ in flow.seen]
    assert all(value.std() < 1e-6 for value in values)
    means = [value.mean().item() for value in values]
    assert means[:5] == sorted(set(means[:5]))
    assert 0 < means[5] < means[4]


@pytest.mark.release
@pytest.mark.parametrize(("d", "scaling"), [(2, "jointly"), (3, "each")])
def test_intensities_are_scaled_by_what_is_inside(d, scaling):
    """A model sees the 1st to 99th percentile of the voxels inside in [0, 1]; of an image without a mask, likewise."""
    fixed, moving, _, mask = heart(d)
    flow = Flow()
    model = Trained.of(card(d=d, normalisation=scaling), flow, "w.safetensors")
    vrnet.register(fixed, moving / 2, model, moving_mask=mask, brightness="keep")
    sources = [[fixed[mask], moving[mask] / 2]] * 2 if scaling == "jointly" else [[fixed[mask]], [moving[mask] / 2]]
    for seen, image, source in zip(flow.seen[0], (fixed, moving / 2), sources, strict=False):
        low, high = np.percentile(np.concatenate(source), (1, 99))
        assert_allclose(seen[0, 0].numpy()[mask], np.clip((image[mask] - low) / (high - low), 0, 1), atol=1e-5)


def test_the_energy_of_no_motion_is_the_mean_difference_inside_both_masks(d):
    fixed, moving, _, mask = heart(d)
    other = np.roll(mask, 3, axis=0)
    result = vrnet.register(fixed, moving, "TV-L1(warps=1,levels=1)", fixed_mask=mask, moving_mask=other)
    low, high = np.percentile(np.concatenate([fixed[mask], moving[other]]), (1, 99))
    I0, I1 = (np.clip((image - low) / (high - low), 0, 1) for image in (fixed, moving))
    assert result.energies[0] == pytest.approx(np.abs(I1 - I0)[mask & other].mean(), rel=1e-4)


BAD = {
    "empty": (lambda mask: 0 * mask, "the mask of moving is empty"),
    "infinite": (lambda mask: np.where(mask, np.inf, 0), "contains NaN or infinite"),
    "of another shape": (lambda mask: mask[1:], "give both one shape"),
    "a list": (lambda mask: mask.tolist(), "is a list: give a NumPy array"),
    "elsewhere": (lambda mask: ~mask, "do not overlap"),
    "on even ground": (lambda mask: np.indices(mask.shape).sum(0) == 0, "constant"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_mask_that_makes_no_sense_is_bad_input(kind, as_users_run):
    fixed, moving, _, mask = heart(2)
    spoil, words = BAD[kind]
    other = None if kind == "on even ground" else mask
    with pytest.raises(BadInput, match=words):
        vrnet.register(fixed, moving, "TV-L1", fixed_mask=other, moving_mask=spoil(mask))


def in_the_world(d):
    """The phantom with its mask as images, moving on a finer grid of its own: (fixed, its mask, moving, its mask)."""
    fixed, moving, _, mask = heart(d)
    grid = Grid.plain(SIZES[d], (EDGE[d],) * d)
    finer = Grid.plain(tuple(2 * n - 1 for n in SIZES[d]), (EDGE[d] / 2,) * d)
    moved = ndimage.zoom(moving, [m / n for m, n in zip(finer.shape, SIZES[d], strict=True)], order=1)
    inside = ndimage.zoom(mask.astype(np.uint8), [m / n for m, n in zip(finer.shape, SIZES[d], strict=True)], order=0)
    return Image(fixed, grid), Image(mask.astype(np.uint8), grid), Image(moved, finer), Image(inside, finer)


@pytest.mark.parametrize(("d", "match"), [(2, True), (3, False)])
def test_an_artefact_in_an_image_on_a_grid_of_its_own_changes_nothing(d, match):
    fixed, fixed_mask, moving, moving_mask = in_the_world(d)
    spoilt = moving.with_array(add_artefact(moving.array, moving_mask.array > 0))
    results = [
        register_images(fixed, image, "TV-L1", fixed_mask=fixed_mask, moving_mask=moving_mask, match_intensities=match)
        for image in (moving, spoilt)
    ]
    assert np.array_equal(*(result.transform.displacement for result in results))
    assert results[1].warped.array.max() > 2, "the warped image is that of moving as it was given"


def test_masks_are_files_too_and_turn_with_their_images(d, tmp_path):
    fixed, fixed_mask, moving, moving_mask = in_the_world(d)
    back = Grid(fixed.grid.shape, fixed.grid.spacing, tuple((n - 1) * h for n, h in zip(fixed.grid.shape,
                fixed.grid.spacing, strict=True)), tuple((-np.eye(d)).ravel()))  # fmt: skip
    swapped = range(d)[::-1]
    turned = [Image(np.flip(image.array).copy(), back).reordered(swapped) for image in (fixed, fixed_mask)]
    write_image(turned[1], tmp_path / "m.nii.gz")
    straight = register_images(fixed, moving, "TV-L1", fixed_mask=fixed_mask, moving_mask=moving_mask)
    other = register_images(turned[0], moving, "TV-L1", fixed_mask=tmp_path / "m.nii.gz", moving_mask=moving_mask)
    x = fixed.grid.points(np.argwhere(fixed_mask.array > 0).astype(float)[::11])
    assert np.abs(straight.transform.points(x) - other.transform.points(x)).max() < 1e-2


def half_heart_errors(seed):
    """Mean error, in mm, beside a cut through the heart, where moving ends: as it is, and with fixed in the gap."""
    patient = phantom(seed, (128, 128), 2.0)
    fixed, moving, labels = (part[0, 0].numpy() for part in (patient.fixed, patient.moving, patient.fixed_labels))
    half = int(np.argwhere(labels)[:, 0].mean())
    grid, rest = Grid.plain((128, 128), (2.0, 2.0)), Grid.plain((128 - half, 128), (2.0, 2.0))
    part = Grid(rest.shape, rest.spacing, (2.0 * half, 0.0), rest.direction)
    found = register_images(Image(fixed, grid), Image(moving[half:], part), "TV-L1").transform.in_voxels()
    filled = vrnet.register(fixed, np.concatenate([fixed[:half], moving[half:]]), "TV-L1", spacing=(2.0, 2.0)).field
    seen = labels[half : half + 12] > 0
    errors = (2 * np.linalg.norm(u - patient.field[0].numpy(), axis=0)[half : half + 12] for u in (found, filled))
    return [error[seen].mean() for error in errors]


@pytest.mark.release
def test_where_moving_has_no_voxels_motion_is_found_up_to_its_border(as_users_run):
    """Closer to the truth than when fixed fills the gap, which asks for no motion there."""
    found, filled = np.mean([half_heart_errors(seed) for seed in range(4)], axis=0)
    assert found < 0.85 * filled


def bad_images(d):
    fixed, fixed_mask, moving, moving_mask = in_the_world(d)
    part = fixed_mask.with_array(fixed_mask.array.astype(np.float32))
    part.array[part.array > 0] = 0.5
    away = moving_mask.with_array(0 * moving_mask.array)
    away.array[(slice(0, 3),) * d] = 1
    return fixed, moving, {
        "is not on the grid of": {"fixed_mask": moving_mask},
        "not whole numbers": {"fixed_mask": part},
        "is empty": {"moving_mask": moving_mask.with_array(0 * moving_mask.array)},
        "do not overlap": {"fixed_mask": fixed_mask, "moving_mask": away},
    }  # fmt: skip


@pytest.mark.parametrize("words", ["is not on the grid of", "not whole numbers", "is empty", "do not overlap"])
def test_a_mask_image_that_makes_no_sense_is_bad_input(words):
    fixed, moving, bad = bad_images(2)
    with pytest.raises(BadInput, match=words):
        register_images(fixed, moving, "TV-L1", **bad[words])


@pytest.mark.parametrize(
    ("name", "which", "kind"), [("TV-L1", "fixed", "even ground"), ("Gaussian-LNCC", "moving", "one voxel")]
)
def test_a_mask_in_which_an_image_is_constant_is_named_with_its_image(name, which, kind):
    fixed, fixed_mask, moving, moving_mask = in_the_world(2)
    given = {"fixed": replace(fixed, name="a.nii"), "moving": replace(moving, name="b.nii")}
    mask = replace(fixed_mask if which == "fixed" else moving_mask, name="m.nii")
    array = np.zeros_like(mask.array)
    array[(slice(20, 21),) * 2 if kind == "one voxel" else (slice(0, 20),) * 2] = 1
    image = given[which].array.copy()
    image[:20, :20] = 0.25
    given[which] = given[which].with_array(image)
    with pytest.raises(BadInput, match=rf"^{'a' if which == 'fixed' else 'b'}\.nii is constant \(.*\) inside m\.nii: "):
        register_images(**given, method=name, **{f"{which}_mask": mask.with_array(array)})


def test_a_mask_that_fixed_does_not_show_is_bad_input():
    fixed, _, moving, mask = in_the_world(2)
    apart = Grid(fixed.grid.shape, fixed.grid.spacing, (80.0, 80.0), fixed.grid.direction)
    corner = mask.with_array(0 * mask.array)
    corner.array[:4, :4] = 1
    with pytest.raises(BadInput, match="do not overlap in space"):
        register_images(Image(fixed.array, apart), moving, "TV-L1", moving_mask=corner)


def test_what_does_not_overlap_is_named_and_nothing_that_was_not_given():
    fixed, fixed_mask, moving, _ = in_the_world(2)
    corner = replace(fixed_mask.with_array(0 * fixed_mask.array), name="m.nii")
    corner.array[:4, :4] = 1
    apart = Grid(moving.grid.shape, moving.grid.spacing, (80.0, 80.0), moving.grid.direction)
    with pytest.raises(BadInput, match=r"^m\.nii and b\.nii do not overlap in space"):
        register_images(fixed, Image(moving.array, apart, "b.nii"), "TV-L1", fixed_mask=corner)


def notes_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        function()
    return [str(one.message) for one in caught if issubclass(one.category, InputWarning)]


def test_an_image_given_as_a_mask_is_refused(d):
    """Of the many values of an image, whole as those of MR are; a map of labels in patches is a mask."""
    fixed, mask, moving, _ = in_the_world(d)
    grey = fixed.with_array((900 * (fixed.array - fixed.array.min()) / np.ptp(fixed.array)).astype(np.int16))
    with pytest.raises(BadInput, match="it is an image, not a mask"):
        register_images(fixed, moving, "identity", fixed_mask=grey)
    for array in (grey.array, fixed.array):
        with pytest.raises(BadInput, match=r"^the mask of moving holds .* it is an image, not a mask"):
            register(fixed.array, fixed.array + 1.0, "identity", moving_mask=array)
    patches = mask.with_array(mask.array.astype(np.int16) * (1 + np.indices(fixed.array.shape)[0] // 4))
    of_bytes = mask.with_array(mask.array.astype(np.uint8) * 255)
    for good in (mask, of_bytes, patches):
        assert not notes_of(lambda good=good: register_images(fixed, moving, "identity", fixed_mask=good))


@pytest.mark.parametrize("data", ["NMI", "Remap"])
def test_slices_that_moving_does_not_reach_have_no_part_in_the_energy(data, as_users_run):
    """By the terms that belong to images as a whole: five slices of eight have something to compare."""
    fixed, moving, *_ = heart(3)
    stack, short = (Grid.plain((30, 30, n), (6.4, 6.4, 10.0)) for n in (8, 5))
    images = Image(fixed[..., 6:14], stack), Image(moving[..., 6:11], short)
    found = register_images(*images, f"Gaussian-{data}", slices="each")
    assert np.isfinite(found.energies).all()
    assert found.energies.min() < found.energies[0]
    assert not found.transform.displacement[..., 5:].any()


# In-painting outside a mask.

BALL_SIZES = {2: (40, 33), 3: (24, 20, 17)}


@pytest.fixture
def ball(d):
    """Which voxels are within a ball that reaches no border."""
    x = np.indices(BALL_SIZES[d]) - np.reshape(BALL_SIZES[d], (-1, *[1] * d)) / 2
    return torch.from_numpy(np.linalg.norm(x, axis=0) < 7)


def test_inside_nothing_changes(d, random, ball):
    I = random(*BALL_SIZES[d])
    assert torch.equal(inpaint(I, ball)[ball], I[ball])


def test_nothing_of_the_outside_is_left(d, random, ball):
    I, other = random(*BALL_SIZES[d]), 1e6 * random(*BALL_SIZES[d])
    assert torch.equal(inpaint(I, ball), inpaint(torch.where(ball, I, other), ball))


def test_values_outside_are_means_of_values_inside(d, random, ball):
    I = random(*BALL_SIZES[d])
    filled = inpaint(I, ball)
    assert I[ball].min() - 1e-6 <= filled.min()
    assert filled.max() <= I[ball].max() + 1e-6


def test_an_even_image_stays_even(d, ball):
    even = torch.full(BALL_SIZES[d], 3.5)
    torch.testing.assert_close(inpaint(torch.where(ball, even, -9.0), ball), even)


def test_the_image_goes_on_smoothly_across_the_border_of_the_mask(d, smooth_image, ball):
    """Steps between neighbours are less than twice as long across the border as inside."""
    filled = inpaint(smooth_image(BALL_SIZES[d], 3)[0, 0], ball)
    for axis in range(d):
        step, n = torch.diff(filled, dim=axis).abs(), BALL_SIZES[d][axis]
        near, far = ball.narrow(axis, 0, n - 1), ball.narrow(axis, 1, n - 1)
        assert step[near != far].max() < 2 * step[near & far].max()


def test_in_a_stack_of_thick_slices_what_is_missing_comes_from_its_own_slice():
    slices = torch.arange(6.0).expand(32, 32, 6).clone()
    inside = torch.ones_like(slices, dtype=torch.bool)
    inside[10:16, 10:16] = False
    torch.testing.assert_close(inpaint(slices, inside, (1.5, 1.5, 10.0)), slices)


def test_a_single_voxel_is_enough(d):
    inside = torch.zeros(BALL_SIZES[d], dtype=torch.bool)
    inside[(3,) * d] = True
    I = torch.where(inside, 2.0, -7.0)
    torch.testing.assert_close(inpaint(I, inside), torch.full(BALL_SIZES[d], 2.0))


# Where two images with masks are compared.

GRID = Grid.plain((20, 20), (1.0, 1.0))


def disc_at(i, j):
    """A mask of five by five pixels."""
    mask = np.zeros(GRID.shape, np.uint8)
    mask[i - 2 : i + 3, j - 2 : j + 3] = 1
    return Image(mask, GRID)


def compared(fixed, moving, pixels, affine=None):
    """The voxels compared with these masks after a shift along the first axis."""
    u = np.zeros((2, *GRID.shape), np.float32)
    u[0] = pixels
    image, masks = Image(np.zeros(GRID.shape), GRID), PairMasks(fixed, moving)
    return PairResult(
        image, image, masks=masks, transform=Transform.from_voxels(u, GRID), warped=image, affine=affine
    ).compared


def test_masks_without_a_voxel_in_common_are_told_of_and_that_of_fixed_is_taken():
    fixed, moving = disc_at(4, 4), disc_at(15, 15)
    with pytest.warns(InputWarning, match="no voxel in common") as told:
        found = compared(fixed, moving, 0.0)
    assert len(told) == 1
    assert np.array_equal(found, fixed.array > 0)


@pytest.mark.parametrize("pixels", [0.0, 2.0, 8.0])
def test_masks_that_the_transform_brings_together_are_not_told_of(pixels):
    """Wherever headers put them; where they met before, the voxels of both before and after are compared."""
    fixed, moving = disc_at(6, 8), disc_at(round(6 + pixels), 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        found = compared(fixed, moving, pixels)
    both = (fixed.array > 0) & (moving.array > 0)
    assert np.array_equal(found, both if both.any() else fixed.array > 0)


def test_after_an_affine_start_masks_are_compared_where_it_put_them():
    """Headers put these masks two pixels apart, and would leave three of five columns."""
    fixed, moving = disc_at(6, 8), disc_at(8, 8)
    start = Affine("rigid", np.eye(2), np.array([2.0, 0.0]), np.zeros(2))
    found = compared(fixed, moving, 2.0, start)
    assert np.array_equal(found, fixed.array > 0)


# The box in which a solver works.


def whole(*shape):
    return tuple(slice(0, n) for n in shape)


def volume(content, shape=(60, 60, 60)):
    """One value everywhere but in a box, in which there is noise."""
    I = torch.full((1, 1, *shape), 0.25)
    I[(..., *content)] = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0))[(..., *content)]
    return I


def test_the_box_holds_the_content_of_both_and_a_margin():
    first, second = slice(3, 40), slice(20, 55)
    box = content_box(volume((first, first, slice(1, 59))), volume((second, first, slice(20, 21))), 16)
    assert box == (slice(3 - MARGIN, 55 + MARGIN), slice(3 - MARGIN, 40 + MARGIN), slice(0, 60))


@pytest.mark.parametrize(
    ("fewest", "content"), [(16, slice(30, 31)), (33, slice(1, 2)), (60, slice(58, 59)), (64, slice(3, 29))]
)
def test_an_axis_keeps_the_fewest_voxels_it_is_said_to_and_the_content(content, fewest):
    box = content_box(*[volume((content,) * 3)] * 2, fewest)
    assert all(part.stop - part.start >= min(fewest, 60) for part in box)
    assert all(part.start <= content.start and content.stop <= part.stop for part in box)


@pytest.mark.parametrize("fewest", [33])
def test_a_mirrored_pair_has_the_mirrored_box(fewest):
    I = volume((slice(3, 20), slice(30, 31), slice(40, 58)))
    box, mirrored = content_box(I, I, fewest), content_box(*[I.flip(2, 3, 4)] * 2, fewest)
    assert mirrored == tuple(slice(60 - part.stop, 60 - part.start) for part in box)


@pytest.mark.parametrize("image", [torch.zeros(1, 1, 40, 40, 40), torch.rand(1, 1, 40, 40, 40)], ids=["flat", "noise"])
def test_where_there_is_no_background_or_nothing_else_all_is_kept(image):
    assert content_box(image, image, 16) == whole(40, 40, 40)


@pytest.mark.release
@pytest.mark.parametrize("method", ["Gaussian-LNCC", "TV-L1"])
def test_a_small_thing_far_from_where_it_was_is_found_as_well_as_in_the_whole_volume(method, monkeypatch):
    """The box keeps enough voxels for every level, or what moves far would be lost."""
    rng, x = torch.Generator().manual_seed(0), torch.stack(torch.meshgrid(*[torch.arange(64.0)] * 3, indexing="ij"))
    texture = 0.5 + 0.5 * smooth(torch.randn(1, 1, 64, 64, 64, generator=rng), 2.0)
    inside = ((x - 32).square().sum(0).sqrt() < 9)[None, None]
    fixed = (texture * inside)[0, 0].clamp(min=0).numpy()
    moving = np.roll(fixed, 8, 0)
    errors = []
    for keep in (content_box, lambda I0, I1, fewest: whole(64, 64, 64)):
        monkeypatch.setattr("vrnet.registration.arrays.content_box", keep)
        field = vrnet.register(fixed, moving, method, spacing=(1.0, 1.0, 1.0)).field
        off = field - np.array([8.0, 0, 0], np.float32).reshape(3, 1, 1, 1)
        errors.append(np.linalg.norm(off, axis=0)[inside[0, 0].numpy()].mean())
    assert errors[0] <= 1.1 * errors[1] < 5


def test_outside_the_box_a_field_is_that_of_the_nearest_voxel():
    box, u = (slice(2, 5), slice(0, 4), slice(1, 6)), torch.randn(1, 3, 6, 4, 7)
    carried = carry_on(cut(u, box), box, (6, 4, 7))
    nearest = np.pad(u[0, :, 2:5, :, 1:6].numpy(), [(0, 0), (2, 1), (0, 0), (1, 1)], mode="edge")
    np.testing.assert_array_equal(carried[0], nearest)


@pytest.mark.release
@pytest.mark.parametrize(
    ("method", "masked"), [("Gaussian-LNCC(warps=5,finest_warps=5)", False), ("TV-L1(warps=5)", True)]
)
def test_a_volume_in_a_wide_background_is_registered_without_it(method, masked):
    """What is found is what the solver finds in the box."""
    inner = torch.nn.functional.pad(smooth(torch.rand(1, 1, 32, 30, 28), 2.0), [1] * 6)
    I0 = (inner - inner.min()) / (inner.max() - inner.min())
    I0, I1 = (torch.nn.functional.pad(I, [24] * 6) for I in (I0, warp(I0, torch.full((1, 3, 34, 32, 30), 0.7))))
    mask = torch.ones_like(I0[0, 0])
    mask[:, :, 42:] = 0
    inside = PairMasks(mask > 0, None) if masked else PairMasks(None, None)
    chosen, shape = parse(method), tuple(I0.shape[2:])
    fewest = fewest_voxels(chosen.build(3))
    box = content_box(I0, I1, fewest)
    if masked:
        box = compared_box(box, Masks(mask[None, None], torch.ones_like(I0)), (1.0, 1.0, 1.5), fewest)
    assert box != whole(*shape)
    plan = Plan.of(chosen, shape, (1.0, 1.0, 1.5), None, "cpu", "pair")
    found, _ = solve(I0[0, 0], I1[0, 0], inside, plan)
    rescale = rescale_each if chosen.scaling == "each" else rescale_jointly
    seen = [cut(I[None, None], box) for I in rescale(I0[0, 0], I1[0, 0], inside=inside.of_each)]
    masks = Masks(cut(mask[None, None], box), torch.ones_like(seen[0])) if masked else None
    with torch.inference_mode():
        expected = chosen.build(3).descend(*seen, (1.0, 1.0, 1.5), masks).v
    assert expected.abs().max() > 0.1
    end = fade_out(expected, box, shape, (1.0, 1.0, 1.5)) if masked else carry_on(expected, box, shape)
    assert torch.equal(found, end[0])


def test_an_image_in_a_background_does_not_move_to_itself():
    image = np.zeros((40, 40, 40), np.float32)
    image[10:30, 10:30, 10:30] = np.random.default_rng(0).random((20, 20, 20))
    assert not vrnet.register(image, image, "TV-L1", spacing=(1.0, 1.0, 1.0)).field.any()


def ball_mask(shape, centre, radius):
    """1 inside a ball, 0 outside, as a batch of one."""
    x = torch.stack(torch.meshgrid(*(torch.arange(float(n)) for n in shape), indexing="ij"))
    return ((x - torch.tensor(centre).view(3, 1, 1, 1)).square().sum(0).sqrt() <= radius).float()[None, None]


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_the_box_holds_what_both_masks_have_and_a_margin_for_the_motion(is_mirrored):
    """Of the margin there are as many voxels as make its length, whatever their edges."""
    shape, h = (100, 100, 100), (1.0, 1.0, 2.0)
    masks = Masks(torch.ones(1, 1, *shape), ball_mask(shape, (40.0, 50.0, 60.0), 4))
    if is_mirrored:
        masks = masks.map(lambda w: w.flip(2, 3, 4))
    first, last = (40 - 4 - 16, 50 - 4 - 16, 60 - 4 - 8), (40 + 4 + 16, 50 + 4 + 16, 60 + 4 + 8)
    expected = tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))
    if is_mirrored:
        expected = tuple(slice(100 - part.stop, 100 - part.start) for part in expected)
    assert compared_box(whole(*shape), masks, h, 16) == expected
    assert compared_box(whole(*shape), Masks(masks.moving, masks.fixed), h, 16) == expected
    assert all(part.stop - part.start >= 64 for part in compared_box(whole(*shape), masks, h, 64))


@pytest.mark.release
@pytest.mark.parametrize("length", [0.5, 12.0])
def test_outside_the_box_a_field_ends_smoothly_without_folds(length):
    """That of the box in it; none far away; and nowhere between a step of more than 3/8 of a voxel."""
    box, shape, h = (slice(90, 110), slice(80, 100), slice(40, 50)), (200, 180, 80), (1.0, 1.0, 2.0)
    u = torch.full((1, 3, 20, 20, 10), length / 3)
    u[:, 2] /= 2
    found = fade_out(u, box, shape, h)
    assert torch.equal(cut(found, box), u)
    assert not found[..., 0, :, :].any()
    assert not found[..., -1, :, :].any()
    steps = [torch.diff(found * torch.tensor(h).view(3, 1, 1, 1), dim=axis) for axis in (2, 3, 4)]
    lengths = [torch.linalg.vector_norm(step, dim=1).max() / edge for step, edge in zip(steps, h, strict=True)]
    assert max(lengths) <= 3 / 8 + 1e-5
    bends = [torch.diff(step, dim=axis).abs().max() / h[axis - 2] ** 2 for axis, step in enumerate(steps, start=2)]
    assert max(bends) < 0.1
    assert smallest_determinant(found).min() > 0.5


@pytest.mark.release
@pytest.mark.parametrize(
    ("method", "given"),
    [("Gaussian-LNCC(warps=5,finest_warps=5)", "fixed_mask"), ("Gaussian-L2(warps=5)", "moving_mask")],
)
def test_far_from_a_small_mask_nothing_is_computed_and_nothing_moves(method, given):
    """Whatever is there: noise in either image, where it has no mask, too."""
    rng = torch.Generator().manual_seed(0)
    fixed = smooth(torch.randn(1, 1, 120, 40, 40, generator=rng), 2.0)
    moving = warp(fixed, torch.full((1, 3, 120, 40, 40), 0.7))[0, 0].numpy()
    mask = ball_mask((120, 40, 40), (24.0, 20.0, 20.0), 8)[0, 0].numpy()
    other = moving.copy()
    other[80:] = torch.randn(40, 40, 40, generator=rng).numpy()
    found, unlike = (vrnet.register(fixed[0, 0].numpy(), I1, method, **{given: mask}).field for I1 in (moving, other))
    assert np.array_equal(found, unlike)
    assert not found[:, 100:].any()
    assert np.abs(found[:, mask > 0]).max() > 0.3
