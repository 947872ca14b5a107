"""A small picture of a registered pair: fixed, moving and warped in one slice, side by side."""

from pathlib import Path

import numpy as np

from vrnet.files import write_bytes
from vrnet.report.colours import motion_colours
from vrnet.report.pair import Pair, orient_for_viewing
from vrnet.report.sheets import quantise
from vrnet.report.tiles import Tile, join_tiles

THUMBNAIL = "thumbnail.png"
MAX_SIDE_PIXELS = 128
"""Of each of the three images."""
WINDOW_PERCENTILES = (1, 99)
"""The percentiles of the intensities of both images that are black and white."""


def write_thumbnail(path: Path, pair: Pair) -> None:
    """Write the picture, three times as wide as one image; of a volume, the slice of the page's overview."""
    flat = main_cut(pair)
    write_bytes(join_tiles(image_tiles(flat), flat.grid.spacing, MAX_SIDE_PIXELS), path)


def main_cut(pair: Pair) -> Pair:
    """The pair as it is viewed; of a volume, its main slice."""
    shown = orient_for_viewing(pair)
    return shown if shown.fixed.ndim == 2 else shown.cut(shown.main_slice())


def image_tiles(flat: Pair) -> list[Tile]:
    """Fixed, moving and warped, in the same greys."""
    low, high = np.percentile([flat.fixed, flat.moving], WINDOW_PERCENTILES)
    high = high if high > low else low + 1.0
    return [quantise(image, low, high) for image in (flat.fixed, flat.moving, flat.warped)]


def motion_tile(flat: Pair) -> Tile:
    """Motion within the picture: direction is hue and length saturation."""
    across, down = flat.field * np.reshape(flat.grid.spacing, (2, 1, 1))
    longest = float(np.hypot(across, down).max()) or 1.0
    return quantise(motion_colours(across, down, longest), 0.0, 1.0)
