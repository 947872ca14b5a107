from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal

from vrnet.report.drawing import (
    MAX_LABELS,
    encode_picture,
    encode_sheet,
    find_labels,
    quantise,
    quantise_motion,
    rank_labels,
    sheet_columns,
)


def decode(address):
    """The pixels of the PNG file in a data: address, as matplotlib reads them."""
    return np.rint(255 * imread(BytesIO(b64decode(address.removeprefix("data:image/png;base64,"))))).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (40, 31)])
def test_a_png_file_holds_the_picture(shape):
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert_array_equal(np.rint(255 * imread(BytesIO(encode_picture(picture, "PNG")), format="png")), picture)


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_slice_k_is_tile_k_of_its_sheet_across_and_down(n):
    slices = np.random.default_rng(0).integers(0, 256, (3, 4, n)).astype(np.uint8)
    picture = decode(encode_sheet(slices))
    for k in range(n):
        row, column = divmod(k, sheet_columns(n))
        assert_array_equal(picture[4 * row : 4 * row + 4, 3 * column : 3 * column + 3], slices[..., k].T)


def test_ranks_name_any_integers():
    values = [-70000, -1, 3, 256, 70000]
    labels = np.array([[0, 3, 256, 5], [-70000, -1, 70000, 80000]])
    assert_array_equal(rank_labels(labels, values), [[0, 3, 4, 0], [1, 2, 5, 0]])
    assert find_labels([labels, labels - 4]) == sorted({*labels.ravel(), *(labels - 4).ravel()} - {0})
    assert not rank_labels(labels, []).any()


def test_unsigned_labels_are_ranked_too():
    labels = np.array([[0, 5, 2**16 - 1]], np.uint64)
    assert_array_equal(rank_labels(labels, find_labels([labels, labels.astype(np.int8)])), [[0, 2, 3]])


def test_of_too_many_labels_the_largest_are_shown():
    labels = np.repeat(np.arange(1, MAX_LABELS + 11), np.arange(1, MAX_LABELS + 11))
    assert find_labels([labels]) == list(range(11, MAX_LABELS + 11))


def test_eight_bits_are_within_half_a_step(random):
    array = random(100).numpy()
    back = quantise(array, -1.0, 2.0) / 255 * 3 - 1
    assert_allclose(back, array.clip(-1, 2), atol=1.5 / 255 + 1e-12)


def test_no_motion_is_coded_exactly():
    assert (quantise_motion(np.zeros((3, 3)), 1.0) == 128).all()
