"""Splines through fields, against SciPy's, and against functions whose derivative is known."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline, RectBivariateSpline

from tests.evaluation.hearts import MYO, ring
from vrnet.cardiac.strain import contour_steps, green_strain, moved_contours, spline_slope, wall_voxels
from vrnet.cardiac.wall import find_rings

SPACING = (1.25, 1.25)


@pytest.fixture
def rings():
    return find_rings(ring()[..., None] == MYO, SPACING)[0]


@pytest.fixture
def motion():
    """Two frames of a smooth motion within and across slices, in mm."""
    x, y = (np.indices((72, 72)) - 35.5) / 12
    waves = [[np.sin(x + k) * np.cos(y - c) for c in range(3)] for k in range(2)]
    return np.array(waves)[..., None]


@pytest.mark.parametrize("axis", [0, 1])
def test_slopes_are_those_of_scipys_cubic_spline(motion, axis):
    index = np.array([[30, 40, 25], [33, 21, 50], [0, 0, 0]])
    lines = CubicSpline(np.arange(72), motion, axis=2 + axis).derivative()(np.arange(72))
    found = spline_slope(motion, axis, index)
    np.testing.assert_allclose(found, lines[:, :, index[0], index[1], 0], atol=1e-6)


def test_voxels_know_where_in_the_wall_they_are(rings):
    voxels = wall_voxels(rings, SPACING)
    assert voxels.index.shape[1] == (ring() == MYO).sum()
    offset = voxels.index[:2] - 35.5
    np.testing.assert_allclose(voxels.away, offset / np.hypot(*offset), atol=2e-3)
    expected = (np.hypot(*offset) * 1.25 - 16) / 9
    np.testing.assert_allclose(voxels.depth, expected, atol=0.06)


def test_shear_across_slices_counts_as_length(rings):
    """u = (0, 0, a x): |e + ∂u/∂e|² = 1 + a² cos², which is a²/2 on average over all directions."""
    u = np.zeros((1, 3, 72, 72, 1))
    u[0, 2, ..., 0] = 0.2 * np.arange(72)[:, None] * 1.25
    E = green_strain(u, wall_voxels(rings, SPACING), SPACING)
    np.testing.assert_allclose(E.mean(-1)[:, 0], 50 * 0.04 / 2, rtol=0.01)


def test_contours_go_where_a_spline_surface_says(rings, motion):
    points = moved_contours(motion, rings, SPACING)
    still = rings[0].contours()
    np.testing.assert_allclose(np.moveaxis(points[0, :2, :, 0], 0, -1), still)
    for t in range(2):
        for c in range(3):
            surface = RectBivariateSpline(np.arange(72), np.arange(72), motion[t, c, ..., 0])
            moved = surface.ev(*(still[..., i] / 1.25 for i in range(2)))
            before = still[..., c] if c < 2 else 0
            np.testing.assert_allclose(points[1 + t, c, :, 0], before + moved, atol=1e-5)


def test_steps_of_circles_add_up_to_their_length_and_area(rings):
    points = moved_contours(np.zeros((1, 2, 72, 72, 1)), rings, SPACING)
    lengths, areas = contour_steps(points)
    np.testing.assert_allclose(lengths[0].sum((1, 2)), 2 * np.pi * np.array([16, 20.5, 25]), rtol=0.01)
    np.testing.assert_allclose(areas.sum((1, 2)), np.pi * (25**2 - 16**2), rtol=0.01)
