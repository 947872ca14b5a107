"""Images go to SimpleITK and nibabel and come back: the same voxels, at the same places, of the same number type."""

from itertools import product

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation

from tests.conftest import SHAPES
from tests.images.cines import STEP_MS
from vrnet import read_image, write_image
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import (
    Cine,
    Image,
    as_labels,
    as_tensors,
    check_spacing,
    rescale_each,
    rescale_images_jointly,
    rescale_jointly,
    segment_count,
)
from vrnet.images.io import given_cine, given_image

GRID = Grid.plain((3, 4), (1.5, 2.0))


def labels(values, dtype):
    return Image(np.resize(np.array(values, dtype), GRID.shape), GRID, "map.nii.gz")


def test_an_array_and_its_grid_have_one_shape():
    with pytest.raises(BadInput, match=r"scan is \(4, 3\) on a grid of \(3, 4\)"):
        Image(np.zeros((4, 3)), GRID, "scan")


def patches(dtype):
    """Three patches on a ground of zeros."""
    array = np.zeros((30, 30), dtype)
    array[3:12, 3:12], array[14:28, 4:20], array[5:20, 22:28] = 1, 2, 700
    return Image(array, Grid.plain((30, 30), (1.0, 1.0)))


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_patches_of_few_whole_numbers_are_evidently_a_segmentation(dtype):
    assert segment_count(patches(dtype)) == 4


def test_images_are_no_segmentations():
    noise = np.random.default_rng(0).integers(0, 50, (30, 30))
    grey_levels = patches(np.int16).array + np.where(patches(np.int16).array > 0, noise, 0)
    for array in (noise, grey_levels, patches(np.float32).array / 3, np.zeros((30, 30), int)):
        assert segment_count(Image(array, Grid.plain((30, 30), (1.0, 1.0)))) is None


@pytest.mark.parametrize("dtype", ["i1", ">u8"])
def test_integers_are_a_label_map_as_they_are(dtype):
    image = labels([0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    assert as_labels(image) is image


@pytest.mark.parametrize(("values", "dtype"), [([0, 1], "?"), ([0.0, 3.0, -2.0], "f4"), ([0.0, 3e9, 2.0**40], "f8")])
def test_truth_values_and_whole_floats_become_the_integers_they_are(values, dtype):
    image = labels(values, dtype)
    found = as_labels(image)
    assert found.array.dtype.kind == "i"
    assert_array_equal(found.array, image.array)


@pytest.mark.parametrize("value", [0.5, np.nan])
def test_other_values_are_no_label_map(value):
    words = r"map\.nii\.gz holds values that are not whole numbers: .* not a label map; give .* to the nearest voxel"
    with pytest.raises(BadInput, match=words):
        as_labels(labels([0.0, value], np.float32))


def blocks(count, side, factor):
    """Cubes of voxels, each of another label."""
    n = round(count ** (1 / 3))
    array = factor * (1 + np.arange(n**3, dtype=np.int32)).reshape(n, n, n).repeat(side, 0).repeat(side, 1)
    return Image(array.repeat(side, 2), Grid.plain((side * n,) * 3, (1.0, 1.0, 1.0)), "atlas.nii.gz")


@pytest.mark.parametrize(("count", "side"), [(27, 2), (1728, 3)])
def test_labels_in_patches_are_a_label_map_however_many_and_however_large(count, side):
    """The labels of FreeSurfer go up to 14175, and are about 200; supervoxels are more."""
    atlas = blocks(count, side, 70)
    assert as_labels(atlas).array is atlas.array


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_values_that_change_from_voxel_to_voxel_are_an_image(dtype):
    """As many as a picture of 8 bits has, and also where all about the patient is black."""
    values = np.random.default_rng(0).integers(1, 250, (40, 50)).astype(dtype)
    values[:10] = 0
    words = r"^scan holds 249 numbers that change from voxel to voxel: it is an image, not a label map; give"
    with pytest.raises(BadInput, match=words):
        as_labels(Image(values, Grid.plain((40, 50), (1.0, 1.0)), "scan"))


# Images of SimpleITK and nibabel


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
    """A type that they lack becomes the nearest that they have."""
    nearest = {"bool": "uint8", "float16": "float32"}
    for dtype in ("bool", "uint8", "int16", "int32", "int64", "uint16", "float16", "float32", "float64"):
        image = oblique(d)
        image = image.with_array(image.array.astype(dtype))
        back = getattr(Image, f"from_{way}")(getattr(image, f"to_{way}")(), "scan")
        assert (back.array.dtype.name, back.name) == (nearest.get(dtype, dtype), "scan")
        assert_array_equal(back.array, image.array)
        assert back.grid.shape == image.grid.shape
        for part in ("spacing", "origin", "direction"):
            assert_allclose(getattr(back.grid, part), getattr(image.grid, part), rtol=1e-14, atol=1e-14)


def test_a_file_is_the_same_whoever_reads_it(d, tmp_path):
    path = tmp_path / "scan.nii.gz"
    write_image(oblique(d), path)
    assert given_image("fixed", oblique(d)).name == "scan", "its own name"
    ours, by_itk, by_nibabel = read_image(path), sitk.ReadImage(str(path)), nibabel.load(path)
    for other in (given_image("fixed", by_itk), given_image("fixed", by_nibabel), given_image("fixed", str(path))):
        assert other.grid.matches(ours.grid)
        assert_array_equal(other.array, ours.array)
        assert other.array.dtype == ours.array.dtype


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


# Cines


CINE_GRID = Grid.plain((6, 5), (1.5, 1.5))
FRAMES = np.random.default_rng(1).random((4, 6, 5)).astype(np.float32)


def with_frame(k, value):
    frames = FRAMES.copy()
    frames[k] = value
    return frames


def test_a_frame_is_an_image_on_the_grid():
    cine = Cine(FRAMES, CINE_GRID, tuple(STEP_MS * k for k in range(4)))
    assert len(cine) == 4
    assert_array_equal(cine.image(2).array, FRAMES[2])
    assert cine.image(2).grid == CINE_GRID


@pytest.mark.parametrize(
    ("frames", "times", "said"),
    [
        (FRAMES[:1], None, "one frame only"),
        (FRAMES[..., :4], None, "on a grid of"),
        (FRAMES[0], None, "on a grid of"),
        (with_frame(2, np.nan), None, "frame 2 .* NaN"),
        (with_frame(3, 0.0), None, "frame 3 .* shows nothing"),
        (FRAMES.astype(complex), None, "real numbers"),
        (FRAMES, (0.0, 30.0, 20.0, 60.0), "do not increase from frame to frame"),
        (FRAMES, (0.0, np.nan, 20.0, 60.0), "do not increase from frame to frame"),
        (FRAMES, (0.0, 30.0), "4 frames and 2 times"),
    ],
)
def test_what_is_no_cine_is_refused(frames, times, said):
    with pytest.raises(BadInput, match=said):
        Cine(frames, CINE_GRID, times)


# Arrays and tensors as a caller gives them


def image(shape=(12, 12), dtype=np.float32, **voxel):
    """Random noise; value=x puts x at one voxel."""
    noise = (100 * np.random.default_rng(0).random(shape)).astype(dtype)
    noise.flat[0] = voxel.get("value", noise.flat[0])
    return noise


BAD_ARRAYS = {
    "shapes that differ": (image((12, 12)), image((12, 13)), "one grid"),
    "NaN": (image(value=np.nan), image(), "fixed contains NaN"),
    "minus infinity in a tensor": (torch.from_numpy(image(value=-np.inf)), torch.from_numpy(image()), "infinite"),
    "constant": (image(), np.full((12, 12), 3.5, np.float32), r"moving is constant \(3.5\)"),
    "1D": (image((12,)), image((12,)), "1 dimensions"),
    "4D": (image((1, 1, 12, 12)), image((1, 1, 12, 12)), "4 dimensions"),
    "complex": (image(), image(dtype=np.complex64), "complex64.*real numbers"),
    "complex tensor": (torch.from_numpy(image()).cfloat(), torch.from_numpy(image()), "complex64.*real numbers"),
    "a list": (image().tolist(), image(), "fixed is a list"),
    "nothing": (image(), None, "moving is a NoneType"),
    "a sparse tensor": (torch.from_numpy(image()).to_sparse(), torch.from_numpy(image()), "fixed is a sparse"),
    "a tensor without values": (torch.from_numpy(image()), torch.empty(12, 12, device="meta"), "moving is a .* meta"),
    "an empty axis": (image((12, 12))[:0], image((12, 12))[:0], "no voxels"),
}


def test_bad_input_is_answered_in_one_line():
    for fixed, moving, words in BAD_ARRAYS.values():
        with pytest.raises(BadInput, match=words) as raised:
            as_tensors(fixed, moving)
        assert len(str(raised.value).splitlines()) == 1


def test_a_good_pair_becomes_tensors_of_its_values(d):
    fixed, moving = image((12,) * d), image((12,) * d, np.float64)
    I0, I1 = as_tensors(fixed, moving)
    assert (I0.dtype, I1.dtype) == (torch.float32, torch.float64)
    np.testing.assert_array_equal(I0, fixed)
    np.testing.assert_array_equal(I1, moving)


@pytest.mark.parametrize("spacing", [(1.0,), (1.0, 0.0), (1.0, np.nan), 1.5, ("1", "1")])
def test_a_spacing_is_one_positive_number_per_axis(spacing):
    with pytest.raises(BadInput, match="give 2 numbers above zero, one per axis"):
        check_spacing(spacing, 2)
    check_spacing((1.0, 2.0), 2)
    check_spacing(None, 2)


# Intensities in [0, 1]


def test_both_images_go_through_one_line_that_ends_at_their_joint_percentiles(d, random):
    """Equal values stay equal, or brightness constancy would be lost; outliers are clipped."""
    I0, I1 = 300 * random(1, 1, *SHAPES[d]) + 1000, 500 * random(1, 1, *SHAPES[d]) + 900
    low, high = np.percentile(np.stack([I0, I1]), (1, 99))
    for given, rescaled in zip((I0, I1), rescale_jointly(I0, I1), strict=True):
        assert_allclose(rescaled, np.clip((given.numpy() - low) / (high - low), 0, 1), atol=1e-6)
        assert rescaled.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_few_bright_voxels_on_an_even_ground_go_by_least_and_greatest(dtype):
    I0, I1 = torch.full((2, 1, 1, 32, 32), 5.0, dtype=dtype)
    I0[..., 3, 4], I1[..., 5, 6] = 9.0, 7.0
    J0, J1 = rescale_jointly(I0, I1)
    assert (J0[..., 3, 4], J1[..., 5, 6]) == (1.0, 0.5)
    assert J0.sum() == 1
    assert J1.sum() == 0.5


def test_each_alone_ends_at_its_own_percentiles(random):
    I0, I1 = random(16, 12), 1000 * random(9, 8, 7) - 50
    for given, rescaled in zip((I0, I1), rescale_each(I0, I1), strict=True):
        low, high = np.percentile(given, (1, 99))
        assert_allclose(rescaled, np.clip((given.numpy() - low) / (high - low), 0, 1), atol=1e-6)


@pytest.mark.parametrize("dtype", ["u2", "i4", "f4", ">f8"])
def test_images_of_any_type_and_shape_are_scaled_jointly_where_they_are(dtype):
    rng = np.random.default_rng(0)
    images = [Image((900 * rng.random(s)).astype(dtype), Grid.plain(s, (1.5, 2.0)), str(s)) for s in ((8, 9), (5, 7))]
    low, high = np.percentile(np.concatenate([image.array.ravel() for image in images]), (1, 99))
    for image, rescaled in zip(images, rescale_images_jointly(*images), strict=True):
        expected = np.clip((image.array.astype(float) - low) / (high - low), 0, 1)
        assert_allclose(rescaled.array, expected, atol=1e-6)
        assert rescaled.array.dtype == np.float32
        assert (rescaled.grid, rescaled.name) == (image.grid, image.name)


@pytest.mark.parametrize("rescale", [rescale_jointly, rescale_each])
def test_only_what_is_inside_counts(random, rescale):
    """An outlier outside the mask of its image changes nothing inside."""
    I0, I1 = random(40, 40), random(30, 30)
    masks = [torch.ones(40, 40, dtype=torch.bool), None]
    masks[0][:5] = False
    bright = torch.where(masks[0], I0, 1e4)
    for a, b in zip(rescale(I0, I1, inside=masks), rescale(bright, I1, inside=masks), strict=True):
        assert torch.equal(a[5:], b[5:])
    low, high = np.percentile(
        I0[5:] if rescale is rescale_each else torch.cat([I0[5:].flatten(), I1.flatten()]), (1, 99)
    )
    expected = ((I0 - low) / (high - low)).clamp(0, 1).float()
    torch.testing.assert_close(rescale(I0, I1, inside=masks)[0], expected)
