import numpy as np
import pytest

from vrnet import Grid
from vrnet.data.centred import centred, forward_axes, on_voxels

TURNED = (0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
OWN = Grid((9, 12, 5), (1.2, 1.0, 8.0), (3.0, -7.0, 50.0), TURNED)


def middle(grid):
    return grid.points((np.array([grid.shape]) - 1) / 2)[0]


@pytest.mark.parametrize("axes", [OWN.axes, np.eye(3)])
def test_the_centre_stays_where_it_is(axes):
    grid = centred(OWN, (16, 16, 8), (1.5, 2.0, 3.0), axes)
    np.testing.assert_allclose(middle(grid), middle(OWN))
    np.testing.assert_allclose(grid.axes, axes)


def test_voxels_of_the_same_spacing_fall_on_voxels_less_than_one_away():
    grid = on_voxels(centred(OWN, (16, 15, 6), OWN.spacing, OWN.axes), OWN)
    index = OWN.index(grid.points(np.array([[0.0, 0, 0], [15, 14, 5]])))
    np.testing.assert_allclose(index, np.round(index), atol=1e-9)
    assert (np.abs(OWN.index(middle(grid)[None]) - OWN.index(middle(OWN)[None])) <= 0.5 + 1e-9).all()


def test_the_first_voxel_goes_to_the_nearest_of_the_image():
    origin = OWN.points(np.array([[2.3, 4.7, -1.4]]))[0]
    moved = on_voxels(Grid((4, 4, 4), (2.0, 2.0, 2.0), tuple(origin.tolist()), OWN.direction), OWN)
    np.testing.assert_allclose(OWN.index(np.array([moved.origin])), [[2, 5, -1]], atol=1e-9)
    assert (moved.shape, moved.spacing, moved.direction) == ((4, 4, 4), (2.0, 2.0, 2.0), OWN.direction)


def test_forward_axes_run_with_the_world_along_the_same_lines():
    axes = forward_axes(OWN)
    assert (axes[np.abs(axes).argmax(0), range(3)] > 0).all()
    np.testing.assert_allclose(np.abs(axes), np.abs(OWN.axes))
