import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import ndimage

from vrnet import Grid, Image
from vrnet.data.labels import fill_holes, find_cavity, label_in_cavity

RV, WALL, LV = 1, 2, 3


def short_axis(shape=(40, 40, 3), is_open=False):
    """A ring about the LV with the RV beside it, in every slice across the last axis."""
    x, y = np.meshgrid(np.arange(shape[0]) - 20, np.arange(shape[1]) - 20, indexing="ij")
    r = np.hypot(x, y)
    plane = np.where(r < 7, LV, np.where(r < 11, WALL, np.where(np.hypot(x - 13, y) < 6, RV, 0)))
    plane[(plane == WALL) & (y > 4) & is_open] = 0
    return np.repeat(plane[..., None], shape[2], 2) if len(shape) == 3 else plane


def image(array, order=None):
    own = Image(array.astype(np.uint8), Grid.plain(array.shape, (1.5, 1.5, 8.0)[: array.ndim]))
    return own if order is None else own.reordered(order)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 2, 1)])
def test_the_wall_encloses_the_lv_whatever_its_number_and_whichever_axis_slices_lie_across(order):
    labels = short_axis()
    assert label_in_cavity([image(labels, order)], WALL, (LV, RV)) == LV
    exchanged = np.array([0, 3, 2, 1])[labels]
    assert label_in_cavity([image(exchanged, order)], WALL, (LV, RV)) == RV


def test_one_slice_of_two_axes_tells_too():
    assert label_in_cavity([image(short_axis((40, 40)))], WALL, (RV, LV)) == LV


def test_open_walls_do_not_tell_and_are_outvoted():
    closed, arcs = short_axis(), short_axis(is_open=True)
    assert label_in_cavity([image(arcs)], WALL, (LV, RV)) is None
    assert label_in_cavity([image(0 * arcs)], WALL, (LV, RV)) is None
    assert label_in_cavity([image(arcs), image(closed)], WALL, (LV, RV)) == LV


def test_a_pit_in_the_wall_is_no_cavity():
    """One voxel of another label within an open wall, as outlines leave behind, tells nothing."""
    arcs = short_axis(is_open=True)
    arcs[11, 20, :] = RV
    assert (arcs[10, 20] == arcs[12, 20]).all()
    assert label_in_cavity([image(arcs)], WALL, (LV, RV)) is None
    assert not find_cavity(arcs[..., 0] == WALL).any()


def test_holes_are_filled_slice_by_slice_as_by_scipy():
    slices = np.random.default_rng(0).random((5, 24, 20)) < 0.6
    assert_array_equal(fill_holes(slices), [ndimage.binary_fill_holes(mask) for mask in slices])


def test_a_bay_that_the_border_of_the_image_closes_is_no_hole():
    bay = np.zeros((1, 6, 6), bool)
    bay[0, :4, [1, 4]] = bay[0, 3, 1:5] = True
    assert_array_equal(fill_holes(bay), bay)
