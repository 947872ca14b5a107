"""A tracked cine: what follows from its motion, and what is said of it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal

from tests.cardiac.cines import CLOSED, exact_result, with_labels_of, without_labels
from tests.phantoms import cycle
from vrnet import BadInput, Cine, CineResult, Grid, Image, InputWarning, Tracking, Transform, track
from vrnet.app.track import result_table
from vrnet.cardiac.anatomy import Segmentation
from vrnet.cardiac.labels import read_labels
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import read_label_names
from vrnet.registration.cine import TrackedMotion
from vrnet.report.cine import Film, headline, volume_table
from vrnet.verdict.cine import verdict_as_json

GRID = Grid.plain((96, 96, 3), (1.8, 1.8, 10.0))


@pytest.fixture(scope="module")
def beat():
    return cycle(2, GRID.shape, GRID.spacing, frames=5)


@pytest.fixture(scope="module")
def exact(beat):
    return exact_result(beat)


def test_a_frame_comes_back_to_the_reference(beat, exact):
    left = np.abs(exact.warped(2).array - beat.frames[0].numpy())[beat.labels.numpy() > 0].mean()
    assert left < 0.4 * (beat.frames[2] - beat.frames[0]).abs()[beat.labels > 0].mean()
    assert all(isinstance(transform, Transform) for transform in exact.transforms)
    assert Tracking is CineResult


def test_closure_is_the_mean_length_in_mm_over_the_labels(beat, exact, monkeypatch):
    drift = np.where(beat.labels.numpy() > 0, 0.1, 7.0) * np.ones((2, 3, 1, 1, 1))
    found = TrackedMotion(exact.fields, drift, (None,) * len(exact.fields))
    monkeypatch.setattr("vrnet.cardiac.cine.track_motion", lambda *given: found)
    result = track(exact.cine, "TV-L1", labels=exact.reference_labels)
    length = 0.1 * np.linalg.norm(GRID.spacing)
    assert_allclose([*result.closure_mm.values()], [length, length], rtol=1e-6)


def test_labels_beyond_the_box_of_the_heart_have_the_motion_sought_everywhere(exact, monkeypatch):
    """And stay as they were given."""
    found, boxes = TrackedMotion(exact.fields, exact.fields[:2], (None,) * len(exact.fields)), []
    monkeypatch.setattr("vrnet.cardiac.cine.track_motion", lambda *given: boxes.append(given[-1]) or found)
    whole, part = (tuple(slice(0, n - less) for n in exact.cine.grid.shape[:2]) for less in (0, 20))
    labels = exact.reference_labels.with_array(exact.reference_labels.array.copy())
    labels.array[-1, -1] = 2
    given = labels.array.copy()
    for box in (whole, part):
        monkeypatch.setattr("vrnet.cardiac.cine.find_box", lambda *words, box=box: box)
        track(exact.cine, "short-axis-cine", labels=labels)
    assert boxes == [whole, None]
    assert_array_equal(labels.array, given)


@pytest.mark.release
def test_frames_whose_folds_were_repaired_are_told(exact):
    mended = replace(exact, repaired={1: 2.5, 3: 4.0})
    (note,) = set(mended.notes()) - set(exact.notes())
    assert "in 2 of 5 frames" in note
    assert "frame 4, 4 %" in note  # as people count
    assert mended.metrics()["frames_with_repaired_folds"] == [1, 3]


@pytest.mark.release
def test_without_labels_there_is_motion_alone(beat, exact):
    bare = without_labels(exact)
    assert_allclose(exact.volumes.lv_ml, beat.volumes.lv_ml, rtol=0.03)
    assert exact.strain.times_ms == beat.times_ms
    assert (bare.labels, bare.volumes, bare.strain, bare.muscle_in_cavity) == (None,) * 4
    assert "label_names" not in bare.metrics()


@pytest.mark.release
def test_the_cavity_alone_has_the_ejection_fraction_that_it_has_beside_the_wall(exact):
    """And what is written of it says why there is no strain."""
    cavity = with_labels_of(exact, 3, label=1).reference_labels
    with pytest.warns(InputWarning, match="no strain is measured: the wall of the left ventricle is not labelled"):
        known = read_labels(cavity, exact.cine, None, {1: "LV"})
    told = dict(zip(("reference_labels", "heart", "label_names"), known, strict=True))
    with pytest.warns(InputWarning, match="no strain is measured"):
        said = replace(exact, **told).metrics()
    expected = exact.metrics()
    assert said["strain_not_measured"] == "the wall of the left ventricle is not labelled, and strain needs it"
    assert ("strain" in said, "strain_not_measured" in expected) == (False, False)
    assert (said["label_names"], expected["label_names"]) == ({"1": "LV"}, {"1": "RV", "2": "Myo", "3": "LV"})
    for part in ("lv_ejection_fraction_percent", "lv_largest_ml", "lv_smallest_ml"):
        assert said["volumes"][part] == expected["volumes"][part]
    assert np.isnan([said["volumes"]["mass_g"], said["volumes"]["rv_ejection_fraction_percent"]]).all()


@pytest.mark.release
def test_names_of_labels_say_what_is_what_and_are_shown(exact):
    """A structure that is no part of what is measured has its name too."""
    numbers = {1: 30, 2: 20, 3: 10}
    array = np.select([exact.reference_labels.array == old for old in numbers], [*numbers.values()])
    array[:4, :4] = 40
    names = "30=RV,20=myo,10=LV,40=liver"
    labels, heart, known = read_labels(Image(array, GRID), exact.cine, None, read_label_names(names))
    assert heart == HeartLabels(rv=30, wall=20, lv=10)
    named = replace(exact, reference_labels=labels, heart=heart, label_names=known)
    assert named.volumes.lv_ejection_fraction_percent == pytest.approx(exact.volumes.lv_ejection_fraction_percent)
    assert {name for name, _ in Film.of(named).structures.values()} == {"RV", "myo", "LV", "liver"}
    assert named.metrics()["label_names"] == {"30": "RV", "20": "myo", "10": "LV", "40": "liver"}
    for others, said in (
        ({"heart": HeartLabels()}, "give `heart` or"),
        ({"labels": None}, "give `labels` too"),
        ({"frame": 5}, "frames 0 to 4"),
    ):
        with pytest.raises(BadInput, match=said):
            track(exact.cine, **{"labels": Image(array, GRID), "label_names": names} | others)


@pytest.mark.release
def test_a_slice_whose_wall_is_open_is_told_beside_the_volumes(exact):
    labels = exact.reference_labels.array.copy()
    labels[: labels.shape[0] // 2, :, 1] = 0
    labels[..., 1][labels[..., 1] != 2] = 0
    found = replace(exact, reference_labels=exact.reference_labels.with_array(labels))
    said = "In slice 2 the wall does not close: volumes and the ejection fraction lack the cavity there."
    assert found.metrics()["volumes"]["slices_whose_wall_is_open"] == (1,)
    assert said in volume_table(found.volumes)["notes"]
    assert headline(found)[0][2].startswith("without slice 2, RV ")
    assert any("(without slice 2)" in cell for cell in result_table(found).columns[1].cells)
    assert exact.volumes.open_slices == ()


def test_strain_of_a_volume_is_measured_in_the_slices_that_a_page_shows():
    """Which lie across the axis nearest to head-foot, wherever that is stored."""
    shape, spacing = (20, 44, 44), (3.0, 3.0, 3.0)
    axes = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    grid = Grid(shape, spacing, (0.0,) * 3, tuple(axes.ravel().tolist()))
    _, x, y = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in shape), indexing="ij")
    labels = np.select([np.hypot(x, y) < 8, np.hypot(x, y) < 14], [3, 2]).astype(np.uint8)
    cine, still = Cine(np.stack([labels, labels]).astype(np.float32), grid), np.zeros((2, 3, *shape))
    heart = HeartLabels(rv=None)
    found = CineResult(cine, 0, still, CLOSED, None, "none", reference_labels=Image(labels, grid), heart=heart)
    assert sorted(found.strain.slices) == list(range(20))


@pytest.mark.release
def test_what_helped_a_network_and_what_may_be_no_cine_is_told(exact):
    helped = replace(exact, turned_by="TV-L1", refined_by="Gaussian-LNCC", cine=replace(exact.cine, doubt="BEWARE"))
    metrics = helped.metrics()
    assert [metrics[name] for name in ("turned_by", "refined_by", "doubt")] == ["TV-L1", "Gaussian-LNCC", "BEWARE"]
    assert helped.notes()[0] == "BEWARE."
    titles = [str(result_table(each).title) for each in (helped, exact)]
    assert [", turned, refined, 5 frames" in title for title in titles] == [True, False]
    assert exact.metrics()["doubt"] is None


def test_a_file_of_one_slice_is_tracked(beat, tmp_path):
    frames = beat.frames.numpy()[:3, ::2, ::2, 1]
    sitk.WriteImage(sitk.GetImageFromArray(frames.transpose(0, 2, 1)), str(tmp_path / "cine.mha"))
    with pytest.warns(InputWarning, match="third is taken for time"):
        found = track(tmp_path / "cine.mha", "TV-L1")
    assert_array_equal(found.cine.frames, frames)
    assert found.fields.shape == (3, 2, 48, 48)
    assert found.folding_strict_percent == 0


# The verdict on a stack, each slice of which was tracked by itself: whose fault it is, and where to look.


@cache
def beat_of(frames):
    return cycle(2, (48, 48, 5), (3.6, 3.6, 10.0), frames=frames)


def stack_across(axis, frames, bad=3, voxels=0.0):
    """A stack whose slices lie across an axis, as if tracked without a mistake but for a jump in frame 7 of a slice.

    Of ten frames, it does not matter how far the heart moves from one to the next."""
    order, beat = ([2, 0, 1] if axis == 0 else [0, 1, 2]), beat_of(frames)
    fields, spacing = beat.fields.numpy().copy(), tuple(beat.spacing[i] for i in order)
    fields[7, 0, ..., bad] += voxels
    fields, images = (np.moveaxis(each, -1, axis - 3) for each in (fields[:, order], beat.frames.numpy()))
    labels = np.moveaxis(beat.labels.numpy(), -1, axis)
    grid = Grid.plain(labels.shape, spacing)
    assert grid.across == axis
    cine = Cine(images, grid, beat.times_ms)
    return CineResult(cine, 0, fields, CLOSED, axis, "truth", reference_labels=Image(labels, grid), heart=HeartLabels())


def worst_of(result):
    return verdict_as_json(result)["worst"]


@pytest.mark.release
def test_slices_whose_motion_is_ruined_are_named():
    """And the worst is what one looks at first."""
    ruined = stack_across(0, 16, [0, 3], voxels=0.5)
    assert any(reason.startswith("Slices 1, 4: the motion jumps at frame 8") for reason in ruined.verdict.reasons)
    assert worst_of(ruined) == {"slice": 3, "frame": 7}


@pytest.mark.release
def test_a_stack_whose_slices_are_all_right_is_good():
    assert stack_across(2, 16).verdict.level == "good"


def with_noise(result, frames, *where):
    images = result.cine.frames.copy()
    images[frames, ..., *where] = np.random.default_rng(0).random(images[frames, ..., *where].shape)
    return replace(result, cine=replace(result.cine, frames=images))


@pytest.mark.release
def test_a_frame_of_noise_is_no_fault_of_a_slice():
    noisy = with_noise(stack_across(2, 10), 4)
    assert max(each["muscle_in_cavity"].value for each in noisy.evidence.slices) > 0.5
    assert not any("lice" in words for words in (*noisy.verdict.reasons, *noisy.verdict.try_))
    assert worst_of(noisy) == {"slice": None, "frame": 4}


@pytest.mark.release
def test_a_slice_of_noise_in_some_frames_is_named_without_labels_too():
    noisy = without_labels(with_noise(stack_across(2, 10), slice(4, 9), 2))
    said = next(reason for reason in noisy.verdict.reasons if "no counterpart" in reason)
    assert said.startswith("Slice 3: in frame")
    assert worst_of(noisy)["slice"] == 2
    assert noisy.verdict.level != "good"


@pytest.mark.release
def test_a_slice_that_is_frozen_between_beating_ones_is_named():
    stack = stack_across(2, 10)
    frames, fields = stack.cine.frames.copy(), stack.fields.copy()
    frames[..., 2], fields[..., 2] = frames[0, ..., 2], 0
    frozen = replace(stack, cine=replace(stack.cine, frames=frames), fields=fields)
    (reason,) = frozen.verdict.reasons
    assert reason.startswith("Slice 3: over the cycle the heart moves 100 % less than in the other slices")
    assert frozen.verdict.level == "look"
    assert worst_of(frozen)["slice"] == 2


@pytest.mark.release
def test_muscle_in_the_cavity_is_evidence_of_motion_that_was_missed(exact):
    assert exact.muscle_in_cavity.whole.max() < 0.1
    missed = replace(exact, fields=np.zeros_like(exact.fields))
    assert missed.evidence.whole["muscle_in_cavity"].value == missed.muscle_in_cavity.whole.max() > 0.22
    assert any("looks like muscle" in reason for reason in missed.verdict.reasons)


def test_volumes_are_not_looked_at_slice_by_slice(beat, exact, monkeypatch):
    """Which would take minutes, and the network knows slices alone."""
    grid = Grid.plain(GRID.shape, (1.8, 1.8, 2.0))
    found = TrackedMotion(exact.fields, exact.fields[:2], (None,) * len(exact.fields))
    monkeypatch.setattr("vrnet.cardiac.cine.track_motion", lambda *given: found)
    monkeypatch.delattr("vrnet.cardiac.cine.find_ventricles")
    result = track(Cine(beat.frames.numpy(), grid), "TV-L1")
    assert (result.frame, result.seen, result.labels) == (0, None, None)


def test_what_is_no_heart_to_the_network_is_measured_by_nothing(exact):
    """Neither the reference nor an ejection fraction is taken from it, nor a frame of which it shows nothing."""
    maps = np.stack([exact.reference_labels.array] * len(exact.cine))
    seen = Segmentation(exact.cine, maps, np.full((5, 3), 0.9), (), (), {}, "failed", ("No heart.",))
    assert {*replace(exact, seen=seen).ejection_fractions_percent} == {"measured"}
    alone = replace(without_labels(exact), seen=seen)
    assert alone.with_seen_labels() is alone
    maps = maps.copy()
    maps[0] = 0
    alone = replace(alone, seen=replace(seen, labels=maps, level="look", reasons=("In 20 % of the frames none.",)))
    assert alone.with_seen_labels().volumes is None
    assert any(note.startswith("Nothing was measured: In 20 %") for note in alone.notes())
