from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation

from tests.conftest import SHAPES
from vrnet.fields.folds import smallest_determinant
from vrnet.images.grid import Grid
from vrnet.report.pair import View, deformation, orient_for_viewing

CODES = ["".join(code) for axes in permutations(("RL", "AP", "IS")) for code in product(*axes)]
# What runs across and down, as DICOM spells it, where slices are sagittal, coronal and axial.
VIEWS = {0: "PI", 1: "LI", 2: "LP"}


def grid_of(image):
    return Grid(image.GetSize(), image.GetSpacing(), image.GetOrigin(), image.GetDirection())


def array_of(image):
    """By the axes of the image; of a vector image, components first."""
    array = sitk.GetArrayFromImage(image)
    return np.moveaxis(array.transpose(2, 1, 0, *range(3, array.ndim)), range(3), range(-3, 0))


@pytest.fixture
def volume():
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


@pytest.mark.parametrize("through", [0, 1, 2], ids=["sagittal", "coronal", "axial"])
@pytest.mark.parametrize("code", CODES)
def test_volumes_have_dicoms_orientation_of_the_view_and_slices_in_the_order_of_the_file(volume, code, through):
    spacing = [1.0, 1.5, 1.25]
    spacing[through] = 8.0
    image, field = volume(spacing)
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


def test_a_tilted_volume_is_shown_as_the_straight_one(volume):
    straight = pair_of(*volume((1.0, 1.5, 8.0)))
    tilt = Rotation.from_euler("xyz", (15, -20, 25), degrees=True).as_matrix()
    tilted = replace(straight, grid=replace(straight.grid, direction=tuple(tilt.ravel().tolist())))
    assert_array_equal(orient_for_viewing(tilted).fixed, orient_for_viewing(straight).fixed)
    assert_allclose(orient_for_viewing(tilted).field, orient_for_viewing(straight).field)


@pytest.mark.parametrize("code", ["LPS", "SRA", "PIR"])
def test_where_spacings_are_equal_slices_are_axial(volume, code):
    """Headers round: 1.0 and 1.0001 mm are equal."""
    image, field = volume((1.0001, 1.0, 1.0))
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
