import pytest
import torch
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from vrnet.variational.energy import Energy, bending, diffusion, total_variation


@pytest.mark.parametrize("s", [1, 2])
def test_the_data_term_is_the_mean_of_the_differences(d, random, s):
    I0, I1w, u = random(2, 1, *SHAPES[d]), random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    expected = (I1w - I0).abs().pow(s).flatten(1).mean(1) / s
    torch.testing.assert_close(Energy(s, 3.0, None)(I0, I1w, u), expected)


def test_regularisers_of_a_ramp_are_its_slope(d):
    """u = a·x along axis 0: |∇u| = a but for the far border, and no second derivative inside."""
    x = torch.arange(10, dtype=torch.float64).view(-1, *[1] * (d - 1)).expand([10] * d)
    u = torch.stack([0.5 * x] + [torch.zeros_like(x)] * (d - 1))[None]
    assert_allclose(total_variation(u)[:, :9], 0.5)
    assert_allclose(diffusion(u)[:, :9], 0.125)
    assert_allclose(bending(u)[:, 1:9], 0, atol=1e-12)
    assert_allclose(total_variation(u)[:, 9], 0)


def test_energy_adds_the_weighted_regulariser(d, random):
    I, u = random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    torch.testing.assert_close(Energy(1, 0.3, diffusion)(I, I, u), 0.3 * diffusion(u).flatten(1).mean(1))
