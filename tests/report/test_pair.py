"""What is drawn of a pair: turned as radiologists view it, cut, and shown by blocks where it is large."""

from dataclasses import replace

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation
from skimage.measure import block_reduce

from tests.conftest import SHAPES
from tests.report.conftest import bare
from vrnet.fields.folds import smallest_determinant
from vrnet.images.grid import Grid
from vrnet.report.pair import (
    MAX_SIDE_PIXELS,
    MAX_SLICES,
    PageSlices,
    View,
    choose_slices,
    deformation,
    orient_for_viewing,
)

CODES = {"RAS": 2, "LPS": 0, "SRA": 1, "PIR": 2, "AIL": 0, "ILP": 1}
"""How a file is stored, and the axis of LPS that its slices lie across."""
# What runs across and down, as DICOM spells it, where slices are sagittal, coronal and axial.
VIEWS = {0: "PI", 1: "LI", 2: "LP"}


def grid_of(image):
    return Grid(image.GetSize(), image.GetSpacing(), image.GetOrigin(), image.GetDirection())


def array_of(image):
    """By the axes of the image; of a vector image, components first."""
    array = sitk.GetArrayFromImage(image)
    return np.moveaxis(array.transpose(2, 1, 0, *range(3, array.ndim)), range(3), range(-3, 0))


@pytest.fixture
def in_itk():
    """A random volume and a random field in mm, in SimpleITK: LPS, 4 x 5 x 6, the given spacing."""
    generator = np.random.default_rng(0)

    def make(spacing):
        image = sitk.GetImageFromArray(generator.standard_normal((6, 5, 4)))
        field = sitk.GetImageFromArray(generator.standard_normal((6, 5, 4, 3)), isVector=True)
        for each in (image, field):
            each.SetSpacing(spacing)
            each.SetOrigin((7.0, -3.0, 11.0))
        return image, field

    return make


def pair_of(image, field):
    """A pair of SimpleITK's image and field in mm, and labels from the image."""
    grid, array = grid_of(image), array_of(image)
    u = np.einsum("ij,j...->i...", np.linalg.inv(grid.to_world), array_of(field))
    labels = np.where(array > 0, 300, -2)
    return View(array, array + 1, array + 2, u, grid, labels, labels + 1, labels + 2)


@pytest.mark.parametrize(("code", "through"), CODES.items())
def test_volumes_have_dicoms_orientation_of_the_view_and_slices_in_the_order_of_the_file(in_itk, code, through):
    spacing = [1.0, 1.5, 1.25]
    spacing[through] = 8.0
    image, field = in_itk(spacing)
    given = pair_of(sitk.DICOMOrient(image, code), sitk.DICOMOrient(field, code))
    order = next(letter for letter in code if letter in ("RL", "AP", "IS")[through])
    expected = pair_of(*(sitk.DICOMOrient(each, VIEWS[through] + order) for each in (image, field)))
    found = orient_for_viewing(given)
    for name in ("fixed", "moving", "warped", "fixed_labels", "moving_labels", "warped_labels"):
        assert_array_equal(getattr(found, name), getattr(expected, name))
    assert_allclose(found.field, expected.field)
    assert found.grid.shape == expected.grid.shape
    for name in ("spacing", "origin", "direction"):
        assert_allclose(getattr(found.grid, name), getattr(expected.grid, name))


def test_a_tilted_volume_is_shown_as_the_straight_one(in_itk):
    straight = pair_of(*in_itk((1.0, 1.5, 8.0)))
    tilt = Rotation.from_euler("xyz", (15, -20, 25), degrees=True).as_matrix()
    tilted = replace(straight, grid=replace(straight.grid, direction=tuple(tilt.ravel().tolist())))
    assert_array_equal(orient_for_viewing(tilted).fixed, orient_for_viewing(straight).fixed)
    assert_allclose(orient_for_viewing(tilted).field, orient_for_viewing(straight).field)


@pytest.mark.parametrize("code", ["LPS", "PIR"])
def test_where_spacings_are_equal_slices_are_axial(in_itk, code):
    """Headers round: 1.0 and 1.0001 mm are equal."""
    image, field = in_itk((1.0001, 1.0, 1.0))
    found = orient_for_viewing(pair_of(*(sitk.DICOMOrient(each, code) for each in (image, field))))
    assert found.fixed.shape == (4, 5, 6)


def test_a_single_slice_is_seen_from_the_front_whatever_its_spacing():
    array = np.arange(20.0).reshape(4, 1, 5)
    pair = View(array, array, array, np.zeros((3, 4, 1, 5)), Grid.plain((4, 1, 5), (1.0, 0.5, 2.0)))
    assert orient_for_viewing(pair).fixed.shape == (4, 5, 1)


def test_a_2d_image_is_shown_as_it_is(random):
    image, u = random(4, 5).numpy(), random(2, 4, 5).numpy()
    pair = View(image, image, image, u, Grid((4, 5), (1.0, 9.0), (0.0, 0.0), (0.0, -1.0, 1.0, 0.0)))
    assert orient_for_viewing(pair) is pair


def test_the_main_slice_has_the_largest_labelled_area(random):
    labels = np.zeros((4, 5, 6), int)
    labels[:2, :2, 4], labels[0, 0, 1:3] = -3, 700
    image, u = random(4, 5, 6).numpy(), random(3, 4, 5, 6).numpy()
    pair = View(image, image, image, u, Grid.plain((4, 5, 6), (1.0, 2.0, 3.0)), labels)
    assert pair.main_slice() == 4
    assert replace(pair, fixed_labels=None).main_slice() == 3
    assert replace(pair, fixed_labels=np.zeros_like(labels)).main_slice() == 3


def test_a_cut_is_a_slice_and_the_motion_within_it(random):
    image, u = random(4, 5, 6).numpy(), random(3, 4, 5, 6).numpy()
    cut = View(image, image + 1, image + 2, u, Grid.plain((4, 5, 6), (1.0, 2.0, 3.0))).cut(5)
    assert_array_equal(cut.warped, image[..., 5] + 2)
    assert_array_equal(cut.field, u[:2, ..., 5])
    assert cut.grid == Grid.plain((4, 5), (1.0, 2.0))


def test_a_slice_deforms_as_it_does_in_the_whole_volume(random, d):
    """The determinant is NumPy's; the folds are those of the strict criterion on the whole field."""
    u = random(d, *SHAPES[d]).numpy()
    J = np.stack([np.gradient(component) for component in u]) + np.eye(d).reshape(d, d, *[1] * d)
    det = np.linalg.det(np.moveaxis(J, (0, 1), (-2, -1)))
    folded = (smallest_determinant(torch.from_numpy(u)[None]) <= 0)[0].numpy()
    for k in range(SHAPES[3][2] if d == 3 else 1):
        found, place = deformation(u, k), (..., k) if d == 3 else ...
        assert_allclose(found.det, det[place], atol=1e-12)
        assert_array_equal(found.folded, folded[place])


def test_a_single_slice_deforms_as_an_image_does(random):
    u = random(3, 6, 7, 1).numpy()
    assert_allclose(deformation(u, 0).det, deformation(u[:2, ..., 0]).det)
    assert_array_equal(deformation(u, 0).folded, deformation(u[:2, ..., 0]).folded)


def test_slices_that_move_by_themselves_fold_by_themselves():
    """Neighbours that move against each other do not fold: nothing moves across slices."""
    field = np.zeros((3, 8, 8, 2), np.float32)
    field[0, ..., 0], field[0, ..., 1] = 3, -3
    assert not deformation(field, 0).folded.any()
    field[0, 4, :, 0] = 9
    expected = deformation(np.ascontiguousarray(field[:2, ..., 0])).folded
    assert expected.any()
    assert np.array_equal(deformation(field, 0).folded, expected)


@pytest.mark.parametrize("n", [1, MAX_SLICES, MAX_SLICES + 1, 1000])
def test_the_chosen_slices_are_few_evenly_spaced_and_centred(n):
    slices = choose_slices(n)
    assert len(slices) <= MAX_SLICES
    assert len(slices) == n or len(slices) > MAX_SLICES / 2
    assert len(set(np.diff(slices))) <= 1
    assert abs(slices[0] - (n - 1 - slices[-1])) <= 1


@pytest.fixture
def large(random):
    """A pair too large to be shown whole: its blocks are 3 x 2 voxels, some cut off by the border."""
    shape = (2 * MAX_SIDE_PIXELS + 2, MAX_SIDE_PIXELS + 11)
    image, u = random(*shape).numpy(), random(2, *shape).numpy()
    labels = np.arange(image.size).reshape(shape)
    return View(image, image, image, u, Grid.plain(shape, (0.5, 2.0)), labels)


def test_a_large_image_is_shown_by_the_means_of_its_blocks(large):
    slices = PageSlices(large)
    expected = block_reduce(np.ma.array(large.fixed), (3, 2), np.nanmean, cval=np.nan)
    assert_allclose(slices.images["fixed"][..., 0], expected)
    assert max(slices.images["fixed"].shape) <= MAX_SIDE_PIXELS


def test_motion_of_a_large_image_is_the_same_in_mm(large):
    slices = PageSlices(large)
    for u, factor, component, h in zip(slices.motion, slices.factors, large.field, (0.5, 2.0), strict=True):
        in_mm = block_reduce(component * h, (3, 2), np.nanmean, cval=np.nan)
        assert_allclose(u[..., 0] * factor * h, in_mm, atol=1e-12)


def test_labels_of_a_large_image_are_those_of_voxels_in_their_block(large):
    slices = PageSlices(large)
    x, y = np.unravel_index(slices.labels["fixed_labels"][..., 0], large.fixed.shape)
    i, j = np.indices(x.shape)
    assert_array_equal(x // 3, i)
    assert_array_equal(y // 2, j)


def test_a_block_with_a_fold_is_folded(random):
    u = np.zeros((2, MAX_SIDE_PIXELS + 2, 8))
    u[0, 100] = 5.0  # column 100 is carried past its neighbours
    image = random(MAX_SIDE_PIXELS + 2, 8).numpy()
    slices = PageSlices(View(image, image, image, u, Grid.plain(image.shape, (1.0, 1.0))))
    assert_array_equal(np.flatnonzero(slices.folded[:, 0, 0]), [50])
    assert slices.folded.dtype == np.uint8


def test_without_structures_the_first_slice_is_where_the_mask_is(masked):
    assert bare(masked).main_slice() == masked.fixed.shape[2] - 1
    assert bare(replace(masked, mask=None)).main_slice() == masked.fixed.shape[2] // 2


def test_of_structures_those_inside_the_mask_are_shown_first(volume):
    """The largest slice of all is another."""
    mask = np.zeros(volume.fixed.shape, bool)
    mask[..., 3] = True
    assert replace(volume, mask=mask).main_slice() == 3
    assert volume.main_slice() != 3
