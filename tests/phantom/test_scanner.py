from math import pi, sqrt

import pytest
import torch

from vrnet.phantom.anatomy import RandomSource
from vrnet.phantom.cycle import Scanner, voxel_positions


@pytest.fixture
def random():
    return RandomSource(torch.Generator().manual_seed(0))


def test_where_there_is_no_signal_noise_has_the_rayleigh_distribution(random):
    x = voxel_positions((400, 400), (1.0,) * 2, level=0.0)
    image = Scanner(random, (0.0, 0.0), noise=0.03).image(torch.zeros(400, 400), x)
    assert image.mean().item() == pytest.approx(0.03 * sqrt(pi / 2), rel=0.01)
    assert image.std().item() == pytest.approx(0.03 * sqrt(2 - pi / 2), rel=0.01)


def test_the_coil_makes_what_is_anterior_brighter_by_its_gradient(random):
    """y runs from anterior to posterior: the signal falls as exp(g y)."""
    x = voxel_positions((64, 64), (2.0,) * 2, level=0.0)
    scanner = Scanner.draw(random)
    seen = Scanner(random, scanner.gradient, noise=0.0).image(torch.ones(64, 64), x)[:, 4:-4]
    assert -0.004 <= scanner.gradient[1] <= -0.0005
    slope = (seen.log()[:, 1:] - seen.log()[:, :-1]) / 2.0
    torch.testing.assert_close(slope, torch.full_like(slope, scanner.gradient[1]), atol=1e-5, rtol=0)
