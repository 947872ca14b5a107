import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose
from scipy import ndimage

from tests.conftest import SHAPES
from tests.evaluation.shapes import SPACING, blobs, brute_force_distances, brute_force_surface, disc, itk_image
from vrnet.evaluation.metrics import (
    bounding_boxes,
    by_label,
    contour_hausdorff,
    dice,
    folding_percent,
    folding_strict_percent,
    jacobian_gradient,
    mean_absolute_error,
    normalised_cross_correlation,
    point_errors,
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


def test_cross_correlation_sees_no_brightness_nor_contrast(d, smooth_image):
    a, b = (smooth_image(SHAPES[d], 1, seed)[0, 0].numpy() for seed in range(2))
    found = normalised_cross_correlation(a, b)
    assert_allclose(normalised_cross_correlation(3 * a + 7, b), found)
    assert_allclose(normalised_cross_correlation(a, -b), -found)
    assert_allclose(normalised_cross_correlation(a, a), 1)


def test_cross_correlation_in_single_precision_survives_a_bright_background(d, smooth_image):
    a, b = (smooth_image(SHAPES[d], 1, seed)[0, 0].numpy() for seed in range(2))
    bright = [(image + 1000).astype(np.float32) for image in (a, b)]
    true = np.corrcoef(*(image.ravel().astype(float) for image in bright))[0, 1]
    assert_allclose(normalised_cross_correlation(*bright), true, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_image_has_no_cross_correlation(d, smooth_image, dtype):
    image, constant = smooth_image(SHAPES[d])[0, 0].numpy().astype(dtype), np.full(SHAPES[d], 0.1, dtype)
    for pair in ((image, constant), (constant, image), (constant, constant)):
        assert np.isnan(normalised_cross_correlation(*pair))


def test_point_errors_are_distances(d, random):
    a, b = random(2, 7, d)
    assert_allclose(point_errors(a.numpy(), b.numpy()), torch.nn.functional.pairwise_distance(a, b, eps=0))
    assert_allclose(point_errors(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[3.0, 4.0], [1.0, 3.0]])), [5, 2])


@pytest.mark.parametrize("seed", range(3))
def test_dice_agrees_with_simpleitk(d, seed):
    a, b = blobs(SHAPES[d], seed), blobs(SHAPES[d], seed + 10)
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(itk_image(a), itk_image(b))
    assert_allclose(dice(a, b), overlap.GetDiceCoefficient())


def test_dice_of_an_absent_structure(d):
    """Absent in one, it is missed altogether; absent in both, there is nothing to measure."""
    nothing, something = np.zeros(SHAPES[d], bool), disc(SHAPES[d], 3)
    assert dice(something, something) == 1
    assert dice(nothing, something) == dice(something, nothing) == 0
    assert np.isnan(dice(nothing, nothing))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.7, 2.5)])
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


def test_where_spacings_are_equal_the_last_axis_counts_the_slices():
    a, b = np.zeros((24, 24, 2), bool), np.zeros((24, 24, 2), bool)
    for k, shift in enumerate((1, 4)):
        a[..., k], b[..., k] = disc((24, 24), 5, (8, 12)), disc((24, 24), 5, (8 + shift, 12))
    assert_allclose(contour_hausdorff(a, b, (1.0, 1.0, 1.0)), 2.5)


def test_hausdorff_of_an_absent_structure_is_not_a_number(d):
    nothing, something = np.zeros(SHAPES[d], bool), disc(SHAPES[d], 3)
    for pair in ((nothing, nothing), (nothing, something), (something, nothing)):
        assert np.isnan(contour_hausdorff(*pair, (1.0,) * d))


def test_slices_that_share_no_mask_give_no_distance():
    a, b = np.zeros((2, 12, 12, 3), bool)
    a[..., 0], b[..., 2] = True, True
    assert np.isnan(contour_hausdorff(a, b, (1.0, 1.0, 5.0)))


@pytest.mark.parametrize("axis", range(3))
def test_a_slice_stored_as_a_volume_has_the_contour_of_the_slice(axis):
    """This holds even if the voxels are longer in the plane than across it."""
    a, b = blobs(SHAPES[2], 0), blobs(SHAPES[2], 10)
    volumes = [np.expand_dims(mask, axis) for mask in (a, b)]
    spacing = list(SPACING[2])
    spacing.insert(axis, 0.1)
    assert_allclose(contour_hausdorff(*volumes, tuple(spacing)), contour_hausdorff(a, b, SPACING[2]))
    assert dice(*volumes) == dice(a, b)


def test_contours_agree_with_the_mean_of_a_brute_force_search_over_slices():
    a, b = blobs((14, 5, 12), 0), blobs((14, 5, 12), 10)
    slices = [[ndimage.binary_fill_holes(mask[:, k]) for mask in (a, b)] for k in range(5)]
    assert all(x.any() and y.any() for x, y in slices)
    contours = [[brute_force_surface(mask) * (0.7, 1.3) for mask in pair] for pair in slices]
    true = [max(one_way.max() for one_way in brute_force_distances(*pair)) for pair in contours]
    assert_allclose(contour_hausdorff(a, b, (0.7, 2.5, 1.3)), np.mean(true))


def test_labels_are_measured_one_by_one():
    a, b = np.array([[1, 1, 2, 2, 0]]), np.array([[1, 0, 2, 2, 0]])
    values = by_label(dice, a, b, [1, 2, 7])
    assert list(values) == ["1", "2", "7"]
    assert_allclose(list(values.values()), [2 / 3, 1, np.nan])


@pytest.mark.parametrize("seed", range(3))
def test_a_box_about_each_label_changes_no_measure(d, seed):
    """Seeds of a few voxels, some at the border and some a voxel thick, and one label in one image only."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(1, 9, (2, *SHAPES[d])) * (rng.random((2, *SHAPES[d])) < 0.02)
    a[(0,) * d], b[(0,) * d], a[(-1,) * d] = 3, 3, 9
    for measure in (dice, lambda x, y: contour_hausdorff(x, y, SPACING[d])):
        whole = {str(label): measure(a == label, b == label) for label in range(1, 10)}
        assert_allclose(list(by_label(measure, a, b, range(1, 10)).values()), list(whole.values()))


@pytest.mark.parametrize("x", [0, 4, 9])
def test_a_structure_one_voxel_thick_keeps_the_slices_of_its_image(x):
    """A wall across axis 0, at a border or not, while the slices count along axis 2: in slice k it is k voxels longer
    than the other. (Seen across axis 0, there would be one slice.)"""
    a, b = np.zeros((2, 10, 12, 6), int)
    for k in range(1, 5):
        a[x, 2:6, k], b[x, 2 : 6 + k, k] = 1, 1
    found = by_label(lambda *masks: contour_hausdorff(*masks, (1.0, 1.0, 5.0)), a, b, [1])
    assert_allclose(found["1"], np.mean([1, 2, 3, 4]))


EXTREMES = {
    "int8": [-128, 127],
    "uint16": [256, 65535],
    "int32": [-(2**31), 2**31 - 1],
    "int64": [-(2**63), 2**62, 2**62 + 1, 2**63 - 1],
    "uint64": [2**63, 2**64 - 2, 2**64 - 1],
}


@pytest.mark.parametrize("dtype", EXTREMES)
def test_labels_may_be_any_integers(dtype):
    values = EXTREMES[dtype]
    a = np.array([[0, *values, *values]], dtype)
    b = np.array([[0, *values, *[0] * len(values)]], dtype)
    found = by_label(dice, a, b, values)
    assert list(found) == [str(value) for value in values]
    assert_allclose(list(found.values()), 2 / 3)


def test_labels_of_two_types_are_compared_as_integers():
    """2⁶³ and 2⁶³ + 1 are one floating-point number, but two labels."""
    a, b = np.array([[2**63, 2**63 + 1, 1]], np.uint64), np.array([[-1, 1, 1]], np.int64)
    found = by_label(dice, a, b, [-1, 1, 2**63, 2**63 + 1])
    assert_allclose(list(found.values()), [0, 2 / 3, 0, 0])


def test_boxes_agree_with_a_search(d):
    labels = np.random.default_rng(0).integers(-2, 30, SHAPES[d]) * 10**12
    for label, box in bounding_boxes(labels).items():
        where = np.argwhere(labels == label)
        assert [(side.start, side.stop) for side in box] == list(zip(where.min(0), where.max(0) + 1, strict=True))


def test_no_motion_does_not_fold(d):
    u = torch.zeros(1, d, *SHAPES[d])
    assert folding_percent(u) == folding_strict_percent(u) == jacobian_gradient(u) == 0


def test_a_map_that_turns_space_round_in_a_box_folds_there(d):
    """x + u = -0.5 x in the box and the identity far from it: each voxel inside sees -0.5 on both sides."""
    shape, slope = (24,) * d, -1.5
    u = torch.zeros(1, d, *shape, dtype=torch.float64)
    u[:, 0, 8:17] = slope * torch.arange(9, dtype=torch.float64).view(1, 9, *[1] * (d - 1))
    u[:, 0, 17:] = slope * 8
    assert_allclose(folding_percent(u), 100 * 7 / 24)  # at each end the central difference is 1 + slope / 2 > 0
    assert_allclose(folding_strict_percent(u), 100 * 9 / 24)  # there one of the two sides is folded


def test_only_the_strict_count_finds_a_fold_one_voxel_wide(d):
    """A voxel that jumps 1.5 ahead: by central differences its neighbours keep 1 ± 0.75."""
    u = torch.zeros(1, d, *[10] * d)
    u[(0, 0, *[4] * d)] = 1.5
    assert folding_percent(u) == 0
    assert_allclose(folding_strict_percent(u), 100 * 2 / 10**d)  # itself and the one it jumps over


def test_a_map_that_flattens_space_counts_as_a_strict_fold_only(d):
    """u = -x along axis 0 has det = 0: nothing is turned round, nothing can be undone."""
    u = torch.zeros(1, d, *SHAPES[d])
    u[:, 0] = -torch.arange(float(SHAPES[d][0])).view(1, -1, *[1] * (d - 1))
    assert folding_percent(u) == 0
    assert folding_strict_percent(u) == 100


def test_the_determinant_of_an_affine_map_has_no_gradient(d, random):
    x = torch.from_numpy(np.indices(SHAPES[d]).astype(float))
    u = torch.einsum("ij,j...->i...", 0.3 * random(d, d), x)[None]
    assert jacobian_gradient(u) < 1e-12


def numpy_determinant(u):
    """det(I + ∇u) of a field of shape (d, *s)."""
    d = len(u)
    J = np.stack([np.gradient(component) for component in u]) + np.eye(d).reshape(d, d, *[1] * d)
    return np.linalg.det(np.moveaxis(J, (0, 1), (-2, -1)))


def test_folds_and_the_gradient_of_the_determinant_agree_with_numpy(d, smooth_image):
    u = 40 * torch.cat([smooth_image(SHAPES[d], 3, seed) for seed in range(d)], dim=1)
    det = numpy_determinant(u[0].numpy())
    assert 0 < np.mean(det < 0) < 1
    assert_allclose(folding_percent(u), 100 * np.mean(det < 0))
    assert_allclose(jacobian_gradient(u), np.abs(np.gradient(det)).mean())


@pytest.mark.parametrize("axis", range(3))
def test_a_field_of_one_slice_is_as_regular_as_that_of_the_slice(axis, smooth_image):
    """Across the slice nothing is known to change, whatever the displacement there."""
    u = 40 * torch.cat([smooth_image(SHAPES[2], 3, seed) for seed in range(2)], dim=1)
    through = smooth_image(SHAPES[2], 3, 2)
    volume = torch.cat([u[:, :axis], through, u[:, axis:]], dim=1).unsqueeze(2 + axis)
    for measure in (folding_percent, folding_strict_percent, jacobian_gradient):
        assert measure(u) > 0
        assert_allclose(measure(volume), measure(u))
