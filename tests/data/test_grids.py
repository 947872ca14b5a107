import numpy as np
import pytest

from vrnet import Grid
from vrnet.data.protocols import (
    centred_grid,
    common_grid,
    common_shape,
    common_spacing,
    registered_dimension,
    snap_to_voxels,
    to_batch,
)
from vrnet.registration.images import choose_slice_axis

TURNED = (0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
OWN = Grid((9, 12, 5), (1.2, 1.0, 8.0), (3.0, -7.0, 50.0), TURNED)
PICTURE, VOLUME = Grid.plain((50, 40), (1.0, 1.0)), Grid.plain((30, 40, 50), (1.0, 1.2, 1.0))
STACK = Grid.plain((9, 60, 50), (8.0, 1.367, 1.367))
SINGLE = Grid.plain((60, 50, 1), (1.5, 1.5, 1.5))
BARELY = Grid.plain((60, 50, 8), (2.0, 2.0, 6.0))
grids = pytest.mark.parametrize("grid", [PICTURE, VOLUME, STACK, SINGLE, BARELY])


def middle(grid):
    return grid.points((np.array([grid.shape]) - 1) / 2)[0]


@pytest.mark.parametrize("axes", [OWN.axes, np.eye(3)])
def test_the_centre_stays_where_it_is(axes):
    grid = centred_grid(OWN, (16, 16, 8), (1.5, 2.0, 3.0), axes)
    np.testing.assert_allclose(middle(grid), middle(OWN))
    np.testing.assert_allclose(grid.axes, axes)


def test_voxels_of_the_same_spacing_fall_on_voxels_less_than_one_away():
    grid = snap_to_voxels(centred_grid(OWN, (16, 15, 6), OWN.spacing, OWN.axes), OWN)
    index = OWN.index(grid.points(np.array([[0.0, 0, 0], [15, 14, 5]])))
    np.testing.assert_allclose(index, np.round(index), atol=1e-9)
    assert (np.abs(OWN.index(middle(grid)[None]) - OWN.index(middle(OWN)[None])) <= 0.5 + 1e-9).all()


def test_the_first_voxel_goes_to_the_nearest_of_the_image():
    origin = OWN.points(np.array([[2.3, 4.7, -1.4]]))[0]
    moved = snap_to_voxels(Grid((4, 4, 4), (2.0, 2.0, 2.0), tuple(origin.tolist()), OWN.direction), OWN)
    np.testing.assert_allclose(OWN.index(np.array([moved.origin])), [[2, 5, -1]], atol=1e-9)
    assert (moved.shape, moved.spacing, moved.direction) == ((4, 4, 4), (2.0, 2.0, 2.0), OWN.direction)


def test_forward_axes_run_with_the_world_along_the_same_lines():
    axes = OWN.forward_axes
    assert (axes[np.abs(axes).argmax(0), range(3)] > 0).all()
    np.testing.assert_allclose(np.abs(axes), np.abs(OWN.axes))


@grids
def test_slices_are_images_where_vrnet_register_takes_them_one_by_one(grid):
    axis = choose_slice_axis(grid, "auto")
    assert grid.stacked_across == axis
    assert registered_dimension(grid) == len(grid.shape) - (axis is not None)


def test_the_spacing_is_rounded_to_three_digits_and_leaves_out_that_across_slices():
    assert common_spacing(STACK) == (1.37, 1.37)
    assert common_spacing(VOLUME) == (1.0, 1.2, 1.0)
    assert common_spacing(Grid.plain((9, 9), (0.00123456, 0.5))) == (0.00123, 0.5)


def test_the_shape_has_room_for_the_largest_in_multiples_of_16():
    assert common_shape([PICTURE, Grid.plain((20, 80), (1.0, 1.0))], (1.0, 1.0)) == (64, 80)
    assert common_shape([Grid.plain((160, 160), (1.8, 1.8))], (1.8, 1.8)) == (160, 160)
    assert common_shape([Grid.plain((161, 160), (1.8, 1.8))], (1.8, 1.8)) == (176, 160)
    stored = float(np.float32(1.2))  # as a NIfTI header has it: a little more
    assert common_shape([Grid.plain((128, 96), (stored, stored))], (1.2, 1.2)) == (128, 96)
    assert common_shape([STACK], (1.0, 1.0)) == (96, 80)


@grids
def test_the_grid_of_an_image_is_about_its_centre_and_keeps_its_slices(grid):
    d = registered_dimension(grid)
    found = common_grid(grid, (64, 80, 96)[:d], (1.1, 1.2, 1.3)[:d])
    middles = [own.points((np.array([own.shape]) - 1) / 2) for own in (grid, found)]
    np.testing.assert_allclose(*middles)
    axis = grid.stacked_across
    kept = list(found.shape)
    if axis is not None:
        assert (kept.pop(axis), found.spacing[axis]) == (grid.shape[axis], grid.spacing[axis])
    assert tuple(kept) == (64, 80, 96)[:d]


def test_slices_are_a_batch():
    array = np.arange(24).reshape(2, 3, 4)
    assert to_batch(array, None).shape == (1, 1, 2, 3, 4)
    assert (to_batch(array, 1)[2, 0].numpy() == array[:, 2]).all()
