"""A structure that gets clearly worse is told, also where the mean over all of them improves."""

import numpy as np
import pytest

from vrnet import Grid, Image, Transform, judge_images
from vrnet.evaluation.pair import dice_overlap, overlap, structure_evidence, worst_structure
from vrnet.phantom import phantom
from vrnet.verdict.evidence import gather
from vrnet.verdict.rules import judge_evidence


@pytest.fixture(scope="module")
def heart():
    """A pair whose motion is known, on a grid."""
    pair = phantom(3)
    grid = Grid.plain(tuple(pair.fixed.shape[2:]), pair.spacing)
    parts = (pair.fixed, pair.moving, pair.fixed_labels, pair.moving_labels)
    fixed, moving, *labels = (Image(part[0, 0].numpy(), grid) for part in parts)
    return fixed, moving, *labels, Transform.from_voxels(pair.field[0].numpy(), grid)


def stays(labels, moved, part):
    """Moving labels of which one structure lies as in fixed, so that the true motion takes it away from there."""
    rest = np.where(moved.array == part, 0, moved.array)
    return moved.with_array(np.where(labels.array == part, part, rest))


def test_one_structure_that_gets_worse_needs_a_look_though_the_mean_improves(heart):
    fixed, moving, labels, moved, motion = heart
    verdict = judge_images(fixed, moving, motion, labels, moved)
    assert (verdict.level, verdict.reasons) == ("good", ())
    held = judge_images(fixed, moving, motion, labels, stays(labels, moved, 1))
    after = motion.apply_labels(stays(labels, moved, 1), fixed.grid)
    dice = dice_overlap(labels.array, stays(labels, moved, 1).array, after.array)["dice"]
    assert dice["after"]["mean"] > dice["before"]["mean"], "as the rule before would have it"
    assert held.level == "look"
    assert held.reasons == (
        f"A structure overlaps less than before: label 1, Dice {dice['before']['1']:.3f}, "
        f"then {dice['after']['1']:.3f}.",
    )


def test_the_largest_fall_is_that_of_a_structure_by_its_name_and_never_of_the_mean():
    measures = {"dice": {"before": {"1": 0.9, "2": 0.5, "4": 0.1, "mean": 0.5},
                         "after": {"1": 0.8, "2": 0.3, "4": np.nan, "mean": 0.1}}}  # fmt: skip
    assert worst_structure(measures) == ("label 2", 0.5, 0.3)
    assert worst_structure(measures, {"2": "Myo"}) == ("Myo", 0.5, 0.3)
    assert worst_structure({}) is None
    assert worst_structure({"dice": {"before": {"1": 0.9, "mean": 0.9}, "after": {"1": 0.2, "mean": 0.2}}}) is None
    assert structure_evidence({}) == (None, None, None)


def test_dice_alone_is_the_dice_of_all_measures(heart):
    *_, labels, moved, motion = heart
    maps = labels.array, moved.array, motion.apply_labels(moved, labels.grid).array
    assert dice_overlap(*maps)["dice"] == overlap(*maps, spacing=labels.grid.spacing)["dice"]


def part_of(motion, grid, share):
    """A motion of which only a share was found."""
    return Transform.from_voxels(share * motion.on(grid).in_voxels(), grid)


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_structures_that_overlap_no_more_than_before_need_a_look(heart, share):
    fixed, moving, labels, moved, motion = heart
    weak = part_of(motion, fixed.grid, share)
    dice = dice_overlap(labels.array, moved.array, weak.apply_labels(moved, fixed.grid).array)["dice"]
    verdict = judge_images(fixed, moving, weak, labels, moved)
    assert verdict.level == "look"
    assert verdict.reasons[0] == (
        f"The structures overlap hardly more than before: mean Dice {dice['before']['mean']:.3f}, "
        f"then {dice['after']['mean']:.3f}."
    )


def test_where_structures_lay_on_each_other_there_is_nothing_to_gain(heart):
    """One image given twice, or one that hardly moved, and was not moved."""
    fixed, _, labels, _, motion = heart
    still = part_of(motion, fixed.grid, 0.0)
    assert judge_images(fixed, fixed, still, labels, labels).level == "good"
    little = part_of(motion, fixed.grid, 0.15)
    other, drawn = little.apply(fixed, fixed.grid), little.apply_labels(labels, fixed.grid)
    before = dice_overlap(labels.array, drawn.array, drawn.array)["dice"]["before"]["mean"]
    assert 0.9 < before < 1
    assert not any("overlap" in words for words in judge_images(fixed, other, still, labels, drawn).reasons)


@pytest.mark.parametrize(
    ("dice", "is_told"),
    [((0.77, 0.77), True), ((0.5, 0.54), True), ((0.5, 0.56), False), ((0.77, 0.765), True), ((0.77, 0.7), False),
     ((0.89, 0.89), True), ((0.9, 0.9), False), ((1.0, 1.0), False), ((np.nan, np.nan), False)],
)  # fmt: skip
def test_a_tenth_of_the_missing_dice_is_to_be_found_where_it_was_below_nine_tenths(heart, dice, is_told):
    """Where it fell, that is told instead, and once."""
    fixed, moving, *_, motion = heart
    field = motion.on(fixed.grid).in_voxels()
    warped = motion.apply(moving, fixed.grid).array
    evidence = gather(fixed.array, moving.array, warped, field, fixed.grid.spacing, 0.0, dice=dice)
    told = [words for words in judge_evidence(evidence).reasons if "hardly more than before" in words]
    assert len(told) == is_told
