"""Each reason on a phantom heart, whose true motion is known; then real pairs, good and ruined."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from vrnet import BadInput, Grid, Image, Transform, Verdict, judge, judge_images, register, register_images
from vrnet.data.acdc import ACDC
from vrnet.evaluation.pair import regularity
from vrnet.fields.calculus import smooth, warp
from vrnet.images.grid import Affine
from vrnet.images.resample import place_image
from vrnet.phantom import phantom
from vrnet.registration.masks import ImageMasks
from vrnet.registration.pair import PairResult
from vrnet.verdict.advice import Run
from vrnet.verdict.evidence import evidence_of, gather
from vrnet.verdict.rules import CAUSES, FINDINGS, LEAST_VOXELS, MAX_ADVICE, MAX_REASONS, judge_evidence

pytestmark = pytest.mark.usefixtures("as_users_run")
GRIDS = {2: ((96, 96), 3.0), 3: ((40, 40, 26), 4.8)}


@pytest.fixture(scope="module")
def hearts():
    return {d: phantom(7, *GRIDS[d]) for d in (2, 3)}


@pytest.fixture
def heart(hearts, d):
    """(fixed, moving, true field, spacing) of a phantom, the images (*s)."""
    patient = hearts[d]
    return patient.fixed[0, 0], patient.moving[0, 0], patient.field[0], patient.spacing


def evidence(fixed, moving, field, spacing, **given):
    """The evidence of a field."""
    warped = warp(moving[None, None], field[None])[0, 0]
    arrays = (part.numpy() for part in (fixed, moving, warped, field))
    return gather(*arrays, spacing, **{"folds_percent": 0.0, **given})


def found(evidence):
    """The names of the rules that are beyond their limits."""
    return {rule.name for rule in (*FINDINGS, *CAUSES) if rule.level(evidence) != "good"}


def test_the_true_motion_is_good_and_has_no_reasons(heart):
    fixed, moving, field, spacing = heart
    assert judge(fixed, moving, field, spacing=spacing) == Verdict("good")
    assert judge(fixed.numpy(), moving.numpy(), field.numpy()).level == "good"


def test_the_same_image_is_good_though_nothing_moved(heart):
    fixed, _, field, spacing = heart
    assert judge(fixed, fixed, torch.zeros_like(field), spacing=spacing) == Verdict("good")


@pytest.mark.parametrize("moved", [0.05, 0.2, 0.3])
def test_one_scan_given_twice_is_good_though_a_model_moves_it_by_less_than_a_voxel(heart, moved):
    """Interpolation takes information from an image that told all of the other."""
    fixed, _, field, spacing = heart
    little = torch.zeros_like(field)
    little[0] = moved * torch.sin(torch.arange(fixed.shape[0]) / 8).view(-1, *[1] * (fixed.dim() - 1))
    found = evidence(fixed, fixed, little, spacing)
    assert found.information_before - found.information_after > 0.01
    assert judge_evidence(found) == Verdict("good")


@pytest.mark.parametrize(("dice", "level"), [((0.5, 0.8), "good"), ((0.02, 0.25), "look"), ((0.03, 0.04), "failed")])
def test_structures_that_hardly_overlap_are_not_good_though_they_never_did(heart, dice, level):
    assert judge_evidence(evidence(*heart, dice=dice)).level == level


def test_a_verdict_is_printed_in_lines():
    assert str(Verdict("look", ("It moved.",), ("this",))) == "look at it\nIt moved.\nTry: this."


BAD = {
    "fixed is a list": lambda i, u, t: judge([[1.0]], i.array, u),
    "moving contains NaN": lambda i, u, t: judge(i.array, np.full(i.array.shape, np.nan), u),
    "fixed is .* and moving": lambda i, u, t: judge(i.array, i.array[1:], u),
    "the field is a Transform: give": lambda i, u, t: judge(i.array, i.array, t),
    r"the field is \(8, 8\): give one of shape \(2, 8, 8\)": lambda i, u, t: judge(i.array, i.array, u[0]),
    r"the spacing is 1.5: give 2 numbers .* \(1.0, 1.0\)": lambda i, u, t: judge(i.array, i.array, u, spacing=1.5),
    r"the mask of fixed is \(7, 8\)": lambda i, u, t: judge(i.array, i.array, u, fixed_mask=i.array[1:] > 0.5),
    "the mask of moving is empty": lambda i, u, t: judge(i.array, i.array, u, moving_mask=0 * i.array),
    "the mask of moving is an Image": lambda i, u, t: judge(i.array, i.array, u, moving_mask=i),
    "fixed is an array: give an Image": lambda i, u, t: judge_images(i.array, i, t),
    "there is no moving.nii.gz": lambda i, u, t: judge_images(i, "moving.nii.gz", t),
    "transform is a ndarray: give a vrnet Transform": lambda i, u, t: judge_images(i, i, u),
    "affine is a str: give a vrnet Affine": lambda i, u, t: judge_images(i, i, t, affine="rigid"),
    "the affine map is 3D and the images are 2D": lambda i, u, t: judge_images(
        i, i, t, affine=Affine("affine", np.eye(3), np.zeros(3), np.zeros(3))
    ),
    "moving_mask is an array": lambda i, u, t: judge_images(i, i, t, moving_mask=i.array),
    "fixed_mask is empty": lambda i, u, t: judge_images(i, i, t, fixed_mask=i.with_array(0 * i.array)),
    "moving_mask is empty": lambda i, u, t: judge_images(i, i, t, moving_mask=i.with_array(0 * i.array)),
    "moving contains NaN or infinite": lambda i, u, t: judge_images(i, i.with_array(np.nan * i.array), t),
    "fixed_labels is not on the grid of fixed": lambda i, u, t: judge_images(i, i, t, coarser(i), coarser(i)),
    "holds values that are not whole numbers: it is an image": lambda i, u, t: judge_images(
        i, i, t, i, i.with_array((i.array > 0.5).astype(np.uint8))
    ),
    r"the spacing is 1.5: give 2 numbers": lambda i, u, t: register(i.array, i.array, spacing=1.5),
    "slice_axis is z .*: give 0, 1 or 2": lambda i, u, t: register(i.array, i.array, slice_axis="z"),
    "fixed is an Image": lambda i, u, t: register(i, i),
    "fixed is an array: give an Image or a file": lambda i, u, t: register_images(i.array, i.array),
    "moving is a NoneType: give an Image": lambda i, u, t: register_images(i, None),
    "method is an int": lambda i, u, t: register_images(i, i, 7),
    "slices is None: give 'auto', 'each' or 'together'": lambda i, u, t: register_images(i, i, slices=None),
    "match_intensities is 'no': give True or False": lambda i, u, t: register_images(i, i, match_intensities="no"),
    "fixed_mask is an array: give an Image or a file": lambda i, u, t: register_images(i, i, fixed_mask=i.array),
}


def coarser(image):
    return Image(image.array, Grid.plain(image.grid.shape, (2.0, 2.0)))


@pytest.mark.parametrize("words", BAD)
def test_arguments_of_another_kind_are_bad_input_that_says_what_to_give(words):
    array = np.random.default_rng(0).random((8, 8), dtype=np.float32)
    image, u = Image(array, Grid.plain((8, 8), (1.0, 1.0))), np.zeros((2, 8, 8), np.float32)
    with pytest.raises(BadInput, match=words):
        BAD[words](image, u, Transform.from_voxels(u, image.grid))


def test_the_true_motion_backwards_is_less_alike(heart):
    fixed, moving, field, spacing = heart
    wrong = evidence(fixed, moving, -3 * field, spacing)
    assert {"less alike, locally", "less alike, by mutual information"} <= found(wrong)
    assert judge_evidence(wrong).level != "good"
    assert any("less alike after than before" in reason for reason in judge_evidence(wrong).reasons)


def test_no_motion_where_there_should_be_some_hardly_changes_anything(heart):
    fixed, moving, field, spacing = heart
    still = evidence(fixed, moving, torch.zeros_like(field), spacing)
    assert found(still) == {"hardly changed"}
    assert judge_evidence(still).level == "look"


UNITS = {
    "offset": lambda image: image.double() + 1e9,
    "large offset": lambda image: 1e3 * image.double() - 1e12,
    "tiny": lambda image: 1e-12 * image,
    "tiniest": lambda image: 1e-30 * image,
    "huge": lambda image: 1e12 * image,
}


@pytest.mark.parametrize("factor", [1.0, -3.0])
def test_neither_an_offset_nor_a_unit_of_intensities_changes_the_verdict(heart, factor):
    """Of a good field and of a bad one, for arrays and for images; single precision holds no offset of 1e9."""
    fixed, moving, field, spacing = heart
    grid, field = Grid.plain(tuple(fixed.shape), spacing), factor * field
    transform = Transform.from_voxels(field.numpy(), grid)
    expected = judge(fixed, moving, field, spacing=spacing)
    assert (expected.level == "good") == (factor == 1)
    for unit, change in UNITS.items():
        other = [change(image) for image in (fixed, moving)]
        found = judge(*other, field, spacing=spacing), judge_images(*(Image(I.numpy(), grid) for I in other), transform)
        assert found[0] == expected, unit
        assert (found[1].level, len(found[1].reasons)) == (expected.level, len(expected.reasons)), unit


def test_ranges_are_compared_in_the_units_of_the_files(heart):
    fixed, _, field, spacing = heart
    found, large = (evidence(k * fixed, 4 * k * fixed + 2 * k, field, spacing) for k in (1, 1e6))
    assert (found.range_ratio, large.range_ratio) == pytest.approx((4.0, 4.0), rel=1e-3)
    assert large.offset == pytest.approx(found.offset, rel=1e-3)
    assert found.offset > 0.5


def test_what_lies_far_outside_the_mask_takes_nothing_from_what_lies_inside(heart):
    fixed, moving, field, spacing = heart
    inside = np.zeros(fixed.shape, bool)
    inside[4:-4, 4:-4] = True
    grid = Grid.plain(tuple(fixed.shape), spacing)
    far = torch.where(torch.from_numpy(inside), fixed, torch.tensor(-1e12))
    moved, transform = Image(moving.numpy(), grid), Transform.from_voxels(field.numpy(), grid)
    plain, other = (
        evidence_of(
            PairResult(
                fixed=Image(image.numpy(), grid),
                moving=moved,
                masks=ImageMasks(Image(inside, grid)),
                transform=transform,
                warped=moved,
            )
        )
        for image in (fixed, far)
    )
    assert other.local_after == pytest.approx(plain.local_after, abs=1e-3)
    assert other.information_after == pytest.approx(plain.information_after, abs=1e-3)


@pytest.mark.parametrize("few", [1, 2, int(LEAST_VOXELS) - 1, int(LEAST_VOXELS)])
def test_a_mask_of_few_voxels_leaves_too_little_to_judge_by(heart, few):
    fixed, moving, field, spacing = heart
    grid = Grid.plain(tuple(fixed.shape), spacing)
    centre = np.array(fixed.shape).reshape(-1, *[1] * fixed.dim()) / 2
    nearest = np.square(np.indices(fixed.shape) - centre).sum(0).ravel().argsort(kind="stable")[:few]
    mask = np.zeros(fixed.numel(), np.uint8)
    mask[nearest] = 1
    images = (Image(part, grid) for part in (fixed.numpy(), moving.numpy()))
    transform = Transform.from_voxels(field.numpy(), grid)
    found = judge_images(*images, transform, fixed_mask=Image(mask.reshape(fixed.shape), grid))
    if few < LEAST_VOXELS:
        assert (found.level, len(found.reasons)) == ("look", 1)
        many = "" if few == 1 else "s"
        assert found.reasons[0].startswith(f"The images were compared at only {few} voxel{many}: ")
        assert "larger mask" in found.try_[0]
    else:
        assert not any("compared at only" in reason for reason in found.reasons)


def test_few_blocks_of_a_large_image_are_called_blocks():
    """Of a mask from corner to corner: about a smaller one, voxels are compared."""
    image, mask = torch.rand(500, 500, generator=torch.Generator().manual_seed(0)).numpy(), np.zeros((500, 500), bool)
    mask[:20, :40] = mask[-20:, -40:] = True
    few = gather(image, image, image, np.zeros((2, 500, 500), np.float32), (1.0, 1.0), 0.0, compared=mask)
    assert (few.voxels, few.block_voxels) == (400, 4)
    assert "at only 400 blocks of 4 voxels: " in judge_evidence(few).reasons[0]


def test_inside_a_small_mask_a_large_image_is_judged_as_one_that_was_cut_out_of_it(heart):
    """By its voxels and not by blocks of them, wherever it lies in the large one."""
    fixed, moving, field, spacing = heart
    warped, d = warp(moving[None, None], field[None])[0, 0], fixed.dim()
    wide, kept = {2: (400, 90), 3: (70, 10)}[d], np.zeros(fixed.shape, bool)
    kept[(slice(12, -12),) * d] = True
    arrays = [image.numpy() for image in (fixed, moving, warped)]
    small = gather(*arrays, field.numpy(), spacing, 0.0, compared=kept)
    large = gather(
        *(np.pad(array, wide) for array in arrays),
        np.pad(field.numpy(), [(0, 0), *[wide] * d]),
        spacing,
        0.0,
        compared=np.pad(kept, wide),
    )
    names = "voxels", "block_voxels", "local_before", "local_after", "information_after", "unmatched", "range_ratio"
    assert large.block_voxels == 1
    for name in names:
        assert getattr(large, name) == pytest.approx(getattr(small, name), abs=2e-3), name


def test_a_constant_image_has_no_range_that_another_is_a_multiple_of(heart):
    fixed, _, field, spacing = heart
    blank = evidence(fixed, 0 * fixed, field, spacing)
    assert any("far apart: one is constant" in reason for reason in judge_evidence(blank).reasons)
    assert evidence(0 * fixed, 0 * fixed, field, spacing).range_ratio == 1


def test_an_affine_start_may_show_what_neither_moving_nor_warped_shows(heart):
    """Moving lies apart from fixed, and the transform does not hold the start that would bring it there."""
    fixed, _, field, spacing = heart
    blank, bright = np.zeros(fixed.shape, np.float32), 1e4 * fixed.numpy()
    with np.errstate(over="raise"):
        found = gather(bright, blank, blank, field.numpy(), spacing, 0.0, started=bright)
    assert found.coarse_found > 0


def test_images_of_a_few_voxels_are_looked_at():
    tiny = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert judge(tiny, tiny, torch.zeros(2, 2, 2)).level == "look"


def test_opposite_contrast_is_a_cause_where_it_did_harm_and_none_where_it_did_not(heart):
    fixed, moving, field, spacing = heart
    harmed = evidence(fixed, 1 - moving, -2 * field, spacing)
    assert "opposite contrast" in found(harmed)
    assert "opposite" in judge_evidence(harmed).reasons[0]
    assert '`method="Gaussian-Remap"` or Gaussian-MIND' in judge_evidence(harmed).try_[0]
    assert judge(fixed, 1 - moving, field, spacing=spacing) == Verdict("good")


def test_intensities_far_apart_are_a_cause_with_matching_to_try(heart):
    fixed, moving, field, spacing = heart
    verdict = judge_evidence(evidence(fixed, 5 * moving + 3, -2 * field, spacing))
    assert "The intensities lie far apart" in verdict.reasons[0]
    assert "`match_intensities=True`" in verdict.try_
    assert judge(fixed, 5 * moving + 3, field, spacing=spacing) == Verdict("good")


def test_the_intensities_are_no_cause_for_methods_that_do_not_mind_them_and_only_what_is_far_is_told(heart):
    fixed, moving, field, spacing = heart
    moved = evidence(fixed, moving + 3, -2 * field, spacing)
    words = next(reason for reason in judge_evidence(moved, Run("TV-L1")).reasons if "intensities lie" in reason)
    assert "ranges apart" in words
    assert "times the other" not in words
    assert not any("intensities lie" in reason for reason in judge_evidence(moved, Run("Gaussian-LNCC")).reasons)


def test_a_bright_part_of_one_image_is_told_with_a_mask_to_try(heart):
    """Whatever the method; not where the mask leaves it out, nor where one image is brighter as a whole."""
    fixed, moving, field, spacing = heart
    spoilt = fixed.clone()
    corner = tuple(slice(0, int(n * 0.06 ** (1 / fixed.dim()))) for n in fixed.shape)
    spoilt[corner] = 4 * fixed.max()
    kept = np.ones(fixed.shape, bool)
    kept[corner] = False
    verdict = judge_evidence(evidence(spoilt, moving, field, spacing), Run("Gaussian-LNCC"))
    assert "far brighter than the rest" in verdict.reasons[0]
    assert "`fixed_mask`" in verdict.try_[0]
    everywhere = np.ones(fixed.shape, np.uint8)
    everywhere[(-1,) * fixed.dim()] = 0
    assert not any("mask" in words for words in judge(spoilt, moving, field, fixed_mask=everywhere).try_)
    assert any("mask" in words for words in judge(spoilt, moving, field).try_)
    for other in (evidence(spoilt, moving, field, spacing, compared=kept), evidence(5 * fixed, moving, field, spacing)):
        assert judge_evidence(other) == Verdict("good")


def test_images_that_would_fit_better_mirrored_or_turned_are_not_good_however_well_they_fit_locally(heart):
    """The worse, the more would be gained; a little is no reason, nor is what hardly fits any other way."""
    well = replace(evidence(*heart), coarse_found=0.8, coarse_turned=0.8, coarse_mirrored=0.5)
    assert judge_evidence(well) == Verdict("good")
    for better, level in ((0.84, "good"), (0.85, "look"), (0.97, "failed")):
        mirrored, turned = (
            judge_evidence(replace(well, **{f"coarse_{way}": better})) for way in ("mirrored", "turned")
        )
        assert mirrored.level == turned.level == level
        if level != "good":
            assert ("mirrored" in mirrored.reasons[0], "turned" in turned.reasons[0]) == (True, True)
            assert ("which way round" in mirrored.try_[0], '`affine="affine"`' in turned.try_[0]) == (True, True)
            assert not any("`affine" in words for words in mirrored.try_)
    assert judge_evidence(replace(well, coarse_found=0.05, coarse_turned=0.45, coarse_mirrored=0.3)).level == "good"


def test_an_affine_start_is_judged_by_what_it_left_not_by_how_images_lay():
    """A volume that lay turned by 90°, and was turned back."""
    patient = phantom(7, *GRIDS[3])
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    fixed = Image(patient.fixed[0, 0].numpy(), grid)
    centre = grid.points((np.array([grid.shape]) - 1) / 2)[0]
    affine = Affine("rigid", Rotation.from_euler("z", 90, degrees=True).as_matrix(), np.zeros(3), centre)
    moving = place_image(fixed, grid, affine.inverse())
    transform = Transform.from_voxels(np.zeros((3, *grid.shape), np.float32), grid).followed_by(affine)
    assert judge_images(fixed, moving, transform, affine=affine) == Verdict("good")
    still = Transform.from_voxels(np.zeros((3, *grid.shape), np.float32), grid)
    assert any("turned or moved" in reason for reason in judge_images(fixed, moving, still).reasons)


def test_noise_is_unrelated_and_leaves_structure_unmatched(heart):
    fixed, moving, field, spacing = heart
    noise = torch.rand(moving.shape, generator=torch.Generator().manual_seed(0))
    none = evidence(fixed, noise, field, spacing)
    assert {"unrelated images", "structure unmatched", "little information"} <= found(none)
    assert judge_evidence(none).level == "failed"


def test_what_masks_leave_out_does_not_count(heart):
    """Half of moving is noise, and left out: the rest is good."""
    fixed, moving, field, spacing = heart
    n = len(fixed) // 2
    half = moving.clone()
    half[:n] = torch.rand(half[:n].shape, generator=torch.Generator().manual_seed(0))
    kept = np.zeros(fixed.shape, bool)
    kept[n + 6 :] = True
    assert judge_evidence(evidence(fixed, half, field, spacing)).level != "good"
    assert judge_evidence(evidence(fixed, half, field, spacing, compared=kept)).level == "good"


def test_an_artefact_outside_the_masks_has_no_influence_on_the_evidence(heart):
    """A corner of either image, far brighter or darker than all else, right beside what is compared."""
    fixed, moving, field, spacing = heart
    corner = tuple(slice(0, n // 2) for n in fixed.shape)
    kept = np.ones(fixed.shape, bool)
    kept[corner] = False
    warped = warp(moving[None, None], field[None])[0, 0]
    clean = [image.numpy() for image in (fixed, moving, warped)]
    spoilt = [image.copy() for image in clean]
    for image, brightness in zip(spoilt, (100, -50, -50), strict=True):
        image[corner] = brightness
    first, second = (gather(*images, field.numpy(), spacing, 0.0, compared=kept) for images in (clean, spoilt))
    assert first == second
    assert judge_evidence(second) == Verdict("good")
    assert gather(*spoilt, field.numpy(), spacing, 0.0) != gather(*clean, field.numpy(), spacing, 0.0)


def test_half_an_image_leaves_blank_places(heart):
    fixed, moving, field, spacing = heart
    half = moving.clone()
    half[: len(half) // 2] = 0
    assert "blank places" in found(evidence(fixed, half, field, spacing))


def test_a_wild_field_stretches_more_than_is_plausible(heart):
    fixed, moving, field, spacing = heart
    wild = smooth(torch.randn(1, *field.shape, generator=torch.Generator().manual_seed(0)), 1.0)[0]
    wild = field + 3 * wild / wild.std()
    assert "stretch" in found(evidence(fixed, moving, wild, spacing))
    assert judge(fixed, moving, wild, spacing=spacing).level == "failed"


def test_motion_of_a_third_of_the_image_is_too_large_unless_it_is_affine(heart):
    fixed, moving, field, spacing = heart
    n = fixed.shape[0]
    along = torch.arange(n, dtype=field.dtype).view(n, *[1] * (fixed.dim() - 1)).expand(fixed.shape)
    bent, tilted = field.clone(), field.clone()
    bent[1] += 0.4 * n * torch.sin(2 * torch.pi * along / n)
    tilted[1] += 0.4 * along
    assert "large motion" in found(evidence(fixed, moving, bent, spacing))
    assert "large motion" not in found(evidence(fixed, moving, tilted, spacing))


def test_motion_beyond_the_border_is_found(heart):
    fixed, moving, field, spacing = heart
    away = field.clone()
    away[0] += 0.3 * fixed.shape[0]
    assert "motion beyond the border" in found(evidence(fixed, moving, away, spacing))


def test_folds_are_counted_as_they_are_measured(heart):
    """A single voxel carried past its neighbours folds, but is no reason; a band of them is."""
    fixed, moving, field, spacing = heart
    assert "folds" not in found(evidence(fixed, moving, field, spacing, folds_percent=0.05))
    assert "folds" in found(evidence(fixed, moving, field, spacing, folds_percent=2.0))
    folded = field.clone()
    folded[0, ::4] += 3
    assert any("folds at" in reason for reason in judge(fixed, moving, folded, spacing=spacing).reasons)


def test_a_field_full_of_folds_is_told_however_much_else_is_wrong(heart):
    """All causes and every other finding, too: folds come first of what failed, and make no other level."""
    fixed, moving, field, spacing = heart
    ruined = replace(
        evidence(fixed, moving, field, spacing, folds_percent=50.0, dice=(0.6, 0.01)), correlation_before=-0.5,
        information_before=0.01, information_after=0.0, range_ratio=9.0, unmatched=0.9, blank=0.9, stretch=3.0,
    )  # fmt: skip
    verdict = judge_evidence(ruined)
    assert len(found(ruined)) > MAX_REASONS
    assert any("folds at 50.0 %" in reason for reason in verdict.reasons)
    few = judge_evidence(replace(ruined, folds_percent=2.0))
    assert few.level == verdict.level == "failed"
    assert not any("folds at" in reason for reason in few.reasons), "what failed comes before what only needs a look"


def test_structures_that_fit_less_than_before_fail_whatever_the_images_say(heart):
    fixed, moving, field, spacing = heart
    assert judge_evidence(evidence(fixed, moving, field, spacing, dice=(0.6, 0.58))).level == "look"
    worse = judge_evidence(evidence(fixed, moving, field, spacing, dice=(0.6, 0.4)))
    assert (worse.level, "0.600" in worse.reasons[0], "0.400" in worse.reasons[0]) == ("failed", True, True)
    assert judge_evidence(evidence(fixed, moving, field, spacing, dice=(np.nan, np.nan))).level == "good"


def test_structures_that_stay_apart_fail_and_the_first_advice_is_not_about_numbers_of_labels(heart):
    fixed, moving, field, spacing = heart
    verdict = judge_evidence(evidence(fixed, moving, field, spacing, dice=(0.104, 0.172)))
    assert verdict.level == "failed"
    assert "same patient, the same way round" in verdict.try_[0]
    low = partial(evidence, fixed, moving, field, spacing, dice=(0.1, 0.25))
    for distance, level in (((21.4, 22.7), "failed"), ((21.4, 21.5), "look"), ((21.4, 8.0), "look"), (None, "look")):
        assert judge_evidence(low(distance=distance)).level == level
    assert any("21.4 mm, then 22.7 mm" in reason for reason in judge_evidence(low(distance=(21.4, 22.7))).reasons)
    fine = evidence(fixed, moving, field, spacing, dice=(0.5, 0.7), distance=(1.0, 1.1))
    assert judge_evidence(fine).level == "good"


def test_structures_in_the_world_that_move_apart_are_told(heart, d):
    """A bright ball, and labels of which moving has them elsewhere; the transform moves them farther away."""
    fixed, _, _, spacing = heart
    grid, n = Grid.plain(tuple(fixed.shape), spacing), fixed.shape[0]
    labels, other = (np.zeros(fixed.shape, np.int16) for _ in range(2))
    labels[n // 2 - 6 : n // 2 - 2], other[n // 2 + 2 : n // 2 + 6] = 1, 1
    field = np.zeros((d, *fixed.shape), np.float32)
    field[0] = -4
    maps = [Image(part, grid) for part in (labels, other)]
    image, away = Image(fixed.numpy(), grid), Transform.from_voxels(field, grid)
    assert any("farther apart" in reason for reason in judge_images(image, image, away, *maps).reasons)


def test_images_in_the_world_are_compared_where_they_overlap(heart):
    """Moving cut to a part of its grid: of that part all is well; of a tenth, too little is known."""
    fixed, moving, field, spacing = heart
    grid = Grid.plain(tuple(fixed.shape), spacing)
    transform = Transform.from_voxels(field.numpy(), grid)
    assert judge_images(Image(fixed.numpy(), grid), Image(moving.numpy(), grid), transform) == Verdict("good")
    for kept, level in ((0.8, "good"), (0.4, "look"), (0.08, "failed")):
        n = round(kept * fixed.shape[0])
        first = (fixed.shape[0] - n) // 2
        origin = (first * spacing[0], *([0.0] * (fixed.dim() - 1)))
        part = Image(moving[first : first + n].numpy(), replace(grid, shape=(n, *fixed.shape[1:]), origin=origin))
        verdict = judge_images(Image(fixed.numpy(), grid), part, transform)
        assert verdict.level == level, verdict
        assert (level == "good") or any("Moving covers" in reason for reason in verdict.reasons)


def test_labels_of_images_in_the_world_are_judged(heart, hearts, d):
    fixed, moving, field, spacing = heart
    grid = Grid.plain(tuple(fixed.shape), spacing)
    parts = [fixed, moving, hearts[d].fixed_labels[0, 0], hearts[d].moving_labels[0, 0]]
    a, b, a_labels, b_labels = (Image(part.numpy(), grid) for part in parts)
    true, back = (Transform.from_voxels(sign * field.numpy(), grid) for sign in (1, -1))
    assert judge_images(a, b, true, a_labels, b_labels) == Verdict("good")
    assert any("Dice" in reason for reason in judge_images(a, b, back, a_labels, b_labels).reasons)


def test_folds_of_a_stack_are_counted_within_its_slices_also_beyond_an_affine_start():
    """Neighbouring slices that turn oppositely, by 60°, fold as a volume, and nowhere within a slice."""
    grid = Grid.plain((12, 12, 6), (1.0, 1.0, 8.0))
    x, y, z = np.indices(grid.shape) - 5.5
    angle = np.radians(np.where(z % 2 == 0.5, 60, -60))
    ends = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y, z
    field = (np.stack(ends) - (x, y, z)).astype(np.float32)
    turned = Rotation.from_euler("xyz", (20, -15, 30), degrees=True).as_matrix()
    affine = Affine("rigid", turned, np.array([3.0, -400.0, 7.0]), grid.points(np.array([[5.5, 5.5, 2.5]]))[0])
    whole = Transform.from_voxels(field, grid).followed_by(affine)
    image = Image(np.zeros(grid.shape, np.float32), grid)
    plain, started = (
        PairResult(fixed=image, moving=image, transform=transform, warped=image, affine=start)
        for transform, start in ((Transform.from_voxels(field, grid), None), (whole, affine))
    )
    assert plain.regularity["folding_strict_percent"] == started.regularity["folding_strict_percent"] == 0
    assert started.regularity["jacobian_gradient"] == pytest.approx(plain.regularity["jacobian_gradient"], abs=1e-4)
    assert regularity(whole.in_voxels(), grid)["folding_strict_percent"] > 1


def test_a_verdict_is_the_same_again_and_short(heart):
    fixed, moving, field, spacing = heart
    first, second = (judge(fixed, 1 - moving, 3 * field.flip(-1), spacing=spacing) for _ in range(2))
    assert first == second
    assert 0 < len(first.reasons) <= MAX_REASONS
    assert 0 < len(first.try_) <= MAX_ADVICE
    assert first.as_json() == {"level": first.level, "reasons": [*first.reasons], "try": [*first.try_]}


def test_large_images_are_judged_on_blocks_as_small_ones_are(hearts):
    """The same heart on a grid three times as fine, which is averaged over blocks."""
    patient = hearts[3]
    parts = (patient.fixed, patient.moving, patient.field)
    fine = [torch.nn.functional.interpolate(part, scale_factor=3, mode="trilinear") for part in parts]
    small = evidence(patient.fixed[0, 0], patient.moving[0, 0], patient.field[0], patient.spacing)
    large = evidence(fine[0][0, 0], fine[1][0, 0], 3 * fine[2][0], tuple(h / 3 for h in patient.spacing))
    for name in ("local_before", "local_after", "stretch", "motion"):
        assert getattr(large, name) == pytest.approx(getattr(small, name), abs=0.1)
    assert judge_evidence(large) == judge_evidence(small) == Verdict("good")


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("method", "number"), [("short-axis", 0), ("TV-L1", 1)])
def test_real_hearts_are_good_and_ruined_ones_are_not(data_root, method, number):
    """Folds, which are a finding of their own, are left out."""
    data = ACDC(data_root / "acdc")
    sample = data.prepare(data.subjects("val")[number], "evaluation")
    fixed, moving = sample.fixed[1, 0], sample.moving[1, 0]
    ruined = (1 - moving, 5 * moving + 2, moving.flip(0), moving.rot90(), moving[80].expand(moving.shape))
    fields = [register(fixed, image.contiguous(), method, brightness="keep").field for image in (moving, *ruined)]
    pairs = zip((moving, *ruined), fields, strict=True)
    levels = [judge_evidence(evidence(fixed, image, field, sample.spacing)).level for image, field in pairs]
    assert levels[0] == "good"
    assert "good" not in levels[1:]
