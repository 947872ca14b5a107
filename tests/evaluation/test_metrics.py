import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose
from scipy import ndimage

from tests.conftest import SHAPES
from vrnet.evaluation.metrics import (
    by_label,
    contour_hausdorff,
    dice,
    folding_percent,
    folding_strict_percent,
    jacobian_gradient,
    outer_contour,
)


@pytest.fixture
def blobs():
    """A seeded mask of smooth blobs: blobs((24, 20), seed=0)."""

    def make(shape, seed=0):
        noise = np.random.default_rng(seed).standard_normal(shape)
        return ndimage.gaussian_filter(noise, 2) > 0.02

    return make


def disc(shape, radius, centre=None):
    """A ball of this radius about a point, the middle if none is given."""
    centre = np.array(shape) // 2 if centre is None else np.array(centre)
    x = np.indices(shape) - centre.reshape(-1, *[1] * len(shape))
    return np.linalg.norm(x, axis=0) <= radius


def itk_image(array, spacing=None):
    image = sitk.GetImageFromArray(array.T.astype(np.uint8))
    image.SetSpacing(spacing or (1.0,) * array.ndim)
    return image


@pytest.mark.parametrize("seed", range(3))
def test_dice_agrees_with_simpleitk(d, blobs, seed):
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


def brute_force_contour(mask):
    """Voxels of a mask without holes that have a side neighbour outside it, one by one."""
    padded = np.pad(mask, 1)
    inside = np.argwhere(mask)
    return np.array(
        [(i, j) for i, j in inside if not all(padded[[i, i + 2], j + 1]) or not all(padded[i + 1, [j, j + 2]])]
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.7, 2.5)])
def test_hausdorff_agrees_with_a_brute_force_search_and_with_simpleitk(blobs, seed, spacing):
    a, b = (ndimage.binary_fill_holes(blobs((24, 20), s)) for s in (seed, seed + 10))
    found = contour_hausdorff(a, b, spacing)
    A, B = (brute_force_contour(mask) * spacing for mask in (a, b))
    one_way = [max(min(np.hypot(*(p - q)) for q in to) for p in of) for of, to in ((A, B), (B, A))]
    assert_allclose(found, max(one_way))
    contours = []
    for points in (A, B):
        contours.append(np.zeros(a.shape, np.uint8))
        contours[-1][tuple(np.rint(points / spacing).astype(int).T)] = 1
    hausdorff = sitk.HausdorffDistanceImageFilter()
    hausdorff.Execute(*(itk_image(contour, spacing) for contour in contours))
    assert_allclose(found, hausdorff.GetHausdorffDistance(), rtol=1e-6)


def test_a_mask_that_touches_the_border_has_its_contour_there():
    assert len(outer_contour(np.ones((4, 5), bool), (1.0, 1.0))) == 14


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


def test_the_mean_over_labels_passes_over_absent_ones():
    a, b = np.array([[1, 1, 2, 2, 0]]), np.array([[1, 0, 2, 2, 0]])
    values = by_label(dice, a, b, [1, 2, 7])
    assert_allclose([values["1"], values["2"], values["mean"]], [2 / 3, 1, 5 / 6])
    assert np.isnan(values["7"])
    assert np.isnan(by_label(dice, a, b, [7, 8])["mean"])


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


def test_only_the_strict_count_finds_a_fold_one_voxel_wide():
    """A voxel that jumps 1.5 ahead: by central differences its neighbours keep 1 ± 0.75."""
    u = torch.zeros(1, 2, 10, 10)
    u[0, 0, 4, 4] = 1.5
    assert folding_percent(u) == 0
    assert_allclose(folding_strict_percent(u), 2.0)  # of 100 voxels, itself and the one it jumps over


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
