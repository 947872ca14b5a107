"""A small picture of a registered pair: fixed, moving and warped in one slice, side by side."""

from io import BytesIO
from pathlib import Path

import numpy as np

from vrnet.files import write_bytes
from vrnet.report.pair import Pair, orient_for_viewing
from vrnet.report.sheets import quantise

THUMBNAIL = "thumbnail.png"
MAX_SIDE_PIXELS = 128
"""Of each of the three images."""
WINDOW_PERCENTILES = (1, 99)
"""The percentiles of the intensities of both images that are black and white."""


def write_thumbnail(path: Path, pair: Pair) -> None:
    """Write the picture, three times as wide as one image; of a volume, the slice of the page's overview."""
    from PIL import Image

    shown = orient_for_viewing(pair)
    flat = shown if shown.fixed.ndim == 2 else shown.cut(shown.main_slice())
    low, high = np.percentile([flat.fixed, flat.moving], WINDOW_PERCENTILES)
    high = high if high > low else low + 1.0
    tiles = [quantise(image, low, high).T for image in (flat.fixed, flat.moving, flat.warped)]
    width, height = (n * h for n, h in zip(flat.fixed.shape, flat.grid.spacing, strict=True))
    scale = MAX_SIDE_PIXELS / max(width, height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    picture = Image.new("L", (3 * size[0], size[1]))
    for k, tile in enumerate(tiles):
        picture.paste(Image.fromarray(np.ascontiguousarray(tile)).resize(size), (k * size[0], 0))
    file = BytesIO()
    picture.save(file, "PNG")
    write_bytes(file.getvalue(), path)
