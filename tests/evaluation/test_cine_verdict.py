"""What a tracked cine is worth: true motion is good, and what cannot be true is not."""

from dataclasses import replace
from math import pi, sin

import numpy as np
import pytest

from vrnet.app.tracking import Tracking
from vrnet.evaluation.cine_verdict import FINDINGS, LEAST_FRAMES, judge_cine, unevenness
from vrnet.images.cine import Cine
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.phantom.cycle import cycle
from vrnet.registration.cine import TrackedFrames


@pytest.fixture(scope="module")
def beat():
    return cycle(3, shape=(64, 64), spacing=(2.8, 2.8), frames=16)


def tracking_of(beat, frames=None, fields=None, closing_mm=0.0):
    """A cine as if it had been tracked so: by the exact motion, unless another is given."""
    grid = Grid.plain(tuple(beat.labels.shape), beat.spacing)
    known = beat.fields.numpy() if fields is None else fields
    closing = np.full((2, 2, *grid.shape), closing_mm / beat.spacing[0] / 2**0.5, np.float32)
    found = TrackedFrames(known, closing, "TV-L1", None, "cpu", None, (None,) * len(known), 1.0)
    cine = Cine(beat.frames.numpy() if frames is None else frames, grid, None)
    return Tracking(cine, 0, found, Image(beat.labels.numpy(), grid, "labels"))


def test_the_exact_motion_is_good(beat):
    verdict = tracking_of(beat).verdict
    assert (verdict.level, verdict.reasons, verdict.try_) == ("good", (), ())


def test_frames_of_noise_are_failed_and_named(beat):
    frames = beat.frames.numpy().copy()
    frames[4:7] = np.random.default_rng(0).random(frames[4:7].shape, np.float32)
    verdict = tracking_of(beat, frames).verdict
    assert verdict.level == "failed"
    assert "frames 5, 6, 7" in verdict.reasons[0], "people count from 1"


def test_no_motion_where_the_heart_beats_is_not_good(beat):
    assert tracking_of(beat, fields=np.zeros_like(beat.fields.numpy())).verdict.level != "good"


def test_a_cine_that_does_not_close_says_how_far(beat):
    verdict = tracking_of(beat, closing_mm=5.0).verdict
    assert verdict.level == "failed"
    assert any("5.0 mm" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("n", [16, 20, 30])
def test_unevenness_of_a_harmonic_motion_is_known(n):
    shape = np.random.default_rng(1).normal(size=(2, 5, 6))
    fields = np.stack([np.sin(2 * pi * t / n) * shape for t in range(n)])
    assert unevenness(fields, np.ones((5, 6))) == pytest.approx(4 * sin(pi / n) ** 2)


def test_few_frames_need_not_run_evenly():
    fields = np.random.default_rng(2).normal(size=(LEAST_FRAMES - 1, 2, 4, 4))
    assert unevenness(fields, np.ones((4, 4))) == 0
    assert unevenness(np.concatenate([fields, fields]), np.ones((4, 4))) > 1


def test_each_measure_of_a_cine_decides_by_its_limits(beat):
    good = tracking_of(beat).evidence
    measures = {"closure_mm": "closure", "unevenness": "uneven motion", "wall_change": "volume of the wall"}
    for name, finding in measures.items():
        rule = next(rule for rule in FINDINGS if rule.name == finding)
        for value, level in ((rule.look * 0.99, "good"), (rule.look * 1.01, "look"), (rule.failed * 1.01, "failed")):
            assert judge_cine(replace(good, **{name: value})).level == level


def test_without_labels_of_it_the_wall_has_no_volume(beat):
    exact = tracking_of(beat)
    cavities = exact.reference_labels.with_array(np.where(beat.labels.numpy() == 2, 0, beat.labels.numpy()))
    for labels in (None, cavities):
        bare = replace(exact, reference_labels=labels)
        assert bare.evidence.wall_change is None
        assert bare.verdict.level == "good"
