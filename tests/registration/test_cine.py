"""Tracking a cine: chains and their blend, how slices turn, the whole, and labels brought to every frame."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.testing import assert_close

from tests.models import trained
from tests.phantoms import cycle
from vrnet.fields.calculus import compose, smooth
from vrnet.fields.folds import Repair, repair_folds, smallest_determinant
from vrnet.images.grid import Grid
from vrnet.images.image import Cine
from vrnet.registration.arrays import register
from vrnet.registration.cine import (
    FRAMES_OF_NETWORK,
    Cycle,
    Smoothing,
    between,
    follow,
    go_round,
    plan_tracking,
    prepare,
    propagate_labels,
    refine,
    start_by_warping,
    track_motion,
    without_divergence,
)

# Chains with a finder that is exact: pictures that are functions of x + constant, whose shift a mean tells.

N, SHIFTS = 6, torch.tensor([0.0, 0.5, 1.25, 2.0, 1.5, 0.25])
SMOOTHING = Smoothing((2.0, 2.0), (0.5, 0.5))
INSIDE = (slice(None), slice(None), slice(8, -8))


def ramps(shifts=SHIFTS):
    """(t, 2, 1, 32, 10): frame k is the reference, moved by shifts[k] voxels along the first axis; two slices."""
    x = torch.arange(32.0).view(1, 1, 1, -1, 1) - shifts.view(-1, 1, 1, 1, 1)
    return (x * torch.tensor([1.0, 1.5]).view(1, 2, 1, 1, 1)).expand(-1, -1, -1, -1, 10).contiguous()


def find_shift(I0, I1):
    """The shift between two ramps, everywhere the same."""
    slope = (I0[:, :, 1:] - I0[:, :, :-1]).mean((1, 2, 3))
    shift = (I0[INSIDE] - I1[INSIDE]).mean((1, 2, 3)) / slope
    return torch.stack([shift, torch.zeros_like(shift)], 1)[..., None, None].expand(-1, -1, *I0.shape[2:]).contiguous()


def test_exact_registrations_give_the_exact_motion_and_close():
    found = go_round(start_by_warping(find_shift), ramps(), SMOOTHING)
    expected = SHIFTS.view(-1, 1, 1, 1).expand(-1, 2, 32, 10)
    assert_close(found.fields[:, :, 0], expected, atol=1e-4, rtol=0)
    assert_close(found.fields[:, :, 1], torch.zeros_like(expected))
    assert_close(found.closing, torch.zeros(2, 2, 2, 32, 10), atol=1e-4, rtol=0)


def test_what_a_finder_sees_in_equal_images_does_not_add_up():
    """A finder that is always a tenth of a voxel off, in each slice another way."""
    off = torch.tensor([[0.1, -0.05], [0.0, 0.1]]).view(2, 2, 1, 1)

    def find(I0, I1):
        return find_shift(I0, I1) + off.repeat(len(I0) // 2, 1, 1, 1)

    frames = ramps()
    exact, biased = (go_round(start_by_warping(f), frames, SMOOTHING) for f in (find_shift, find))
    assert (biased.closing[0] - exact.closing[0]).abs().max() > 0.09
    found = go_round(start_by_warping(find, find(frames[0], frames[0])), frames, SMOOTHING)
    assert_close(found.fields, exact.fields, atol=1e-5, rtol=0)
    assert_close(found.closing, exact.closing, atol=1e-5, rtol=0)


def test_each_chain_counts_by_how_near_it_is_to_where_it_began():
    """A finder that adds a voxel at each step: chains are k and n − k voxels off, the blend 2 k (n − k) / n."""
    found = go_round(lambda I0, I1, start: start + 1, torch.zeros(N, 1, 1, 9, 9), SMOOTHING)
    k = torch.arange(N)
    assert_close(found.fields[:, 0, 0, 4, 4], 2 * k * (N - k) / N)
    assert_close(found.closing[0], torch.full((1, 2, 9, 9), float(N)))


def test_a_turn_that_no_image_shows_is_forgotten_but_by_solvers():
    """A finder that adds a tenth of a voxel at each step: of 0.8 of each start, ½ is left in the end, and not 3."""
    frames = torch.zeros(30, 1, 1, 9, 9)
    network, solver = (
        go_round(lambda I0, I1, start: start + 0.1, frames, Smoothing.on((1.4, 1.4), is_solver)).closing[0]
        for is_solver in (False, True)
    )
    assert_close(network, torch.full_like(network, 0.5), atol=1e-2, rtol=0)
    assert_close(solver, torch.full_like(solver, 3.0), atol=1e-4, rtol=0)


def test_a_start_is_a_part_of_the_field_before_smoothed():
    """A finder that finds a jump at the first step, and nothing more: the start is left, smoothed a little more."""
    jump, starts = torch.randn(2, 2, 16, 16, generator=torch.Generator().manual_seed(0)), []

    def find(I0, I1, start):
        starts.append(start)
        return start + jump * (len(starts) == 1)

    go_round(find, torch.zeros(2, 1, 1, 16, 16), Smoothing((1.5, 0.5), (0.0, 0.7), 0.8))
    assert_close(starts[1], 0.8 * smooth(smooth(jump, (0.0, 0.7)), (1.5, 0.5)))


# A contraction stays that of one field, a turn becomes that of the other.


def waves(shape, spacing, k, direction):
    """cos(2π k·x) along a direction, in voxels; k counts the waves along each side."""
    x = torch.stack(torch.meshgrid(*(torch.arange(n, dtype=torch.float64) / n for n in shape), indexing="ij"))
    phase = sum(count * position for count, position in zip(k, x, strict=True))
    mm = torch.tensor(direction, dtype=torch.float64) / torch.tensor(spacing)
    return torch.cos(2 * math.pi * phase) * mm.view(1, -1, *[1] * len(shape))


@pytest.mark.parametrize(
    ("shape", "spacing", "k", "across"),
    [((16, 12), (1.0, 2.5), (1, 2), None), ((8, 10, 6), (1.0, 2.0, 8.0), (1, 0, 2), (0.0, 1.0, 0.0))],
)
def test_a_wave_along_its_direction_is_contraction_and_one_across_it_is_turning(shape, spacing, k, across):
    """Of plane waves in mm the divergence is known: u along k has nothing else, u across k has none."""
    along = tuple(count / (n * h) for count, n, h in zip(k, shape, spacing, strict=True))
    across = across or (-along[1], along[0])
    contraction, turning = (waves(shape, spacing, k, direction) for direction in (along, across))
    assert_close(without_divergence(contraction, spacing), torch.zeros_like(contraction))
    assert_close(without_divergence(turning, spacing), turning)


@pytest.mark.parametrize("shape", [(15, 16), (6, 8, 5)])
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


# The whole, on phantoms whose motion is known.

METHODS = [("short-axis-cine", 1.0), ("TV-L1", 1.05)]
"""With how many times the error of direct registration each may have: a solver finds large motions by itself."""


@pytest.fixture(scope="module")
def beat():
    return cycle(2, (96, 96), (1.8, 1.8), frames=12)


def as_cine(beat, grid=None):
    return Cine(beat.frames.numpy(), grid or Grid.plain(tuple(beat.labels.shape), beat.spacing), beat.times_ms)


def run(cine, method="TV-L1", frame=0, **options):
    return track_motion(cine, plan_tracking(cine, method, "auto", "cpu"), frame, **options)


def wall_errors_mm(fields, beat):
    """Mean distance in the wall from where the tissue is: over all frames, and at end-systole."""
    miss = (torch.as_tensor(fields) - beat.fields) * torch.tensor(beat.spacing).view(-1, 1, 1)
    of_frame = torch.linalg.vector_norm(miss, dim=1)[:, beat.labels == 2].mean(1)
    return of_frame.mean(), of_frame[beat.end_systole]


def test_a_repair_is_told_at_the_voxel_of_the_cine_as_it_is_stored(monkeypatch):
    """Its axes run the other way and in another order than the world's, in which folds are repaired."""
    told = Repair(1.0, 2.5, 0.1, 0.2, 0.3, 0.4, (1, 2))
    monkeypatch.setattr("vrnet.registration.cine.repair_folds", lambda u, *_: (u, told))
    frames = np.random.default_rng(1).random((3, 24, 20)).astype(np.float32)
    grid = Grid((24, 20), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0, -1.0, 0.0))
    found = run(Cine(frames, grid), "Identity", 1)
    assert [repair.farthest_voxel for repair in found.repairs] == [(21, 1)] * 3


@pytest.mark.release
@pytest.mark.parametrize(("method", "share"), METHODS)
def test_both_ways_round_beats_direct_registration_and_composition(beat, method, share):
    """On average over all frames, and at end-systole."""

    def between(a, b):
        pair = beat.frames[a].numpy(), beat.frames[b].numpy()
        return torch.from_numpy(register(*pair, method, spacing=beat.spacing, folds="keep").field)[None]

    direct, composed = [torch.zeros_like(beat.fields[:1])], [torch.zeros_like(beat.fields[:1])]
    for t in range(1, len(beat.frames)):
        direct.append(between(0, t))
        composed.append(compose(between(t - 1, t), composed[-1]))
    found = run(as_cine(beat), method)
    (mean, systole), by_composition = wall_errors_mm(found.fields, beat), wall_errors_mm(torch.cat(composed), beat)
    directly = wall_errors_mm(torch.cat(direct), beat)
    assert mean < 0.6
    assert systole < 0.9
    assert mean < 0.7 * by_composition[0]
    assert systole < by_composition[1]
    assert mean < share * directly[0]
    assert systole < share * directly[1]
    assert (smallest_determinant(torch.from_numpy(found.fields)) > 0).all()


@cache
def small_stack():
    """Two slices over five frames, made once."""
    beat = cycle(4, (40, 36, 2), (3.2, 3.2, 10.0), frames=5)
    return Cine(beat.frames.numpy(), Grid.plain((40, 36, 2), (3.2, 3.2, 10.0)))


@pytest.mark.release
def test_storage_does_not_matter():
    """The axes of the array exchanged, one of them reversed: the same motion in the world."""
    plain = small_stack()
    order = (2, 0, 1)
    grid = plain.grid.reordered(order).flipped([1])
    frames = np.flip(plain.frames.transpose(0, *(1 + axis for axis in order)), 2)
    turned = Cine(frames.copy(), grid)
    expected, found = run(plain), run(turned)
    back = np.flip(found.fields, 3).copy()
    back[:, 1] *= -1
    plans = [plan_tracking(each, "TV-L1", "auto", "cpu") for each in (plain, turned)]
    assert [plan.order[plan.slice_axis] for plan in plans] == [2, 0]
    assert_allclose(back, expected.fields[:, order].transpose(0, 1, *(2 + axis for axis in order)), atol=1e-5)


def test_the_reference_may_be_any_frame_and_does_not_move():
    cine = small_stack()
    rolled = Cine(np.roll(cine.frames, 2, 0), cine.grid)
    found, expected = run(rolled, frame=2), run(cine)
    assert not found.fields[2].any()
    assert_allclose(np.roll(found.fields, -2, 0), expected.fields, atol=1e-6)


def test_a_change_of_brightness_of_one_frame_is_seen_by_one_scaling():
    """All frames have one scaling: a frame of half the brightness is not brought back to that of the others."""
    cine = small_stack()
    dark = cine.frames.copy()
    dark[2] *= 0.5
    assert np.abs(run(Cine(dark, cine.grid)).fields[2] - run(cine).fields[2]).max() > 0.1


@pytest.mark.release
@pytest.mark.parametrize(("d", "is_network"), [(2, True), (3, True), (3, False)])
def test_progress_goes_from_0_to_1_and_does_not_jump(d, is_network):
    """Where nothing turns, as of volumes, a network tells a step of each frame, and not the part of turning at once."""
    frames = np.random.default_rng(0).random((8, *(16,) * d)).astype(np.float32)
    cine, told = Cine(frames, Grid.plain((16,) * d, (1.8, 1.8, 1.8)[:d])), [0.0]
    plan = plan_tracking(cine, trained(d=d, spacing=(1.8,) * d) if is_network else "TV-L1", "auto", "cpu")
    assert (plan.turning(8) is not None) == (is_network and d == 2)
    track_motion(cine, plan, progress=told.append)
    assert told[-1] == 1
    assert 0 <= min(np.diff(told))
    assert max(np.diff(told)) < 0.15


@pytest.mark.parametrize("n", [2, 29])
def test_a_network_sees_frames_spread_over_the_cycle_and_a_solver_all(n):
    cine = small_stack()
    seen = plan_tracking(cine, "short-axis-cine", "auto", "cpu").seen(n)
    gaps = np.diff([*seen, n])
    assert seen[0] == 0
    assert len(seen) == min(n, FRAMES_OF_NETWORK)
    assert gaps.min() >= 1
    assert gaps.max() - gaps.min() <= 1
    assert plan_tracking(cine, "TV-L1", "auto", "cpu").seen(n) == list(range(n))


def test_motion_between_frames_that_were_seen_is_linear_in_time_and_closes():
    """A motion whose speed changes only at these frames is found exactly."""
    seen, n = [0, 2, 3, 7], 9
    path = np.interp(np.arange(n), [*seen, n], [0.0, 3.0, -1.0, 4.0, 0.0])
    truth = torch.tensor(path)[:, None, None, None, None] * torch.randn(1, 2, 2, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(between(truth[seen], seen, n), truth)


@pytest.mark.release
def test_the_chain_of_a_network_is_turned_and_refined_and_not_its_one_step(monkeypatch):
    """At end-systole nearer to the truth than the chains alone, which see every frame that the solvers see, and than
    chains that are only refined."""
    beat, followed = cycle(7, (96, 96), (1.8, 1.8), frames=8), []
    cine = as_cine(beat)
    plan = plan_tracking(cine, "short-axis-cine", "auto", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr("vrnet.registration.cine.follow", lambda *words: followed.append(follow(*words)) or followed[-1])
        found = run(cine, "short-axis-cine")
    chains = followed[0]  # of the network; then those of what turns
    alone = chains.fields[:, 0].clone()
    with torch.inference_mode():
        refined = refine(plan, prepare(cine, plan, 0), chains, lambda part: None).fields[:, 0]
    whole, of_refined, of_chains = (wall_errors_mm(u, beat)[1] for u in (found.fields, refined, alone))
    assert of_refined < 0.95 * of_chains
    assert whole < 0.95 * of_refined
    assert plan.refinement(2) is plan.turning(2) is None
    solver = plan_tracking(small_stack(), "TV-L1", "auto", "cpu")
    assert solver.refinement(5) is solver.turning(5) is None


@pytest.mark.release
def test_a_start_that_is_worse_than_no_motion_is_forgotten(beat):
    """As that beside a frame of noise; the solver alone would keep no motion there."""
    cine, t = as_cine(beat), beat.end_systole
    plan = plan_tracking(cine, "short-axis-cine", "auto", "cpu")
    fields = torch.zeros(len(cine), 1, *beat.fields.shape[1:])
    fields[t] = 12 * torch.randn_like(fields[t]).cumsum(-1).div(10)
    with torch.inference_mode():
        given = prepare(cine, plan, 0), Cycle(fields, fields[:2])
        found = refine(plan, *given, lambda part: None).fields[:, 0]
    miss, whole = (wall_errors_mm(u, beat)[1] for u in (found, torch.zeros_like(found)))
    assert found[t].any()
    assert miss < 0.6 * whole


def test_motion_is_found_in_a_box_and_ends_beyond_it(beat):
    """Inside, nearly as it is found of the whole; far from it nothing moves, and nothing folds between."""
    inside = np.argwhere(beat.labels.numpy() > 0)
    box = tuple(slice(max(0, int(a) - 9), int(b) + 10) for a, b in zip(inside.min(0), inside.max(0), strict=True))
    cine, plan = as_cine(beat), plan_tracking(as_cine(beat), "TV-L1", "auto", "cpu")
    whole, cut = (track_motion(cine, plan, box=each) for each in (None, box))
    heart = np.broadcast_to(beat.labels.numpy() > 0, cut.fields[:, 0].shape)
    miss, length = (np.linalg.norm(u, axis=1)[heart].mean() for u in (cut.fields - whole.fields, whole.fields))
    assert miss < 0.05 * length
    assert not cut.fields[:, :, 0, 0].any()
    assert all((smallest_determinant(torch.from_numpy(u[None])) > 0).all() for u in cut.fields)


def test_a_solver_finds_two_frames_as_it_registers_the_pair(beat):
    """The first frame of a chain has no neighbour to start from: it is found coarse to fine, then smoothed and
    freed of folds."""
    two, grid = beat.frames[[0, beat.end_systole]].numpy(), Grid.plain(tuple(beat.labels.shape), beat.spacing)
    pair = torch.from_numpy(register(*two, "TV-L1", spacing=beat.spacing, folds="keep").field)
    sigma = Smoothing.on(beat.spacing, is_solver=True).result
    expected, _ = repair_folds(smooth(pair[None], sigma)[0], beat.spacing, None)
    assert_allclose(run(Cine(two, grid)).fields[1], expected, atol=1e-4)


# Labels of the reference, brought to every frame.


def dice(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


@pytest.mark.parametrize("shape", [(96, 96), (96, 96, 3)])
def test_exact_motion_takes_labels_to_where_the_tissue_is(shape):
    """Whatever numbers they have, and of whatever type."""
    beat, factor = cycle(1, shape, (1.8, 1.8, 10.0)[: len(shape)], frames=4), np.uint16(1000)
    labels = beat.labels.numpy() * factor
    found = propagate_labels(labels, beat.fields.numpy(), 2 if len(shape) == 3 else None)
    assert found.dtype == np.uint16
    assert_array_equal(found[0], labels)
    for t in range(1, 4):
        for value in (1, 2, 3):
            assert dice(found[t] == factor * value, beat.frame_labels[t].numpy() == value) > 0.96
