import warnings

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

from tests.conftest import SHAPES
from tests.evaluation.shapes import SPACING, blobs, brute_force_distances, brute_force_surface, disc, itk_image
from vrnet.evaluation.metrics import (
    batch_regularity,
    by_label,
    contour_hausdorff,
    dice,
    dice_by_slice,
    folding_strict_percent,
    mean_absolute_error,
    normalised_cross_correlation,
    surface,
    surface_distances,
)


def test_the_mean_absolute_error_agrees_with_torch(d, random):
    a, b = random(2, *SHAPES[d])
    assert_allclose(mean_absolute_error(a.numpy(), b.numpy()), torch.nn.functional.l1_loss(a, b).item())


def test_unsigned_images_are_subtracted_as_numbers():
    """1 − 3 is −2, and not 254 as in the type of the images."""
    a, b = np.array([[1, 5]], np.uint8), np.array([[3, 1]], np.uint8)
    assert mean_absolute_error(a, b) == 3
    assert_allclose(normalised_cross_correlation(a, b), -1)


def test_cross_correlation_agrees_with_numpy_and_simpleitk(d, smooth_image):
    """SimpleITK's metric is the square of ours, with the sign turned."""
    a, b = (smooth_image(SHAPES[d], 1, seed)[0, 0].numpy() for seed in range(2))
    found = normalised_cross_correlation(a, b)
    assert_allclose(found, np.corrcoef(a.ravel(), b.ravel())[0, 1])
    itk = sitk.ImageRegistrationMethod()
    itk.SetMetricAsCorrelation()
    itk.SetInitialTransform(sitk.Transform(d, sitk.sitkIdentity))
    images = [sitk.GetImageFromArray(image) for image in (a, b)]
    assert_allclose(-itk.MetricEvaluate(*images), found**2, rtol=1e-6)


def test_cross_correlation_in_single_precision_survives_a_bright_background(d, smooth_image):
    a, b = (smooth_image(SHAPES[d], 1, seed)[0, 0].numpy() for seed in range(2))
    bright = [(image + 1000).astype(np.float32) for image in (a, b)]
    true = np.corrcoef(*(image.ravel().astype(float) for image in bright))[0, 1]
    assert_allclose(normalised_cross_correlation(*bright), true, rtol=1e-9)


def test_a_constant_image_has_no_cross_correlation(d, smooth_image):
    image, constant = smooth_image(SHAPES[d], dtype=torch.float32)[0, 0].numpy(), np.full(SHAPES[d], 0.1, np.float32)
    for pair in ((image, constant), (constant, image), (constant, constant)):
        assert np.isnan(normalised_cross_correlation(*pair))


def test_dice_agrees_with_simpleitk(d):
    a, b = blobs(SHAPES[d], 0), blobs(SHAPES[d], 10)
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(itk_image(a), itk_image(b))
    assert_allclose(dice(a, b), overlap.GetDiceCoefficient())


def test_dice_of_an_absent_structure(d):
    """Absent in one, it is missed altogether; absent in both, there is nothing to measure."""
    nothing, something = np.zeros(SHAPES[d], bool), disc(SHAPES[d], 3)
    assert dice(something, something) == 1
    assert dice(nothing, something) == dice(something, nothing) == 0
    assert np.isnan(dice(nothing, nothing))


def test_dice_by_slice_is_the_dice_of_each_slice():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (2, 6, 5, 7))
    a[:, 2], b[:, 2] = 0, 0
    found = dice_by_slice(a, b, [1, 3, 9], 1)
    assert_allclose(found, [[dice(a[:, k] == label, b[:, k] == label) for k in range(5)] for label in (1, 3, 9)])


@pytest.mark.parametrize(("seed", "spacing"), [(0, (1.0, 1.0)), (1, (0.7, 2.5))])
def test_hausdorff_agrees_with_a_brute_force_search_and_with_simpleitk(seed, spacing):
    a, b = (ndimage.binary_fill_holes(blobs((24, 20), s)) for s in (seed, seed + 10))
    found = contour_hausdorff(a, b, spacing)
    A, B = (brute_force_surface(mask) * spacing for mask in (a, b))
    assert_allclose(found, max(one_way.max() for one_way in brute_force_distances(A, B)))
    contours = []
    for points in (A, B):
        contours.append(np.zeros(a.shape, np.uint8))
        contours[-1][tuple(np.rint(points / spacing).astype(int).T)] = 1
    hausdorff = sitk.HausdorffDistanceImageFilter()
    hausdorff.Execute(*(itk_image(contour, spacing) for contour in contours))
    assert_allclose(found, hausdorff.GetHausdorffDistance(), rtol=1e-6)


def test_hausdorff_of_a_shift_is_its_length_in_mm():
    a, b = disc((40, 40), 6, (15, 20)), disc((40, 40), 6, (20, 20))
    assert_allclose(contour_hausdorff(a, b, (1.5, 9.0)), 5 * 1.5)


def test_holes_do_not_count():
    """The inner border of the myocardium is not an outer contour."""
    full = disc((40, 40), 12)
    ring = full & ~disc((40, 40), 7)
    assert contour_hausdorff(ring, full, (1.0, 2.0)) == 0


def test_a_volume_has_the_mean_of_its_slices_across_the_widest_spacing():
    """Slice k is shifted by k voxels along axis 0, and so k · 1.5 mm off; slices that lack one mask do not count."""
    a, b = np.zeros((30, 5, 24), bool), np.zeros((30, 5, 24), bool)
    for k in range(4):
        a[:, k], b[:, k] = disc((30, 24), 5, (10, 12)), disc((30, 24), 5, (10 + k, 12))
    a[:, 4] = disc((30, 24), 5)
    assert_allclose(contour_hausdorff(a, b, (1.5, 8.0, 1.2)), 1.5 * np.mean([0, 1, 2, 3]))


def test_hausdorff_of_an_absent_structure_is_not_a_number(d):
    nothing, something = np.zeros(SHAPES[d], bool), disc(SHAPES[d], 3)
    for pair in ((nothing, nothing), (nothing, something), (something, nothing)):
        assert np.isnan(contour_hausdorff(*pair, (1.0,) * d))


def test_a_slice_stored_as_a_volume_has_the_contour_of_the_slice():
    """This holds even if the voxels are longer in the plane than across it."""
    a, b = blobs(SHAPES[2], 0), blobs(SHAPES[2], 10)
    volumes = [np.expand_dims(mask, 0) for mask in (a, b)]
    assert_allclose(contour_hausdorff(*volumes, (0.1, *SPACING[2])), contour_hausdorff(a, b, SPACING[2]))
    assert dice(*volumes) == dice(a, b)


def test_contours_agree_with_the_mean_of_a_brute_force_search_over_slices():
    a, b = blobs((14, 5, 12), 0), blobs((14, 5, 12), 10)
    slices = [[ndimage.binary_fill_holes(mask[:, k]) for mask in (a, b)] for k in range(5)]
    assert all(x.any() and y.any() for x, y in slices)
    contours = [[brute_force_surface(mask) * (0.7, 1.3) for mask in pair] for pair in slices]
    true = [max(one_way.max() for one_way in brute_force_distances(*pair)) for pair in contours]
    assert_allclose(contour_hausdorff(a, b, (0.7, 2.5, 1.3)), np.mean(true))


def test_a_box_about_each_label_changes_no_measure(d):
    """Seeds of a few voxels, some at the border and some a voxel thick, and one label in one image only."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 9, (2, *SHAPES[d])) * (rng.random((2, *SHAPES[d])) < 0.02)
    a[(0,) * d], b[(0,) * d], a[(-1,) * d] = 3, 3, 9
    for measure in (dice, lambda x, y: contour_hausdorff(x, y, SPACING[d])):
        whole = {str(label): measure(a == label, b == label) for label in range(1, 10)}
        assert_allclose(list(by_label(measure, a, b, range(1, 10)).values()), list(whole.values()))


@pytest.mark.parametrize("x", [0, 4])
def test_a_structure_one_voxel_thick_keeps_the_slices_of_its_image(x):
    """A wall across axis 0, at a border or not, while the slices count along axis 2: in slice k it is k voxels longer
    than the other. (Seen across axis 0, there would be one slice.)"""
    a, b = np.zeros((2, 10, 12, 6), int)
    for k in range(1, 5):
        a[x, 2:6, k], b[x, 2 : 6 + k, k] = 1, 1
    found = by_label(lambda *masks: contour_hausdorff(*masks, (1.0, 1.0, 5.0)), a, b, [1])
    assert_allclose(found["1"], np.mean([1, 2, 3, 4]))


EXTREMES = {"int64": [-(2**63), 2**62, 2**62 + 1, 2**63 - 1], "uint64": [2**63, 2**64 - 2, 2**64 - 1]}


@pytest.mark.parametrize("dtype", EXTREMES)
def test_labels_may_be_any_integers(dtype):
    values = EXTREMES[dtype]
    a = np.array([[0, *values, *values]], dtype)
    b = np.array([[0, *values, *[0] * len(values)]], dtype)
    found = by_label(dice, a, b, values)
    assert list(found) == [str(value) for value in values]
    assert_allclose(list(found.values()), 2 / 3)


def test_a_map_that_turns_space_round_in_a_box_folds_there(d):
    """x + u = -0.5 x in the box and the identity far from it: each voxel inside sees -0.5 on both sides."""
    shape, slope = (24,) * d, -1.5
    u = torch.zeros(1, d, *shape, dtype=torch.float64)
    u[:, 0, 8:17] = slope * torch.arange(9, dtype=torch.float64).view(1, 9, *[1] * (d - 1))
    u[:, 0, 17:] = slope * 8
    assert_allclose(
        batch_regularity(u)["folding_percent"], 100 * 7 / 24
    )  # at each end the central difference is 1 + slope / 2 > 0
    assert_allclose(folding_strict_percent(u), 100 * 9 / 24)  # there one of the two sides is folded


def test_only_the_strict_count_finds_a_fold_one_voxel_wide(d):
    """A voxel that jumps 1.5 ahead: by central differences its neighbours keep 1 ± 0.75."""
    u = torch.zeros(1, d, *[10] * d)
    u[(0, 0, *[4] * d)] = 1.5
    assert batch_regularity(u)["folding_percent"] == 0
    assert_allclose(folding_strict_percent(u), 100 * 2 / 10**d)  # itself and the one it jumps over


def test_a_map_that_flattens_space_counts_as_a_strict_fold_only(d):
    """u = -x along axis 0 has det = 0: nothing is turned round, nothing can be undone."""
    u = torch.zeros(1, d, *SHAPES[d])
    u[:, 0] = -torch.arange(float(SHAPES[d][0])).view(1, -1, *[1] * (d - 1))
    assert batch_regularity(u)["folding_percent"] == 0
    assert folding_strict_percent(u) == 100


def test_the_determinant_of_an_affine_map_has_no_gradient(d, random):
    x = torch.from_numpy(np.indices(SHAPES[d]).astype(float))
    u = torch.einsum("ij,j...->i...", 0.3 * random(d, d), x)[None]
    assert batch_regularity(u)["jacobian_gradient"] < 1e-12


def numpy_determinant(u):
    """det(I + ∇u) of a field of shape (d, *s)."""
    d = len(u)
    J = np.stack([np.gradient(component) for component in u]) + np.eye(d).reshape(d, d, *[1] * d)
    return np.linalg.det(np.moveaxis(J, (0, 1), (-2, -1)))


def test_folds_and_the_gradient_of_the_determinant_agree_with_numpy(d, smooth_image):
    u = 40 * torch.cat([smooth_image(SHAPES[d], 3, seed) for seed in range(d)], dim=1)
    det = numpy_determinant(u[0].numpy())
    assert 0 < np.mean(det < 0) < 1
    assert_allclose(batch_regularity(u)["folding_percent"], 100 * np.mean(det < 0))
    assert_allclose(batch_regularity(u)["jacobian_gradient"], np.abs(np.gradient(det)).mean())


def test_a_field_of_one_slice_is_as_regular_as_that_of_the_slice(smooth_image):
    """Across the slice nothing is known to change, whatever the displacement there."""
    u = 40 * torch.cat([smooth_image(SHAPES[2], 3, seed) for seed in range(2)], dim=1)
    volume = torch.cat([smooth_image(SHAPES[2], 3, 2), u], dim=1).unsqueeze(2)
    of_slice, of_volume = batch_regularity(u), batch_regularity(volume)
    assert all(value > 0 for value in of_slice.values())
    assert_allclose([*of_volume.values()], [*of_slice.values()])


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


def test_distances_agree_with_a_brute_force_search(d):
    a, b = blobs(SHAPES[d], 0), blobs(SHAPES[d], 10)
    to_b, to_a = brute_force_distances(*(brute_force_surface(mask) * SPACING[d] for mask in (a, b)))
    found = surface_distances(a, b, SPACING[d])
    assert_allclose(found.to_b, to_b)
    assert_allclose(found.to_a, to_a)
    assert_allclose(found.hausdorff, max(*to_b, *to_a))
    assert_allclose(found.hausdorff95, max(np.percentile(to_b, 95), np.percentile(to_a, 95)))
    assert_allclose(found.mean, (to_b.sum() + to_a.sum()) / (len(to_b) + len(to_a)))


def test_distances_agree_with_simpleitk(d):
    """Its filter compares the masks it is given, so it is given surfaces; its average is that of the directed means."""
    a, b = blobs(SHAPES[d], 0), blobs(SHAPES[d], 10)
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


def test_a_ball_inside_a_ball_lies_as_far_as_the_radii_differ():
    """The distance is in millimetres, to within a voxel's diagonal, whatever the shape of the voxels."""
    spacing, shape = (1.0, 0.5, 2.0), (70, 140, 35)
    x = (np.indices(shape) - np.array(shape).reshape(3, 1, 1, 1) // 2) * np.reshape(spacing, (3, 1, 1, 1))
    radius = np.linalg.norm(x, axis=0)
    assert_allclose(measures(radius <= 30, radius <= 20, spacing), 10, atol=np.linalg.norm(spacing))


def test_an_absent_structure_has_no_distance(d):
    nothing, something = np.zeros(SHAPES[d], bool), disc(SHAPES[d], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pair in ((nothing, nothing), (nothing, something), (something, nothing)):
            assert np.isnan(measures(*pair, SPACING[d])).all()
