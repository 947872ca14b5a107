import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.images.conftest import smooth_transform, turn
from vrnet.images.affine import Affine
from vrnet.images.grid import Grid
from vrnet.images.inverse import round_trip
from vrnet.images.transform import Transform


@pytest.mark.parametrize("degrees", [30, 150])
def test_a_deformation_with_a_large_affine_part_has_an_inverse_on_the_grid_of_moving(d, degrees):
    """Iteration alone does not find the way back from so far."""
    grid = Grid.plain((40, 36, 30)[:d], (2.0,) * d)
    centre = grid.points((np.array([grid.shape]) - 1) / 2)[0]
    affine = Affine("affine", 1.1 * turn(d, np.radians(degrees), 0.1, 0.2), np.full(d, 500.0), centre)
    whole = smooth_transform(grid, amplitude=2.0, sigma=6.0).followed_by(affine)
    moving = Grid(
        tuple(2 * n for n in grid.shape),
        grid.spacing,
        tuple((centre + 500 - np.multiply(grid.shape, 2.0)).tolist()),
        grid.direction,
    )
    back = whole.inverse(moving).transform
    x = grid.points(np.random.default_rng(0).uniform(6, np.array(grid.shape) - 7, (200, d)))
    assert np.percentile(np.linalg.norm(back.points(whole.points(x)) - x, axis=1), 95) < 0.2


def test_a_round_trip_looks_where_things_move_and_between_voxels(d):
    """Back by nothing: points end as far away as they moved, and no still background dilutes that."""
    grid = Grid.plain((30,) * d, (2.0,) * d)
    u = np.zeros((d, *grid.shape))
    u[(0, *[slice(10, 14)] * d)] = 5.0
    threshold, error = round_trip(Transform(u, grid), Transform(0 * u, grid))
    assert threshold == 2
    assert error.min() > 0
    assert_allclose(error.max(), 5)
    assert np.median(error) > 4
    assert len(np.unique(error)) > 1000, "linear between voxels"


def test_a_transform_that_moves_nothing_comes_back_to_where_it_was(d):
    still = Transform(np.zeros((d, *[12] * d)), Grid.plain((12,) * d, (1.0,) * d))
    threshold, error = round_trip(still, still)
    assert threshold == 0
    assert_allclose(error, 0, atol=1e-9)


def test_what_draws_everything_together_is_inverted_as_well_as_can_be(d):
    grid = Grid.plain((12,) * d, (1.0,) * d)
    x = np.indices(grid.shape).astype(float)
    found = Transform(-0.999 * (x - 5.5), grid).inverse()
    assert np.isfinite(found.transform.displacement).all()
    assert found.residual.max() > 1
