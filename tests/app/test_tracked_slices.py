"""The verdict on a stack, each slice of which was tracked by itself: whose fault it is, and where to look."""

from dataclasses import replace

import numpy as np
import pytest

from vrnet import Cine, Grid, Image
from vrnet.app.track_report import verdict_of
from vrnet.app.tracking import Tracking
from vrnet.evaluation.wall import HeartLabels
from vrnet.phantom import cycle
from vrnet.registration.cine import TrackedFrames


@pytest.fixture(scope="module")
def stack_beat():
    return cycle(2, (48, 48, 5), (3.6, 3.6, 10.0), frames=16)


def stack_across(axis, beat, bad, voxels=0.5):
    """A stack whose slices lie across an axis, as if tracked without a mistake but for a jump in frame 7 of a slice."""
    order = [2, 0, 1] if axis == 0 else [0, 1, 2]
    fields, spacing = beat.fields.numpy().copy(), tuple(beat.spacing[i] for i in order)
    fields[7, 0, ..., bad] += voxels
    fields, frames = (np.moveaxis(each, -1, axis - 3) for each in (fields[:, order], beat.frames.numpy()))
    labels = np.moveaxis(beat.labels.numpy(), -1, axis)
    grid = Grid.plain(labels.shape, spacing)
    assert grid.across == axis
    found = TrackedFrames(fields, np.zeros((2, *fields.shape[1:])), "truth", None, "cpu", axis, (None,) * 16, 1.0)
    return Tracking(Cine(frames, grid, beat.times_ms), 0, found, Image(labels, grid), HeartLabels())


@pytest.mark.parametrize("axis", [2, 0])
def test_slices_whose_motion_is_ruined_are_named(stack_beat, axis):
    """And the worst is what one looks at first."""
    ruined = stack_across(axis, stack_beat, 3)
    assert any(reason.startswith("Slice 4: the motion jumps at frame 8") for reason in ruined.verdict.reasons)
    assert verdict_of(ruined)["worst"] == {"slice": 3, "frame": 7}
    both = stack_across(axis, stack_beat, [0, 3])
    assert any(reason.startswith("Slices 1, 4: the motion jumps at frame 8") for reason in both.verdict.reasons)
    assert verdict_of(both)["worst"] == {"slice": 3, "frame": 7}
    assert stack_across(axis, stack_beat, 3, voxels=0.0).verdict.level == "good"


def test_a_frame_of_noise_is_no_fault_of_a_slice(stack_beat):
    stack = stack_across(2, stack_beat, 3, voxels=0.0)
    frames = stack.cine.frames.copy()
    frames[4] = np.random.default_rng(0).random(frames[4].shape)
    noisy = replace(stack, cine=replace(stack.cine, frames=frames))
    assert max(each.muscle_in_cavity.value for each in noisy.evidence.slices) > 0.5
    assert not any("lice" in words for words in (*noisy.verdict.reasons, *noisy.verdict.try_))
    assert verdict_of(noisy)["worst"] == {"slice": None, "frame": 4}
