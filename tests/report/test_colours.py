import matplotlib as mpl
import numpy as np
from numpy.testing import assert_allclose

from vrnet.report.colours import DIFFERENCE, FOLD, JACOBIAN, label_colours, motion_colours


def test_the_maps_are_matplotlib_s():
    for stops, name in ((DIFFERENCE, "inferno"), (JACOBIAN, "RdBu_r")):
        rgb = np.array([mpl.colors.to_rgb(stop) for stop in stops])
        x = np.linspace(0, 1, 256)
        interpolated = np.stack([np.interp(x, np.linspace(0, 1, len(stops)), channel) for channel in rgb.T], axis=-1)
        assert_allclose(interpolated, mpl.colormaps[name](x)[:, :3], atol=0.04)


def test_no_colour_of_the_map_is_near_that_of_folds():
    """In CIE Lab, where 10 is plain to see."""
    from skimage.color import rgb2lab

    map_ = rgb2lab(mpl.colormaps["RdBu_r"](np.linspace(0, 1, 256))[:, :3])
    assert np.linalg.norm(map_ - rgb2lab(mpl.colors.to_rgb(FOLD)), axis=-1).min() > 60


def test_motion_is_coloured_by_hue_and_saturation(random):
    across, down = random(2, 50).numpy()
    hue, length = np.arctan2(down, across) / (2 * np.pi) % 1, np.hypot(across, down)
    hsv = np.stack([hue, np.minimum(length / 1.5, 1), np.ones(50)], axis=-1)
    assert_allclose(motion_colours(across, down, 1.5), mpl.colors.hsv_to_rgb(hsv), atol=1e-12)


def test_every_label_has_a_colour_of_its_own():
    labels = list(range(-5, 95))
    colours = label_colours(labels)
    assert list(colours) == labels
    assert len(set(colours.values())) == len(labels)
    assert all(mpl.colors.is_color_like(colour) for colour in colours.values())
    assert label_colours(labels[:3]) == {label: colours[label] for label in labels[:3]}
