import warnings

import numpy as np
import pytest

from vrnet import Grid, Image, InputWarning, Transform
from vrnet.images.grid import Affine
from vrnet.registration.masks import compared_voxels

GRID = Grid.plain((20, 20), (1.0, 1.0))


def disc_at(i, j):
    """A mask of five by five pixels."""
    mask = np.zeros(GRID.shape, np.uint8)
    mask[i - 2 : i + 3, j - 2 : j + 3] = 1
    return Image(mask, GRID)


def shift_by(pixels):
    """The transform that takes x to x + pixels along the first axis."""
    u = np.zeros((2, *GRID.shape), np.float32)
    u[0] = pixels
    return Transform.from_voxels(u, GRID)


def test_masks_without_a_voxel_in_common_are_told_of_and_that_of_fixed_is_taken():
    fixed, moving = disc_at(4, 4), disc_at(15, 15)
    with pytest.warns(InputWarning, match="no voxel in common") as told:
        found = compared_voxels(fixed, moving, GRID, shift_by(0.0))
    assert len(told) == 1
    assert np.array_equal(found, fixed.array > 0)


@pytest.mark.parametrize("pixels", [0.0, 2.0, 8.0])
def test_masks_that_the_transform_brings_together_are_not_told_of(pixels):
    """Wherever headers put them; where they met before, the voxels of both before and after are compared."""
    fixed, moving = disc_at(6, 8), disc_at(round(6 + pixels), 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        found = compared_voxels(fixed, moving, GRID, shift_by(pixels))
    both = (fixed.array > 0) & (moving.array > 0)
    assert np.array_equal(found, both if both.any() else fixed.array > 0)


def test_after_an_affine_start_masks_are_compared_where_it_put_them():
    """Headers put these masks two pixels apart, and would leave three of five columns."""
    fixed, moving = disc_at(6, 8), disc_at(8, 8)
    start = Affine("rigid", np.eye(2), np.array([2.0, 0.0]), np.zeros(2))
    found = compared_voxels(fixed, moving, GRID, shift_by(2.0), start)
    assert np.array_equal(found, fixed.array > 0)
