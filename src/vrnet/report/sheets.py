"""Arrays as a page can carry them: 8-bit sheets of slices, in PNG files written out in the page itself.

A page holds at most SLICES slices of at most SIDE pixels a side. A larger volume loses slices; a larger slice is shown
by the means of blocks of voxels, and its motion is counted in blocks."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
from jaxtyping import Float, Integer, Shaped, UInt8
from numpy import ndarray

from vrnet.devices import few_threads
from vrnet.report.pair import Pair, deformation

SLICES, SIDE = 64, 384
MANY = 255  # labels that 8 bits tell apart, beside the background


@dataclass(frozen=True)
class Shown:
    """What a page shows of a pair, each array (w, h, n): across the picture, down it, and by slice."""

    images: dict[str, Float[ndarray, "w h n"]]
    labels: dict[str, Integer[ndarray, "w h n"]]
    motion: list[Float[ndarray, "w h n"]]
    """Displacement along each axis, in shown pixels; across slices, in slices of the volume."""
    det: Float[ndarray, "w h n"]
    folded: UInt8[ndarray, "w h n"]
    spacing: tuple[float, ...]
    """Of shown pixels, in mm, along the axes of the motion."""
    slices: list[int]
    """The numbers of the slices in the volume, from 0."""
    factors: tuple[int, ...]
    """How many voxels across and down make a shown pixel."""


def shown(pair: Pair) -> Shown:
    """What a page shows of an upright pair."""
    slices = chosen(1 if pair.fixed.ndim == 2 else pair.fixed.shape[2])
    factors = tuple(ceil(n / SIDE) for n in pair.fixed.shape[:2])
    per_axis = (*factors, 1)[: pair.fixed.ndim]
    images = {name: reduced(getattr(pair, name), slices, factors) for name in ("fixed", "moving", "warped")}
    names = [name for name in ("fixed_labels", "moving_labels", "warped_labels") if getattr(pair, name) is not None]
    with few_threads(1):  # the work on one slice is too little to be shared
        maps = zip(*(deformation(pair.field, k) for k in slices), strict=True)
    det, folded = (np.stack(map_, axis=-1) for map_ in maps)
    return Shown(
        images=images,
        labels={name: thinned(getattr(pair, name), slices, factors) for name in names},
        motion=[reduced(u, slices, factors) / f for u, f in zip(pair.field, per_axis, strict=True)],
        det=blocks(np.add, det, factors) / sizes(det.shape[:2], factors),
        folded=blocks(np.maximum, folded.astype(np.uint8), factors),
        spacing=tuple(h * f for h, f in zip(pair.grid.spacing, per_axis, strict=True)),
        slices=slices,
        factors=factors,
    )


def chosen(n: int) -> list[int]:
    """At most SLICES of n slices, evenly spaced and centred."""
    step = ceil(n / SLICES)
    return list(range((n - 1) % step // 2, n, step))


def stacked(array: Shaped[ndarray, "*s"], slices: list[int]) -> Shaped[ndarray, "w h n"]:
    """The chosen slices of a volume; an image is one slice."""
    return array[..., None] if array.ndim == 2 else array[..., slices]


def blocks(fold: np.ufunc, array: Shaped[ndarray, "w h n"], factors: tuple[int, ...]) -> Any:
    """Each block of voxels folded to one value; the last block of an axis may be smaller."""
    for axis, factor in enumerate(factors):
        if factor > 1:
            array = fold.reduceat(array, range(0, array.shape[axis], factor), axis=axis)
    return array


def sizes(shape: tuple[int, ...], factors: tuple[int, ...]) -> Any:
    """The number of voxels in each block."""
    return blocks(np.add, np.ones((*shape, 1), np.float32), factors)


def reduced(image: Float[ndarray, "*s"], slices: list[int], factors: tuple[int, ...]) -> Float[ndarray, "w h n"]:
    """The chosen slices of an image, by the means of its blocks."""
    stack = stacked(image, slices)
    return blocks(np.add, stack, factors) / sizes(stack.shape[:2], factors).astype(stack.dtype)


def thinned(labels: Integer[ndarray, "*s"], slices: list[int], factors: tuple[int, ...]) -> Integer[ndarray, "w h n"]:
    """The chosen slices of a label map, by the voxels in the middle of its blocks."""
    middles = [np.minimum(np.arange(0, n, f) + f // 2, n - 1) for n, f in zip(labels.shape[:2], factors, strict=True)]
    return stacked(labels, slices)[np.ix_(*middles)]


def most_common(maps: Iterable[Integer[ndarray, "*s"]]) -> list[int]:
    """The labels in these maps, but for the background; only the largest, if they are more than 8 bits tell apart."""
    found = [labels[labels != 0].astype(np.int64) for labels in maps]
    labels, counts = np.unique(np.concatenate(found), return_counts=True)
    return sorted(labels[np.argsort(counts)[-MANY:]].tolist())


def ranked(labels: Integer[ndarray, "*s"], values: list[int]) -> UInt8[ndarray, "*s"]:
    """1 + the rank of each voxel's label among the values; 0 for any other."""
    if not values:
        return np.zeros(labels.shape, np.uint8)
    rank = np.searchsorted(values, labels.astype(np.int64)).clip(0, len(values) - 1)
    return np.where(np.take(values, rank) == labels, rank + 1, 0).astype(np.uint8)


def quantised(array: Float[ndarray, "*s"], low: float, high: float) -> UInt8[ndarray, "*s"]:
    """low to 0, high to 255."""
    return np.rint((array - low) * (255 / (high - low))).clip(0, 255).astype(np.uint8)


def sheet(slices: UInt8[ndarray, "w h n"]) -> str:
    """All slices in one picture, row by row of `columns(n)`, as the address of a PNG file."""
    w, h, n = slices.shape
    across = columns(n)
    tiles = np.zeros((ceil(n / across) * across, h, w), np.uint8)
    tiles[:n] = slices.transpose(2, 1, 0)
    picture = tiles.reshape(-1, across, h, w).swapaxes(1, 2).reshape(-1, across * w)
    return f"data:image/png;base64,{b64encode(png(picture)).decode()}"


def columns(n: int) -> int:
    """How many of n slices stand side by side: about as many as rows, since browsers limit either side."""
    return ceil(sqrt(n))


def png(picture: UInt8[ndarray, "rows columns"]) -> bytes:
    """A greyscale PNG file: each row is written as its change from the one above (filter 2)."""
    changes = np.diff(picture, axis=0, prepend=np.zeros((1, picture.shape[1]), np.uint8))
    rows = np.insert(changes, 0, 2, axis=1)
    header = struct.pack(">IIBBBBB", picture.shape[1], picture.shape[0], 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 7)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def chunk(kind: bytes, content: bytes) -> bytes:
    """A part of a PNG file, with its length and its checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
