"""Phantoms: the field is the motion, the motion is that of a heart, the picture is that of a scanner."""

from functools import cache

import pytest
import torch
from torch import Tensor

from vrnet.fields.calculus import warp, warp_labels
from vrnet.fields.folds import smallest_determinant
from vrnet.phantom import Phantom, phantom

RV, MYO, LV = 1, 2, 3
CUT, COARSE, VOLUME = ((160, 160), 1.8), ((96, 96), 3.0), ((64, 64, 48), 2.4)
cases = pytest.mark.parametrize(("seed", "grid"), [(0, CUT), (3, VOLUME)])


@cache
def patient(seed: int, grid: tuple[tuple[int, ...], float]) -> Phantom:
    return phantom(seed, *grid)


def size(labels: Tensor, label: int) -> int:
    return int((labels == label).sum())


def mean_dice(A: Tensor, B: Tensor) -> float:
    both = [2 * int(((A == k) & (B == k)).sum()) / (size(A, k) + size(B, k)) for k in (RV, MYO, LV)]
    return sum(both) / 3


def millimetres(p: Phantom) -> Tensor:
    """Length of the displacement, in mm."""
    return p.field.square().sum(1, keepdim=True).sqrt() * p.spacing[0]


def thickness(labels: Tensor) -> float:
    """Thickness of a ring with the areas of Myo and LV, in voxels."""
    cavity, wall = size(labels, LV), size(labels, MYO)
    return float(((cavity + wall) / torch.pi) ** 0.5 - (cavity / torch.pi) ** 0.5)


def test_a_seed_is_a_patient():
    first, again, other = phantom(5, (64, 64), 3.0), phantom(5, (64, 64), 3.0), phantom(6, (64, 64), 3.0)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels", "field"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize(("seed", "grid"), [(0, CUT), (3, ((96, 96, 72), 1.6))])
def test_the_field_brings_moving_and_its_labels_onto_fixed(seed, grid):
    p = patient(seed, grid)
    moved = millimetres(p) > 1
    before, after = ((p.fixed - I).abs()[moved].mean() for I in (p.moving, warp(p.moving, p.field)))
    assert after < before / 2
    assert mean_dice(p.fixed_labels, p.moving_labels) < 0.8
    assert mean_dice(p.fixed_labels, warp_labels(p.moving_labels, p.field)) >= 0.95


def test_hearts_overlap_before_registration_as_in_acdc():
    hearts = [patient(seed, COARSE) for seed in range(8)]
    assert 0.5 < sum(mean_dice(p.fixed_labels, p.moving_labels) for p in hearts) / len(hearts) < 0.7


@pytest.mark.parametrize("grid", [CUT, VOLUME])
def test_the_field_never_folds(grid):
    for seed in range(8 if grid is CUT else 2):
        p = patient(seed, grid)
        assert smallest_determinant(p.field).min() > 0
        assert 7 < millimetres(p).max() < 18


@cases
def test_the_heart_ejects_and_its_wall_thickens_without_loss(seed, grid):
    p = patient(seed, grid)
    myo, lv, rv = (size(p.moving_labels, k) / size(p.fixed_labels, k) for k in (MYO, LV, RV))
    assert 0.85 < myo < 1.15
    assert 0.28 < lv < 0.67
    assert 0.5 < rv < 0.9
    middle = (0, 0, slice(None), slice(None), *[grid[0][-1] // 2] * (len(grid[0]) - 2))
    assert thickness(p.moving_labels[middle]) > 1.1 * thickness(p.fixed_labels[middle])


@cases
def test_images_and_labels_are_what_acdc_holds(seed, grid):
    p = patient(seed, grid)
    for image, labels in ((p.fixed, p.fixed_labels), (p.moving, p.moving_labels)):
        assert image.shape == labels.shape == (1, 1, *grid[0])
        assert (image.dtype, labels.dtype) == (torch.float32, torch.uint8)
        assert image.min() >= 0
        assert image.max() <= 1
        assert labels.unique().tolist() == [0, RV, MYO, LV]
        assert min(image[labels == LV].mean(), image[labels == RV].mean()) > 1.5 * image[labels == MYO].mean()


@pytest.mark.parametrize(("coarse", "fine"), [((33, 33), (65, 65)), ((17, 17, 13), (33, 33, 25))])
def test_the_motion_does_not_depend_on_the_grid(coarse, fine):
    every_other = (0, slice(None), *[slice(None, None, 2)] * len(fine))
    u, v = phantom(7, coarse, 4.8).field[0] * 4.8, phantom(7, fine, 2.4).field[every_other] * 2.4
    torch.testing.assert_close(u, v, atol=1e-3, rtol=0)
