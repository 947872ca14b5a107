"""A small picture of a registered pair: fixed, moving and warped in one slice, side by side."""

from pathlib import Path

import numpy as np

from vrnet.files import write_bytes
from vrnet.report.appearance import WINDOW_PERCENTILES
from vrnet.report.colours import motion_colours
from vrnet.report.greys import grey_windows
from vrnet.report.pair import Pair, orient_for_viewing
from vrnet.report.sheets import quantise
from vrnet.report.tiles import Tile, join_tiles

THUMBNAIL = "thumbnail.png"
MAX_SIDE_PIXELS = 128
"""Of each of the three images."""


def write_thumbnail(path: Path, pair: Pair) -> None:
    """Write the picture, three times as wide as one image; of a volume, the slice of the page's overview."""
    flat = main_cut(pair)
    write_bytes(join_tiles(image_tiles(flat), flat.grid.spacing, MAX_SIDE_PIXELS), path)


def main_cut(pair: Pair) -> Pair:
    """The pair as it is viewed; of a volume, its main slice."""
    shown = orient_for_viewing(pair)
    return shown if shown.fixed.ndim == 2 else shown.cut(shown.main_slice())


def image_tiles(flat: Pair) -> list[Tile]:
    """Fixed, moving and warped, in the greys of the page."""
    images = {name: getattr(flat, name) for name in ("fixed", "moving", "warped")}
    windows = grey_windows(images, WINDOW_PERCENTILES)
    return [quantise(image, *windows[name]) for name, image in images.items()]


def motion_tile(flat: Pair) -> Tile:
    """Motion within the picture: direction is hue and length saturation."""
    across, down = flat.field * np.reshape(flat.grid.spacing, (2, 1, 1))
    longest = float(np.hypot(across, down).max()) or 1.0
    return quantise(motion_colours(across, down, longest), 0.0, 1.0)
