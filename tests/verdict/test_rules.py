"""Each reason on a phantom heart, whose true motion is known; then real pairs, good and ruined."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from tests.phantoms import phantom
from vrnet import BadInput, Grid, Image, Transform, Verdict, judge, judge_images, register, register_images
from vrnet.data.dataset import ACDC
from vrnet.evaluation.pair import overlap, regularity, structure_evidence
from vrnet.fields.calculus import smooth, warp
from vrnet.images.grid import Affine
from vrnet.images.resample import place_image
from vrnet.registration.masks import PairMasks
from vrnet.registration.pair import PairResult
from vrnet.verdict.advice import MAX_ADVICE, MAX_REASONS, Run
from vrnet.verdict.evidence import evidence_of
from vrnet.verdict.rules import CAUSES, FINDINGS, LEAST_VOXELS, judge_evidence

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


@pytest.fixture
def flat(hearts):
    """The same in 2D, for what is said in words."""
    patient = hearts[2]
    return patient.fixed[0, 0], patient.moving[0, 0], patient.field[0], patient.spacing


@pytest.fixture(scope="module")
def labelled(hearts):
    """(fixed, moving, labels of fixed, of moving) on a grid, and the true motion."""
    patient = hearts[2]
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    parts = (patient.fixed, patient.moving, patient.fixed_labels, patient.moving_labels)
    images = (Image(part[0, 0].numpy(), grid) for part in parts)
    return *images, Transform.from_voxels(patient.field[0].numpy(), grid)


def result_of(fixed, moving, field, spacing, mask=None):
    """A registered pair of tensors; compared inside the mask of fixed."""
    grid = Grid.plain(tuple(fixed.shape), spacing)
    warped = warp(moving[None, None], field[None])[0, 0]
    F, M, W = (Image(part.numpy(), grid) for part in (fixed, moving, warped))
    masks = PairMasks() if mask is None else PairMasks(Image(mask, grid))
    return PairResult(fixed=F, moving=M, warped=W, masks=masks, transform=Transform.from_voxels(field.numpy(), grid))


def evidence(fixed, moving, field, spacing, mask=None, **changed):
    """The evidence of a field, of which some measures are changed; folds are left out."""
    found = evidence_of(result_of(fixed, moving, field, spacing, mask))
    return replace(found, **{"folds_percent": 0.0, **changed})


def names_found(evidence):
    """The names of the rules that are beyond their limits."""
    return {rule.name for rule in (*FINDINGS, *CAUSES) if rule.level(evidence) != "good"}


def has_reason(verdict, words):
    return any(words in reason for reason in verdict.reasons)


@pytest.mark.release
def test_the_true_motion_is_good_and_has_no_reasons(heart):
    fixed, moving, field, spacing = heart
    assert judge(fixed, moving, field, spacing=spacing) == Verdict("good")
    assert judge(fixed.numpy(), moving.numpy(), field.numpy()).level == "good"


@pytest.mark.release
def test_one_scan_given_twice_is_good_though_a_model_moves_it_by_less_than_a_voxel(heart):
    """Interpolation takes information from an image that told all of the other."""
    fixed, _, field, spacing = heart
    wave = torch.sin(torch.arange(fixed.shape[0]) / 8).view(-1, *[1] * (fixed.dim() - 1))
    for moved in (0.0, 0.05, 0.3):
        little = torch.zeros_like(field)
        little[0] = moved * wave
        found = evidence(fixed, fixed, little, spacing)
        assert (found.information_before - found.information_after > 0.01) == (moved > 0)
        assert judge_evidence(found) == Verdict("good")


BAD = {
    "fixed is a list": lambda i, u, t: judge([[1.0]], i.array, u),
    r"the field is \(8, 8\): give one of shape \(2, 8, 8\)": lambda i, u, t: judge(i.array, i.array, u[0]),
    "the field is a list: give": lambda i, u, t: judge(i.array, i.array, u.tolist()),
    "the field contains NaN": lambda i, u, t: judge(i.array, i.array, u + np.nan),
    r"the spacing is 1.5: give 2 numbers above zero": lambda i, u, t: judge(i.array, i.array, u, spacing=1.5),
    r"the mask of fixed is \(7, 8\)": lambda i, u, t: judge(i.array, i.array, u, fixed_mask=i.array[1:] > 0.5),
    "fixed is an array: give an Image": lambda i, u, t: judge_images(i.array, i, t),
    "transform is a ndarray: give a vrnet Transform": lambda i, u, t: judge_images(i, i, u),
    "affine is a str: give a vrnet Affine": lambda i, u, t: judge_images(i, i, t, affine="rigid"),
    "the affine map is 3D and the images are 2D": lambda i, u, t: judge_images(
        i, i, t, affine=Affine("affine", np.eye(3), np.zeros(3), np.zeros(3))
    ),
    "fixed_mask is empty": lambda i, u, t: judge_images(i, i, t, fixed_mask=i.with_array(0 * i.array)),
    "moving contains NaN or infinite": lambda i, u, t: judge_images(i, i.with_array(np.nan * i.array), t),
    "fixed_labels is not on the grid of fixed": lambda i, u, t: judge_images(i, i, t, coarser(i), coarser(i)),
    "fixed is an Image": lambda i, u, t: register(i, i),
    "moving is a NoneType: give an Image": lambda i, u, t: register_images(i, None),
    "method is an int": lambda i, u, t: register_images(i, i, 7),
    "match_intensities is 'no': give True or False": lambda i, u, t: register_images(i, i, match_intensities="no"),
}


def coarser(image):
    return Image((image.array > 0.5).astype(np.uint8), Grid.plain(image.grid.shape, (2.0, 2.0)))


def test_arguments_of_another_kind_are_bad_input_that_says_what_to_give():
    array = np.random.default_rng(0).random((8, 8), dtype=np.float32)
    image, u = Image(array, Grid.plain((8, 8), (1.0, 1.0))), np.zeros((2, 8, 8), np.float32)
    for words, call in BAD.items():
        with pytest.raises(BadInput, match=words):
            call(image, u, Transform.from_voxels(u, image.grid))


def test_the_true_motion_backwards_is_less_alike(heart):
    fixed, moving, field, spacing = heart
    wrong = evidence(fixed, moving, -3 * field, spacing)
    assert {"less alike, locally", "less alike, by mutual information"} <= names_found(wrong)
    assert has_reason(judge_evidence(wrong), "less alike after than before")


def test_no_motion_where_there_should_be_some_hardly_changes_anything(heart):
    fixed, moving, field, spacing = heart
    still = evidence(fixed, moving, torch.zeros_like(field), spacing)
    assert names_found(still) == {"hardly changed"}
    assert judge_evidence(still).level == "look"


UNITS = {
    "offset": lambda image: image.double() + 1e9,
    "tiniest": lambda image: 1e-30 * image,
    "huge": lambda image: 1e12 * image,
}


@pytest.mark.release
@pytest.mark.parametrize(("factor", "d"), [(1.0, 2), (-3.0, 3)])
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


def test_ranges_are_compared_in_the_units_of_the_files(flat):
    fixed, _, field, spacing = flat
    found, large = (evidence(k * fixed, 4 * k * fixed + 2 * k, field, spacing) for k in (1, 1e6))
    assert (found.range_ratio, large.range_ratio) == pytest.approx((4.0, 4.0), rel=1e-3)
    assert large.offset == pytest.approx(found.offset, rel=1e-3)
    assert found.offset > 0.5


@pytest.mark.release
def test_what_lies_outside_the_mask_has_no_influence_on_what_lies_inside(heart):
    """A corner of either image, far brighter or darker than all else, right beside what is compared."""
    shape = heart[0].shape
    corner, kept = tuple(slice(0, n // 2) for n in shape), np.ones(shape, bool)
    kept[corner] = False
    clean = result_of(*heart, kept)
    images = {"fixed": clean.fixed, "moving": clean.moving, "warped": clean.warped}
    spoilt = {name: image.with_array(image.array.copy()) for name, image in images.items()}
    for image, brightness in zip(spoilt.values(), (1e12, -50, -50), strict=True):
        image.array[corner] = brightness
    assert evidence_of(replace(clean, **spoilt)) == evidence_of(clean)
    everywhere = (replace(clean, masks=PairMasks(), **each) for each in (spoilt, {}))
    assert len({evidence_of(each) for each in everywhere}) == 2


def test_a_mask_of_few_voxels_leaves_too_little_to_judge_by(flat):
    fixed, moving, field, spacing = flat
    grid = Grid.plain(tuple(fixed.shape), spacing)
    images, transform = (
        (Image(part.numpy(), grid) for part in (fixed, moving)),
        Transform.from_voxels(field.numpy(), grid),
    )
    images, middle = tuple(images), np.square(np.indices(fixed.shape) - 48).sum(0).ravel().argsort(kind="stable")
    for few in (1, int(LEAST_VOXELS) - 1, int(LEAST_VOXELS)):
        mask = np.zeros(fixed.numel(), np.uint8)
        mask[middle[:few]] = 1
        found = judge_images(*images, transform, fixed_mask=Image(mask.reshape(fixed.shape), grid))
        if few < LEAST_VOXELS:
            assert (found.level, len(found.reasons)) == ("look", 1)
            many = "" if few == 1 else "s"
            assert found.reasons[0].startswith(f"The images were compared at only {few} voxel{many}: ")
            assert "larger mask" in found.try_[0]
        else:
            assert not has_reason(found, "compared at only")


def test_few_blocks_of_a_large_image_are_called_blocks():
    """Of a mask from corner to corner: about a smaller one, voxels are compared."""
    image, mask = torch.rand(500, 500, generator=torch.Generator().manual_seed(0)), np.zeros((500, 500), bool)
    mask[:20, :40] = mask[-20:, -40:] = True
    few = evidence(image, image, torch.zeros(2, 500, 500), (1.0, 1.0), mask)
    assert (few.voxels, few.block_voxels) == (400, 4)
    assert has_reason(judge_evidence(few), "at only 400 blocks of 4 voxels: ")


@pytest.mark.release
def test_inside_a_small_mask_a_large_image_is_judged_as_one_that_was_cut_out_of_it(heart, d):
    """By its voxels and not by blocks of them, wherever it lies in the large one."""
    fixed, moving, field, spacing = heart
    wide, kept = {2: (400, 90), 3: (70, 10)}[d], np.zeros(fixed.shape, bool)
    kept[(slice(12, -12),) * d] = True
    images, u = [np.pad(part.numpy(), wide) for part in (fixed, moving)], np.pad(field.numpy(), [(0, 0), *[wide] * d])
    small = evidence(*heart, kept)
    large = evidence(*map(torch.from_numpy, (*images, u)), spacing, np.pad(kept, wide))
    assert large.block_voxels == 1
    for name in ("voxels", "local_before", "local_after", "information_after", "unmatched", "range_ratio"):
        assert getattr(large, name) == pytest.approx(getattr(small, name), abs=2e-3), name


def test_a_constant_image_has_no_range_that_another_is_a_multiple_of(flat):
    fixed, _, field, spacing = flat
    assert has_reason(judge_evidence(evidence(fixed, 0 * fixed, field, spacing)), "far apart: one is constant")
    assert evidence(0 * fixed, 0 * fixed, field, spacing).range_ratio == 1


def test_images_of_a_few_voxels_are_looked_at():
    tiny = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert judge(tiny, tiny, torch.zeros(2, 2, 2)).level == "look"


@pytest.mark.release
def test_opposite_contrast_is_a_cause_where_it_did_harm_and_none_where_it_did_not(heart):
    fixed, moving, field, spacing = heart
    harmed = evidence(fixed, 1 - moving, -2 * field, spacing)
    assert "opposite contrast" in names_found(harmed)
    assert "opposite" in judge_evidence(harmed).reasons[0]
    assert '`method="Gaussian-Remap"` or Gaussian-MIND' in judge_evidence(harmed).try_[0]
    assert judge(fixed, 1 - moving, field, spacing=spacing) == Verdict("good")


def test_intensities_far_apart_are_a_cause_of_methods_that_compare_them_and_only_what_is_far_is_told(flat):
    fixed, moving, field, spacing = flat
    verdict = judge_evidence(evidence(fixed, 5 * moving + 3, -2 * field, spacing))
    assert "The intensities lie far apart" in verdict.reasons[0]
    assert "`match_intensities=True`" in verdict.try_
    assert judge(fixed, 5 * moving + 3, field, spacing=spacing) == Verdict("good")
    moved = evidence(fixed, moving + 3, -2 * field, spacing)
    words = next(reason for reason in judge_evidence(moved, Run("TV-L1")).reasons if "intensities lie" in reason)
    assert ("ranges apart" in words, "times the other" in words) == (True, False)
    assert not has_reason(judge_evidence(moved, Run("LNCC", compares_structure=True)), "intensities lie")


def test_a_bright_part_of_one_image_is_told_with_a_mask_to_try(flat):
    """Whatever the method; not where the mask leaves it out, nor where one image is brighter as a whole."""
    fixed, moving, field, spacing = flat
    spoilt, kept, almost = fixed.clone(), np.ones(fixed.shape, bool), np.ones(fixed.shape, np.uint8)
    spoilt[:23, :23], kept[:23, :23], almost[-1, -1] = 4 * fixed.max(), False, 0
    verdict = judge_evidence(evidence(spoilt, moving, field, spacing), Run("Gaussian-LNCC", compares_structure=True))
    assert "far brighter than the rest" in verdict.reasons[0]
    assert "`fixed_mask`" in verdict.try_[0]
    assert any("mask" in words for words in judge(spoilt, moving, field).try_)
    assert not any("mask" in words for words in judge(spoilt, moving, field, fixed_mask=almost).try_)
    for other in (evidence(spoilt, moving, field, spacing, kept), evidence(5 * fixed, moving, field, spacing)):
        assert judge_evidence(other) == Verdict("good")


def test_images_that_would_fit_better_mirrored_or_turned_are_not_good_however_well_they_fit_locally(flat):
    """The worse, the more would be gained; a little is no reason, nor is what hardly fits any other way."""
    well = replace(evidence(*flat), coarse_found=0.8, coarse_turned=0.8, coarse_mirrored=0.5)
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


@pytest.mark.release
def test_an_affine_start_is_judged_by_what_it_left_not_by_how_images_lay(hearts):
    """A volume that lay turned by 90°, and was turned back."""
    patient = hearts[3]
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    fixed = Image(patient.fixed[0, 0].numpy(), grid)
    centre = grid.points((np.array([grid.shape]) - 1) / 2)[0]
    affine = Affine("rigid", Rotation.from_euler("z", 90, degrees=True).as_matrix(), np.zeros(3), centre)
    moving = place_image(fixed, grid, affine.inverse())
    still = Transform.from_voxels(np.zeros((3, *grid.shape), np.float32), grid)
    assert judge_images(fixed, moving, still.followed_by(affine), affine=affine) == Verdict("good")
    assert has_reason(judge_images(fixed, moving, still), "turned or moved")


@pytest.mark.release
def test_noise_is_unrelated_and_leaves_structure_unmatched(heart):
    fixed, moving, field, spacing = heart
    noise = torch.rand(moving.shape, generator=torch.Generator().manual_seed(0))
    none = evidence(fixed, noise, field, spacing)
    assert {"unrelated images", "structure unmatched", "little information"} <= names_found(none)
    assert judge_evidence(none).level == "failed"


def test_half_an_image_leaves_blank_places(heart):
    fixed, moving, field, spacing = heart
    half = moving.clone()
    half[: len(half) // 2] = 0
    assert "blank places" in names_found(evidence(fixed, half, field, spacing))


@pytest.mark.release
def test_a_wild_field_stretches_more_than_is_plausible(heart):
    fixed, moving, field, spacing = heart
    wild = smooth(torch.randn(1, *field.shape, generator=torch.Generator().manual_seed(0)), 1.0)[0]
    wild = field + 3 * wild / wild.std()
    assert "stretch" in names_found(evidence(fixed, moving, wild, spacing))
    assert judge(fixed, moving, wild, spacing=spacing).level == "failed"


@pytest.mark.release
def test_motion_of_a_third_of_the_image_is_too_large_unless_it_is_affine_and_not_beyond_the_border(heart):
    fixed, moving, field, spacing = heart
    n = fixed.shape[0]
    along = torch.arange(n, dtype=field.dtype).view(n, *[1] * (fixed.dim() - 1)).expand(fixed.shape)
    bent, tilted, away = field.clone(), field.clone(), field.clone()
    bent[1] += 0.4 * n * torch.sin(2 * torch.pi * along / n)
    tilted[1] += 0.4 * along
    away[0] += 0.3 * n
    assert "large motion" in names_found(evidence(fixed, moving, bent, spacing))
    assert "large motion" not in names_found(evidence(fixed, moving, tilted, spacing))
    assert "motion beyond the border" in names_found(evidence(fixed, moving, away, spacing))


def test_a_few_folds_are_no_reason_and_a_band_of_them_is(flat):
    fixed, moving, field, spacing = flat
    assert "folds" not in names_found(evidence(*flat, folds_percent=0.05))
    folded = field.clone()
    folded[0, ::4] += 3
    assert has_reason(judge(fixed, moving, folded, spacing=spacing), "folds at")


def test_a_field_full_of_folds_is_told_however_much_else_is_wrong(flat):
    """All causes and every other finding, too: folds come first of what failed, and make no other level."""
    ruined = evidence(
        *flat, folds_percent=50.0, dice_before=0.6, dice_after=0.01, correlation_before=-0.5, information_before=0.01,
        information_after=0.0, range_ratio=9.0, unmatched=0.9, blank=0.9, stretch=3.0,
    )  # fmt: skip
    verdict, few = judge_evidence(ruined), judge_evidence(replace(ruined, folds_percent=2.0))
    assert len(names_found(ruined)) > MAX_REASONS
    assert has_reason(verdict, "folds at 50.0 %")
    assert few.level == verdict.level == "failed"
    assert not has_reason(few, "folds at"), "what failed comes before what only needs a look"


@pytest.mark.release
def test_images_in_the_world_are_compared_where_they_overlap(heart):
    """Moving cut to a part of its grid: of that part all is well; of a tenth, too little is known."""
    fixed, moving, field, spacing = heart
    grid = Grid.plain(tuple(fixed.shape), spacing)
    transform = Transform.from_voxels(field.numpy(), grid)
    for kept, level in ((1.0, "good"), (0.8, "good"), (0.4, "look"), (0.08, "failed")):
        n = round(kept * fixed.shape[0])
        first = (fixed.shape[0] - n) // 2
        origin = (first * spacing[0], *([0.0] * (fixed.dim() - 1)))
        part = Image(moving[first : first + n].numpy(), replace(grid, shape=(n, *fixed.shape[1:]), origin=origin))
        verdict = judge_images(Image(fixed.numpy(), grid), part, transform)
        assert verdict.level == level, verdict
        assert (level == "good") or has_reason(verdict, "Moving covers")


@pytest.mark.parametrize("axis", [0, 2])
def test_a_slice_whose_motion_is_wrong_is_named_among_its_neighbours(axis):
    hearts = [phantom(seed, *GRIDS[2]) for seed in range(1, 6)]
    fixed, moving = (torch.stack([getattr(one, name)[0, 0] for one in hearts], axis) for name in ("fixed", "moving"))
    true = torch.stack([one.field[0] for one in hearts], -1)
    spacing = tuple(10.0 if k == axis else GRIDS[2][1] for k in range(3))

    def verdict_of(u):
        parts = list(u.movedim(-1, 1 + axis))
        field = torch.stack([*parts[:axis], torch.zeros_like(parts[0]), *parts[axis:]])
        found = evidence_of(replace(result_of(fixed, moving, field, spacing), slice_axis=axis))
        return judge_evidence(found)

    assert verdict_of(true).level == "good"
    for ruined, change in [((1,), 0.0), ((2,), 1.8), ((1, 3), None)]:
        u = true.clone()
        u[..., list(ruined)] = u[..., list(reversed(ruined))] if change is None else change * u[..., list(ruined)]
        found = verdict_of(u)
        words = "Slice 2 matched" if change == 0.0 else "Slice 3 matched" if change else "Slices 2, 4 matched"
        assert found.level == "look"
        assert has_reason(found, words)


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


def test_a_verdict_is_the_same_again_and_short_and_printed_in_lines(flat):
    fixed, moving, field, spacing = flat
    first, second = (judge(fixed, 1 - moving, 3 * field.flip(-1), spacing=spacing) for _ in range(2))
    assert first == second
    assert 0 < len(first.reasons) <= MAX_REASONS
    assert 0 < len(first.try_) <= MAX_ADVICE
    assert first.as_json() == {"level": first.level, "reasons": [*first.reasons], "try": [*first.try_]}
    assert str(Verdict("look", ("It moved.",), ("this",))) == "look at it\nIt moved.\nTry: this."


@pytest.mark.release
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


# Structures, where labels are given.


def test_labels_of_images_in_the_world_are_judged(labelled):
    fixed, moving, labels, moved, motion = labelled
    back = Transform.from_voxels(-motion.in_voxels(), fixed.grid)
    assert judge_images(fixed, moving, motion, labels, moved) == Verdict("good")
    assert has_reason(judge_images(fixed, moving, back, labels, moved), "Dice")


LEVELS_OF_DICE = {
    (0.5, 0.8): "good", (0.5, 0.56): "good", (0.9, 0.9): "good", (1.0, 1.0): "good", (nan, nan): "good",
    (0.5, 0.54): "look", (0.77, 0.765): "look", (0.89, 0.89): "look", (0.6, 0.58): "look", (0.02, 0.25): "look",
    (0.6, 0.4): "failed", (0.03, 0.04): "failed",
}  # fmt: skip


def test_the_level_follows_from_the_mean_dice_whatever_the_images_say(flat):
    """It must not fall, a tenth of what is missing is to be found where it was below 0.9, and structures overlap."""
    true = evidence(*flat)
    for (before, after), level in LEVELS_OF_DICE.items():
        assert judge_evidence(replace(true, dice_before=before, dice_after=after)).level == level, (before, after)
    worse = judge_evidence(replace(true, dice_before=0.6, dice_after=0.4))
    assert worse.reasons == ("The structures overlap less than before: mean Dice 0.600, then 0.400.",)
    same = judge_evidence(replace(true, dice_before=0.77, dice_after=0.77))
    assert same.reasons == ("The structures overlap hardly more than before: mean Dice 0.770, then 0.770.",)


def test_structures_that_stay_apart_fail_and_the_first_advice_is_not_about_numbers_of_labels(flat):
    low = replace(evidence(*flat), dice_before=0.104, dice_after=0.172)
    assert judge_evidence(low).level == "failed"
    assert "same patient, the same way round" in judge_evidence(low).try_[0]
    low = replace(low, dice_after=0.25)
    for distance, level in ((22.7, "failed"), (21.5, "look"), (8.0, "look"), (nan, "look")):
        assert judge_evidence(replace(low, distance_before=21.4, distance_after=distance)).level == level
    told = judge_evidence(replace(low, distance_before=21.4, distance_after=22.7))
    assert has_reason(told, "mean surface distance 21.4 mm, then 22.7 mm")
    fine = replace(low, dice_before=0.5, dice_after=0.7, distance_before=1.0, distance_after=1.1)
    assert judge_evidence(fine).level == "good"


def test_structures_in_the_world_that_move_apart_are_told(heart, d):
    """Labels that moving has elsewhere; the transform moves them farther away."""
    fixed, _, _, spacing = heart
    grid, n = Grid.plain(tuple(fixed.shape), spacing), fixed.shape[0]
    labels, other = (np.zeros(fixed.shape, np.int16) for _ in range(2))
    labels[n // 2 - 6 : n // 2 - 2], other[n // 2 + 2 : n // 2 + 6] = 1, 1
    field = np.zeros((d, *fixed.shape), np.float32)
    field[0] = -4
    maps = [Image(part, grid) for part in (labels, other)]
    image, away = Image(fixed.numpy(), grid), Transform.from_voxels(field, grid)
    assert has_reason(judge_images(image, image, away, *maps), "farther apart")


def test_one_structure_that_gets_worse_needs_a_look_though_the_mean_improves(labelled):
    """Moving labels of which one structure lies as in fixed, so that the true motion takes it away from there."""
    fixed, moving, labels, moved, motion = labelled
    rest = np.where(moved.array == 1, 0, moved.array)
    stays = moved.with_array(np.where(labels.array == 1, 1, rest))
    after = motion.apply_labels(stays, fixed.grid)
    dice = overlap(labels.array, stays.array, after.array, fixed.grid.spacing)["dice"]
    assert dice["after"]["mean"] > dice["before"]["mean"]
    verdict = judge_images(fixed, moving, motion, labels, stays)
    fall = f"label 1, Dice {dice['before']['1']:.3f}, then {dice['after']['1']:.3f}"
    assert (verdict.level, verdict.reasons) == ("look", (f"A structure overlaps less than before: {fall}.",))


def test_the_largest_fall_is_that_of_a_structure_by_its_name_and_never_of_the_mean():
    measures = {"dice": {"before": {"1": 0.9, "2": 0.5, "4": 0.1, "mean": 0.5},
                         "after": {"1": 0.8, "2": 0.3, "4": nan, "mean": 0.1}}}  # fmt: skip
    measures["mean_surface_distance_mm"] = measures["dice"]
    assert structure_evidence(measures)["fall"] == ("label 2", 0.5, 0.3)
    assert structure_evidence(measures, {"2": "Myo"})["fall"] == ("Myo", 0.5, 0.3)
    assert structure_evidence({})["fall"] is None
    one = {"before": {"1": 0.9, "mean": 0.9}, "after": {"1": 0.2, "mean": 0.2}}
    assert structure_evidence({"dice": one})["fall"] is None


def test_where_structures_lay_on_each_other_there_is_nothing_to_gain(labelled):
    """One image given twice, and not moved."""
    fixed, _, labels, _, motion = labelled
    still = Transform.from_voxels(0 * motion.in_voxels(), fixed.grid)
    assert judge_images(fixed, fixed, still, labels, labels) == Verdict("good")


# Limits, and real pairs.


def test_limits_are_in_order():
    assert all(rule.look < rule.failed <= inf for rule in FINDINGS)
    assert all(rule.failed == inf for rule in CAUSES), "a cause alone never fails"


@pytest.mark.release
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
