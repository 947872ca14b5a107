"""What a tracked cine is worth: true motion is good, and what cannot be true is not."""

import re
from dataclasses import replace
from math import inf, pi, sin

import numpy as np
import pytest

from vrnet.app.tracking import Tracking
from vrnet.evaluation.advice import Run
from vrnet.evaluation.cine_verdict import (
    FINDINGS,
    LEAST_FRAMES,
    CineEvidence,
    WallExtremes,
    judge_cine,
    unevenness,
)
from vrnet.evaluation.strain import strain
from vrnet.evaluation.wall import HeartLabels
from vrnet.images.cine import Cine
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.phantom.cycle import cycle
from vrnet.phantom.pathology import PATHOLOGIES
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
    return Tracking(cine, 0, found, Image(beat.labels.numpy(), grid, "labels"), HeartLabels())


@pytest.fixture(scope="module")
def exact(beat):
    return tracking_of(beat)


def test_the_exact_motion_is_good(exact):
    verdict = exact.verdict
    assert (verdict.level, verdict.reasons, verdict.try_) == ("good", (), ())


@pytest.mark.parametrize("pathology", sorted(PATHOLOGIES))
def test_the_strain_of_no_heart_healthy_or_ill_is_a_finding(pathology):
    ill = cycle(5, shape=(64, 64), spacing=(2.8, 2.8), frames=5, pathology=pathology)
    found = strain(ill.fields.numpy(), ill.labels.numpy(), ill.spacing)
    evidence = CineEvidence((), 0.0, 0.0, None, WallExtremes.of(found))
    assert judge_cine(evidence).level == "good"
    assert evidence.extremes.thickening == pytest.approx(found.peak("green_radial").percent / 100)
    assert all(rule.measure(evidence) < rule.look / 2 for rule in FINDINGS[-3:])


def test_a_heart_that_is_blown_up_is_told_by_how_much(beat):
    """x becomes s x about any point: lengths grow by s − 1, areas by s² − 1, and both strains are (s² − 1)/2."""
    s = 1.5
    x = np.stack(np.meshgrid(*(np.arange(n) - n / 2 for n in beat.labels.shape), indexing="ij"))
    swelling = np.sin(pi * np.arange(16) / 16) ** 2  # 0 in the reference, 1 in frame 8
    fields = ((s - 1) * swelling[:, None, None, None] * x).astype(np.float32)
    extremes = WallExtremes.of(strain(fields, beat.labels.numpy(), beat.spacing))
    assert extremes.lengthening == pytest.approx(s - 1, abs=0.001)
    assert extremes.area_change == pytest.approx(s**2 - 1, abs=0.001)
    assert extremes.thickening == pytest.approx((s**2 - 1) / 2, abs=0.001)
    assert extremes.shortening == pytest.approx(0, abs=0.001)
    judged = judge_cine(CineEvidence((), 0.0, 0.0, None, extremes))
    assert judged.level == "look"
    assert [word in " ".join(judged.reasons) for word in ("by 50 %", "by 125 %", "mid wall")] == [True] * 3


def test_what_was_run_is_not_advised(exact):
    drifts = replace(exact.evidence, closure_mm=5.0)
    for method, others in (("short-axis", ["TV-L1", "Gaussian-LNCC"]), ("TV-L1(lam=0.2)", ["Gaussian-LNCC"])):
        words = " ".join(judge_cine(drifts, Run(method)).try_)
        assert re.findall("`method=([^`]*)`", words) == others


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
    assert not any("TV-L1" in advice for advice in verdict.try_)  # by which it was tracked


@pytest.mark.parametrize("n", [16, 20, 30])
def test_unevenness_of_a_harmonic_motion_is_known(n):
    shape = np.random.default_rng(1).normal(size=(2, 5, 6))
    fields = np.stack([np.sin(2 * pi * t / n) * shape for t in range(n)])
    assert unevenness(fields, np.ones((5, 6))) == pytest.approx(4 * sin(pi / n) ** 2)


def test_few_frames_need_not_run_evenly():
    fields = np.random.default_rng(2).normal(size=(LEAST_FRAMES - 1, 2, 4, 4))
    assert unevenness(fields, np.ones((4, 4))) == 0
    assert unevenness(np.concatenate([fields, fields]), np.ones((4, 4))) > 1


def test_each_measure_of_a_cine_decides_by_its_limits(exact):
    good = exact.evidence
    measures = {"closure_mm": "closure", "unevenness": "uneven motion", "wall_change": "volume of the wall"}
    of_wall = {name: name for name in ("shortening", "thickening", "lengthening")} | {"area_change": "area of a part"}
    for name, finding in (measures | of_wall).items():
        rule = next(rule for rule in FINDINGS if rule.name == finding)
        for value, level in ((rule.look * 0.99, "good"), (rule.look * 1.01, "look"), (rule.failed * 1.01, "failed")):
            if value < inf:
                changed = {"extremes": replace(good.extremes, **{name: value})} if name in of_wall else {name: value}
                assert judge_cine(replace(good, **changed)).level == level


@pytest.mark.filterwarnings("ignore:no strain is measured")
def test_without_labels_of_it_the_wall_has_no_volume(beat, exact):
    cavities = exact.reference_labels.with_array(np.where(beat.labels.numpy() == 2, 0, beat.labels.numpy()))
    for labels in (None, cavities):
        bare = replace(exact, reference_labels=labels)
        assert bare.evidence.wall_change is None
        assert bare.evidence.extremes is None
        assert bare.verdict.level == "good"
