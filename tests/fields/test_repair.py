import numpy as np
import pytest
import torch
from scipy import ndimage, sparse

from tests.conftest import SHAPES
from tests.test_folds import barely_unfolded, smooth_noise
from tests.tetrahedra import relative_volumes
from vrnet import BadInput, Grid, Transform
from vrnet.devices import use_threads
from vrnet.fields.folds import MARGIN, Mesh, flatten, smallest_determinant, unfold


def folds(u):
    """How many simplices of a batch of fields are flat or turned round, by their volumes."""
    return sum((relative_volumes(field.numpy()) <= 0).sum() for field in u)


def test_a_field_without_folds_stays_as_it_is(d):
    u, _ = barely_unfolded(SHAPES[d])
    assert unfold(0.9 * u).folded.sum() == 0
    kept = 0.9 * u
    assert unfold(kept).field is kept


@pytest.mark.parametrize("amplitude", [0.3, 1.0, 5.0, 100.0, 1e6])
@pytest.mark.parametrize("sigma", [0.0, 1.0, 3.0])
def test_no_field_folds_after_repair(d, amplitude, sigma):
    """White noise and smooth noise, from a part of a voxel to a million voxels."""
    u = amplitude * torch.cat([smooth_noise(SHAPES[d], sigma, seed) for seed in range(2)]).float()
    fixed, folded, _ = unfold(u)
    assert torch.equal(folded, ~(smallest_determinant(u) > 0))
    assert folds(fixed) == 0
    assert smallest_determinant(fixed).min() >= MARGIN


def test_displacements_whose_products_overflow_have_an_end(d):
    u = 1e30 * smooth_noise(SHAPES[d]).float()
    assert smallest_determinant(u).isnan().any()
    assert smallest_determinant(unfold(u).field).min() >= MARGIN


@pytest.mark.parametrize("shape", [(2, 2), (2, 40), (30, 1), (1, 7, 9), (2, 2, 2), (3, 2, 25)])
def test_no_grid_is_too_small(shape):
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


def test_the_smoothest_field_solves_laplaces_equation_as_scipy_does(d):
    """At the voxels of a box, also at the border of the image, where the last voxel is repeated."""
    shape = (14, 12) if d == 2 else (9, 8, 7)
    u = smooth_noise(shape, 1.0)
    mesh, inside = Mesh.of(u), np.zeros(shape, bool)
    inside[(slice(0, 6), *[slice(2, 6)] * (d - 1))] = True
    number = np.full(shape, -1)
    number[inside] = np.arange(inside.sum())
    A, b = sparse.lil_matrix((inside.sum(), inside.sum())), np.zeros((inside.sum(), d))
    for x in np.argwhere(inside):
        i = number[tuple(x)]
        A[i, i] += 2 * d
        for step in np.vstack([np.eye(d, dtype=int), -np.eye(d, dtype=int)]):
            y = tuple(np.clip(x + step, 0, np.array(shape) - 1))
            if inside[y]:
                A[i, number[y]] -= 1
            else:
                b[i] += u[(0, slice(None), *y)].numpy()
    expected = sparse.linalg.spsolve(A.tocsr(), b)
    found = mesh.smoothest(flatten(u), torch.from_numpy(np.flatnonzero(inside)), 24)
    np.testing.assert_allclose(found.numpy().T, expected, atol=1e-4)


def test_fields_of_a_batch_do_not_touch(d):
    u = 3 * torch.cat([smooth_noise(SHAPES[d], 1, seed) for seed in range(3)])
    u[1] = 0
    together, alone = unfold(u).field, torch.cat([unfold(field[None]).field for field in u])
    assert torch.equal(together, alone)


def test_nor_do_those_whose_folds_are_stubborn(monkeypatch):
    monkeypatch.setattr("vrnet.fields.folds.MAX_ROUNDS", 2)
    u = torch.cat([turned_ball(2, 48, radius, 20)[0] for radius in (3, 8, 5)])
    together, alone = unfold(u), [unfold(field[None]) for field in u]
    assert together.drawn.flatten(1).any(1).all()
    for k in range(3):
        assert torch.equal(together.field[k : k + 1], alone[k].field)
        assert torch.equal(together.drawn[k : k + 1], alone[k].drawn)


def test_the_repair_is_the_same_by_any_number_of_threads(d):
    u = 3 * smooth_noise((60, 64) if d == 2 else (24, 22, 20), 1.5)
    found = []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(unfold(u).field)
    assert torch.equal(*found)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.6, 0.7, 2.5), (1.8, 1.8, 10.0), (2e-4, 3e-4, 3e-4)])
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
