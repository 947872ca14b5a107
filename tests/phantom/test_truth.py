"""What is called exact, against automatic differentiation, against formulas of circles, and against counted voxels."""

from dataclasses import replace

import pytest
import torch

from vrnet.phantom.anatomy import RandomSource
from vrnet.phantom.cycle import NORMAL, Infarct, contours, green_strain, measured, share_inside
from vrnet.phantom.motion import Motion


@pytest.fixture
def motion() -> Motion:
    return NORMAL.draw(RandomSource.seeded(3), through_plane=True)


def wall_points(motion, n=40):
    """Points in the wall at the belly, in the frame of the heart."""
    angle = torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n) + 0.01
    r = motion.heart.endo + motion.heart.wall * torch.linspace(0.1, 0.9, n, dtype=torch.float64)
    return torch.stack([r * angle.cos(), r * angle.sin(), torch.full_like(r, motion.heart.belly + 5)])


@pytest.mark.parametrize("infarct", [False, True])
def test_green_strain_is_that_of_automatic_differentiation(motion, infarct):
    if infarct:
        motion = replace(motion, contractility=Infarct.of(motion.heart, (7, 8), 0.2, is_stack=True))
    p = wall_points(motion)
    away = torch.cat([p[:2] / p[:2].norm(dim=0), torch.zeros_like(p[:1])])
    around = torch.stack([-away[1], away[0], away[2]])
    for E, e in zip(green_strain(motion, p), (away, around), strict=True):
        _, Fe = torch.func.jvp(motion.forward, (p,), (e,))
        torch.testing.assert_close(E, 50 * (Fe.square().sum(0) - 1), atol=1e-4, rtol=0)


def test_contours_of_a_round_heart_are_circles(motion):
    heart = replace(motion.heart, oval=0.0, asymmetry=0.0)
    inner, outer = heart.endo, heart.endo + heart.wall
    rings = torch.stack(contours(heart, torch.tensor([heart.belly, 500.0]).double()))
    endo, middle, epi, area = measured(rings)
    circles = [2 * torch.pi * r for r in (inner, (inner + outer) / 2, outer)]
    torch.testing.assert_close(
        [endo[0], middle[0], epi[0]], [torch.tensor(c).double() for c in circles], rtol=1e-4, atol=0
    )
    assert area[0].item() == pytest.approx(torch.pi * (outer**2 - inner**2), rel=1e-4)
    assert endo[1].isnan()


def test_shares_of_voxels_add_up_to_the_area_of_a_disc():
    """To a thousandth, wherever its centre is; whatever the slope of the function that is negative inside."""
    x, y = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    for centre in (31.5, 31.8, 32.23):
        distance = ((x - centre).square() + (y - 30.1).square()).sqrt() - 14.3
        for d in (distance, 3 * distance * (1 + 0.02 * distance)):
            assert share_inside(d).sum().item() == pytest.approx(torch.pi * 14.3**2, rel=1e-3)
