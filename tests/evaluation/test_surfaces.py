import itertools
import warnings

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

from tests.conftest import SHAPES
from tests.evaluation.shapes import SPACING, blobs, brute_force_distances, brute_force_surface, disc, itk_image
from vrnet.evaluation.metrics import (
    SurfaceDistances,
    nearest_distances,
    outer_contours,
    surface,
    surface_distances,
    voxel_positions,
)

MEASURES = ("hausdorff", "hausdorff95", "mean")


def measures(a, b, spacing):
    found = surface_distances(a, b, spacing)
    return np.array([getattr(found, name) for name in MEASURES])


@pytest.fixture
def pair(d):
    return blobs(SHAPES[d], 0), blobs(SHAPES[d], 10)


def test_a_surface_is_the_voxels_with_a_face_neighbour_outside(d, pair):
    for mask in pair:
        found = surface(mask, range(d))
        assert_array_equal(np.argwhere(found), brute_force_surface(mask))
        assert_array_equal(found, mask & ~ndimage.binary_erosion(mask))


def test_a_mask_that_fills_the_image_has_its_surface_at_the_border(d):
    """4 x 5 voxels have 14 at the border, 4 x 5 x 6 have 120 − 2 · 3 · 4."""
    assert surface(np.ones((4, 5, 6)[:d], bool), range(d)).sum() == {2: 14, 3: 96}[d]


def test_outer_contours_are_those_of_each_slice_for_itself():
    """Neither the hole of a slice nor what lies before and behind it makes a contour."""
    ring = disc((20, 18), 7) & ~disc((20, 18), 3)
    slices = np.stack([ring, np.zeros_like(ring), disc((20, 18), 7), disc((20, 18), 3)])
    for found, mask in zip(outer_contours(slices), slices, strict=True):
        assert_array_equal(np.argwhere(found), brute_force_surface(ndimage.binary_fill_holes(mask)).reshape(-1, 2))


@pytest.mark.parametrize("seed", range(3))
def test_distances_agree_with_a_brute_force_search(d, seed):
    a, b = blobs(SHAPES[d], seed), blobs(SHAPES[d], seed + 10)
    to_b, to_a = brute_force_distances(*(brute_force_surface(mask) * SPACING[d] for mask in (a, b)))
    found = surface_distances(a, b, SPACING[d])
    assert_allclose(found.to_b, to_b)
    assert_allclose(found.to_a, to_a)
    assert_allclose(found.hausdorff, max(*to_b, *to_a))
    assert_allclose(found.hausdorff95, max(np.percentile(to_b, 95), np.percentile(to_a, 95)))
    assert_allclose(found.mean, (to_b.sum() + to_a.sum()) / (len(to_b) + len(to_a)))


@pytest.mark.parametrize("seed", range(3))
def test_distances_agree_with_simpleitk(d, seed):
    """Its filter compares the masks it is given, so it is given surfaces; its average is that of the directed means."""
    a, b = blobs(SHAPES[d], seed), blobs(SHAPES[d], seed + 10)
    itk = sitk.HausdorffDistanceImageFilter()
    itk.Execute(*(itk_image(surface(mask, range(d)), SPACING[d]) for mask in (a, b)))
    found = surface_distances(a, b, SPACING[d])
    assert_allclose(found.hausdorff, itk.GetHausdorffDistance(), rtol=1e-6)
    assert_allclose((found.to_b.mean() + found.to_a.mean()) / 2, itk.GetAverageHausdorffDistance(), rtol=1e-6)


def test_a_line_and_its_first_voxel_by_hand():
    """From the line to the voxel 0, ½, …, 10 mm, and back 0: the 20th of 21 is 9.5, and 105 mm are shared by 22.

    (The percentile of all 22 together would be 9.475, and the mean of the directed means 2.5.)"""
    line, first = np.zeros((2, 3, 30), bool)
    line[1, 4:25], first[1, 4] = True, True
    for pair in ((line, first), (first, line)):
        assert_allclose(measures(*pair, (7.0, 0.5)), [10, 9.5, 105 / 22])


def test_two_hooks_by_hand():
    """One of the 3 voxels of the L lies 3 mm off the bar; one of the 4 voxels of the bar lies 2 · 2 mm off the L."""
    hook, bar = np.zeros((2, 4, 6), bool)
    hook[0, :2] = hook[1, 0] = bar[0, :4] = True
    found = surface_distances(hook, bar, (3.0, 2.0))
    assert_allclose(sorted(found.to_b), [0, 0, 3])
    assert_allclose(sorted(found.to_a), [0, 0, 2, 4])
    assert_allclose([found.hausdorff, found.mean], [4, 9 / 7])
    assert_allclose(found.hausdorff95, 2 + 0.85 * 2)  # at 0.95 · 3 = 2.85 of the four; of the three it is 2.7


def test_a_percentile_is_of_each_direction_and_the_larger_counts():
    found = SurfaceDistances(to_b=np.arange(101.0), to_a=np.zeros(1000))
    assert found.hausdorff95 == SurfaceDistances(found.to_a, found.to_b).hausdorff95 == 95
    assert found.hausdorff == 100
    assert_allclose(found.mean, 5050 / 1101)


def test_distances_scale_with_the_spacing(d, pair):
    assert_allclose(measures(*pair, tuple(3 * h for h in SPACING[d])), 3 * measures(*pair, SPACING[d]))


def test_distances_do_not_change_when_the_masks_are_exchanged(d, pair):
    assert_array_equal(measures(*pair, SPACING[d]), measures(*pair[::-1], SPACING[d]))


def test_distances_do_not_change_when_axes_are_permuted_with_their_spacing(d, pair):
    for axes in itertools.permutations(range(d)):
        moved = [np.transpose(mask, axes) for mask in pair]
        assert_allclose(measures(*moved, tuple(SPACING[d][i] for i in axes)), measures(*pair, SPACING[d]))


def test_distances_do_not_depend_on_where_the_masks_lie(d, pair):
    padded = [np.pad(mask, 3) for mask in pair]
    moved = [np.roll(mask, (3, -2, 1)[:d], range(d)) for mask in padded]
    assert_allclose(measures(*moved, SPACING[d]), measures(*padded, SPACING[d]))


def test_a_voxel_moved_by_k_lies_k_times_the_spacing_away(d):
    a = np.zeros(SHAPES[d], bool)
    a[(4,) * d] = True
    for axis, k in itertools.product(range(d), (1, 3)):
        assert_allclose(measures(a, np.roll(a, k, axis), SPACING[d]), k * SPACING[d][axis])


def test_a_box_moved_by_k_lies_k_times_the_spacing_away(d):
    a = np.zeros((20,) * d, bool)
    a[(slice(4, 12),) * d] = True
    for axis, k in itertools.product(range(d), (1, 3)):
        found = surface_distances(a, np.roll(a, k, axis), SPACING[d])
        assert_allclose(found.hausdorff, k * SPACING[d][axis])
        assert 0 < found.mean < found.hausdorff95 <= found.hausdorff


def test_a_ball_inside_a_ball_lies_as_far_as_the_radii_differ():
    """The distance is in millimetres, to within a voxel's diagonal, whatever the shape of the voxels."""
    spacing, shape = (1.0, 0.5, 2.0), (70, 140, 35)
    x = (np.indices(shape) - np.array(shape).reshape(3, 1, 1, 1) // 2) * np.reshape(spacing, (3, 1, 1, 1))
    radius = np.linalg.norm(x, axis=0)
    assert_allclose(measures(radius <= 30, radius <= 20, spacing), 10, atol=np.linalg.norm(spacing))


def test_equal_masks_lie_at_no_distance(d, pair):
    assert_array_equal(measures(pair[0], pair[0], SPACING[d]), 0)


def test_an_absent_structure_has_no_distance(d):
    nothing, something = np.zeros(SHAPES[d], bool), disc(SHAPES[d], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pair in ((nothing, nothing), (nothing, something), (something, nothing)):
            assert np.isnan(measures(*pair, SPACING[d])).all()


@pytest.mark.parametrize("axis", range(3))
def test_a_slice_stored_as_a_volume_lies_as_far_as_the_slice(axis):
    a, b = blobs(SHAPES[2], 0), blobs(SHAPES[2], 10)
    volumes = [np.expand_dims(mask, axis) for mask in (a, b)]
    spacing = list(SPACING[2])
    spacing.insert(axis, 8.0)
    assert_array_equal(measures(*volumes, tuple(spacing)), measures(a, b, SPACING[2]))


def test_points_are_in_millimetres_along_their_own_axes():
    mask = np.zeros((3, 4), bool)
    mask[1, 2] = mask[2, 3] = True
    assert_allclose(voxel_positions(mask, (10.0, 0.1)), [[10, 0.2], [20, 0.3]])


def test_distances_of_points_agree_with_a_brute_force_search(d, random):
    A, B = random(30, d).numpy(), random(20, d).numpy()
    for found, true in zip(nearest_distances(A, B), brute_force_distances(A, B), strict=True):
        assert_allclose(found, true)
