"""Rings of wall in short-axis slices, and where the 16 segments lie on them."""

import numpy as np
import pytest

from tests.cardiac.hearts import LV, MYO, RV, polar, ring
from vrnet.cardiac.strain import regions_and_rings
from vrnet.cardiac.wall import (
    Insertions,
    LeftOut,
    Ring,
    anterior_direction,
    base_to_apex,
    contour_radii,
    find_insertions,
    find_ring,
    find_rings,
    insertions_of_rings,
    ring_angles,
)
from vrnet.images.grid import Grid
from vrnet.vocabulary import SEGMENTS

SPACING = (1.25, 1.25)


def wall(**sizes):
    return ring(**sizes) == MYO


def test_a_drawn_ring_has_its_centre_and_its_radii():
    found = find_ring(0, wall(), SPACING)
    np.testing.assert_allclose(found.centre, [35.5 * 1.25] * 2, atol=0.05)
    np.testing.assert_allclose(found.endo, 16, atol=0.4)
    np.testing.assert_allclose(found.epi, 25, atol=0.4)
    for radii, inside in ((found.endo, ring() == LV), (found.epi, (ring() == LV) | wall())):
        assert radii.mean() == pytest.approx(np.sqrt(inside.sum() * 1.25**2 / np.pi), abs=0.05)


def test_radii_are_those_of_an_ellipse_in_millimetres():
    spacing = (0.8, 1.6)
    x, y = ((np.indices((120, 60)) - np.array([59.5, 29.5])[:, None, None]).T * spacing).T
    inside = (x / 30) ** 2 + (y / 24) ** 2 < 1
    expected = 1 / np.hypot(np.cos(ring_angles()) / 30, np.sin(ring_angles()) / 24)
    np.testing.assert_allclose(contour_radii(inside, np.array([47.6, 47.2]), spacing), expected, atol=0.4)


def test_a_ring_is_closed_unless_it_can_be_left_through_a_side():
    mask = np.zeros((16, 16), bool)
    mask[3:13, 3:13] = True
    mask[4:12, 4:12] = False
    for gap, kind in (((3, 3), Ring), ((8, 3), LeftOut)):
        mask[gap] = False
        assert isinstance(find_ring(0, mask, (2.0, 2.0)), kind)


def test_a_hole_in_an_open_wall_a_stray_voxel_and_a_border_make_no_ring():
    mask = wall()
    mask[36:, 30:42] = False
    mask[12:18, 34:38] = False
    assert find_ring(4, mask, SPACING) == LeftOut(4, "the wall is not a closed ring")
    mask = wall()
    mask[2:5, 2:5] = True
    assert np.array_equal(find_ring(0, mask, SPACING).mask, wall())
    assert find_ring(1, wall()[16:], SPACING) == LeftOut(1, "the wall reaches the border of the image")


def test_the_end_with_the_smaller_rings_is_the_apex():
    sizes = (0.7, 0.8, 1.0, 1.0, 0.95)
    stack = np.stack([wall(endo=16 * size, epi=25 * size) for size in sizes], -1)
    assert [found.slice for found in base_to_apex(find_rings(stack, SPACING)[0])] == [4, 3, 2, 1, 0]
    assert [found.slice for found in base_to_apex(find_rings(stack[..., ::-1], SPACING)[0])] == [0, 1, 2, 3, 4]
    assert len(base_to_apex(find_rings(stack[..., :1], SPACING)[0])) == 1


# The insertions of the right ventricle, from which segments are counted.


def test_the_insertions_are_the_ends_of_the_right_ventricle():
    """The drawn one touches 120 degrees around 180, and the front is at -90: so -120 is the anterior end."""
    labels = ring()
    found = find_insertions(find_ring(0, labels == MYO, SPACING), labels == RV, SPACING, (0.0, -1.0))
    assert found.anterior_deg == pytest.approx(240, abs=3)
    assert found.inferior_deg == pytest.approx(120, abs=3)
    behind = find_insertions(find_ring(0, labels == MYO, SPACING), labels == RV, SPACING, (0.0, 1.0))
    assert (behind.anterior_deg, behind.inferior_deg) == (found.inferior_deg, found.anterior_deg)


@pytest.mark.parametrize(("anterior", "inferior"), [(240.0, 120.0), (-30.0, 70.0)])
def test_angles_grow_along_the_septum(anterior, inferior):
    """From 0 at the anterior insertion, over the shorter way, to that of the inferior one."""
    along = Insertions(anterior, inferior).along_septum(np.array([anterior, inferior]))
    assert along[0] == 0
    assert along[1] == pytest.approx(min((inferior - anterior) % 360, (anterior - inferior) % 360))


def test_an_arc_is_all_but_the_largest_gap():
    labels = ring()
    radius, angle = polar(labels.shape, SPACING)
    degrees, near = np.degrees(angle) % 360, (radius >= 25) & (radius < 28)
    found, rv = find_ring(0, labels == MYO, SPACING), np.zeros(labels.shape, bool)
    for low, high in ((345, 15), (55, 65), (90, 100), (295, 305)):
        is_in_arc = (degrees > low) & (degrees < high) if low < high else (degrees > low) | (degrees < high)
        rv |= near & is_in_arc
    ends = find_insertions(found, rv, SPACING, (0.0, -1.0))
    assert (ends.anterior_deg, ends.inferior_deg) == (pytest.approx(296, abs=2), pytest.approx(99, abs=2))
    for part in (near & (degrees < 40), near, near & False):
        assert find_insertions(found, part, SPACING, (0.0, -1.0)) is None


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


# The segments as Cerqueira et al. number them: six basal, six mid, four apical ones, which cover the wall once.


def test_each_direction_at_each_level_is_in_one_segment():
    for level in range(3):
        for psi in range(360):
            holds = [
                s
                for s in SEGMENTS
                if s.level == level and abs((psi + 0.5 - s.centre_deg + 180) % 360 - 180) < s.half_width_deg
            ]
            assert len(holds) == 1


def test_the_septum_begins_at_the_anterior_insertion():
    starts = {s.number: (s.centre_deg - s.half_width_deg) % 360 for s in SEGMENTS}
    assert (starts[2], starts[3], starts[4], starts[1]) == (0, 60, 120, 300)
    assert (starts[14], starts[15], starts[16], starts[13]) == (15, 105, 195, 285)
    names = {s.number: s.name for s in SEGMENTS}
    assert [names[k] for k in (1, 8, 10, 14)] == ["basal anterior", "mid anteroseptal", "mid inferior", "apical septal"]


def test_levels_are_thirds():
    for n, levels in ((1, "1"), (2, "02"), (3, "012"), (9, "000111222"), (10, "0001111222")):
        _, parts = regions_and_rings(np.arange(n), np.zeros(n), None, n)  # all of the wall, levels, rings
        assert "".join(map(str, parts[1:4].argmax(0))) == levels
