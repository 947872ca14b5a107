"""Colours, greys and sheets of slices, against matplotlib and NumPy."""

from base64 import b64decode
from colorsys import hsv_to_rgb
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal

from vrnet.report.cine import WALL_OPACITY
from vrnet.report.drawing import (
    DIFFERENCE_MAP,
    FOLD,
    JACOBIAN_MAP,
    MAX_LABELS,
    STRAIN_MAP,
    WINDOW_PERCENTILES,
    colour_stops,
    encode_sheet,
    find_labels,
    grey_windows,
    label_colours,
    motion_colours,
    quantise,
    rank_labels,
    sheet_columns,
)


def test_colours_between_the_stops_of_a_page_are_near_those_of_the_whole_map():
    for name in (DIFFERENCE_MAP, JACOBIAN_MAP, STRAIN_MAP):
        stops = colour_stops(name)
        rgb = np.array([mpl.colors.to_rgb(stop) for stop in stops])
        x = np.linspace(0, 1, 256)
        interpolated = np.stack([np.interp(x, np.linspace(0, 1, len(stops)), channel) for channel in rgb.T], axis=-1)
        assert_allclose(interpolated, mpl.colormaps[name](x)[:, :3], atol=0.04)


def test_no_colour_of_the_map_is_near_that_of_folds():
    """In CIE Lab, where 10 is plain to see."""
    from skimage.color import rgb2lab

    map_ = rgb2lab(mpl.colormaps[JACOBIAN_MAP](np.linspace(0, 1, 256))[:, :3])
    assert np.linalg.norm(map_ - rgb2lab(mpl.colors.to_rgb(FOLD)), axis=-1).min() > 60


def test_no_strain_is_no_grey():
    """A wall that is half seen through has a colour over any grey: in CIE Lab, where 10 is plain to see."""
    from skimage.color import rgb2lab

    zero, greys = np.array(mpl.colormaps[STRAIN_MAP](0.5)[:3]), np.linspace(0, 1, 11)[:, None]
    chroma = np.linalg.norm(rgb2lab(WALL_OPACITY * zero + (1 - WALL_OPACITY) * greys)[:, 1:], axis=-1)
    assert chroma.min() > 15


def test_motion_is_coloured_by_hue_and_saturation(random):
    across, down = random(2, 50).numpy()
    hue, length = np.arctan2(down, across) / (2 * np.pi) % 1, np.hypot(across, down)
    expected = [hsv_to_rgb(h, min(x / 1.5, 1), 1.0) for h, x in zip(hue, length, strict=True)]
    assert_allclose(motion_colours(across, down, 1.5), expected, atol=1e-12)


def test_every_label_has_a_colour_of_its_own():
    labels = list(range(-5, 95))
    colours = label_colours(labels)
    assert list(colours) == labels
    assert len(set(colours.values())) == len(labels)
    assert all(mpl.colors.is_color_like(colour) for colour in colours.values())
    assert label_colours(labels[:3]) == {label: colours[label] for label in labels[:3]}


NOISE = np.random.default_rng(0).random((3, 40, 40))


def windows(change):
    """Those of an image, and of others in other intensities."""
    images = dict(zip(("fixed", "moving", "warped"), NOISE, strict=True))
    return images, grey_windows(images | {name: change(images[name]) for name in ("moving", "warped")})


@pytest.mark.parametrize("change", [lambda x: x, lambda x: 1.5 * x])
def test_intensities_that_are_alike_have_the_same_greys(change):
    images, found = windows(change)
    both = np.percentile([images["fixed"], change(images["moving"])], WINDOW_PERCENTILES)
    assert {*found.values()} == {tuple(both)}


@pytest.mark.parametrize("change", [lambda x: 5 * x, lambda x: x + 2])
def test_of_intensities_far_apart_each_image_has_its_own_and_warped_those_of_moving(change):
    images, found = windows(change)
    assert found["fixed"] == tuple(np.percentile(images["fixed"], WINDOW_PERCENTILES))
    assert found["moving"] == found["warped"] == tuple(np.percentile(change(images["moving"]), WINDOW_PERCENTILES))


def decode(address):
    """The pixels of the PNG file in a data: address, as matplotlib reads them."""
    return np.rint(255 * imread(BytesIO(b64decode(address.removeprefix("data:image/png;base64,"))))).astype(np.uint8)


@pytest.mark.parametrize("n", [1, 5])
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


def test_of_too_many_labels_the_largest_are_shown():
    labels = np.repeat(np.arange(1, MAX_LABELS + 11), np.arange(1, MAX_LABELS + 11))
    assert find_labels([labels]) == list(range(11, MAX_LABELS + 11))


def test_eight_bits_are_within_half_a_step(random):
    array = random(100).numpy()
    back = quantise(array, -1.0, 2.0) / 255 * 3 - 1
    assert_allclose(back, array.clip(-1, 2), atol=1.5 / 255 + 1e-12)
