from dataclasses import replace

import pytest
import torch

from tests.conftest import SHAPES
from vrnet.fields.calculus import warp
from vrnet.methods.names import parse
from vrnet.methods.solvers import PRESETS
from vrnet.variational.data_terms import L1, L2
from vrnet.variational.regularizers import Diffusion, Gaussian
from vrnet.variational.solver import Energy, watch

SOLVERS = [str(solver) for solver in PRESETS]
EACH_PART = "TV-L1", "Diffusion-L2", "Bending-LNCC", "Gaussian-MIND", "TV-NMI", "Gaussian-Remap"
"""Every regulariser, and every data term."""
SMALL = {2: (32, 32), 3: (18, 17, 16)}
MAX_WARPS = 16
"""Of each level, of solvers that take more, in many short steps."""


def shifted(smooth_image, d, seed=0):
    """A smooth image and itself, moved by less than a voxel to two."""
    shape = SMALL[d]
    I1 = smooth_image(shape, sigma=3, seed=seed, dtype=torch.float32)
    u = torch.tensor([1.5, -1.0, 0.7])[:d].view(1, d, *[1] * d).expand(1, d, *shape)
    return warp(I1, u), I1


@pytest.mark.parametrize(("name", "d"), [(name, 2 + k % 2) for k, name in enumerate(EACH_PART)] + [("TV-L1", 3)])
def test_the_energy_never_ends_above_where_it_started(d, name, smooth_image):
    I0, I1 = shifted(smooth_image, d)
    with torch.no_grad():
        solver = replace(parse(name), warps=min(parse(name).warps, MAX_WARPS)).build(d)
        descent = solver.descend(I0, I1)
        reached = solver.energy(I0, warp(I1, descent.v), descent.v, (1.0,) * d)
        hopeless = solver.descend(*(smooth_image(SMALL[d], 1, seed, torch.float32) for seed in (7, 8)))
    assert reached < descent.energies[0]
    torch.testing.assert_close(reached, descent.energies.amin(0))
    assert hopeless.energies.amin() <= hopeless.energies[0]


def test_no_motion_gives_exactly_zero(d, smooth_image):
    I = smooth_image(SMALL[d], 2, dtype=torch.float32)
    for name in SOLVERS[d::2]:
        with torch.no_grad():
            assert not replace(parse(name), warps=2, finest_warps=0).build(d)(I, I).any()


@pytest.mark.parametrize(("tolerance", "d"), [(1e-3, 3), (0.3, 2)], ids=["patient", "some stop before others"])
def test_results_do_not_depend_on_batch_composition(d, smooth_image, tolerance):
    pairs = [shifted(smooth_image, d, seed) for seed in range(3)]
    noise = tuple(smooth_image(SMALL[d], 1, seed, torch.float32) for seed in (9, 10))
    solver = replace(parse("TV-L1"), tolerance=tolerance).build(d)
    with torch.no_grad():
        together = solver(*(torch.cat(images) for images in zip(*pairs, noise, strict=True)))
        alone = [solver(*pair) for pair in [*pairs, noise]]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_a_solver_that_starts_from_the_motion_stays_there_and_needs_no_pyramid(d, smooth_image):
    """From afar, at full resolution alone, it would not be found: shifts are of up to twelve voxels."""
    I1 = smooth_image((48,) * d, sigma=2, seed=3, dtype=torch.float32)
    u = torch.tensor([12.0, -9.0, 5.0])[:d].view(1, d, *[1] * d).expand(1, d, *I1.shape[2:]).contiguous()
    with torch.no_grad():
        found = parse("TV-L1").build(d).starting_from(u)(warp(I1, u), I1)
    inside = (..., *[slice(16, -16)] * d)
    assert (found - u)[inside].abs().max() < 0.2


def test_a_large_tolerance_stops_early(smooth_image):
    I0, I1 = shifted(smooth_image, 2)
    eager, patient = (replace(parse("TV-L1"), tolerance=t).build(2) for t in (10.0, 0.0))
    with torch.no_grad():
        assert len(eager.descend(I0, I1).energies) < len(patient.descend(I0, I1).energies)


@pytest.mark.parametrize("name", ["TV-L1", "TV-L1(finest_warps=2)"])
def test_progress_rises_from_nothing_to_one_and_leaves_no_trace(name, smooth_image):
    I0, I1 = smooth_image((64, 64), 3, 0).float(), smooth_image((64, 64), 3, 1).float()
    solver, seen = parse(name).build(2), []
    with torch.no_grad(), watch(solver, (64, 64), None, seen.append):
        solver(I0, I1)
    assert seen == sorted(seen)
    assert 0 < seen[0] < 0.1
    assert all(part < 1 for part in seen[:-2])
    assert seen[-1] == 1
    solver(I0, I1)
    assert seen[-1] == 1
    assert not any(part._forward_hooks for part in solver.modules())


@pytest.mark.parametrize(("term", "s", "d"), [(L1(), 1, 3), (L2(), 2, 2)])
def test_without_a_penalty_the_energy_is_the_mean_of_the_differences(d, h, random, term, s):
    I0, I1w, u = random(2, 1, *SHAPES[d]), random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    expected = (I1w - I0).abs().pow(s).flatten(1).mean(1) / s
    torch.testing.assert_close(Energy(term, Gaussian(), 3.0)(I0, I1w, u, h), expected)


def test_the_energy_adds_the_weighted_regulariser(d, h, random):
    I, u = random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    expected = 0.3 * Diffusion().value(u, h).flatten(1).mean(1)
    torch.testing.assert_close(Energy(L1(), Diffusion(), 0.3)(I, I, u, h), expected)
