"""Images go to SimpleITK and nibabel and come back: the same voxels, at the same places, of the same number type."""

from itertools import product

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation

from vrnet import BadInput, Grid, Image, read_image, write_image
from vrnet.images.io import given_cine, given_image

TURNED = Rotation.from_euler("xyz", (20, -35, 50), degrees=True).as_matrix()


def oblique(d):
    """An image on a grid that is turned, flipped along its first axis, and has another spacing along each."""
    axes = TURNED if d == 3 else Rotation.from_euler("z", 25, degrees=True).as_matrix()[:2, :2]
    axes = axes * np.where(np.arange(d) == 0, -1.0, 1.0)
    shape = (5, 4, 3)[:d]
    grid = Grid(shape, (1.5, 0.7, 8.0)[:d], (12.5, -40.0, 7.25)[:d], tuple(axes.ravel().tolist()))
    return Image(np.arange(np.prod(shape), dtype=np.int16).reshape(shape), grid, "scan")


def indices(image):
    return np.array(list(product(*(range(n) for n in image.array.shape))))


def test_simpleitk_has_every_voxel_where_we_have_it(d):
    image = oblique(d)
    theirs = image.to_sitk()
    for index in indices(image):
        assert theirs[index.tolist()] == image.array[tuple(index)]
        assert_allclose(
            theirs.TransformIndexToPhysicalPoint(index.tolist()), image.grid.points(index[None].astype(float))[0]
        )


def test_nibabel_has_every_voxel_where_we_have_it(d):
    """In RAS, where the first two axes of the world run the other way; a picture lies in the plane z = 0."""
    image = oblique(d)
    theirs = image.to_nibabel()
    index = np.pad(indices(image), ((0, 0), (0, 3 - d)))
    ras = nibabel.affines.apply_affine(theirs.affine, index)
    assert_allclose(ras[:, :d] * [-1, -1, 1][:d], image.grid.points(indices(image).astype(float)), atol=1e-12)
    assert_array_equal(theirs.get_fdata(), image.array)


@pytest.mark.parametrize("way", ["sitk", "nibabel"])
def test_there_and_back_nothing_changes(d, way):
    for dtype in ("uint8", "int16", "int32", "int64", "uint16", "float32", "float64"):
        image = oblique(d)
        image = image.with_array(image.array.astype(dtype))
        back = getattr(Image, f"from_{way}")(getattr(image, f"to_{way}")(), "scan")
        assert (back.array.dtype, back.name) == (image.array.dtype, "scan")
        assert_array_equal(back.array, image.array)
        assert back.grid.shape == image.grid.shape
        for part in ("spacing", "origin", "direction"):
            assert_allclose(getattr(back.grid, part), getattr(image.grid, part), rtol=1e-14, atol=1e-14)


def test_axes_that_run_along_the_world_come_back_exactly():
    for signs in product((1.0, -1.0), repeat=3):
        grid = Grid((2, 3, 4), (1.25, 0.5, 8.0), (3.0, -7.5, 11.0), tuple(np.diag(signs).ravel().tolist()))
        image = Image(np.zeros((2, 3, 4), np.float32), grid)
        assert Image.from_sitk(image.to_sitk()).grid == grid
        assert Image.from_nibabel(image.to_nibabel()).grid == grid


@pytest.mark.parametrize(("given", "kept"), [("bool", "uint8"), ("float16", "float32")])
def test_a_type_that_they_lack_becomes_the_nearest_that_they_have(given, kept):
    image = Image(np.eye(4, dtype=given), Grid.plain((4, 4), (1.0, 1.0)))
    assert Image.from_sitk(image.to_sitk()).array.dtype == np.dtype(kept)
    assert Image.from_nibabel(image.to_nibabel()).array.dtype == np.dtype(kept)


def test_a_file_is_the_same_whoever_reads_it(d, tmp_path):
    path = tmp_path / "scan.nii.gz"
    write_image(oblique(d), path)
    ours, by_itk, by_nibabel = read_image(path), sitk.ReadImage(str(path)), nibabel.load(path)
    for other in (given_image("fixed", by_itk), given_image("fixed", by_nibabel), given_image("fixed", str(path))):
        assert other.grid.matches(ours.grid)
        assert_array_equal(other.array, ours.array)
        assert other.array.dtype == ours.array.dtype


def test_an_image_without_a_name_is_called_as_its_argument(d):
    image = oblique(d)
    assert given_image("fixed_labels", Image(image.array, image.grid)).name == "fixed_labels"
    assert given_image("fixed", image).name == "scan"


def test_numpy_sees_the_array(d):
    image = oblique(d)
    assert np.asarray(image) is image.array
    assert image.to_numpy() is image.array
    assert np.asarray(image, dtype=np.float64).dtype == np.float64
    assert float(np.mean(image)) == image.array.mean()


def test_headers_of_nibabel_in_metres_are_understood():
    image = nibabel.Nifti1Image(np.eye(3, dtype=np.float32)[..., None], np.diag([-0.002, -0.002, 0.008, 1]))
    image.header.set_xyzt_units("meter")
    assert_allclose(Image.from_nibabel(image).grid.spacing, (2.0, 2.0, 8.0))


def test_a_cine_of_either_library_is_that_of_its_file(tmp_path):
    frames = np.random.default_rng(0).random((6, 5, 3, 20)).astype(np.float32)
    image = nibabel.Nifti1Image(frames, np.diag([1.5, 1.5, 8.0, 1.0]))
    image.header.set_xyzt_units("mm", "msec")
    image.header.set_zooms((1.5, 1.5, 8.0, 40.0))
    nibabel.save(image, tmp_path / "cine.nii.gz")
    ours = given_cine(tmp_path / "cine.nii.gz")
    for other in (given_cine(image), given_cine(sitk.ReadImage(str(tmp_path / "cine.nii.gz")))):
        assert_array_equal(other.frames, ours.frames)
        assert other.grid.matches(ours.grid)
    assert given_cine(image).times_ms == ours.times_ms == tuple(40.0 * k for k in range(20))


SHEARED = nibabel.Nifti1Image(np.ones((2, 2, 2), np.float32), np.eye(4) + np.eye(4, k=1))
SHEARED_CINE = nibabel.Nifti1Image(np.random.default_rng(0).random((2, 2, 2, 3)), SHEARED.affine)
TILTED = nibabel.Nifti1Image(np.eye(3, dtype=np.float32), np.array([*np.c_[TURNED, np.zeros(3)], [0, 0, 0, 1]]))
BAD = {
    "values per voxel": lambda: Image.from_sitk(sitk.Image([3, 3], sitk.sitkVectorFloat32, 2)),
    "complex": lambda: Image.from_sitk(sitk.Image([3, 3], sitk.sitkComplexFloat32)),
    "has 4 dimensions": lambda: Image.from_sitk(sitk.Image([3, 3, 3, 2], sitk.sitkFloat32)),
    "tilted": lambda: Image.from_nibabel(TILTED),
    "no affine": lambda: Image.from_nibabel(nibabel.Nifti1Image(np.eye(3, dtype=np.float32), None)),
    "sheared": lambda: Image.from_nibabel(SHEARED),
    "the cine: its header's axes are sheared": lambda: given_cine(SHEARED_CINE),
    "NaN": lambda: Image.from_nibabel(nibabel.Nifti1Image(np.full((2, 2), np.nan, np.float32), np.eye(4))),
    "fixed is an array": lambda: given_image("fixed", np.eye(3)),
    "fixed is an int": lambda: given_image("fixed", 3),
}  # fmt: skip


def test_what_is_no_image_is_refused_in_words():
    for reason, make in BAD.items():
        with pytest.raises(BadInput, match=reason):
            make()
