"""Small pictures side by side, with square pixels, as one PNG file."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

Tile = UInt8[ndarray, "w h"] | UInt8[ndarray, "w h 3"]
"""A picture in grey or in colour: axis 0 runs across it, axis 1 down it."""


def join_tiles(tiles: Sequence[Tile], spacing: tuple[float, ...], side: int, gap: int = 0) -> bytes:
    """A PNG file of pictures of one size, the longer side of each so many pixels; in grey where all of them are.

    `gap` is how many white pixels lie between two of them."""
    from PIL import Image

    width, height = (n * h for n, h in zip(tiles[0].shape[:2], spacing, strict=True))
    scale = side / max(width, height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    mode = "L" if all(tile.ndim == 2 for tile in tiles) else "RGB"
    joined = Image.new(mode, (len(tiles) * (size[0] + gap) - gap, size[1]), "white")
    for k, tile in enumerate(tiles):
        joined.paste(Image.fromarray(np.ascontiguousarray(tile.swapaxes(0, 1))).resize(size), (k * (size[0] + gap), 0))
    file = BytesIO()
    joined.save(file, "PNG")
    return file.getvalue()
