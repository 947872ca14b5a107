"""What a tracked cine is worth: true motion is good, and what cannot be true is not."""

from dataclasses import replace
from math import inf, pi, sin

import numpy as np
import pytest

from tests.phantoms import cycle
from vrnet.cardiac.anatomy import Segmentation
from vrnet.cardiac.cine import CineResult
from vrnet.cardiac.strain import strain
from vrnet.cardiac.volumes import SliceCurves
from vrnet.cardiac.wall import HeartLabels
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.images.transforms import Transform
from vrnet.registration.pair import PairResult
from vrnet.verdict.advice import Run
from vrnet.verdict.cine import (
    FINDINGS,
    LEAST_FRAMES,
    NOTHING,
    CineEvidence,
    Extreme,
    extremes_of_slices,
    extremes_of_whole,
    judge_cine,
    unevenness,
    unmatched_by_slice,
    where_to_look,
)
from vrnet.verdict.evidence import evidence_of as evidence_of_pair

MEASURES = (
    "unevenness", "wall_change", "muscle_in_cavity", "shortening", "thickening", "lengthening", "area_change",
    "unmatched", "stillness", "estimates", "estimates of the RV",
)  # fmt: skip
STACK = Run("short-axis-cine", dimension=2, is_stack=True)


@pytest.fixture(scope="module")
def beat():
    return cycle(3, shape=(64, 64), spacing=(2.8, 2.8), frames=16)


def tracking_of(beat, frames=None, fields=None, closing_mm=0.0):
    """A cine as if it had been tracked so: by the exact motion, unless another is given."""
    grid = Grid.plain(tuple(beat.labels.shape), beat.spacing)
    known = beat.fields.numpy() if fields is None else fields
    closing = {"forward": closing_mm, "backward": closing_mm}
    cine = Cine(beat.frames.numpy() if frames is None else frames, grid, None)
    labels = Image(beat.labels.numpy(), grid, "labels")
    return CineResult(cine, 0, known, closing, None, "TV-L1", reference_labels=labels, heart=HeartLabels())


@pytest.fixture(scope="module")
def exact(beat):
    return tracking_of(beat)


def test_the_exact_motion_is_good(exact):
    verdict = exact.verdict
    assert (verdict.level, verdict.reasons, verdict.try_) == ("good", (), ())


def seen_as(result, frames, level="good", reasons=()):
    """The same, of which the network finds these labels."""
    unknown = np.full((len(frames), 1), np.nan)
    return replace(result, seen=Segmentation(result.cine, frames, unknown, (), (), {}, level, reasons, "network"))


def test_ejection_fractions_far_apart_are_worth_a_look(exact):
    """By the motion, and by what the network finds in each frame; agreeing ones are not."""
    assert seen_as(exact, exact.carried).verdict.level == "good"
    still = np.broadcast_to(exact.carried[0], exact.carried.shape)
    verdict = seen_as(exact, still).verdict
    assert verdict.level == "look"
    assert "by the network alone differ by" in " ".join(verdict.reasons)


def test_a_network_that_is_unsure_makes_no_good_tracking_of_its_own_outlines(exact):
    own = seen_as(exact, exact.carried, "look", ("The network is not sure.",))
    assert own.verdict.level == "look"
    assert own.verdict.reasons == ("The network is not sure.",)
    assert own.with_labels(own.reference_labels).verdict.level == "good"
    assert "are not checked" in " ".join(replace(exact, reference_labels=None, heart=None).notes())


def evidence_of(found):
    """A cine of which strain alone is known."""
    return CineEvidence((), 0.0, extremes_of_whole(None, found, None))


@pytest.mark.parametrize("pathology", ["hypertrophic", "infarct"])
def test_the_strain_of_no_heart_is_a_finding(pathology):
    ill = cycle(5, shape=(64, 64), spacing=(2.8, 2.8), frames=5, pathology=pathology)
    found = strain(ill.fields.numpy(), ill.labels.numpy(), ill.spacing)
    evidence = evidence_of(found)
    assert judge_cine(evidence).level == "good"
    peak = found.peak("green_radial")
    assert evidence.whole["thickening"] == Extreme(pytest.approx(peak.percent / 100), peak.frame)
    assert all(rule.measure(evidence).value < rule.limits[0] / 2 for rule in FINDINGS[-3:])


def test_a_heart_that_is_blown_up_is_told_by_how_much(beat):
    """x becomes s x about any point: lengths grow by s − 1, areas by s² − 1, and both strains are (s² − 1)/2."""
    s = 1.5
    x = np.stack(np.meshgrid(*(np.arange(n) - n / 2 for n in beat.labels.shape), indexing="ij"))
    swelling = np.sin(pi * np.arange(16) / 16) ** 2  # 0 in the reference, 1 in frame 8
    fields = ((s - 1) * swelling[:, None, None, None] * x).astype(np.float32)
    evidence = evidence_of(strain(fields, beat.labels.numpy(), beat.spacing))
    assert evidence.whole["lengthening"].value == pytest.approx(s - 1, abs=0.001)
    assert evidence.whole["area_change"].value == pytest.approx(s**2 - 1, abs=0.001)
    assert evidence.whole["area_change"].frame == 8
    assert evidence.whole["thickening"].value == pytest.approx((s**2 - 1) / 2, abs=0.001)
    assert evidence.whole["shortening"].value == pytest.approx(0, abs=0.001)
    judged = judge_cine(evidence)
    assert judged.level == "look"
    assert [word in " ".join(judged.reasons) for word in ("by 50 %", "by 125 %", "mid wall")] == [True] * 3


@pytest.fixture(scope="module")
def noisy(beat):
    frames = beat.frames.numpy().copy()
    frames[4:7] = np.random.default_rng(0).random(frames[4:7].shape, np.float32)
    return tracking_of(beat, frames)


@pytest.mark.release
def test_frames_of_noise_are_failed_and_named(noisy):
    verdict = noisy.verdict
    assert verdict.level == "failed"
    assert "frames 5 to 7" in verdict.reasons[0], "people count from 1"


@pytest.mark.release
def test_a_cine_that_does_not_close_says_how_far(beat):
    verdict = tracking_of(beat, closing_mm=5.0).verdict
    assert verdict.level == "failed"
    assert any("5.0 mm" in reason for reason in verdict.reasons)
    assert not any("TV-L1" in advice for advice in verdict.try_), "by which it was tracked"


def test_unevenness_of_a_harmonic_motion_is_known_and_few_frames_need_not_run_evenly():
    n, shape = 16, np.random.default_rng(1).normal(size=(2, 5, 6))
    fields = np.stack([np.sin(2 * pi * t / n) * shape for t in range(n)])
    assert unevenness(fields, np.ones((5, 6))).value == pytest.approx(4 * sin(pi / n) ** 2)
    uneven = np.random.default_rng(2).normal(size=(LEAST_FRAMES, 2, 4, 4))
    assert unevenness(uneven, np.ones((4, 4))).value > 1
    assert unevenness(uneven[1:], np.ones((4, 4))).value == 0


@pytest.mark.parametrize(
    ("sizes", "still"), [([1.0, 2.0, 0.1, 3.0, 0.0], [2, 4]), ([30.0, 30.0, 2.0, 3.0, 0.1, 2.2, 2.5], [4])]
)
def test_a_still_slice_is_told_by_how_much_less_it_moves_than_those_that_move(sizes, still):
    """Even if others jump; with the frame where the others have moved farthest."""
    n, z = 20, len(sizes)
    fields = np.zeros((n, 2, 5, 6, z))
    fields[:, 0] = np.sin(pi * np.arange(n) / n)[:, None, None, None] * np.array(sizes)
    curves = SliceCurves(tuple(range(z)), *np.zeros((6, z, n)))
    others = np.ones((5, 6, z)), 2, curves, 0, np.zeros((z, n))
    found = [each["stillness"] for each in extremes_of_slices(fields, *others)]
    typical = np.median([size for size in sizes if size >= 0.05 * max(sizes)])
    assert [found[k].value for k in range(z)] == pytest.approx(1 - np.array(sizes) / typical)
    assert [k for k in range(z) if found[k].value > 0.8] == still
    assert {each.frame for each in found} == {10}
    assert not any("stillness" in each for each in extremes_of_slices(0 * fields, *others))


def with_measure(good, rule, value):
    """The evidence, but for what this rule measures."""
    place = Extreme(value, frame=5, slice=6 if "slice" in rule.name else None, wall_level="mid")
    for name in MEASURES:
        in_slice = replace(good, slices=({}, {name: place}))
        for changed in (in_slice, replace(good, whole={**good.whole, name: place})):
            if rule.measure(changed) is place:
                return changed
    return replace(good, closure_mm=value)


def test_each_measure_of_a_cine_decides_by_its_limits_and_is_where_one_looks(exact):
    for rule in FINDINGS[2:]:
        for limit, level in zip(rule.limits, ("look", "failed"), strict=True):
            if limit < inf:
                below, beyond = (with_measure(exact.evidence, rule, part * limit) for part in (0.99, 1.01))
                assert judge_cine(beyond).level == level != judge_cine(below).level
                (reason,) = judge_cine(beyond).reasons
                assert reason.startswith("Slice 7: ") == rule.name.endswith("in a slice")
                assert ("frame 6" in reason) == (rule.name != "closure"), "what is known is told"
                assert (where_to_look(beyond) is None) == (rule.name == "closure")


def test_what_is_wrong_in_half_of_the_slices_and_the_whole_is_said_of_the_whole_alone(exact):
    bad, good = {"muscle_in_cavity": Extreme(0.67, 4, 3)}, {"muscle_in_cavity": Extreme(0.1, 4, 5)}
    of_slice = replace(exact.evidence, slices=(bad, good))
    assert judge_cine(of_slice, STACK).reasons[0].startswith("Slice 4: in frame 5, 67 % more of the tracked cavity")
    assert "that slice" in judge_cine(of_slice, STACK).try_[0]
    of_whole = replace(of_slice, whole={**of_slice.whole, "muscle_in_cavity": Extreme(0.62, 4)})
    (reason,) = judge_cine(of_whole, STACK).reasons
    assert reason.startswith("In frame 5, 62 % more of the tracked cavity")
    assert not any("that slice" in words for words in judge_cine(of_whole, STACK).try_)
    assert where_to_look(of_whole) == Extreme(0.62, 4)
    few = replace(of_whole, slices=(bad, good, good))
    assert [reason.split(",")[0] for reason in judge_cine(few).reasons] == ["In frame 5", "Slice 4: in frame 5"]
    assert where_to_look(few) == Extreme(0.67, 4, 3)
    other = replace(of_slice, whole={**of_slice.whole, "unevenness": Extreme(0.5, 4)})
    assert [reason.split(":")[0] for reason in judge_cine(other).reasons] == ["The motion jumps at frame 5", "Slice 4"]


@pytest.mark.release
def test_slices_that_are_unlike_are_named_unless_the_frames_tell_it_and_half_of_them_are(noisy, exact):
    slices = tuple({"unmatched": Extreme(value, 5, k)} for k, value in enumerate((0.9, 0.1, 0.2)))
    one = replace(exact.evidence, slices=slices)
    said = "Slice 1: in frame 6, 90 % of what the reference shows here has no counterpart"
    assert judge_cine(one, STACK).reasons[0].startswith(said)
    not_found = replace(one, frames=noisy.evidence.frames)
    assert any(reason.startswith(said) for reason in judge_cine(not_found).reasons)
    half = replace(not_found, slices=(*slices[:2], {}))
    assert not any("Slice" in reason for reason in judge_cine(half).reasons), "what was not measured does not count"
    assert where_to_look(half).frame == 4, "the first frame that was not found"


def test_every_slice_beyond_the_limit_is_named_and_one_looks_first_at_the_worst(exact):
    jumps = Extreme(0.7, 4, 0), Extreme(0.3, 9, 2), Extreme(0.94, 5, 4)
    evidence = replace(exact.evidence, slices=tuple({"unevenness": each} for each in jumps))
    (reason,) = judge_cine(evidence).reasons
    assert reason == (
        "Slices 1, 5: the motion jumps at frames 5 to 6: by up to 94 % of the largest motion there, or of the whole "
        "heart's where that is larger."
    )
    assert where_to_look(evidence) == jumps[2]


@pytest.mark.release
@pytest.mark.filterwarnings("ignore:no strain is measured")
def test_without_labels_of_it_the_wall_has_no_volume(beat, exact):
    cavities = exact.reference_labels.with_array(np.where(beat.labels.numpy() == 2, 0, beat.labels.numpy()))
    for labels in (None, cavities):
        bare = replace(exact, reference_labels=labels)
        assert bare.evidence.whole.get("wall_change", NOTHING) == NOTHING
        assert bare.evidence.whole.get("lengthening", NOTHING) == NOTHING
        assert bare.verdict.level == "good"


# What of each slice is not found again: as of a pair, where slices show as much.


@pytest.fixture(scope="module")
def heart():
    return cycle(3, shape=(64, 64), spacing=(2.8, 2.8), frames=3).frames.numpy()[0]


@pytest.fixture(scope="module")
def other(heart):
    """One heart in four slices: as it is, shifted, noise, and dark with another contrast."""
    noise = np.random.default_rng(0).random(heart.shape, np.float32)
    return np.stack([heart, np.roll(heart, 9, 0), noise, 0.5 - 0.4 * heart], -1)


def test_noise_is_unmatched_and_another_contrast_is_not(heart, other):
    fixed = np.stack([heart] * 4, -1)
    same, shifted, noise, inverted = unmatched_by_slice(fixed, other, other, (2.8, 2.8, 10.0), 2)
    assert same == 0
    assert 0.2 < shifted < noise
    assert noise > 0.8
    assert inverted < 0.05


def test_the_mean_of_slices_that_show_as_much_is_that_of_the_whole(heart, other):
    fixed, spacing = np.stack([heart] * 4, -1), (2.8, 2.8, 10.0)
    grid = Grid.plain(fixed.shape, spacing)
    still, image = Transform.from_voxels(np.zeros((3, *fixed.shape), np.float32), grid), Image(other, grid)
    whole = evidence_of_pair(PairResult(fixed=Image(fixed, grid), moving=image, transform=still, warped=image))
    assert unmatched_by_slice(fixed, other, other, spacing, 2).mean() == pytest.approx(whole.unmatched, abs=1e-5)


@pytest.mark.parametrize("across", [0, 2])
def test_large_slices_are_judged_as_blocks_but_never_put_together(heart, across):
    """Twice as many voxels along each side are averaged in pairs; slices that lie close stay apart."""
    fixed = np.repeat(np.repeat(np.stack([heart] * 12, -1), 2, 0), 2, 1)
    noisy = fixed.copy()
    noisy[..., 5] = np.random.default_rng(0).random(fixed.shape[:2])
    turned = (np.moveaxis(each, -1, across) for each in (fixed, noisy, noisy))
    found = unmatched_by_slice(*turned, (1.4, 1.4, 1.4), across)
    assert found.shape == (12,)
    assert found[5] > 0.5
    assert not np.delete(found, 5).any()
