import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from tests.images.conftest import smooth_transform, turn
from vrnet.errors import BadInput
from vrnet.images.grid import Affine, Grid
from vrnet.images.transforms import Transform, grid_of_range, round_trip, sample_transform, sampled_before, turned


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
    threshold, error, outside = round_trip(Transform(u, grid), Transform(0 * u, grid))
    assert outside == 0
    assert threshold == 2
    assert error.min() > 0
    assert_allclose(error.max(), 5)
    assert np.median(error) > 4
    assert len(np.unique(error)) > 1000, "linear between voxels"


def test_a_transform_that_moves_nothing_comes_back_to_where_it_was(d):
    still = Transform(np.zeros((d, *[12] * d)), Grid.plain((12,) * d, (1.0,) * d))
    threshold, error, _ = round_trip(still, still)
    assert threshold == 0
    assert_allclose(error, 0, atol=1e-9)


def test_what_draws_everything_together_is_drawn_apart_again(d):
    grid = Grid.plain((12,) * d, (1.0,) * d)
    x = np.indices(grid.shape).astype(float)
    found = Transform(-0.999 * (x - 5.5), grid).inverse()
    assert_allclose(found.transform.displacement, 999 * (x - 5.5), rtol=1e-3, atol=1)


def rigid(grid, degrees, shift):
    """A rotation about the centre of a grid, and a shift."""
    d, centre = len(grid.shape), grid.points((np.array([grid.shape]) - 1) / 2)[0]
    return Affine("rigid", turn(d, np.radians(degrees), 0.0, 0.0), np.full(d, shift), centre)


@pytest.mark.parametrize("shift", [0.0, 300.0])
def test_the_inverse_of_a_rigid_motion_is_that_of_simpleitk_up_to_the_edges_and_beyond(d, shift):
    """Nothing of the transform says what lies beyond its grid, but for the affine map that it is."""
    grid = Grid.plain((20, 24, 18)[:d], (1.5, 1.0, 2.0)[:d])
    affine = rigid(grid, 10.7, shift)
    back, residual = sample_transform(affine.itk, grid).inverse(turned(affine, grid))
    expected = sample_transform(affine.itk.GetInverse(), back.grid)
    assert_allclose(back.displacement, expected.displacement, atol=1e-4)
    assert residual.max() < 1e-3
    y = Grid(grid.shape, grid.spacing, tuple(o + shift + 6 for o in grid.origin), grid.direction)
    beyond, residual = sample_transform(affine.itk, grid).inverse(y)
    assert not grid.holds(affine.inverse().points(y.voxels())).all()
    assert_allclose(beyond.displacement, sample_transform(affine.itk.GetInverse(), y).displacement, atol=1e-4)
    assert residual.max() < 1e-3


def test_along_the_edges_of_fixed_a_deformation_with_an_affine_part_comes_back(d):
    """The motion beyond the affine part does not end at the border, and so must not the way back."""
    grid = Grid.plain((40, 36, 30)[:d], (2.0,) * d)
    deformation = smooth_transform(grid, amplitude=4.0, sigma=6.0)
    whole = deformation.followed_by(rigid(grid, 10.7, 5.0))
    back, residual = whole.inverse(grid_of_range(whole))
    assert residual.max() < 0.01
    x = grid.voxels()
    edge = (np.array(grid.shape) - 1 - (i := grid.index(x)) < 0.5).any(1) | (i < 0.5).any(1)
    assert np.linalg.norm(deformation.points(x[edge]) - x[edge], axis=1).mean() > 0.5
    assert np.percentile(np.linalg.norm(back.points(whole.points(x[edge])) - x[edge], axis=1), 95) < 0.3


@pytest.mark.parametrize(("degrees", "shift"), [(0, 2.0), (30, 400.0)])
def test_the_grid_of_the_range_holds_all_places_a_transform_leads_to_and_few_others(d, degrees, shift):
    grid = Grid.plain((40, 36, 30)[:d], (2.0, 1.0, 3.0)[:d])
    whole = smooth_transform(grid, amplitude=4.0, sigma=6.0).followed_by(rigid(grid, degrees, shift))
    found = grid_of_range(whole)
    assert found.holds(whole.ends()).all()
    assert np.prod(found.shape) < 2 * np.prod(grid.shape)


def test_a_transform_that_stays_within_its_grid_has_its_inverse_there(d):
    grid = Grid.plain((30,) * d, (2.0,) * d)
    u = np.zeros((d, *grid.shape))
    u[(0, *[slice(10, 14)] * d)] = 5.0
    assert grid_of_range(Transform(u, grid)) == grid


def test_no_grid_is_made_for_a_voxel_that_leads_far_away(d, as_users_run):
    u = np.zeros((d, *[12] * d))
    u[(0, *[6] * d)] = 1e5
    with pytest.raises(BadInput, match="far apart"):
        grid_of_range(Transform(u, Grid.plain((12,) * d, (1.0,) * d)))


def test_points_that_lead_out_of_the_inverse_are_counted_apart(d):
    """Half of the transform shifts out of the grid of the inverse; in the other half the way back is exact."""
    grid = Grid.plain((20,) * d, (1.0,) * d)
    u = np.zeros((d, *grid.shape))
    u[0] = 10.0
    _, error, outside = round_trip(Transform(u, grid), Transform(-u, grid))
    assert_allclose(outside, 0.5, atol=0.05)
    assert_allclose(error, 0, atol=1e-9)


@pytest.mark.parametrize("degrees", [0, 40])
def test_a_composite_is_sampled_where_it_leads_to_moving_from(d, degrees):
    """As that of ANTs, of an affine map and a field: the field comes first, near fixed, and moving lies elsewhere."""
    grid = Grid.plain((30, 28, 26)[:d], (2.0,) * d)
    affine, field = rigid(grid, degrees, 700.0), smooth_transform(grid, amplitude=3.0, sigma=6.0)
    moving = turned(affine, grid)
    there = sampled_before(sitk.CompositeTransform([affine.itk, field.itk]), moving)
    assert there.grid.matches(grid)
    assert_allclose(there.displacement, field.followed_by(affine).displacement, atol=1e-6)
