import numpy as np
import SimpleITK as sitk
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

from tests.conftest import SHAPES
from vrnet.images.grid import Grid


def test_to_world_takes_a_voxel_where_simpleitk_says_it_is(d):
    R = Rotation.from_euler("zyx", [0.4, 0.0 if d == 2 else 0.3, 0.0 if d == 2 else -0.7]).as_matrix()[:d, :d]
    grid = Grid(SHAPES[d], (1.3, 0.7, 2.5)[:d], (10.0, -20.0, 5.0)[:d], tuple(R.ravel().tolist()))
    image = sitk.Image(grid.shape, sitk.sitkUInt8)
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin)
    image.SetDirection(grid.direction)
    for index in [(0,) * d, (1, 2, 3)[:d], (7, 0, 5)[:d]]:
        assert_allclose(grid.origin + grid.to_world @ index, image.TransformIndexToPhysicalPoint(index))


def test_the_plain_grid_only_scales(d):
    grid = Grid.plain(SHAPES[d], (1.5, 0.5, 4.0)[:d])
    assert_allclose(grid.to_world, np.diag(grid.spacing))
    assert not any(grid.origin)
