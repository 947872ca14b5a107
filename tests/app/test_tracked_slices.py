"""The verdict on a stack, each slice of which was tracked by itself: whose fault it is, and where to look."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from vrnet import Cine, Grid, Image
from vrnet.app.cine import Tracking, verdict_of
from vrnet.cardiac.wall import HeartLabels
from vrnet.phantom import cycle
from vrnet.registration.cine import TrackedFrames


@cache
def beat_of(frames):
    return cycle(2, (48, 48, 5), (3.6, 3.6, 10.0), frames=frames)


@pytest.fixture
def short_beat():
    """Of a few frames, where how far the heart moves from one to the next does not matter."""
    return beat_of(10)


def stack_across(axis, beat, bad, voxels=0.5):
    """A stack whose slices lie across an axis, as if tracked without a mistake but for a jump in frame 7 of a slice."""
    order = [2, 0, 1] if axis == 0 else [0, 1, 2]
    fields, spacing = beat.fields.numpy().copy(), tuple(beat.spacing[i] for i in order)
    fields[7, 0, ..., bad] += voxels
    fields, frames = (np.moveaxis(each, -1, axis - 3) for each in (fields[:, order], beat.frames.numpy()))
    labels = np.moveaxis(beat.labels.numpy(), -1, axis)
    grid = Grid.plain(labels.shape, spacing)
    assert grid.across == axis
    none = (None,) * len(frames)
    found = TrackedFrames(fields, np.zeros((2, *fields.shape[1:])), "truth", None, "cpu", axis, none, 1.0)
    return Tracking(Cine(frames, grid, beat.times_ms), 0, found, Image(labels, grid), HeartLabels())


@pytest.mark.parametrize(
    ("axis", "bad", "words"), [(2, 3, "Slice 4"), (2, [0, 3], "Slices 1, 4"), (0, [0, 3], "Slices 1, 4")]
)
def test_slices_whose_motion_is_ruined_are_named(axis, bad, words):
    """And the worst is what one looks at first."""
    ruined = stack_across(axis, beat_of(16), bad)
    assert any(reason.startswith(f"{words}: the motion jumps at frame 8") for reason in ruined.verdict.reasons)
    assert verdict_of(ruined)["worst"] == {"slice": 3, "frame": 7}


def test_a_stack_whose_slices_are_all_right_is_good():
    assert stack_across(2, beat_of(16), 3, voxels=0.0).verdict.level == "good"


def test_a_frame_of_noise_is_no_fault_of_a_slice(short_beat):
    stack = stack_across(2, short_beat, 3, voxels=0.0)
    frames = stack.cine.frames.copy()
    frames[4] = np.random.default_rng(0).random(frames[4].shape)
    noisy = replace(stack, cine=replace(stack.cine, frames=frames))
    assert max(each.muscle_in_cavity.value for each in noisy.evidence.slices) > 0.5
    assert not any("lice" in words for words in (*noisy.verdict.reasons, *noisy.verdict.try_))
    assert verdict_of(noisy)["worst"] == {"slice": None, "frame": 4}


def test_a_slice_of_noise_in_some_frames_is_named_with_or_without_labels(short_beat):
    stack = stack_across(2, short_beat, 3, voxels=0.0)
    frames = stack.cine.frames.copy()
    frames[4:9, ..., 2] = np.random.default_rng(0).random(frames[4:9, ..., 2].shape)
    noisy = replace(stack, cine=replace(stack.cine, frames=frames))
    for each in (noisy, replace(noisy, reference_labels=None, heart=None)):
        said = next(reason for reason in each.verdict.reasons if "no counterpart" in reason)
        assert said.startswith("Slice 3: in frame")
        assert verdict_of(each)["worst"]["slice"] == 2
        assert each.verdict.level != "good"


@pytest.mark.parametrize("axis", [2, 0])
def test_a_slice_that_is_frozen_between_beating_ones_is_named(short_beat, axis):
    stack = stack_across(axis, short_beat, 3, voxels=0.0)
    frames, fields = stack.cine.frames.copy(), stack.fields.copy()
    still = (slice(None),) * axis + (2,)
    frames[:, *still], fields[:, :, *still] = frames[0][still], 0
    frozen = replace(stack, cine=replace(stack.cine, frames=frames), found=replace(stack.found, fields=fields))
    (reason,) = frozen.verdict.reasons
    assert reason.startswith("Slice 3: over the cycle the heart moves 100 % less than in the other slices")
    assert frozen.verdict.level == "look"
    assert verdict_of(frozen)["worst"]["slice"] == 2
