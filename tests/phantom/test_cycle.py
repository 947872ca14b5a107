"""A beat: fields are the motion, the numbers are those of hearts, and the cycle closes."""

from functools import cache

import pytest
import torch
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.fields.calculus import warp, warp_labels
from vrnet.fields.folds import smallest_determinant
from vrnet.phantom import Cycle, Phantom, cycle, phantom
from vrnet.phantom.anatomy import Heart, Motion, RandomSource, Rhythm
from vrnet.phantom.cycle import voxel_positions

pytestmark = pytest.mark.usefixtures("as_users_run")
RV, MYO, LV = 1, 2, 3
SLICE = ((128, 128), (1.4, 1.4))
STACK = ((80, 80, 9), (2.0, 2.0, 8.0))
"""Three frames show end-diastole, end-systole (nearly) and early filling."""


@cache
def beat(seed: int, pathology: str, grid: tuple = SLICE, frames: int = 3, **options: bool) -> Cycle:
    return cycle(seed, *grid, pathology, frames=frames, **options)


def mean_strain(E: Tensor, t: int) -> float:
    return float(E[t].nanmean())


def mean_dice(A: Tensor, B: Tensor) -> float:
    return (
        sum(2 * ((A == k) & (B == k)).sum().item() / ((A == k).sum() + (B == k).sum()).item() for k in (RV, MYO, LV))
        / 3
    )


@pytest.mark.release
def test_a_cycle_has_thirty_frames_of_a_seed_unless_said():
    first, again, other = (cycle(seed, (20, 20), (8.0, 8.0)) for seed in (5, 5, 6))
    assert first.frames.shape == first.frame_labels.shape == (30, 20, 20)
    assert first.fields.shape == (30, 2, 20, 20)
    assert first.times_ms[-1] == pytest.approx(60_000 / 65 * 29 / 30)
    for name in ("frames", "labels", "fields"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize("pathology", ["dilated", "infarct"])
def test_the_fields_bring_every_frame_onto_the_reference_and_the_wall_is_hardly_compressed(pathology):
    c = beat(1, pathology)
    assert (c.volumes.wall_ml / c.volumes.wall_ml[0] - 1).abs().max() < 0.03
    frames, still = warp(c.frames[:, None], c.fields)[:, 0], c.frames[0].expand_as(c.frames)
    moved = (c.fields.square().sum(1).sqrt() * 1.4 > 1) & (c.labels > 0)
    assert ((frames - still).abs()[moved].mean() < (c.frames - still).abs()[moved].mean() / 2).item()
    back = warp_labels(c.frame_labels[:, None], c.fields)[:, 0]
    assert min(mean_dice(c.labels, labels) for labels in back) > 0.95
    assert mean_dice(c.labels, c.frame_labels[c.end_systole]) < 0.9


def test_the_reference_is_the_first_frame_and_its_field_moves_nothing():
    c = beat(1, "normal")
    assert c.fields[0].abs().max() < 1e-4
    assert torch.equal(c.labels, c.frame_labels[0])
    assert mean_strain(c.strain.radial, 0) == pytest.approx(0, abs=1e-4)


@pytest.mark.release
def test_no_field_folds():
    c = beat(2, "infarct", STACK, 3, through_plane=True)
    assert smallest_determinant(c.fields).min() > 0


@pytest.mark.release
def test_normal_hearts_have_the_strain_and_the_ejection_fraction_of_healthy_adults():
    """About -18 %, 25 to 35 % and 60 %, in a slice and in a stack."""
    for c in (beat(seed, "normal") for seed in range(3)):
        assert -21 < mean_strain(c.strain.circumferential, c.end_systole) < -16
        assert 25 < mean_strain(c.strain.radial, c.end_systole) < 36
        assert 54 < c.volumes.ejection_fraction_percent < 65
    stack = beat(0, "normal", STACK, 3)
    assert -20 < mean_strain(stack.strain.circumferential, stack.end_systole) < -14
    assert 54 < stack.volumes.ejection_fraction_percent < 65


@pytest.mark.release
def test_dilated_hearts_move_less_and_hypertrophic_ones_empty_more():
    dilated, normal, thick = (beat(0, name) for name in ("dilated", "normal", "hypertrophic"))
    assert dilated.volumes.ejection_fraction_percent < 35 < 55 < normal.volumes.ejection_fraction_percent
    assert normal.volumes.ejection_fraction_percent < thick.volumes.ejection_fraction_percent
    assert mean_strain(dilated.strain.circumferential, dilated.end_systole) > -14


@pytest.mark.release
def test_the_whole_heart_keeps_its_wall_when_it_moves_through_the_planes():
    c = beat(1, "normal", STACK, 3, through_plane=True)
    assert c.fields[:, 2].abs().max() * 8 > 5
    assert (c.volumes.wall_ml / c.volumes.wall_ml[0] - 1).abs().max() < 0.12
    assert beat(1, "normal", STACK, 3).fields[:, 2].abs().max() < 1e-5


def test_base_and_apex_turn_by_different_angles():
    """About the middle of the wall, wherever it is: by 8 to 13 degrees between base and apex of a normal heart."""
    c = beat(0, "normal", STACK, 3)

    def angle(k: int) -> float:
        before = (c.labels[..., k] == MYO).nonzero().T.float()
        after = before + c.fields[c.end_systole, :2, ..., k][:, c.labels[..., k] == MYO]
        (a, b), (x, y) = (p - p.mean(1, keepdim=True) for p in (before, after))
        return torch.atan2(a * y - b * x, a * x + b * y).mean().item()

    assert 0.07 < angle(7) - angle(1) < 0.23


def test_volumes_are_those_of_the_labels_of_every_frame():
    c = beat(0, "normal", STACK, 3)
    for k, exact in ((LV, c.volumes.lv_ml), (RV, c.volumes.rv_ml), (MYO, c.volumes.wall_ml)):
        counted = (c.frame_labels == k).flatten(1).sum(1) * (2 * 2 * 8 / 1000)
        torch.testing.assert_close(counted.float(), exact, rtol=0.015, atol=0)


@pytest.mark.release
def test_volume_falls_in_systole_rests_in_diastasis_and_is_restored_by_the_atria():
    lv = beat(0, "normal", ((48, 48), (3.5, 3.5)), 60).volumes.lv_ml
    es = int(lv.argmin())
    assert 0.3 < es / 60 < 0.45
    rest = lv[40:50] / lv[0]
    assert (rest.max() - rest.min() < 0.01).item()
    assert 0.75 < rest.mean() < 0.95
    assert lv[-1] / lv[0] > 0.98


def test_what_no_cycle_can_be_is_refused():
    for options, said in (
        ({"shape": (32,), "spacing": (2.0,)}, "a slice or a stack"),
        ({"shape": (32, 32, 4)}, "as many as `spacing`"),
        ({"frames": 1}, "at least two frames"),
        ({"through_plane": True}, "through_plane"),
        ({"seed": -1}, "no patient -1"),
        ({"heart_rate": 300.0}, "heart_rate"),
        ({"pathology": "healthy"}, "normal, dilated, hypertrophic, infarct"),
        ({"pathology": "infarct", "infarct": (1, 2)}, "7 to 12"),
    ):
        with pytest.raises(BadInput, match=said):
            cycle(**{"seed": 0, **options})


# The motion, which is undone exactly, and its rhythm.


@pytest.mark.release
def test_the_motion_is_undone_to_a_ten_thousandth_of_a_voxel():
    y = voxel_positions((64, 64, 48), (2.4,) * 3, level=0.0)
    for seed in range(4):
        random = RandomSource(seed)
        motion = Motion.draw(Heart.draw(random), random)
        assert (motion.forward(motion.inverse(y)) - y).abs().max() < 2.4e-4


@pytest.mark.parametrize("rate", [40.0, 160.0])
def test_the_heart_contracts_in_systole_and_a_cycle_ends_as_it_began(rate):
    rhythm = Rhythm.at(rate)
    for share in (rhythm.contraction, rhythm.torsion):
        assert share(0.0) == 0
        assert share(rhythm.cycle) == pytest.approx(0, abs=1e-12)
        assert share(rhythm.systole) == pytest.approx(1)
    contraction = [rhythm.contraction(t * rhythm.cycle / 500) for t in range(501)]
    end = round(500 * rhythm.systole / rhythm.cycle)
    assert contraction[: end + 1] == pytest.approx(sorted(contraction[: end + 1]), abs=1e-9)
    assert contraction[end + 1 :] == pytest.approx(sorted(contraction[end + 1 :], reverse=True), abs=1e-9)
    assert min(contraction) == pytest.approx(0, abs=1e-9)
    assert max(contraction) <= 1


def test_diastasis_is_what_a_fast_heart_loses_first():
    """At rest it lasts about a third of a second; systole takes 350 ms of a second, and less than its share faster."""
    rests = []
    for rate in (60.0, 100.0):
        r = Rhythm.at(rate)
        rests.append(r.cycle - r.systole - r.early_filling - r.atrial_kick)
    assert 250 < rests[0] < 350
    assert 0 < rests[1] < 60
    assert Rhythm.at(60.0).systole == pytest.approx(350)
    assert Rhythm.at(100.0).systole == pytest.approx(282)


def test_the_heart_is_untwisted_before_it_is_filled():
    r = Rhythm.at(65.0)
    halfway = r.systole + 0.4 * r.early_filling
    assert r.torsion(halfway) < r.contraction(halfway)


# A pair: the field is the motion, the motion is that of a heart, the picture is that of a scanner.

CUT, COARSE, VOLUME = ((160, 160), 1.8), ((96, 96), 3.0), ((64, 64, 48), 2.4)
cases = pytest.mark.parametrize(("seed", "grid"), [(0, CUT), (3, VOLUME)])


@cache
def patient(seed: int, grid: tuple[tuple[int, ...], float]) -> Phantom:
    return phantom(seed, *grid)


def size(labels: Tensor, label: int) -> int:
    return int((labels == label).sum())


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


@pytest.mark.release
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


@pytest.mark.release
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
