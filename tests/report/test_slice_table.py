"""Measures of each slice: against those of the slice alone."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.report.conftest import FOLDED, MOTIONS, SHAPE
from vrnet.evaluation.metrics import dice
from vrnet.report.drawing import label_colours
from vrnet.report.page import MAX_STRUCTURES, slice_table
from vrnet.report.pair import slice_pair

COLOURS = label_colours([-2, 7])


def table_of(pair, colours=COLOURS, names=None):
    return slice_table(pair, slice_pair(pair), colours, names or {})


def values(table, name):
    (measure,) = [measure for measure in table.measures if measure.name == name]
    return [np.nan if cell.value is None else cell.value for cell in measure.cells]


@pytest.fixture
def moved(volume):
    """The volume with labels that were not brought all the way."""
    return replace(volume, warped_labels=np.roll(volume.fixed_labels, 1, 1))


def test_every_slice_has_its_own_measures(moved):
    table = table_of(moved, names={"7": "RV"})
    for label, name in ((7, "Dice RV"), (-2, "Dice label -2")):
        maps = moved.fixed_labels == label, moved.warped_labels == label
        expected = [dice(*(mask[..., k] for mask in maps)) for k in range(SHAPE[2])]
        assert_allclose(values(table, name), expected, atol=1e-6)
    pairs = [(moved.fixed[..., k].ravel(), moved.warped[..., k].ravel()) for k in range(SHAPE[2])]
    assert_allclose(values(table, "Correlation"), [np.corrcoef(*both)[0, 1] for both in pairs], atol=1e-6)
    folded = [100 * 2 / (SHAPE[0] * SHAPE[1]) if k == FOLDED[2] else 0 for k in range(SHAPE[2])]
    assert_allclose(values(table, "Folded, strict (%)"), folded, atol=1e-6)
    lengths = {k: np.hypot(1.5 * motion[0], 2.0 * motion[1]) for k, motion in MOTIONS.items()}
    assert_allclose([values(table, "Mean motion (mm)")[k] for k in lengths], [*lengths.values()], atol=1e-6)


def test_what_cannot_be_measured_is_a_dash_without_a_bar(moved):
    cell = table_of(moved).measures[0].cells[0]
    assert (cell.text, cell.part, cell.value) == ("–", None, None)


def test_the_worst_slice_is_that_of_least_overlap(moved):
    """Slices 1 to 3 have labels; in the last of them the map was carried away."""
    labels = moved.warped_labels.copy()
    labels[..., 3] = np.roll(moved.fixed_labels[..., 3], 9, 1)
    table = table_of(replace(moved, warped_labels=labels))
    assert (table.worst, table.why) == (3, "lowest mean Dice, 0.000")


def test_where_one_mask_alone_shows_a_structure_there_is_no_dice(moved):
    """Slice 4 has label 7 in moving alone, slice 2 has label -2 in fixed alone: they count neither in the mean of a
    slice nor as the worst one."""
    labels = moved.warped_labels.copy()
    labels[4:10, 5:12, 4] = 7
    labels[..., 2][labels[..., 2] == -2] = 0
    table = table_of(replace(moved, moving_labels=labels, warped_labels=labels), names={"7": "RV"})
    rows = {measure.name: measure.cells for measure in table.measures}
    assert [cell.text for cell in rows["Dice RV"]][4] == "only in moving"
    assert [cell.text for cell in rows["Dice label -2"]][2] == "only in fixed"
    assert [(cell.part, cell.value) for cell in (rows["Dice RV"][4], rows["Dice label -2"][2])] == [(None, None)] * 2
    assert values(table, "Dice, mean")[2] == values(table, "Dice RV")[2] > 0.5
    assert np.isnan(values(table, "Dice, mean")[4])
    assert table.has_one_sided
    assert table.worst in (1, 2, 3)
    assert not table_of(moved).has_one_sided


def test_a_structure_that_the_motion_lost_is_the_fault_of_the_motion_unless_it_may_have_left_its_slice(moved):
    lost = moved.warped_labels.copy()
    lost[..., 3] = 0
    within = table_of(replace(moved, warped_labels=lost))
    assert (values(within, "Dice label 7")[3], within.has_one_sided) == (0, False)
    across = moved.field.copy()
    across[2] += 0.5
    through = table_of(replace(moved, warped_labels=lost, field=across))
    assert [cell.text for cell in through.measures[1].cells][3] == "only in fixed"


def test_the_tip_of_a_structure_is_not_the_worst_slice(moved):
    """One voxel, which was missed."""
    fixed, warped = moved.fixed_labels.copy(), moved.warped_labels.copy()
    fixed[3, 3, 4], warped[4, 3, 4] = 7, 7
    table = table_of(replace(moved, fixed_labels=fixed, moving_labels=warped, warped_labels=warped))
    assert values(table, "Dice, mean")[4] == 0
    assert table.worst != 4
    assert table.why.endswith("slices that show a tip of the structures are not ranked")
    assert "ranked" not in table_of(moved).why


def test_without_labels_the_worst_is_the_most_folded_and_else_the_least_alike(volume):
    bare = replace(volume, fixed_labels=None, moving_labels=None, warped_labels=None)
    table = table_of(bare, {})
    assert table.worst == FOLDED[2]
    assert [measure.name for measure in table.measures if measure.in_strip] == [
        "Correlation", "Folded, strict (%)", "Mean motion (mm)",
    ]  # fmt: skip
    still = table_of(replace(bare, field=0 * bare.field), {})
    assert still.worst == int(np.argmin(values(still, "Correlation")))


def test_of_many_structures_there_is_the_mean_alone(moved):
    generator = np.random.default_rng(0)
    maps = generator.integers(0, MAX_STRUCTURES + 2, (2, *SHAPE))
    many = replace(moved, fixed_labels=maps[0], moving_labels=maps[1], warped_labels=maps[1])
    table = table_of(many, label_colours([*range(1, MAX_STRUCTURES + 2)]))
    assert [measure.name for measure in table.measures][:2] == ["Dice, mean", "Dice, mean, before"]
    assert_allclose(values(table, "Dice, mean"), values(table, "Dice, mean, before"))


def test_one_slice_needs_no_table(single, heart):
    assert table_of(heart) is None
