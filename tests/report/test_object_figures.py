from dataclasses import replace

import numpy as np
import pytest

from vrnet import Grid, Image
from vrnet.report.figures import PLANES, image_figure, middle_slice

SHAPE = (9, 8, 7)


@pytest.mark.parametrize("flips", [(1, 1, 1), (-1, 1, 1), (1, -1, -1)])
def test_each_plane_of_a_volume_is_seen_as_radiologists_see_it(flips):
    """Patient left on the right, anterior on top of axial slices, superior on top of the others; LPS runs to the left,
    to the back and up."""
    grid = Grid(SHAPE, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), tuple(np.diag(flips).astype(float).ravel().tolist()))
    lps = grid.points(np.indices(SHAPE).reshape(3, -1).T.astype(float)).T.reshape(3, *SHAPE)
    axial, coronal = (middle_slice(lps[0].astype(np.float32), grid, PLANES[name])[0] for name in ("axial", "coronal"))
    for picture in (axial, coronal):
        assert (np.diff(picture, axis=0) > 0).all()
    axial = middle_slice(lps[1].astype(np.float32), grid, PLANES["axial"])[0]
    assert (np.diff(axial, axis=1) > 0).all()
    for name in ("coronal", "sagittal"):
        assert (np.diff(middle_slice(lps[2].astype(np.float32), grid, PLANES[name])[0], axis=1) < 0).all()


def test_pixels_are_as_wide_and_as_high_as_they_are():
    image = Image(np.arange(24, dtype=float).reshape(6, 4), Grid.plain((6, 4), (1.0, 3.0)))
    (ax,) = image_figure(image).axes
    assert ax.get_aspect() == 3.0


def test_planes_are_named_where_the_header_says_how_the_image_lies():
    plain = Grid.plain(SHAPE, (1.0, 1.0, 2.0))
    for grid, names in ((plain, ["across axis 2", "across axis 1", "across axis 0"]),
                        (replace(plain, origin=(-90.0, 40.0, 7.0)), ["axial", "coronal", "sagittal"])):  # fmt: skip
        figure = image_figure(Image(np.random.default_rng(0).random(SHAPE), grid))
        assert [ax.get_title() for ax in figure.axes] == names
