"""What becomes of each slice: areas, strain and muscle by hand, and by the whole."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vrnet.cardiac.strain import MEASURES, strain
from vrnet.cardiac.volumes import muscle_in_cavity, slice_curves
from vrnet.cardiac.wall import HeartLabels
from vrnet.verdict.cine import Extreme, HeartExtremes, extremes_of_slices

SPACING, HEART = (1.5, 2.0, 8.0), HeartLabels()
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
    assert_allclose(curves.radial_percent[1], 50 * (GROWTH**2 - 1), atol=0.01)
    assert_allclose(curves.circumferential_percent[1], 50 * (GROWTH**2 - 1), atol=0.01)
    assert not curves.radial_percent[0].any()
    assert not curves.muscle_percent.any()


def test_the_most_that_a_slice_does_is_told_with_its_frame(tracked):
    curves, _ = curves_of(tracked)
    shown, unmatched = np.ones(tracked[2].shape[2:]), np.full((3, len(tracked[2])), np.nan)
    rests, found, empty = extremes_of_slices(tracked[2], shown, 2, curves, 0, unmatched)
    assert empty == HeartExtremes()
    assert found.unevenness.slice == 1
    assert (found.wall_change.slice, found.wall_change.frame) == (1, 2)
    assert found.wall_change.value == pytest.approx(0.44, abs=0.03)
    assert found.thickening == Extreme(pytest.approx(0.22, abs=1e-4), 2, 1)
    assert rests.wall_change == Extreme(0.0, 0, 0)


def test_strain_of_slices_has_the_mean_of_the_whole(tracked):
    """Both have as many voxels."""
    _, of_wall = curves_of(tracked)
    for measure in MEASURES[:2]:
        by_slice = of_wall.of_slices(measure.name)
        assert sorted(by_slice) == [0, 1]
        assert_allclose(np.mean([*by_slice.values()], 0), of_wall.curve(measure.name), atol=1e-6)


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
    assert np.isnan(curves.radial_percent[1]).all()
    assert curves.wall_mm2[1].all()
    unmatched = np.full((3, len(fields)), np.nan)
    unmatched[:, 1], unmatched[:, 2] = (0.1, 0.4, 0.0), (0.2, 0.3, 0.0)
    weight = np.moveaxis(np.ones(tracked[2].shape[2:]) * np.array([1, 1, 0]), -1, 2)
    found, is_open = extremes_of_slices(tracked[2], weight, 2, curves, 0, unmatched)
    assert found.wall_change == Extreme(0.0, 0, 0)
    assert found.unevenness.slice == 0
    assert found.unmatched == Extreme(0.2, 2, 0)
    assert is_open == HeartExtremes(unmatched=Extreme(0.4, 1, 1))


@pytest.mark.parametrize("heart", [HEART, HeartLabels(wall=None)])
def test_the_cavity_alone_has_areas_and_a_wall_that_is_not_measured(tracked, heart):
    labels = np.where(tracked[1] == 3, 3, 0)
    curves = slice_curves(labels, SPACING, heart, 0, 2, None, None)
    assert curves.slices == (0, 1)
    assert_allclose(curves.cavity_mm2[:, 0], np.pi * 12**2, rtol=0.02)
    assert np.isnan(curves.wall_mm2).all()
