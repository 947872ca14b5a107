import numpy as np
import pytest
from numpy.testing import assert_array_equal

from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_labels, segment_count

GRID = Grid.plain((3, 4), (1.5, 2.0))


def labels(values, dtype):
    return Image(np.resize(np.array(values, dtype), GRID.shape), GRID, "map.nii.gz")


def test_an_array_and_its_grid_have_one_shape():
    with pytest.raises(BadInput, match=r"scan is \(4, 3\) on a grid of \(3, 4\)"):
        Image(np.zeros((4, 3)), GRID, "scan")


def test_other_values_stay_at_the_same_place_under_the_same_name():
    image = labels([0], np.uint8).with_array(np.ones(GRID.shape))
    assert (image.grid, image.name, image.array.sum()) == (GRID, "map.nii.gz", 12)


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


def test_an_image_says_its_name_shape_type_and_spacing():
    assert repr(labels([0], np.uint8)) == "Image(map.nii.gz: (3, 4) uint8, 1.5 x 2 mm)"


@pytest.mark.parametrize("dtype", ["i1", ">u8"])
def test_integers_are_a_label_map_as_they_are(dtype):
    image = labels([0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    assert as_labels(image) is image


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([0, 1], "?"), ([0.0, 3.0, -2.0], "f4"), ([0.0, 3e9, 2.0**40], "f8")],
)
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
    words = r"^scan holds 249 different numbers that change from voxel to voxel: it is an image, not a label map; give"
    with pytest.raises(BadInput, match=words):
        as_labels(Image(values, Grid.plain((40, 50), (1.0, 1.0)), "scan"))


def test_landmarks_of_a_voxel_each_are_a_label_map():
    """All about them is background: it is not from label to label that they change."""
    points = np.zeros((60, 60), np.int16)
    points[::5, ::5] = 1 + np.arange(144).reshape(12, 12)
    assert as_labels(Image(points, Grid.plain((60, 60), (1.0, 1.0)))).array is points


def test_a_few_scattered_labels_are_a_label_map():
    """As of tissues that were told voxel by voxel."""
    few = np.random.default_rng(0).integers(0, 20, (40, 50))
    assert as_labels(Image(few, Grid.plain((40, 50), (1.0, 1.0)))).array is few
