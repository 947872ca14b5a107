"""A contraction stays that of one field, a turn becomes that of the other."""

import math

import pytest
import torch
from torch.testing import assert_close

from vrnet.registration.cine import turned_as, without_divergence


def waves(shape, spacing, k, direction):
    """cos(2π k·x) along a direction, in voxels; k counts the waves along each side."""
    x = torch.stack(torch.meshgrid(*(torch.arange(n, dtype=torch.float64) / n for n in shape), indexing="ij"))
    phase = sum(count * position for count, position in zip(k, x, strict=True))
    mm = torch.tensor(direction, dtype=torch.float64) / torch.tensor(spacing)
    return torch.cos(2 * math.pi * phase) * mm.view(1, -1, *[1] * len(shape))


@pytest.mark.parametrize(
    ("shape", "spacing", "k", "across"),
    [
        ((16, 12), (1.4, 1.4), (2, 3), None),
        ((16, 12), (1.0, 2.5), (1, 2), None),
        ((8, 10, 6), (1.0, 2.0, 8.0), (1, 0, 2), (0.0, 1.0, 0.0)),
    ],
)
def test_a_wave_along_its_direction_is_contraction_and_one_across_it_is_turning(shape, spacing, k, across):
    """Of plane waves in mm the divergence is known: u along k has nothing else, u across k has none."""
    along = tuple(count / (n * h) for count, n, h in zip(k, shape, spacing, strict=True))
    across = across or (-along[1], along[0])
    contraction, turning = (waves(shape, spacing, k, direction) for direction in (along, across))
    assert_close(without_divergence(contraction, spacing), torch.zeros_like(contraction))
    assert_close(without_divergence(turning, spacing), turning)
    assert_close(turned_as(contraction, turning, spacing), contraction + turning)


def test_a_shift_of_the_whole_is_taken_from_the_second_field():
    u, v = torch.full((1, 2, 9, 8), 3.0), torch.full((1, 2, 9, 8), -1.0)
    assert_close(turned_as(u, v, (1.4, 1.4)), v)


@pytest.mark.parametrize("shape", [(16, 12), (15, 17), (16, 17), (6, 8, 5), (8, 6, 4)])
def test_what_has_no_divergence_keeps_none_and_what_was_taken_away_is_all(shape):
    """P P = P, and P (1 − P) = 0, of sides of either parity, and of noise."""
    u, spacing = torch.randn(2, len(shape), *shape, dtype=torch.float64), (1.0, 1.5, 8.0)[: len(shape)]
    kept = without_divergence(u, spacing)
    assert_close(without_divergence(kept, spacing), kept)
    assert_close(without_divergence(u - kept, spacing), torch.zeros_like(u))


def test_of_the_shift_of_a_part_about_half_is_kept():
    x = torch.stack(torch.meshgrid(*[torch.arange(128.0) - 63.5] * 2, indexing="ij"))
    disc = torch.exp(-((x.norm(dim=0) / 12) ** 6))
    shift = torch.stack([3 * disc, 0 * disc])[None]
    assert_close(without_divergence(shift, (1.4, 1.4))[0, :, 64, 64], torch.tensor([1.5, 0.0]), atol=0.1, rtol=0)


def test_a_field_turns_as_itself():
    u = torch.randn(2, 2, 16, 17, dtype=torch.float64)
    assert_close(turned_as(u, u, (1.0, 1.5)), u)


def test_a_heart_contracts_as_one_field_and_turns_as_the_other():
    """x → (1 − c) x and a turn, both ending smoothly away from the centre, about which no wave is special."""
    x = torch.stack(torch.meshgrid(*[torch.arange(64, dtype=torch.float64) - 31.5] * 2, indexing="ij"))[None]
    near = torch.exp(-(x.square().sum(1, keepdim=True)) / 200)
    inwards, around = -0.2 * x * near, 0.1 * torch.stack([-x[:, 1], x[:, 0]], 1) * near
    assert_close(turned_as(inwards, 0.3 * inwards + around, (1.4, 1.4)), inwards + around, atol=1e-3, rtol=0)
