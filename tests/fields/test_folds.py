import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.conftest import SHAPES
from tests.tetrahedra import checkerboard, relative_volumes, times_covered
from vrnet import BadInput, Grid, Transform
from vrnet.devices import use_threads
from vrnet.fields.calculus import determinant, jacobian
from vrnet.fields.folds import CELLS_AT_ONCE, MARGIN, smallest_determinant, unfold


def smooth_noise(shape, sigma=1.0, seed=0):
    """A random field (1, d, *s) of standard deviation 1 that is zero at the border."""
    rng = np.random.default_rng(seed)
    u = np.stack([ndimage.gaussian_filter(rng.standard_normal(shape), sigma) for _ in shape])
    inner = np.pad(np.ones([n - 4 for n in shape]), 2)
    return torch.from_numpy(u / u.std() * ndimage.uniform_filter(inner, 3))[None]


def barely_unfolded(shape, seed=0):
    """A field, zero at the border, and the same a little larger, of which the second folds."""
    u, scale = smooth_noise(shape, seed=seed), 4.0
    while smallest_determinant(scale * u).min() <= 0:
        scale *= 0.9
    return scale * u, scale / 0.9 * u


def test_the_determinants_are_the_volumes_of_both_cuts(d, random):
    u = 0.4 * random(1, d, *SHAPES[d])
    least, volumes = smallest_determinant(u), relative_volumes(u[0].numpy())
    np.testing.assert_allclose(least.min(), volumes.min())
    assert (least <= 0).any()
    assert volumes.shape == ({2: 4, 3: 10}[d], np.prod(np.array(SHAPES[d]) - 1))


@pytest.mark.parametrize("axis", [0, 2])
def test_every_cell_is_counted_also_at_the_far_border(d, axis):
    """A voxel that jumps over its neighbour, anywhere on the border, is a fold."""
    for at in np.ndindex(*[2] * d):
        u = torch.zeros(1, d, *[5] * d)
        place = tuple(4 * k for k in at)
        u[(0, axis % d, *place)] = -1.5 if at[axis % d] else 1.5
        folded = smallest_determinant(u) <= 0
        assert folded[(0, *place)]
        assert folded.any() == (relative_volumes(u[0].numpy()) <= 0).any()


def test_a_twist_folds_the_middle_tetrahedra_alone():
    """Two faces of a cube turned by 60° against each other, to and fro: at each corner the edges of the face span 1 and
    the third leads to the other face, so these 8 are 1; the diagonals of both faces, at 90° before, span cos 120°."""
    u = torch.zeros(1, 3, 2, 2, 2, dtype=torch.float64)
    corners = torch.tensor([[x, y] for x in (-0.5, 0.5) for y in (-0.5, 0.5)], dtype=torch.float64)
    for z, angle in ((0, -np.pi / 3), (1, np.pi / 3)):
        turn = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        u[0, :2, :, :, z] = (corners @ turn.T - corners).T.view(2, 2, 2)
    least = smallest_determinant(u)[0]
    np.testing.assert_allclose(least[0, 0, 0], np.cos(2 * np.pi / 3))
    assert least.flatten()[1:].min() > 0.999
    volumes = relative_volumes(u[0].numpy())[:, 0]
    np.testing.assert_allclose(sorted(volumes), [-0.5] * 2 + [1] * 8)


@pytest.mark.parametrize("first", [0, 1])
def test_where_all_are_positive_the_piecewise_linear_map_is_injective(d, first):
    """Nothing moves at the border, so that the grid is mapped onto itself: then each point is covered once. Of the
    larger field, which folds, some points are covered three times."""
    shape = (9,) * 2 if d == 2 else (7,) * 3
    points = 1 + np.random.default_rng(0).random((200, d)) * (np.array(shape) - 3)
    one_to_one, folded = barely_unfolded(shape)
    assert (times_covered(checkerboard(one_to_one[0].numpy(), first), points) == 1).all()
    larger = times_covered(checkerboard(2 * folded[0].numpy(), first), points)
    assert larger.max() >= 3


def test_in_2d_the_bilinear_map_is_as_positive_as_its_corners(random):
    """Its determinant is linear inside a cell, so that the least of it is at a corner."""
    u, f = 0.5 * random(1, 2, 2, 2), np.linspace(0, 1, 11)
    a, b = np.meshgrid(f, f, indexing="ij")
    p = u[0].numpy() + np.indices((2, 2))
    along0 = (p[:, 1, 0] - p[:, 0, 0])[:, None, None] * (1 - b) + (p[:, 1, 1] - p[:, 0, 1])[:, None, None] * b
    along1 = (p[:, 0, 1] - p[:, 0, 0])[:, None, None] * (1 - a) + (p[:, 1, 1] - p[:, 1, 0])[:, None, None] * a
    sampled = along0[0] * along1[1] - along0[1] * along1[0]
    np.testing.assert_allclose(sampled.min(), smallest_determinant(u).min())


def test_an_affine_map_has_one_determinant(d, random):
    A = 0.3 * random(d, d)
    x = torch.from_numpy(np.indices(SHAPES[d]).astype(float))
    least = smallest_determinant(torch.einsum("ij,j...->i...", A, x)[None])
    torch.testing.assert_close(least, torch.linalg.det(A + torch.eye(d)).expand_as(least))


def test_a_single_slice_does_not_vary_across_itself(random):
    u = random(1, 2, 12, 10)
    for axis in range(3):
        slab = torch.cat([u[:, :axis], random(1, 1, 12, 10), u[:, axis:]], dim=1).unsqueeze(2 + axis)
        assert torch.equal(smallest_determinant(slab).squeeze(1 + axis), smallest_determinant(u))
    assert torch.equal(smallest_determinant(random(1, 2, 1, 1)), torch.ones(1, 1, 1))


def test_it_does_not_matter_how_many_cells_are_computed_together(d, random, monkeypatch):
    u = random(2, d, *SHAPES[d])
    assert u[0, 0].numel() < CELLS_AT_ONCE
    whole = smallest_determinant(u)
    monkeypatch.setattr("vrnet.fields.folds.CELLS_AT_ONCE", 1)
    assert torch.equal(smallest_determinant(u), whole)


def test_a_fold_one_voxel_wide_is_seen():
    u = torch.zeros(1, 2, 9, 9)
    u[0, 0, 4, 4] = 1.5  # this voxel jumps over its neighbour; central differences there look past it
    assert determinant(jacobian(u))[0, 4, 4] == 1
    assert smallest_determinant(u)[0, 4, 4] < 0


def test_what_does_not_move_does_not_fold(d):
    assert torch.equal(smallest_determinant(torch.zeros(2, d, *SHAPES[d])), torch.ones(2, *SHAPES[d]))


def folds(u):
    """How many simplices of a batch of fields are flat or turned round, by their volumes."""
    return sum((relative_volumes(field.numpy()) <= 0).sum() for field in u)


def test_a_field_without_folds_stays_as_it_is(d):
    u, _ = barely_unfolded(SHAPES[d])
    assert unfold(0.9 * u).folded.sum() == 0
    kept = 0.9 * u
    assert unfold(kept).field is kept


@pytest.mark.release
def test_no_field_folds_after_repair(d):
    """White noise and smooth noise, from a part of a voxel to a million voxels."""
    for amplitude, sigma in ((0.3, 0.0), (1.0, 1.0), (5.0, 3.0), (100.0, 0.0), (1e6, 1.0)):
        u = amplitude * torch.cat([smooth_noise(SHAPES[d], sigma, seed) for seed in range(2)]).float()
        fixed, folded, _ = unfold(u)
        assert torch.equal(folded, ~(smallest_determinant(u) > 0))
        assert folds(fixed) == 0
        assert smallest_determinant(fixed).min() >= MARGIN


@pytest.mark.parametrize("d", [2, pytest.param(3, marks=pytest.mark.release)])
def test_displacements_whose_products_overflow_have_an_end(d):
    u = 1e30 * smooth_noise((8,) * d).float()
    assert smallest_determinant(u).isnan().any()
    assert smallest_determinant(unfold(u).field).min() >= MARGIN


def test_no_grid_is_too_small():
    for shape in ((2, 2), (30, 1), (1, 7, 9), (2, 2, 2)):
        u = 3 * torch.randn(2, len(shape), *shape, generator=torch.Generator().manual_seed(1))
        fixed = unfold(u).field
        assert smallest_determinant(u).min() < 0
        assert smallest_determinant(fixed).min() >= MARGIN
        flat = [i for i, n in enumerate(shape) if n == 1]
        assert torch.equal(fixed[:, flat], u[:, flat])


def test_constant_motion_is_kept_by_a_repair_that_has_to_shrink(d, monkeypatch):
    monkeypatch.setattr("vrnet.fields.folds.MAX_ROUNDS", 0)
    u = 7 + 20 * smooth_noise(SHAPES[d])
    fixed = unfold(u).field
    assert folds(fixed) == 0
    centre = u.mean(tuple(range(2, 2 + d)), keepdim=True)
    ratio = (fixed - centre) / (u - centre)
    torch.testing.assert_close(ratio, ratio.flatten()[0].expand_as(ratio))
    assert 1 / 200 < ratio.mean() < 1


def test_a_repair_is_local_and_moves_less_than_smoothing(d):
    """Less than a Gaussian of one voxel, around every fold and again and again until none is left."""
    u = torch.zeros(1, d, *[30] * d)
    u[(0, 0, *[slice(12, 17)] * d)] = 2.5
    fixed = unfold(u).field
    smoothed = u.clone()
    while (smallest_determinant(smoothed) <= 0).any():
        near = ndimage.binary_dilation((smallest_determinant(smoothed) <= 0)[0].numpy(), np.ones([3] * d))
        gaussian = ndimage.gaussian_filter(smoothed.numpy(), [0, 0, *[1] * d], mode="nearest")
        smoothed = torch.from_numpy(np.where(near, gaussian, smoothed.numpy()))
    assert (fixed - u).square().sum() < 0.9 * (smoothed - u).square().sum()
    far = torch.ones_like(u, dtype=torch.bool)
    far[(slice(None), slice(None), *[slice(7, 22)] * d)] = False
    assert torch.equal(fixed[far], u[far])


def turned_ball(d, n, radius, centre):
    """A ball turned by 180°, which no small move undoes, and a bump of four voxels in the far corner."""
    x = torch.stack(torch.meshgrid(*[torch.arange(n, dtype=torch.float32)] * d, indexing="ij"))
    away = x - centre
    is_inside = away.square().sum(0) <= radius**2
    turn = torch.where(is_inside, -2 * away[:2], 0)
    turn = turn if d == 2 else torch.cat([turn, torch.zeros_like(x[:1])])
    bump = 4 * torch.exp(-(x - (n - 7)).square().sum(0) / 18)
    return torch.cat([turn[:1] + bump, turn[1:]])[None], is_inside


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_stubborn_fold_costs_the_motion_around_it_and_no_other(d, rounds, monkeypatch):
    monkeypatch.setattr("vrnet.fields.folds.MAX_ROUNDS", rounds)
    n, radius, centre = (72, 8, 20) if d == 2 else (30, 3, 8)
    u, is_inside = turned_ball(d, n, radius, centre)
    fixed, _, drawn = unfold(u)
    assert folds(fixed) == 0
    assert smallest_determinant(fixed).min() >= MARGIN
    assert drawn[0][is_inside].all()
    untouched = ~drawn if rounds == 0 else ~drawn & (smallest_determinant(u) > 1 - 1e-3)
    assert torch.equal(fixed.movedim(1, -1)[untouched], u.movedim(1, -1)[untouched])
    corner = (..., *[slice(n - 14, n)] * d)
    assert not drawn[corner].any()
    assert torch.equal(fixed[corner], u[corner])
    assert u[corner].max() > 3.9


def test_folds_that_widening_opens_cost_no_motion(monkeypatch):
    """A smoothing that reached no further than the folds could not open them."""
    u, _ = turned_ball(2, 48, 10, 20)
    assert not unfold(u).drawn.any()
    monkeypatch.setattr("vrnet.fields.folds.ROUNDS_PER_WIDENING", 10**9)
    assert unfold(u).drawn.any()


def test_fields_of_a_batch_do_not_touch(d):
    u = 3 * torch.cat([smooth_noise(SHAPES[d], 1, seed) for seed in range(3)])
    u[1] = 0
    together, alone = unfold(u).field, torch.cat([unfold(field[None]).field for field in u])
    assert torch.equal(together, alone)


def test_the_repair_is_the_same_by_any_number_of_threads(d):
    u = 3 * smooth_noise((60, 64) if d == 2 else (24, 22, 20), 1.5)
    found = []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(unfold(u).field)
    assert torch.equal(*found)


@pytest.mark.parametrize("spacing", [(1.8, 1.8, 10.0), (2e-4, 3e-4, 3e-4)])
def test_a_repaired_transform_does_not_fold_once_saved(d, spacing, tmp_path):
    """Files hold rounded millimetres along the world's axes."""
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((d, d)))[0]
    grid = Grid(SHAPES[d], spacing[:d], (10.0, -20.0, 5.0)[:d], tuple(turn.ravel()))
    fixed = unfold(4 * smooth_noise(SHAPES[d]).float()).field
    Transform.from_voxels(fixed[0].numpy(), grid).save(tmp_path / "transform.nii.gz")
    again = torch.from_numpy(Transform.load(tmp_path / "transform.nii.gz").in_voxels())[None]
    assert not torch.equal(again, fixed)
    assert folds(again) == 0


def test_a_field_of_nan_is_refused(d):
    u = torch.zeros(1, d, *SHAPES[d])
    u[..., 3] = torch.nan
    with pytest.raises(BadInput, match="NaN"):
        unfold(u)
