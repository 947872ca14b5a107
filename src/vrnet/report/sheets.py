"""Stacks of slices in 8 bits, each as one picture: a file written out in the page itself."""

from base64 import b64encode
from collections.abc import Iterable
from io import BytesIO
from math import ceil, sqrt

import numpy as np
from jaxtyping import Float, Integer, UInt8
from numpy import ndarray

MAX_LABELS = 255
"""Labels that 8 bits tell apart, beside the background."""

JPEG_QUALITY = 90


def quantise(array: Float[ndarray, "*s"], low: float, high: float) -> UInt8[ndarray, "*s"]:
    """Values from `low` to `high` as 0 to 255."""
    return np.rint((array - low) * (255 / (high - low))).clip(0, 255).astype(np.uint8)


def quantise_motion(u: Float[ndarray, "*s"], largest: float) -> UInt8[ndarray, "*s"]:
    """128 + 127 √(u/largest), signed: where motion is small its steps are finest, and straight grids stay straight."""
    return quantise(np.sign(u) * np.sqrt(np.abs(u) / largest), -128 / 127, 1.0)


def find_labels(maps: Iterable[Integer[ndarray, "*s"]]) -> list[int]:
    """The labels in these maps, without the background; the largest MAX_LABELS if there are more."""
    found = [labels[labels != 0].astype(np.int64) for labels in maps]
    labels, counts = np.unique(np.concatenate(found), return_counts=True)
    return sorted(labels[np.argsort(counts)[-MAX_LABELS:]].tolist())


def rank_labels(labels: Integer[ndarray, "*s"], values: list[int]) -> UInt8[ndarray, "*s"]:
    """1 + the rank of each voxel's label among the values; 0 for any other label."""
    if not values:
        return np.zeros(labels.shape, np.uint8)
    rank = np.searchsorted(values, labels.astype(np.int64)).clip(0, len(values) - 1)
    return np.where(np.take(values, rank) == labels, rank + 1, 0).astype(np.uint8)


def encode_sheet(slices: UInt8[ndarray, "w h n"], kind: str = "PNG") -> str:
    """All slices in one picture, row by row of `sheet_columns(n)`, as a data: address of a PNG or JPEG file."""
    w, h, n = slices.shape
    across = sheet_columns(n)
    tiles = np.zeros((ceil(n / across) * across, h, w), np.uint8)
    tiles[:n] = slices.transpose(2, 1, 0)
    picture = tiles.reshape(-1, across, h, w).swapaxes(1, 2).reshape(-1, across * w)
    return f"data:image/{kind.lower()};base64,{b64encode(encode_picture(picture, kind)).decode()}"


def sheet_columns(n: int) -> int:
    """How many of n slices stand side by side: about as many as rows, since browsers limit either side."""
    return ceil(sqrt(n))


def encode_picture(picture: UInt8[ndarray, "rows columns"], kind: str) -> bytes:
    """A greyscale file: PNG, exact, or JPEG, several times smaller, with errors of about one grey in a hundred."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(picture).save(file, kind, quality=JPEG_QUALITY)
    return file.getvalue()
