"""The mask of a pair is drawn, and what is shown first is where it is."""

from dataclasses import replace

import numpy as np
import pytest

from vrnet.images.grid import Grid
from vrnet.report.figures import overview
from vrnet.report.page import page_data, render_page, slice_table
from vrnet.report.pair import View, appearance, orient_for_viewing, slice_pair
from vrnet.report.viewer3d import find_start, volume_data

WORDS = "mask: inside it the images were compared"


def bare(pair):
    return replace(pair, fixed_labels=None, moving_labels=None, warped_labels=None)


@pytest.fixture
def masked(volume):
    """A stack with a mask in its last slice alone, where there is no structure."""
    mask = np.zeros(volume.fixed.shape, bool)
    mask[3:9, 4:10, -1] = True
    return replace(volume, mask=mask)


@pytest.fixture
def brain():
    """A volume that is shown in planes, with a small mask in a corner of it."""
    generator, shape = np.random.default_rng(0), (40, 30, 20)
    images, mask = generator.uniform(0, 1, (3, *shape)), np.zeros(shape, bool)
    mask[4:9, 5:10, 12:17] = True
    return View(*images, np.zeros((3, *shape)), Grid.plain(shape, (1.0, 1.0, 1.0)), mask=mask)


def test_without_structures_the_first_slice_is_where_the_mask_is(masked):
    assert bare(masked).main_slice() == masked.fixed.shape[2] - 1
    assert bare(replace(masked, mask=None)).main_slice() == masked.fixed.shape[2] // 2


def test_of_structures_those_inside_the_mask_are_shown_first(volume):
    """The largest slice of all is another."""
    mask = np.zeros(volume.fixed.shape, bool)
    mask[..., 3] = True
    assert replace(volume, mask=mask).main_slice() == 3
    assert volume.main_slice() != 3


def test_the_planes_of_a_volume_meet_in_the_mask(brain):
    assert find_start(brain) == (6, 7, 14)
    assert find_start(replace(brain, mask=None)) == (20, 15, 10)
    assert "mask" in volume_data(brain, appearance(brain))["maps"]
    assert "mask" not in volume_data(replace(brain, mask=None), appearance(brain))["maps"]


def test_the_sheets_of_a_stack_have_the_mask(masked):
    shown = orient_for_viewing(masked)
    slices = slice_pair(shown)
    assert np.array_equal(slices.mask, shown.mask)
    assert "mask" in page_data(shown, slices, appearance(shown), {})["sheets"]


def test_the_legend_says_what_the_line_is_where_there_is_one(masked):
    assert WORDS in render_page(masked, {}, [], {})
    assert WORDS not in render_page(replace(masked, mask=None), {}, [], {})


def test_the_picture_has_a_contour_of_the_mask_and_says_so(masked):
    figure, plain = overview(bare(masked), "TV-L1"), overview(bare(replace(masked, mask=None)), "TV-L1")
    assert "dotted: the mask" in figure._suptitle.get_text()
    assert "mask" not in plain._suptitle.get_text()
    assert [len(ax.collections) for ax in figure.axes[:3]] == [1, 1, 1]
    assert [len(ax.collections) for ax in plain.axes[:3]] == [0, 0, 0]


def test_slices_are_compared_inside_the_mask_and_the_worst_is_one_that_has_it(masked):
    shown = bare(orient_for_viewing(replace(masked, field=0 * masked.field)))
    table = slice_table(shown, slice_pair(shown), {}, {})
    alike = next(measure for measure in table.measures if measure.name == "Correlation in mask")
    fixed, warped = (image[shown.mask] for image in (shown.fixed, shown.warped))
    known = [cell.value for cell in alike.cells if cell.value is not None]
    assert known == [pytest.approx(np.corrcoef(fixed, warped)[0, 1], abs=1e-5)]
    assert shown.mask[..., table.worst].any()
