import pytest
import torch
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from vrnet.variational.energy import Energy, bending, diffusion, total_variation


@pytest.mark.parametrize("s", [1, 2])
def test_the_data_term_is_the_mean_of_the_differences(d, h, random, s):
    I0, I1w, u = random(2, 1, *SHAPES[d]), random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    expected = (I1w - I0).abs().pow(s).flatten(1).mean(1) / s
    torch.testing.assert_close(Energy(s, 3.0, None)(I0, I1w, u, h), expected)


def test_regularisers_of_a_ramp_are_its_slope(d, h):
    """u = a·x along axis 0: |∇u| = a, whatever the edge, but for the far border; no second derivative inside."""
    x = torch.arange(10, dtype=torch.float64).view(-1, *[1] * (d - 1)).expand([10] * d)
    u = torch.stack([0.5 * x] + [torch.zeros_like(x)] * (d - 1))[None]
    assert_allclose(total_variation(u, h)[:, :9], 0.5)
    assert_allclose(diffusion(u, h)[:, :9], 0.125)
    assert_allclose(bending(u, h)[:, 1:9], 0, atol=1e-12)
    assert_allclose(total_variation(u, h)[:, 9], 0)


def test_motion_in_space_costs_the_same_on_any_voxels(d):
    """v = (x² + 3 x y, 0, ...) in shortest edges, with x along axis 0 sampled finely and half as finely."""
    fine, coarse = (1.0,) * d, (2.0, *[1.0] * (d - 1))
    densities = []
    for h in (fine, coarse):
        x, y, *_ = torch.meshgrid(*(edge * torch.arange(0, 40, dtype=torch.float64) for edge in h), indexing="ij")
        v = torch.stack([(x.square() + 3 * x * y) / h[0]] + [torch.zeros_like(x)] * (d - 1))[None]
        densities.append([R(v, h) for R in (total_variation, diffusion, bending)])
    for on_fine, on_coarse in zip(*densities, strict=True):
        a, b = on_fine[0, 20, 10].mean(), on_coarse[0, 10, 10].mean()
        assert_allclose(a, b, rtol=0.03)


def test_energy_adds_the_weighted_regulariser(d, h, random):
    I, u = random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    torch.testing.assert_close(Energy(1, 0.3, diffusion)(I, I, u, h), 0.3 * diffusion(u, h).flatten(1).mean(1))
