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


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.float32])
def test_patches_of_few_whole_numbers_are_evidently_a_segmentation(dtype):
    assert segment_count(patches(dtype)) == 4


def test_images_are_no_segmentations():
    noise = np.random.default_rng(0).integers(0, 50, (30, 30))
    grey_levels = patches(np.int16).array + np.where(patches(np.int16).array > 0, noise, 0)
    for array in (noise, grey_levels, patches(np.float32).array / 3, np.zeros((30, 30), int)):
        assert segment_count(Image(array, Grid.plain((30, 30), (1.0, 1.0)))) is None


def test_an_image_says_its_name_shape_type_and_spacing():
    assert repr(labels([0], np.uint8)) == "Image(map.nii.gz: (3, 4) uint8, 1.5 x 2 mm)"


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">u8"])
def test_integers_are_a_label_map_as_they_are(dtype):
    image = labels([0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    assert as_labels(image) is image


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([0, 1], "?"), ([0.0, 3.0, -2.0], "f4"), ([0.0, 255.0], "f8"), ([0.0, 3e9, 2.0**40], "f8"), ([0.0, 2.0], "f2")],
)
def test_truth_values_and_whole_floats_become_the_integers_they_are(values, dtype):
    image = labels(values, dtype)
    found = as_labels(image)
    assert found.array.dtype.kind == "i"
    assert_array_equal(found.array, image.array)


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf])
def test_other_values_are_no_label_map(value):
    with pytest.raises(BadInput, match=r"map\.nii\.gz holds values that are not whole numbers"):
        as_labels(labels([0.0, value], np.float32))


def test_a_label_map_has_at_most_a_thousand_labels_however_large_these_are():
    """The intensities of an image, by their number; the labels of FreeSurfer, as large as they are, are few."""
    grid = Grid.plain((40, 50), (1.0, 1.0))
    for array, count in ((np.arange(2000), "2,000"), (3000 * np.arange(2000) - 10**6, "2,000")):
        for dtype in (np.int32, np.float64):
            with pytest.raises(BadInput, match=f"holds {count} different numbers: it is an image"):
                as_labels(Image(array.astype(dtype).reshape(40, 50), grid))
    few = (np.arange(2000) % 1000 * 2035).astype(np.int32).reshape(40, 50)
    assert as_labels(Image(few, grid)).array is few
