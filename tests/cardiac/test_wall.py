import numpy as np
import pytest

from tests.evaluation.hearts import LV, MYO, ring
from vrnet.cardiac.wall import LeftOut, Ring, base_to_apex, contour_radii, find_ring, find_rings, ring_angles

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


def test_the_middle_of_the_wall_is_half_way_through_it():
    found = find_ring(0, wall(), SPACING)
    contours = found.contours()
    np.testing.assert_allclose(contours[1], (contours[0] + contours[2]) / 2)
    for contour, depth in zip(contours, (0, 0.5, 1), strict=True):
        np.testing.assert_allclose(found.depth(*found.polar(contour)), depth, atol=1e-9)


@pytest.mark.parametrize("gap", ["side", "corner"])
def test_a_ring_is_closed_unless_it_can_be_left_through_a_side(gap):
    mask = np.zeros((16, 16), bool)
    mask[3:13, 3:13] = True
    mask[4:12, 4:12] = False
    mask[(8, 3) if gap == "side" else (3, 3)] = False
    assert isinstance(find_ring(0, mask, (2.0, 2.0)), LeftOut if gap == "side" else Ring)


def test_a_hole_in_an_open_wall_is_no_cavity():
    mask = wall()
    mask[36:, 30:42] = False
    mask[12:18, 34:38] = False
    assert find_ring(4, mask, SPACING) == LeftOut(4, "the wall is not a closed ring")


def test_stray_voxels_are_no_part_of_the_ring():
    mask = wall()
    mask[2:5, 2:5] = True
    assert np.array_equal(find_ring(0, mask, SPACING).mask, wall())


def test_a_wall_at_the_border_is_left_out():
    assert find_ring(1, wall()[16:], SPACING) == LeftOut(1, "the wall reaches the border of the image")


def test_the_end_with_the_smaller_rings_is_the_apex():
    sizes = (0.7, 0.8, 1.0, 1.0, 0.95)
    stack = np.stack([wall(endo=16 * size, epi=25 * size) for size in sizes], -1)
    assert [found.slice for found in base_to_apex(find_rings(stack, SPACING)[0])] == [4, 3, 2, 1, 0]
    assert [found.slice for found in base_to_apex(find_rings(stack[..., ::-1], SPACING)[0])] == [0, 1, 2, 3, 4]
    assert len(base_to_apex(find_rings(stack[..., :1], SPACING)[0])) == 1
