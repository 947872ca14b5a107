"""What a phantom is made of: the heart in its frame, an infarct, the scanner, and what is exactly known of a beat."""

from dataclasses import replace
from math import pi, sqrt

import pytest
import torch

from vrnet.errors import BadInput
from vrnet.phantom.anatomy import LV, MYO, Heart, RandomSource, norm
from vrnet.phantom.cycle import NORMAL, Infarct, Scanner, exact_strain, green_strain, share_inside, voxel_positions


@pytest.fixture
def motion():
    return NORMAL.draw(RandomSource(3), through_plane=True)


@pytest.fixture
def heart():
    return NORMAL.draw(RandomSource(1), through_plane=True).heart


def test_the_frame_of_the_heart_is_that_of_the_picture_turned_and_shifted():
    p, q = voxel_positions((12, 10, 8), (9.0,) * 3, level=0.0), torch.randn(3, 12, 10, 8)
    for seed in range(3):
        heart = Heart.draw(RandomSource(seed))
        torch.testing.assert_close(heart.to_picture(heart.to_heart(p)), p, atol=1e-4, rtol=0)
        moved = [norm(*(heart.to_heart(x) - heart.to_heart(p))) for x in (p + q, p - q)]
        torch.testing.assert_close(moved[0], norm(*q), atol=1e-4, rtol=0)
        torch.testing.assert_close(moved[0], moved[1], atol=1e-4, rtol=0)


def test_the_wall_encloses_the_cavity_and_is_as_thick_as_drawn():
    """Along the direction across the septum at the belly, where neither shape nor asymmetry counts."""
    for seed in range(3):
        heart = Heart.draw(RandomSource(seed))
        b = torch.arange(0, 60, 0.05)
        line = torch.stack([torch.zeros_like(b), b, torch.full_like(b, heart.belly)])
        labels = heart.labels(line)
        cavity, wall = ((labels == value).sum().item() * 0.05 for value in (LV, MYO))
        assert abs(cavity - heart.endo * (1 - heart.oval)) < 0.1
        assert abs(wall - heart.wall) < 0.1


# An infarct.


def insertion_of(heart):
    return Infarct.of(heart, [1], remaining=0.2, is_stack=True).insertion


def at(heart, psi_deg):
    """The direction at an angle from the anterior insertion along the septum."""
    angle = torch.tensor(insertion_of(heart) - torch.pi * psi_deg / 180)
    return torch.stack([angle.cos(), angle.sin()])


def test_the_anterior_insertion_is_where_the_right_ventricle_ends(heart):
    angle = torch.tensor(insertion_of(heart)).double() + torch.tensor([-0.01, 0.01]).double()
    epi = heart.radii(angle.cos())[1]
    p = torch.stack([epi * angle.cos(), epi * angle.sin(), torch.full_like(epi, heart.belly)])
    inside, outside = heart.right_ventricle(p)
    assert inside < 0 < outside


@pytest.mark.parametrize(("segment", "psi", "level"), [(1, 330, 0), (10, 150, 1), (14, 60, 2)])
def test_an_infarct_is_in_its_segment_and_nowhere_else(heart, segment, psi, level):
    infarct = Infarct.of(heart, [segment], remaining=0.2, is_stack=True)
    third = (heart.belly + heart.length - heart.base) / 3
    z = heart.base + third * (torch.arange(3) + 0.5)
    inside = [infarct(at(heart, psi)[:, None].expand(2, 3).float(), z)[k].item() for k in range(3)]
    assert inside[level] == pytest.approx(0.2, abs=0.1)
    assert [share for k, share in enumerate(inside) if k != level] == pytest.approx([1, 1], abs=0.01)
    assert infarct(at(heart, psi + 180)[:, None].expand(2, 3).float(), z).tolist() == pytest.approx([1] * 3, abs=0.01)


def test_an_infarct_that_a_slice_cannot_show_is_refused(heart):
    with pytest.raises(BadInput, match="7 to 12"):
        Infarct.of(heart, (1, 2), 0.2, is_stack=False)
    with pytest.raises(BadInput, match="1 to 16"):
        Infarct.of(heart, (17,), 0.2, is_stack=True)


# The scanner.


def test_where_there_is_no_signal_noise_has_the_rayleigh_distribution():
    x = voxel_positions((400, 400), (1.0,) * 2, level=0.0)
    image = Scanner(RandomSource(0), (0.0, 0.0), noise=0.03).image(torch.zeros(400, 400), x)
    assert image.mean().item() == pytest.approx(0.03 * sqrt(pi / 2), rel=0.01)
    assert image.std().item() == pytest.approx(0.03 * sqrt(2 - pi / 2), rel=0.01)


# What is exactly known, against automatic differentiation, formulas of circles, and counted voxels.


def wall_points(motion, n=40):
    """Points in the wall at the belly, in the frame of the heart."""
    angle = torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n) + 0.01
    r = motion.heart.endo + motion.heart.wall * torch.linspace(0.1, 0.9, n, dtype=torch.float64)
    return torch.stack([r * angle.cos(), r * angle.sin(), torch.full_like(r, motion.heart.belly + 5)])


def test_green_strain_is_that_of_automatic_differentiation(motion):
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
    still = replace(motion, heart=heart).part_way(0.0, 0.0)
    nowhere = torch.ones(3, 1, 1, 2), torch.zeros(1, 1, 2, dtype=torch.uint8)
    found = exact_strain([still], *nowhere, torch.tensor([heart.belly, 500.0]))
    endo, middle, epi, area = (part[0].double() for part in vars(found).values() if part.dim() == 2)
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
