from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.models import trained
from vrnet.errors import BadInput, InputWarning
from vrnet.fields.calculus import compose, smooth
from vrnet.fields.folds import smallest_determinant
from vrnet.images.grid import Grid
from vrnet.images.image import Cine
from vrnet.phantom import cycle
from vrnet.registration.arrays import register, repair_folds
from vrnet.registration.cine import (
    FRAMES_OF_NETWORK,
    Cycle,
    Smoothing,
    between,
    follow,
    plan_tracking,
    prepare,
    refine,
    track_frames,
)

METHODS = [("short-axis-cine", 1.0), ("TV-L1", 1.05)]
"""With how many times the error of direct registration each may have: a solver finds large motions by itself."""


@pytest.fixture(scope="module")
def beat():
    return cycle(2, (96, 96), (1.8, 1.8), frames=12)


def as_cine(beat, grid=None):
    return Cine(beat.frames.numpy(), grid or Grid.plain(tuple(beat.labels.shape), beat.spacing), beat.times_ms)


def run(cine, method="TV-L1", frame=0, **options):
    return track_frames(cine, plan_tracking(cine, method, "auto", "cpu"), frame, **options)


def wall_errors_mm(fields, beat):
    """Mean distance in the wall from where the tissue is: over all frames, and at end-systole."""
    miss = (torch.as_tensor(fields) - beat.fields) * torch.tensor(beat.spacing).view(-1, 1, 1)
    of_frame = torch.linalg.vector_norm(miss, dim=1)[:, beat.labels == 2].mean(1)
    return of_frame.mean(), of_frame[beat.end_systole]


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


def test_storage_does_not_matter():
    """The axes of the array exchanged, one of them reversed: the same motion in the world."""
    plain = small_stack()
    order = (2, 0, 1)
    grid = plain.grid.reordered(order).flipped([1])
    frames = np.flip(plain.frames.transpose(0, *(1 + axis for axis in order)), 2)
    expected, found = run(plain), run(Cine(frames.copy(), grid))
    back = np.flip(found.fields, 3).copy()
    back[:, 1] *= -1
    assert (expected.slice_axis, found.slice_axis) == (2, 0)
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


@pytest.mark.parametrize("is_network", [False, True])
def test_progress_goes_from_0_to_1(is_network):
    told = []
    run(small_stack(), trained(spacing=(3.2, 3.2)) if is_network else "TV-L1", progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1


@pytest.mark.parametrize("d", [2, 3])
def test_progress_does_not_jump_where_nothing_turns(d):
    """Of volumes a network tells a step of each frame, and not the part of turning at once."""
    frames = np.random.default_rng(0).random((8, *(16,) * d)).astype(np.float32)
    cine, told = Cine(frames, Grid.plain((16,) * d, (1.8, 1.8, 1.8)[:d])), [0.0]
    plan = plan_tracking(cine, trained(d=d, spacing=(1.8,) * d), "auto", "cpu")
    assert (plan.turning(8) is None) == (d == 3)
    track_frames(cine, plan, progress=told.append)
    assert max(np.diff(told)) < 0.15


@pytest.mark.parametrize("n", [2, FRAMES_OF_NETWORK, 16, 29, 30, 50])
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
        refined = refine(plan, plan.refinement(8), prepare(cine, plan, 0), chains, lambda part: None).fields[:, 0]
    whole, of_refined, of_chains = (wall_errors_mm(u, beat)[1] for u in (found.fields, refined, alone))
    assert of_refined < 0.95 * of_chains
    assert whole < 0.95 * of_refined
    assert (found.refined_by, found.turned_by) == (str(plan.refinement(3)), str(plan.turning(3)))
    assert plan.refinement(2) is plan.turning(2) is None
    by_solver = run(small_stack())
    assert (by_solver.refined_by, by_solver.turned_by) == (None, None)


def test_a_start_that_is_worse_than_no_motion_is_forgotten(beat):
    """As that beside a frame of noise; the solver alone would keep no motion there."""
    cine, t = as_cine(beat), beat.end_systole
    plan = plan_tracking(cine, "short-axis-cine", "auto", "cpu")
    fields = torch.zeros(len(cine), 1, *beat.fields.shape[1:])
    fields[t] = 12 * torch.randn_like(fields[t]).cumsum(-1).div(10)
    with torch.inference_mode():
        cycle = Cycle(fields, (fields[0], fields[0]))
        found = refine(plan, plan.refinement(3), prepare(cine, plan, 0), cycle, lambda part: None).fields[:, 0]
    miss, whole = (wall_errors_mm(u, beat)[1] for u in (found, torch.zeros_like(found)))
    assert found[t].any()
    assert miss < 0.6 * whole


@pytest.mark.parametrize("frame", [-1, 5])
def test_a_reference_that_is_not_there_is_refused(frame):
    with pytest.raises(BadInput, match="frames 0 to 4"):
        run(small_stack(), frame=frame)


def test_a_solver_finds_two_frames_as_it_registers_the_pair(beat):
    """The first frame of a chain has no neighbour to start from: it is found coarse to fine, then smoothed and
    freed of folds."""
    two, grid = beat.frames[[0, beat.end_systole]].numpy(), Grid.plain(tuple(beat.labels.shape), beat.spacing)
    pair = torch.from_numpy(register(*two, "TV-L1", spacing=beat.spacing, folds="keep").field)
    sigma = Smoothing.on(beat.spacing, is_solver=True).result
    expected, _ = repair_folds(smooth(pair[None], sigma)[0], beat.spacing, None)
    assert_allclose(run(Cine(two, grid)).fields[1], expected, atol=1e-4)


def test_a_cine_of_voxels_far_from_those_of_training_is_told_of(beat):
    fine = as_cine(beat, Grid.plain(tuple(beat.labels.shape), (0.4, 0.4)))
    with pytest.warns(InputWarning, match=r"trained on voxels of 1.8 x 1.8 mm; these are of 0.4 x 0.4 mm"):
        plan_tracking(fine, "short-axis-cine", "auto", "cpu")
