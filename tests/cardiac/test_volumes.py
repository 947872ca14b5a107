"""Volumes by Simpson's rule, muscle in a tracked cavity, and what becomes of each slice."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.cardiac.hearts import phantom_stack
from vrnet.cardiac.strain import strain
from vrnet.cardiac.volumes import muscle_in_cavity, slice_curves, volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.verdict.cine import NOTHING, Extreme, extremes_of_slices

HEART = HeartLabels()


def cylinders(radii, spacing=(0.5, 0.5, 8.0)):
    """Frames of a tube whose cavity has these radii in mm, of 10 mm of wall, through five slices."""
    x, y = (np.indices((160, 160)) - 79.5) * spacing[0]
    r = np.hypot(x, y)
    frames = [np.where(r < radius, 3, np.where(r < radius + 10, 2, 0)) for radius in radii]
    return np.repeat(np.array(frames, np.uint8)[..., None], 5, -1)


def test_a_tube_has_the_volume_of_its_formula():
    found = volumes(cylinders([20.0, 15.0]), (0.5, 0.5, 8.0))
    assert found.lv_ml.tolist() == pytest.approx([np.pi * r**2 * 40 / 1000 for r in (20, 15)], rel=5e-3)
    assert found.lv_ejection_fraction_percent == pytest.approx(100 * (1 - 9 / 16), abs=0.5)
    tens = volumes(cylinders([20.0]) * 10, (0.5, 0.5, 8.0), heart=HeartLabels(rv=None, wall=20, lv=30))
    assert tens.lv_ml[0] == found.lv_ml[0]
    assert found.mass_g == pytest.approx(1.05 * np.pi * (30**2 - 20**2) * 40 / 1000, rel=5e-3)
    assert found.rv_ml.tolist() == [0, 0]
    assert np.isnan(found.rv_ejection_fraction_percent)
    assert np.isnan(volumes(cylinders([20.0]), (0.5, 0.5, 8.0), heart=HeartLabels(wall=9)).mass_g)


def test_ejection_fractions_are_those_of_the_ventricles_that_are_labelled():
    frames, spacing = cylinders([20.0, 15.0]), (0.5, 0.5, 8.0)
    percent = volumes(frames, spacing).lv_ejection_fraction_percent
    assert volumes(frames, spacing).ejection_fractions_percent == {"LV": percent}
    right = volumes(np.where(frames == 3, 1, 0), spacing)
    assert right.ejection_fractions_percent == {"RV": percent}
    none = volumes(np.where(frames == 2, 2, 0), spacing).ejection_fractions_percent
    assert [*none] == ["LV"]
    assert np.isnan(none["LV"])


@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("pathology", ["normal", "infarct"])
def test_volumes_of_a_phantom_are_exact_to_one_percent(pathology):
    c = phantom_stack(pathology)
    found = volumes(c.frame_labels.numpy(), c.spacing)
    for counted, exact in (
        (found.lv_ml, c.volumes.lv_ml),
        (found.rv_ml, c.volumes.rv_ml),
        (found.wall_ml, c.volumes.wall_ml),
    ):
        np.testing.assert_allclose(counted, exact, rtol=0.01)
    assert found.lv_ejection_fraction_percent == pytest.approx(c.volumes.ejection_fraction_percent, abs=1)


# Muscle where blood should be: of discs, whose areas are known.

PX, PY = np.meshgrid(np.arange(48) - 23.5, np.arange(48) - 23.5, indexing="ij")


def heart(inner, outer=20.0):
    """An image, blood 1 and muscle 0.3, and its labels."""
    radius = np.hypot(PX, PY)
    labels = np.select([inner > radius, outer > radius], [3, 2])
    return np.select([labels == 3, labels == 2], [1.0, 0.3]), labels


def frames_of(*pairs):
    images, labels = zip(*pairs, strict=True)
    return np.stack(images), np.stack(labels)


def worst(*arguments, **options):
    """Of all slices together, in the frame where it is most."""
    return muscle_in_cavity(*arguments, **options).whole.max()


def left_behind():
    """A small heart under the labels of a large one, which it was in the reference; and the part of them that is
    muscle."""
    (image, _), (_, large) = heart(8), heart(14)
    return *frames_of(heart(14), (image, large)), (image[large == 3] < 0.5).mean()


def test_a_cavity_that_stays_behind_has_the_muscle_between_both_outlines_and_one_that_moves_has_none():
    """The part of it is 1 − (8 / 14)², by areas."""
    frames, labels, expected = left_behind()
    assert expected == pytest.approx(1 - (8 / 14) ** 2, abs=0.03)
    assert worst(frames, labels, HEART, 0) == pytest.approx(expected)
    assert worst(*frames_of(heart(14), heart(8), heart(11)), HEART, 0) == 0
    assert worst(*frames_of(heart(14), (heart(3)[0], heart(14)[1])), HEART, 0) > 0.9, "it lies in muscle altogether"


def test_what_looks_like_muscle_in_the_reference_already_does_not_count():
    """A papillary muscle, as large in both frames as the cavity is."""
    frames, labels = frames_of(heart(14), heart(14))
    frames[:, np.hypot(PX - 6, PY) < 4] = 0.3
    assert worst(frames, labels, HEART, 0) == 0


def test_frames_may_differ_in_brightness_and_kind_and_blood_may_be_dark():
    frames, labels, found = left_behind()
    whole = np.round(1000 * frames).astype(np.uint16)
    for other in (frames * np.reshape([1.0, 1.6], (2, 1, 1)) + 3, 1 - frames, whole, 1000 - whole, frames > 0.5):
        assert worst(other, labels, HEART, 0) == pytest.approx(found)
    assert worst(frames[::-1] > 0.5, labels[::-1], HEART, 1) == pytest.approx(found), "any frame is the reference"


def test_slices_have_a_brightness_each_and_count_by_their_cavity():
    (image, small), (reference, large) = heart(8), heart(14)
    frames = np.stack([np.stack([reference, 0.4 * reference], -1), np.stack([image, 0.4 * image], -1)])
    labels = np.stack([np.stack([large, large], -1), np.stack([large, small], -1)])
    left, sizes = (image[large == 3] < 0.5).mean(), [(each == 3).sum() for each in (large, small)]
    found = muscle_in_cavity(frames, labels, HEART, 0, across=2)
    assert found.whole.max() == pytest.approx(left * sizes[0] / sum(sizes))
    assert found.slices == (0, 1)
    assert_allclose(found.by_slice, [[0, left], [0, 0]])


def test_without_a_wall_or_a_cavity_or_of_one_too_small_to_tell_nothing_is_said():
    """It is no 0, which would be the best that there is."""
    frames, labels = frames_of(heart(14), heart(8))
    assert muscle_in_cavity(frames, np.where(labels == 3, 0, labels), HEART, 0) is None
    assert muscle_in_cavity(frames, np.where(labels == 2, 0, labels), HEART, 0) is None
    assert muscle_in_cavity(frames, labels, HeartLabels(lv=None), 0) is None
    found = muscle_in_cavity(*frames_of(heart(14), heart(1), heart(8)), HEART, 0)
    assert np.isnan(found.by_slice[0]).tolist() == [False, True, False]
    assert found.whole.tolist() == [0, 0, 0]


# Slices by hand, and by the whole.

SPACING = (1.5, 2.0, 8.0)
X, Y = np.meshgrid(1.5 * (np.arange(48) - 23.5), 2.0 * (np.arange(40) - 19.5), indexing="ij")
R = np.hypot(X, Y)
GROWTH = np.array([1.0, 1.0, 1.2, 1.1])
"""Of all lengths in slice 1, at each frame."""


def ring(scale=1.0):
    return np.select([12 * scale > R, 20 * scale > R], [3, 2])


@pytest.fixture(scope="module")
def tracked():
    """Four frames of three slices, the last empty; slice 1 is blown up by GROWTH, slice 0 rests."""
    labels = np.stack([np.stack([ring(), ring(s), 0 * ring()], -1) for s in GROWTH])
    frames = np.where(labels == 3, 1.0, 0.3)
    fields = np.zeros((len(GROWTH), 3, *labels.shape[1:]))
    for t, s in enumerate(GROWTH):
        fields[t, 0, ..., 1], fields[t, 1, ..., 1] = (s - 1) * X / 1.5, (s - 1) * Y / 2.0
    return frames, labels, fields


def curves_of(tracked, turn=lambda array: array, across=2, spacing=SPACING):
    frames, labels, fields = tracked
    frames, labels = turn(frames), turn(labels)
    of_wall = strain(fields, labels[0], spacing, across=across, heart=HEART)
    return slice_curves(
        labels, spacing, HEART, 0, across, of_wall, muscle_in_cavity(frames, labels, HEART, 0, across)
    ), of_wall


def test_areas_grow_by_the_square_and_strain_by_half_of_that(tracked):
    curves, _ = curves_of(tracked)
    assert curves.slices == (0, 1), "those that show nothing are left out"
    assert_allclose(curves.wall_mm2[:, 0], np.pi * (20**2 - 12**2), rtol=0.02)
    assert_allclose(curves.cavity_mm2[:, 0], np.pi * 12**2, rtol=0.02)
    assert_allclose(curves.wall_mm2[1] / curves.wall_mm2[1, 0], GROWTH**2, rtol=0.02)
    assert_allclose(curves.green_radial_percent[1], 50 * (GROWTH**2 - 1), atol=0.01)
    assert_allclose(curves.green_circumferential_percent[1], 50 * (GROWTH**2 - 1), atol=0.01)
    assert not curves.green_radial_percent[0].any()
    assert not curves.muscle_in_cavity_percent.any()


def test_the_most_that_a_slice_does_is_told_with_its_frame(tracked):
    curves, _ = curves_of(tracked)
    shown, unmatched = np.ones(tracked[2].shape[2:]), np.full((3, len(tracked[2])), np.nan)
    rests, found, empty = extremes_of_slices(tracked[2], shown, 2, curves, 0, unmatched)
    assert empty == {"unmatched": NOTHING}
    assert found["unevenness"].slice == 1
    assert (found["wall_change"].slice, found["wall_change"].frame) == (1, 2)
    assert found["wall_change"].value == pytest.approx(0.44, abs=0.03)
    assert found["thickening"] == Extreme(pytest.approx(0.22, abs=1e-4), 2, 1)
    assert rests["wall_change"] == Extreme(0.0, 0, 0)


def test_slices_may_lie_across_any_axis(tracked):
    frames, labels, fields = tracked
    turned = frames, labels, np.moveaxis(fields, -1, 2)[:, [2, 0, 1]]
    found, _ = curves_of(turned, lambda array: np.moveaxis(array, -1, 1), 0, (8.0, 1.5, 2.0))
    expected, _ = curves_of(tracked)
    for name, curve in vars(expected).items():
        assert_allclose(getattr(found, name), curve, atol=1e-6)


def test_a_slice_without_a_ring_has_areas_alone_and_is_judged_by_its_likeness_alone(tracked):
    frames, labels, fields = tracked
    opened = labels.copy()
    opened[:, : len(X) // 2, :, 1] = 0
    curves, _ = curves_of((frames, opened, fields))
    assert curves.slices == (0, 1)
    assert np.isnan(curves.green_radial_percent[1]).all()
    assert curves.wall_mm2[1].all()
    unmatched = np.full((3, len(fields)), np.nan)
    unmatched[:, 1], unmatched[:, 2] = (0.1, 0.4, 0.0), (0.2, 0.3, 0.0)
    weight = np.moveaxis(np.ones(tracked[2].shape[2:]) * np.array([1, 1, 0]), -1, 2)
    found, is_open = extremes_of_slices(tracked[2], weight, 2, curves, 0, unmatched)
    assert found["wall_change"] == Extreme(0.0, 0, 0)
    assert found["unevenness"].slice == 0
    assert found["unmatched"] == Extreme(0.2, 2, 0)
    assert is_open == {"unmatched": Extreme(0.4, 1, 1)}


@pytest.mark.parametrize("heart", [HEART, HeartLabels(wall=None)])
def test_the_cavity_alone_has_areas_and_a_wall_that_is_not_measured(tracked, heart):
    labels = np.where(tracked[1] == 3, 3, 0)
    curves = slice_curves(labels, SPACING, heart, 0, 2, None, None)
    assert curves.slices == (0, 1)
    assert_allclose(curves.cavity_mm2[:, 0], np.pi * 12**2, rtol=0.02)
    assert np.isnan(curves.wall_mm2).all()
