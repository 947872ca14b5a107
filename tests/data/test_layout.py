import numpy as np
import pytest

from vrnet import Grid
from vrnet.data.layout import batched, common_grid, common_shape, common_spacing, dimension
from vrnet.registration.images import choose_slice_axis

PICTURE, VOLUME = Grid.plain((50, 40), (1.0, 1.0)), Grid.plain((30, 40, 50), (1.0, 1.2, 1.0))
STACK = Grid.plain((9, 60, 50), (8.0, 1.367, 1.367))
SINGLE = Grid.plain((60, 50, 1), (1.5, 1.5, 1.5))
BARELY = Grid.plain((60, 50, 8), (2.0, 2.0, 6.0))
grids = pytest.mark.parametrize("grid", [PICTURE, VOLUME, STACK, SINGLE, BARELY])


@grids
def test_slices_are_images_where_vrnet_register_takes_them_one_by_one(grid):
    axis = choose_slice_axis(grid, "auto")
    assert grid.stacked_across == axis
    assert dimension(grid) == len(grid.shape) - (axis is not None)


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
    d = dimension(grid)
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
    assert batched(array, None).shape == (1, 1, 2, 3, 4)
    assert (batched(array, 1)[2, 0].numpy() == array[:, 2]).all()
