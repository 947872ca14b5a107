from colorsys import hsv_to_rgb

import matplotlib as mpl
import numpy as np
from numpy.testing import assert_allclose

from vrnet.report.cine_figures import WALL_OPACITY
from vrnet.report.drawing import (
    DIFFERENCE_MAP,
    FOLD,
    JACOBIAN_MAP,
    STRAIN_MAP,
    colour_stops,
    label_colours,
    motion_colours,
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
