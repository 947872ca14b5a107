"""A mask is a weight in the data term: in the steps, in the energy, and at every level of the pyramid."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.conftest import SHAPES
from vrnet import devices as parts
from vrnet.devices import use_threads
from vrnet.fields import calculus as fields
from vrnet.fields.calculus import gradient, resize, scale, warp
from vrnet.methods.names import parse
from vrnet.variational.cascade import Cascade, DataStep, State, no_motion
from vrnet.variational.data_terms import DATA_TERMS, L1, L2, LNCC, NMI
from vrnet.variational.initialisers import CoarseToFine
from vrnet.variational.linearize import Linearization, Masks, linearize
from vrnet.variational.regularizers import Diffusion
from vrnet.variational.solver import Energy, Solver


def test_rho_at_the_expansion_point_is_the_difference_of_the_images(d, random):
    I0, I1, u = random(2, 3, *SHAPES[d]), random(2, 3, *SHAPES[d]), random(2, d, *SHAPES[d])
    torch.testing.assert_close(linearize(I0, I1, u, (1.0,) * d).rho(u), warp(I1, u) - I0)


def test_J_is_the_gradient_of_the_warped_image(d, random):
    I0, I1, u = random(1, 2, *SHAPES[d]), random(1, 2, *SHAPES[d]), random(1, d, *SHAPES[d])
    assert torch.equal(linearize(I0, I1, u, (1.0,) * d).J, gradient(warp(I1, u)))


def test_the_linearisation_error_is_second_order(d):
    """On a quadratic image, whose central differences are exact, halving the step quarters the error."""
    axes = torch.meshgrid(*[torch.arange(12, dtype=torch.float64)] * d, indexing="ij")
    I = sum((i + 1) * (x - 5) ** 2 for i, x in enumerate(axes))[None, None]
    u = torch.full((1, d, *[12] * d), 3.0, dtype=torch.float64)  # integer, so that interpolation adds no error
    lin = linearize(torch.zeros_like(I), I, u, (1.0,) * d)
    inside = (slice(None), slice(None), *[slice(1, 7)] * d)
    errors = [(warp(I, u + h) - lin.rho(u + h))[inside].abs().max().item() for h in (2.0, 1.0)]
    assert abs(errors[0] / errors[1] - 4) < 1e-6


@pytest.mark.parametrize(("away", "d"), [(0.0, 3), (1.0, 2)])
def test_normal_equations_solved_in_parts_are_solved_to_the_bit(d, away, random, monkeypatch):
    """Also under a penalty of each voxel, and away from where they were expanded."""
    at, (I0, I1) = random(2, d, *SHAPES[d]), (random(2, 1, *SHAPES[d]) for _ in range(2))
    lin = LNCC().linearize(I0, I1, at, (1.0, *[2.0] * (d - 1)))
    v, theta = at + away * random(2, d, *SHAPES[d]) if away else at, 0.1 + random(2, 1, *SHAPES[d]).square()
    whole = lin.minimize(v, theta)
    residual = lin.A.movedim((1, 2), (-2, -1)) @ (whole - at).movedim(1, -1)[..., None]
    pull = theta * fields.scale(whole - v, (1.0, *[4.0] * (d - 1)))
    torch.testing.assert_close(residual[..., 0].movedim(-1, 1) + lin.b + pull, torch.zeros_like(v), atol=1e-9, rtol=0)
    monkeypatch.setattr(parts, "VOXELS_AT_ONCE", 40)
    with torch.inference_mode(), use_threads(2):
        assert torch.equal(lin.minimize(v, theta), whole)


TERMS = [(L1(), 1, 2), (L1(), 1, 3), (L2(), 2, 3)]
"""Differences, the power that each sums, and a dimension."""
PAIRED = [("L1", 3), ("L2", 2), ("LNCC", 3), ("MIND", 2), ("NMI", 3), ("Remap", 2)]
"""Each data term in one dimension."""


def boxes(shape, b=1, dtype=torch.float64):
    """Masks of two boxes that overlap in part."""
    masks = torch.zeros(2, b, 1, *shape, dtype=dtype)
    masks[0][(..., *(slice(2, -4) for _ in shape))] = 1
    masks[1][(..., *(slice(4, -1) for _ in shape))] = 1
    return Masks(*masks)


def test_the_weight_is_the_mask_of_fixed_times_that_of_moving_where_the_field_leads(d, random):
    masks, u = boxes(SHAPES[d]), 2 * random(1, d, *SHAPES[d])
    x = np.indices(SHAPES[d]) + u[0].numpy()
    moved = ndimage.map_coordinates(masks.moving[0, 0].numpy(), x, order=1, mode="nearest")
    torch.testing.assert_close(masks.weight(u)[0, 0], masks.fixed[0, 0] * torch.from_numpy(moved), atol=1e-6, rtol=0)


@pytest.fixture
def weighted(d, h, random):
    """(v, lin): a linearised pair whose voxels have weights between 0 and 1, some of them 0."""
    shape = (4, 5) if d == 2 else (3, 3, 2)
    weight = random(1, 1, *shape).clamp(0, 1)
    rho, J, at = random(1, 1, *shape), random(1, 1, d, *shape), random(1, d, *shape)
    return random(1, d, *shape), Linearization(rho, rho, rho, at, h, weight, residual=rho, J=J)


@pytest.mark.parametrize(("term", "s", "d"), TERMS)
def test_a_weighted_step_beats_every_point_of_a_brute_force_search(weighted, term, s):
    """min_u w/s Σ|ρ(u)|^s + θ/2 |u − v|²."""
    v, lin = weighted
    theta, generator = 0.3, torch.Generator().manual_seed(1)

    def energy(u):
        """At each voxel of each try, with its length taken in space."""
        data = (lin.rho_0 + (lin.J * u[:, None]).sum(2)).abs().pow(s).sum(1) / s
        return lin.weight[:, 0] * data + theta / 2 * scale(u - v, lin.h).square().sum(1)

    with torch.no_grad():
        u = DataStep(term, theta).double()(State(v, lin)).v
    for size in (3, 1, 0.1, 0.01, 0.001):
        other = u + size * torch.randn(300, *u.shape[1:], generator=generator, dtype=u.dtype)
        assert (energy(u) <= energy(other) + 2e-4).all()


@pytest.mark.parametrize(("term", "d"), [(L1(), 3), (L2(), 2)])
def test_where_the_weight_is_zero_nothing_moves_even_without_a_residual(weighted, term):
    v, lin = weighted
    lin = replace(lin, residual=torch.zeros_like(lin.residual), at=v)
    still = lin.weight == 0
    assert still.any()
    with torch.no_grad():
        for expansion in (lin, replace(lin, residual=torch.ones_like(lin.residual))):
            u = DataStep(term)(State(v, expansion)).v
            assert torch.equal(u[still.expand_as(u)], v[still.expand_as(v)])
            assert u.isfinite().all()


@pytest.mark.parametrize(("term", "s", "d"), TERMS)
def test_the_energy_is_a_weighted_mean_as_numpy_has_it(d, h, random, term, s):
    """Σ (w D + λ R) / Σ w: λR counts as much beside D as in the steps."""
    I0, I1w, u = random(2, 1, *SHAPES[d]), random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    weight, lam = random(2, 1, *SHAPES[d]).abs(), 0.3
    found = Energy(term, Diffusion(), lam)(I0, I1w, u, h, weight)
    for k in range(2):
        D, w = np.abs((I1w - I0)[k, 0].numpy()) ** s / s, weight[k, 0].numpy()
        rough = Diffusion().value(u[k : k + 1], h).numpy().sum()
        assert found[k].item() == pytest.approx(np.average(D, weights=w) + lam * rough / w.sum())


def test_a_field_that_leaves_nothing_to_compare_has_no_finite_energy(random):
    I, u = random(2, 1, 8, 8), torch.zeros(2, 2, 8, 8).double()
    weight = torch.zeros_like(I)
    weight[1, 0, 3, 3] = 0.25
    gone, hardly = Energy(L1(), Diffusion(), 0.3)(I, I + 1, u, (1.0, 1.0), weight)
    assert gone == torch.inf
    assert hardly.item() == pytest.approx(1.0)


def test_a_field_that_carries_the_masks_apart_is_not_kept(d, smooth_image):
    """A shift is as smooth as no motion, and were less, if nothing compared were as good as nothing unlike."""
    I0, I1 = (smooth_image(SHAPES[d], 1.5, seed, torch.float32) for seed in range(2))
    inside = torch.zeros_like(I0)
    inside[(..., *[slice(0, 4)] * d)] = 1
    away = torch.full((1, d, *SHAPES[d]), 20.0)
    solver = Solver(Cascade(lambda *given: away, [[]]), Energy(L1(), Diffusion(), 0.3), 1e-3)
    found = solver.descend(I0, I1, None, Masks(inside, inside))
    assert not found.v.any()
    assert found.energies[0] > 0
    assert found.energies[-1] == torch.inf


@pytest.mark.parametrize(("name", "d"), PAIRED)
def test_a_pair_of_which_nothing_is_compared_is_finite_and_leaves_the_others_alone(d, h, name, random, smooth_image):
    term = DATA_TERMS[name]
    I0, I1 = (torch.cat([smooth_image(SHAPES[d], 1.5, seed + k, torch.float32) for k in range(2)]) for seed in (0, 2))
    v, weight = random(2, d, *SHAPES[d]).float(), torch.zeros_like(I0)
    weight[(1, 0, *[slice(2, -2)] * d)] = 1
    both, alone = term.linearize(I0, I1, v, h, weight), term.linearize(I0[1:], I1[1:], v[1:], h, weight[1:])
    for name, part in vars(both).items():
        if isinstance(part, torch.Tensor):
            assert part.isfinite().all(), name
            torch.testing.assert_close(part[1:], getattr(alone, name), msg=name)
    assert term.value(I1, I0, h, weight).isfinite().all()
    assert term.prox(v, both, torch.tensor(0.3)).isfinite().all()


@pytest.mark.parametrize(("data", "d"), PAIRED)
def test_a_solver_leaves_a_pair_at_rest_of_which_nothing_is_compared(d, data, smooth_image, as_users_run):
    I1 = torch.cat([smooth_image((16,) * d, 2, seed, torch.float32) for seed in range(2)])
    I0 = warp(I1, torch.full((2, d, *[16] * d), 1.3))
    masks = Masks(torch.ones_like(I0), torch.ones_like(I1))
    masks.moving[0] = 0
    with torch.no_grad():
        found = parse(f"TV-{data}").build(d).descend(I0, I1, None, masks)
    assert not found.v[0].any()
    assert found.v[1].any()
    assert not found.energies[:, 0].any()
    assert found.energies.isfinite().all()


@pytest.mark.parametrize(
    ("name", "d"),
    [("TV-L1", 2), ("Bending-L2", 3), ("Gaussian-LNCC", 3), ("TV-MIND", 2)],
)  # fmt: skip
def test_masks_of_ones_change_nothing(d, name, smooth_image, as_users_run):
    """But for rounding. (By mutual information that decides which field is kept: its bins have edges.)"""
    I1 = smooth_image({2: (32, 32), 3: (18, 17, 16)}[d], 3, dtype=torch.float32)
    I0 = warp(I1, torch.full((1, d, *I1.shape[2:]), 1.3))
    brief = replace(parse(name), warps=5, finest_warps=0)
    solver, ones = brief.build(d), Masks(torch.ones_like(I0), torch.ones_like(I1))
    with torch.no_grad():
        torch.testing.assert_close(solver(I0, I1, None, ones), solver(I0, I1), atol=1e-4, rtol=0)


def test_mutual_information_is_that_of_what_is_inside(d, h, random, smooth_image):
    """Whatever lies outside: its value, and its normal equations at voxels whose neighbours are inside too."""
    shape = SHAPES[d]
    I0, I1, outside = (smooth_image(shape, 1.5, seed) for seed in range(3))
    weight, v = torch.zeros_like(I0), torch.zeros(1, d, *shape, dtype=I0.dtype)
    weight[(..., *[slice(3, -3)] * d)] = 1
    plain, other = (NMI().linearize(I0, torch.where(weight > 0, I1, x), v, h, weight) for x in (I1, outside))
    torch.testing.assert_close(plain.D, other.D)
    torch.testing.assert_close(plain.D, NMI().value(I1, I0, h, weight))
    cut = [I[weight > 0].view(1, 1, -1, 1) for I in (I1, I0)]
    assert plain.D.unique().item() == pytest.approx(NMI().value(*cut, (1.0, 1.0)).unique().item())
    inner = (..., *[slice(4, -4)] * d)
    torch.testing.assert_close(plain.A[inner], other.A[inner])
    torch.testing.assert_close(plain.b[inner], other.b[inner])


def test_a_small_mask_is_registered_by_mutual_information(d, smooth_image, as_users_run):
    """Of inverted contrast, with a twentieth of the picture inside, and other pictures outside."""
    shape, size = ((64, 64), 14) if d == 2 else ((32,) * 3, 12)
    I1, other0, other1 = (smooth_image(shape, s, seed, torch.float32) for seed, s in enumerate((2.5, 6, 6)))
    u = torch.full((1, d, *shape), 1.5)
    inside, around = torch.zeros(2, 1, 1, *shape)
    for mask, half in ((inside, size // 2), (around, size // 2 + 4)):
        mask[(..., *(slice(n // 2 - half, n // 2 + half) for n in shape))] = 1
    I0, I1 = other0.lerp(1 - warp(I1, u), inside), other1.lerp(I1, around)
    with torch.no_grad():
        v = parse("Gaussian-NMI").build(d)(I0, I1, None, Masks(inside, around))
    off = (v - u).norm(dim=1, keepdim=True)[inside > 0]
    assert off.median() < 0.9  # of a motion of 2.1 and 2.6 voxels


def test_a_coarser_level_has_the_masks_of_its_grid(d, random):
    seen, shape = [], (40, 36, 34)[:d]
    masks, images = boxes(shape), [random(1, 1, *shape) for _ in range(2)]
    CoarseToFine(lambda *given: seen.append(given) or no_motion(*given))(*images, None, masks)
    *_, small = seen[0]
    assert torch.equal(small.fixed, resize(masks.fixed, (20, 18, 17)[:d]))
    assert torch.equal(small.moving, resize(masks.moving, (20, 18, 17)[:d]))


def test_what_takes_no_weight_sees_equal_images_wherever_they_are_not_compared(d, random):
    """Inside its own mask each image is itself; outside it, it is the other."""
    I0, I1, masks = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), boxes(SHAPES[d])
    F0, F1 = masks.fill(I0, I1)
    in0, in1 = masks.fixed == 1, masks.moving == 1
    torch.testing.assert_close(F0[in0], I0[in0])
    torch.testing.assert_close(F1[in1], I1[in1])
    torch.testing.assert_close(F0[~in0 & in1], I1[~in0 & in1], atol=1e-4, rtol=0)
    torch.testing.assert_close(F1[in0 & ~in1], I0[in0 & ~in1], atol=1e-4, rtol=0)
    neither = ~in0 & ~in1
    assert neither.any()
    torch.testing.assert_close(F0[neither], F1[neither])
