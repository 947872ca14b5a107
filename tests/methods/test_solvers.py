from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import ndimage

from vrnet.methods.names import parse
from vrnet.methods.solvers import PRESETS, Variational
from vrnet.variational.cascade import Cascade

SOLVERS = "TV-L1", "Diffusion-L2", "Bending-LNCC", "Gaussian-LNCC", "Gaussian-MIND", "TV-NMI", "Diffusion-Remap"
"""Each regulariser and each data term."""
OTHERS = sorted({str(solver) for solver in PRESETS} - set(SOLVERS))
SIZES = {2: (44, 44), 3: (28, 28, 28)}


@cache
def moved_texture(d):
    """(I0, I1, u): a smooth texture I1, I0(x) = I1(x + u(x)) by cubic interpolation, and u, up to 2.3 voxels."""
    shape = SIZES[d]
    x = np.indices(shape).astype(float)
    t = [np.pi * x[i] / (n - 1) for i, n in enumerate(shape)]
    bump = np.prod([np.sin(t[i]) for i in range(d)], axis=0)
    u = np.stack([2.0 * bump, -1.6 * bump * np.cos(t[0]), 1.2 * bump][:d])
    texture = ndimage.gaussian_filter(np.random.default_rng(3).standard_normal(shape), 1.5, mode="nearest")
    low, high = np.percentile(texture, (1, 99))  # as register scales them
    texture = (texture - low) / (high - low)
    fixed = ndimage.map_coordinates(texture, x + u, order=3, mode="nearest")
    return *(torch.tensor(image, dtype=torch.float32)[None, None] for image in (fixed, texture)), u


@pytest.mark.parametrize(
    ("name", "d"),
    [
        *((name, 2) for name in SOLVERS),
        *((name, 3) for name in SOLVERS[::3]),
        *(pytest.param(name, 3, marks=pytest.mark.release) for name in SOLVERS if name not in SOLVERS[::3]),
        *(pytest.param(name, 2, marks=pytest.mark.release) for name in OTHERS),
    ],
)
def test_a_known_motion_is_recovered(d, name):
    I0, I1, u = moved_texture(d)
    with torch.inference_mode():
        found = parse(name).build(d)(I0, I1)[0].numpy()
    inside = (slice(4, -4),) * d
    before, after = (np.linalg.norm(error, axis=0)[inside].mean() for error in (u, found - u))
    assert after < before / 3


@pytest.mark.parametrize(("name", "d"), [("TV-Remap", 2), ("Gaussian-Remap", 3)])
def test_a_known_motion_is_recovered_in_a_contrast_that_has_no_inverse(d, name):
    """Where dark and bright become one, and what lies between them stands out."""
    I0, I1, u = moved_texture(d)
    with torch.inference_mode():
        found = parse(name).build(d)(I0, (2 * (I1 - 0.4)).square().clamp(0, 1))[0].numpy()
    inside = (slice(4, -4),) * d
    before, after = (np.linalg.norm(error, axis=0)[inside].mean() for error in (u, found - u))
    assert after < before / 2


@pytest.mark.parametrize("warps", [1, 7])
def test_theta_goes_from_first_to_last_by_equal_ratios(warps):
    cascade = Variational(theta=(0.1, 0.8), warps=warps, iterations=2).build(2).cascade
    thetas = [inner[0].first.log_theta.exp().item() for inner in cascade.steps]
    assert_allclose(thetas, np.geomspace(0.1, 0.8, warps) if warps > 1 else [0.1], rtol=1e-6)


@pytest.mark.parametrize("name", ["TV-L1", "Gaussian-LNCC"])
def test_levels_and_iterations_share_their_steps(name):
    method = replace(parse(name), warps=5, iterations=4, levels=3)
    solver = method.build(2)
    assert sum(parameter.numel() for parameter in solver.parameters()) == method.warps
    cascades = [part for part in solver.modules() if isinstance(part, Cascade)]
    assert len(cascades) == method.levels
    for cascade in cascades:
        assert [len(inner) for inner in cascade.steps] == [4] * 5
        assert cascade.steps == cascades[0].steps
        assert all(step is inner[0] for inner in cascade.steps for step in inner)


def test_the_finest_level_has_warps_and_a_momentum_of_its_own():
    solver = parse("Gaussian-LNCC(warps=5,finest_warps=2,momentum={2:0.5,3:0.7})").build(3)
    finest, *coarser = (part.steps for part in solver.modules() if isinstance(part, Cascade))
    assert [inner[0].first.momentum for inner in finest] == [0.7] * 2
    assert [[inner[0].first.momentum for inner in steps] for steps in coarser] == [[0] * 5] * 2


def test_the_denoiser_weighs_lambda_over_theta():
    """The v-subproblem: argmin_v λ R(v) + θ/2 |u − v|²."""
    method = replace(parse("Bending-L1"), lam=0.2, theta=(0.1, 0.4), warps=2)
    weights = [inner[0].second.weight for inner in method.build(2).cascade.steps]
    assert_allclose(weights, [0.2 / 0.1, 0.2 / 0.4])


@pytest.mark.parametrize(("data", "s"), [("L1", 1), ("L2", 2)])
def test_the_energy_watched_is_that_of_the_data_term(data, s, random):
    I0, I1w = random(1, 1, 8, 8), random(1, 1, 8, 8)
    energy = Variational("Gaussian", data).build(2).energy
    expected = (I1w - I0).abs().pow(s).mean() / s
    torch.testing.assert_close(energy(I0, I1w, random(1, 2, 8, 8), (1.0, 1.0))[0], expected)
