"""How much of a tracked cavity looks like muscle."""

import numpy as np
import pytest

from vrnet.cardiac.volumes import muscle_in_cavity
from vrnet.cardiac.wall import HeartLabels

X, Y = np.meshgrid(np.arange(48) - 23.5, np.arange(48) - 23.5, indexing="ij")
R = np.hypot(X, Y)
HEART = HeartLabels()


def heart(inner, outer=20.0):
    """An image, blood 1 and muscle 0.3, and its labels."""
    labels = np.select([inner > R, outer > R], [3, 2])
    return np.select([labels == 3, labels == 2], [1.0, 0.3]), labels


def worst(*arguments, **options):
    """Of all slices together, in the frame where it is most."""
    return muscle_in_cavity(*arguments, **options).whole.max()


def stack(*pairs):
    images, labels = zip(*pairs, strict=True)
    return np.stack(images), np.stack(labels)


def test_a_motion_that_is_right_leaves_no_muscle_in_the_cavity():
    frames, labels = stack(heart(14), heart(8), heart(11))
    assert worst(frames, labels, HEART, 0) == 0


def test_a_cavity_that_stays_behind_has_the_muscle_between_both_outlines():
    """The part of it is 1 − (8 / 14)², by areas."""
    (image, _), (_, large) = heart(8), heart(14)
    frames, labels = stack(heart(14), (image, large))
    expected = (image[large == 3] < 0.5).mean()
    assert expected == pytest.approx(1 - (8 / 14) ** 2, abs=0.03)
    assert worst(frames, labels, HEART, 0) == pytest.approx(expected)


def test_what_looks_like_muscle_in_the_reference_already_does_not_count():
    """A papillary muscle, as large in both frames as the cavity is."""
    frames, labels = stack(heart(14), heart(14))
    frames[:, np.hypot(X - 6, Y) < 4] = 0.3
    assert worst(frames, labels, HEART, 0) == 0


def test_frames_may_differ_in_brightness_and_blood_may_be_dark():
    (image, _), (_, large) = heart(8), heart(14)
    frames, labels = stack(heart(14), (image, large))
    found = worst(frames, labels, HEART, 0)
    assert found > 0.5
    brighter = frames * np.reshape([1.0, 1.6], (2, 1, 1)) + 3
    assert worst(brighter, labels, HEART, 0) == found
    assert worst(1 - frames, labels, HEART, 0) == found
    whole = np.round(1000 * frames).astype(np.uint16)
    assert worst(whole, labels, HEART, 0) == found
    assert worst(1000 - whole, labels, HEART, 0) == found


def test_slices_have_a_brightness_each_and_count_by_their_cavity():
    (image, small), (reference, large) = heart(8), heart(14)
    frames = np.stack([np.stack([reference, 0.4 * reference], -1), np.stack([image, 0.4 * image], -1)])
    labels = np.stack([np.stack([large, large], -1), np.stack([large, small], -1)])
    left = (image[large == 3] < 0.5).mean()
    sizes = (large == 3).sum(), (small == 3).sum()
    expected = left * sizes[0] / sum(sizes)
    assert worst(frames, labels, HEART, 0, across=2) == pytest.approx(expected)
    found = muscle_in_cavity(frames, labels, HEART, 0, across=2)
    assert found.slices == (0, 1)
    np.testing.assert_allclose(found.by_slice, [[0, left], [0, 0]])


def test_without_a_wall_or_a_cavity_nothing_is_said():
    frames, labels = stack(heart(14), heart(8))
    assert muscle_in_cavity(frames, np.where(labels == 3, 0, labels), HEART, 0) is None
    assert muscle_in_cavity(frames, np.where(labels == 2, 0, labels), HEART, 0) is None
    assert muscle_in_cavity(frames, labels, HeartLabels(lv=None), 0) is None


def test_a_cavity_that_vanishes_does_not_count():
    """Where a slice of the apex closes there is nothing to look at."""
    frames, labels = stack(heart(14), heart(1))
    assert worst(frames, labels, HEART, 0) == 0


def test_a_cavity_that_lies_in_muscle_altogether_is_the_worst():
    """Then the brightest of it is muscle too."""
    frames, labels = stack(heart(14), (heart(3)[0], heart(14)[1]))
    assert worst(frames, labels, HEART, 0) > 0.9


def test_frames_of_any_kind_and_any_reference():
    (image, _), (_, large) = heart(8), heart(14)
    frames, labels = stack((image, large), heart(14))
    found = worst(frames, labels, HEART, 1)
    assert worst(frames > 0.5, labels, HEART, 1) == found > 0.5


def test_of_a_cavity_too_small_to_tell_nothing_is_said():
    """It is no 0, which would be the best that there is."""
    found = muscle_in_cavity(*stack(heart(14), heart(1), heart(8)), HEART, 0)
    assert np.isnan(found.by_slice[0]).tolist() == [False, True, False]
    assert found.whole.tolist() == [0, 0, 0]
