import numpy as np
import pytest

from tests.evaluation.hearts import MYO, RV, polar, ring
from vrnet.cardiac.segments import Insertions, anterior_direction, covered_arc, find_insertions, insertions_of_rings
from vrnet.cardiac.wall import find_ring, find_rings
from vrnet.images.grid import Grid

SPACING = (1.25, 1.25)


def test_the_insertions_are_the_ends_of_the_right_ventricle():
    """The drawn one touches 120 degrees around 180, and the front is at -90: so -120 is the anterior end."""
    labels = ring()
    found = find_insertions(find_ring(0, labels == MYO, SPACING), labels == RV, SPACING, (0.0, -1.0))
    assert found.anterior_deg == pytest.approx(240, abs=3)
    assert found.inferior_deg == pytest.approx(120, abs=3)
    behind = find_insertions(find_ring(0, labels == MYO, SPACING), labels == RV, SPACING, (0.0, 1.0))
    assert (behind.anterior_deg, behind.inferior_deg) == (found.inferior_deg, found.anterior_deg)


@pytest.mark.parametrize(("anterior", "inferior"), [(240.0, 120.0), (120.0, 240.0), (-30.0, 70.0), (10.0, 300.0)])
def test_angles_grow_along_the_septum(anterior, inferior):
    """From 0 at the anterior insertion, over the shorter way, to that of the inferior one."""
    along = Insertions(anterior, inferior).along_septum(np.array([anterior, inferior]))
    assert along[0] == 0
    assert along[1] == pytest.approx(min((inferior - anterior) % 360, (anterior - inferior) % 360))


def test_an_arc_is_all_but_the_largest_gap():
    assert covered_arc(np.array([350.0, 10.0, 60.0, 100.0, 300.0])) == (300.0, 100.0)
    assert covered_arc(np.array([350.0, 10.0, 30.0])) is None
    assert covered_arc(np.arange(0.0, 360.0, 5.0)) is None
    assert covered_arc(np.array([])) is None


def test_a_right_ventricle_that_does_not_touch_or_a_front_across_the_slice_says_nothing():
    labels = ring()
    radius, _ = polar(labels.shape, SPACING)
    found = find_ring(0, labels == MYO, SPACING)
    assert find_insertions(found, (labels == RV) & (radius > 32), SPACING, (0.0, -1.0)) is None
    assert find_insertions(found, labels == RV, SPACING, (0.0, 0.1)) is None


def test_slices_without_a_right_ventricle_take_the_insertions_of_the_nearest():
    labels = np.stack([ring(), np.rot90(ring(), 1), ring()], -1)
    labels[..., 2][labels[..., 2] == RV] = 0
    rings, _ = find_rings(labels == MYO, SPACING)
    first, second, third = insertions_of_rings(rings, labels == RV, SPACING, (-0.6, -0.8))
    assert third == second != first
    assert insertions_of_rings(rings, np.zeros(labels.shape, bool), SPACING, (0.0, -1.0)) is None


def test_the_anterior_wall_lies_to_the_front_and_to_the_head():
    """In LPS millimetres along (0, -1, 1); along the axes of an array as its grid runs."""
    plain = Grid.plain((8, 8, 4), (1.0, 1.0, 8.0))
    np.testing.assert_allclose(anterior_direction(plain), np.array([0, -1, 1]) / np.sqrt(2))
    stored = plain.reordered((2, 0, 1)).flipped([2])
    np.testing.assert_allclose(anterior_direction(stored), np.array([1, 0, 1]) / np.sqrt(2))
    np.testing.assert_allclose(anterior_direction(Grid.plain((8, 8), (1.0, 1.0))), [0, -1])


def test_of_a_short_axis_view_the_upper_insertion_is_anterior():
    """A usual one: the LV axis points to the left, the front and the feet, and the septum is on the left of the
    picture."""
    down = np.array([0.1, 0.57, -0.82])
    axis = np.array([0.66, -0.55, -0.51])
    axis -= down * (axis @ down) / (down @ down)
    down, axis = down / np.linalg.norm(down), axis / np.linalg.norm(axis)
    right = np.cross(down, -axis)
    directions = np.column_stack([right, down, -axis])
    grid = Grid((72, 72, 1), (1.25, 1.25, 8.0), (0.0, 0.0, 0.0), tuple(directions.ravel().tolist()))
    labels = ring()
    direction = anterior_direction(grid)
    found = find_insertions(find_ring(0, labels == MYO, SPACING), labels == RV, SPACING, (direction[0], direction[1]))
    assert found.anterior_deg == pytest.approx(240, abs=3)
