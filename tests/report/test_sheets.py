from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal
from skimage.measure import block_reduce

from vrnet.images.grid import Grid
from vrnet.report.pair import Pair
from vrnet.report.sheets import MANY, SIDE, SLICES, chosen, columns, most_common, png, quantised, ranked, sheet, shown


def decoded(address):
    """The pixels of a PNG file in an address, as matplotlib reads them."""
    return np.rint(255 * imread(BytesIO(b64decode(address.removeprefix("data:image/png;base64,"))))).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (40, 31)])
def test_a_png_file_holds_the_picture(shape):
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert_array_equal(np.rint(255 * imread(BytesIO(png(picture)), format="png")), picture)


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_slice_k_is_tile_k_of_its_sheet_across_and_down(n):
    slices = np.random.default_rng(0).integers(0, 256, (3, 4, n)).astype(np.uint8)
    picture = decoded(sheet(slices))
    for k in range(n):
        row, column = divmod(k, columns(n))
        assert_array_equal(picture[4 * row : 4 * row + 4, 3 * column : 3 * column + 3], slices[..., k].T)


@pytest.mark.parametrize("n", [1, 10, SLICES, SLICES + 1, 224, 1000])
def test_the_chosen_slices_are_few_evenly_spaced_and_centred(n):
    slices = chosen(n)
    assert len(slices) <= SLICES
    assert len(slices) == n or len(slices) > SLICES / 2
    assert len(set(np.diff(slices))) <= 1
    assert abs(slices[0] - (n - 1 - slices[-1])) <= 1


@pytest.fixture
def large(random):
    """A pair too large to be shown whole: its blocks are 3 x 2 voxels, some cut off by the border."""
    shape = (2 * SIDE + 2, SIDE + 11)
    image, u = random(*shape).numpy(), random(2, *shape).numpy()
    labels = np.arange(image.size).reshape(shape)
    return Pair(image, image, image, u, Grid.plain(shape, (0.5, 2.0)), labels)


def test_a_large_image_is_shown_by_the_means_of_its_blocks(large):
    part = shown(large)
    expected = block_reduce(np.ma.array(large.fixed), (3, 2), np.nanmean, cval=np.nan)
    assert_allclose(part.images["fixed"][..., 0], expected)
    assert max(part.images["fixed"].shape) <= SIDE


def test_motion_of_a_large_image_is_the_same_in_mm(large):
    part = shown(large)
    for u, h, component, spacing in zip(part.motion, part.spacing, large.field, (0.5, 2.0), strict=True):
        in_mm = block_reduce(component * spacing, (3, 2), np.nanmean, cval=np.nan)
        assert_allclose(u[..., 0] * h, in_mm, atol=1e-12)


def test_labels_of_a_large_image_are_those_of_voxels_in_their_block(large):
    part = shown(large)
    x, y = np.unravel_index(part.labels["fixed_labels"][..., 0], large.fixed.shape)
    i, j = np.indices(x.shape)
    assert_array_equal(x // 3, i)
    assert_array_equal(y // 2, j)


def test_a_block_with_a_fold_is_folded(random):
    u = np.zeros((2, SIDE + 2, 8))
    u[0, 100] = 5.0  # column 100 is carried past its neighbours
    image = random(SIDE + 2, 8).numpy()
    part = shown(Pair(image, image, image, u, Grid.plain(image.shape, (1.0, 1.0))))
    assert_array_equal(np.flatnonzero(part.folded[:, 0, 0]), [50])
    assert part.folded.dtype == np.uint8


def test_ranks_name_any_integers():
    values = [-70000, -1, 3, 256, 70000]
    labels = np.array([[0, 3, 256, 5], [-70000, -1, 70000, 80000]])
    assert_array_equal(ranked(labels, values), [[0, 3, 4, 0], [1, 2, 5, 0]])
    assert most_common([labels, labels - 4]) == sorted({*labels.ravel(), *(labels - 4).ravel()} - {0})
    assert not ranked(labels, []).any()


def test_unsigned_labels_are_ranked_too():
    labels = np.array([[0, 5, 2**16 - 1]], np.uint64)
    assert_array_equal(ranked(labels, most_common([labels, labels.astype(np.int8)])), [[0, 2, 3]])


def test_of_too_many_labels_the_largest_are_shown():
    labels = np.repeat(np.arange(1, MANY + 11), np.arange(1, MANY + 11))
    assert most_common([labels]) == list(range(11, MANY + 11))


def test_eight_bits_are_within_half_a_step(random):
    array = random(100).numpy()
    back = quantised(array, -1.0, 2.0) / 255 * 3 - 1
    assert_allclose(back, array.clip(-1, 2), atol=1.5 / 255 + 1e-12)
