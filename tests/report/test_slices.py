import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from skimage.measure import block_reduce

from vrnet.images.grid import Grid
from vrnet.report.pair import MAX_SIDE_PIXELS, MAX_SLICES, View, choose_slices, slice_pair


@pytest.mark.parametrize("n", [1, 10, MAX_SLICES, MAX_SLICES + 1, 224, 1000])
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
    slices = slice_pair(large)
    expected = block_reduce(np.ma.array(large.fixed), (3, 2), np.nanmean, cval=np.nan)
    assert_allclose(slices.images["fixed"][..., 0], expected)
    assert max(slices.images["fixed"].shape) <= MAX_SIDE_PIXELS


def test_motion_of_a_large_image_is_the_same_in_mm(large):
    slices = slice_pair(large)
    for u, h, component, spacing in zip(slices.motion, slices.spacing, large.field, (0.5, 2.0), strict=True):
        in_mm = block_reduce(component * spacing, (3, 2), np.nanmean, cval=np.nan)
        assert_allclose(u[..., 0] * h, in_mm, atol=1e-12)


def test_labels_of_a_large_image_are_those_of_voxels_in_their_block(large):
    slices = slice_pair(large)
    x, y = np.unravel_index(slices.labels["fixed_labels"][..., 0], large.fixed.shape)
    i, j = np.indices(x.shape)
    assert_array_equal(x // 3, i)
    assert_array_equal(y // 2, j)


def test_a_block_with_a_fold_is_folded(random):
    u = np.zeros((2, MAX_SIDE_PIXELS + 2, 8))
    u[0, 100] = 5.0  # column 100 is carried past its neighbours
    image = random(MAX_SIDE_PIXELS + 2, 8).numpy()
    slices = slice_pair(View(image, image, image, u, Grid.plain(image.shape, (1.0, 1.0))))
    assert_array_equal(np.flatnonzero(slices.folded[:, 0, 0]), [50])
    assert slices.folded.dtype == np.uint8
