"""What a page shows of a pair: at most MAX_SLICES slices of at most MAX_SIDE_PIXELS a side.

A larger volume loses slices; a larger slice is shown by the means of blocks of voxels, and its motion is counted in
blocks."""

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from jaxtyping import Float, Integer, Shaped, UInt8
from numpy import ndarray

from vrnet.devices import few_threads
from vrnet.report.pair import Pair, deformation

MAX_SLICES, MAX_SIDE_PIXELS = 64, 384


@dataclass(frozen=True)
class PageSlices:
    """The arrays of a page, each (w, h, n): across the picture, down it, and by slice."""

    images: dict[str, Float[ndarray, "w h n"]]
    labels: dict[str, Integer[ndarray, "w h n"]]
    mask: Integer[ndarray, "w h n"] | None
    """1 inside the mask."""
    motion: list[Float[ndarray, "w h n"]]
    """Displacement along each axis, in shown pixels; across slices, in slices of the volume."""
    det: Float[ndarray, "w h n"]
    folded: UInt8[ndarray, "w h n"]
    folded_percent: Float[ndarray, " n"]
    """Of the voxels of each slice, by the strict count."""
    spacing: tuple[float, ...]
    """Of shown pixels, in mm, along the axes of the motion."""
    numbers: list[int]
    """The numbers of the slices in the volume, from 0."""
    factors: tuple[int, ...]
    """How many voxels across and down make one shown pixel."""


def slice_pair(pair: Pair) -> PageSlices:
    """The slices that a page shows of a pair, which is oriented for viewing."""
    numbers = choose_slices(1 if pair.fixed.ndim == 2 else pair.fixed.shape[2])
    factors = block_factors(pair)
    per_axis = (*factors, 1)[: pair.fixed.ndim]
    images = {name: average_blocks(getattr(pair, name), numbers, factors) for name in ("fixed", "moving", "warped")}
    names = [name for name in ("fixed_labels", "moving_labels", "warped_labels") if getattr(pair, name) is not None]
    with few_threads(1):  # the work on one slice is too little to be shared
        maps = zip(*(deformation(pair.field, k) for k in numbers), strict=True)
    det, folded = (np.stack(map_, axis=-1) for map_ in maps)
    return PageSlices(
        images=images,
        labels={name: sample_blocks(getattr(pair, name), numbers, factors) for name in names},
        mask=None if pair.mask is None else sample_blocks(pair.mask.astype(np.uint8), numbers, factors),
        motion=[average_blocks(u, numbers, factors) / f for u, f in zip(pair.field, per_axis, strict=True)],
        det=reduce_blocks(np.add, det, factors) / block_sizes(det.shape[:2], factors),
        folded=reduce_blocks(np.maximum, folded.astype(np.uint8), factors),
        folded_percent=100 * folded.mean((0, 1)),
        spacing=tuple(h * f for h, f in zip(pair.grid.spacing, per_axis, strict=True)),
        numbers=numbers,
        factors=factors,
    )


def block_factors(pair: Pair) -> tuple[int, ...]:
    """How many voxels across and down make one shown pixel."""
    return tuple(ceil(n / MAX_SIDE_PIXELS) for n in pair.fixed.shape[:2])


def choose_slices(n: int, most: int = MAX_SLICES) -> list[int]:
    """At most so many of n slices, evenly spaced and centred."""
    step = ceil(n / most)
    return list(range((n - 1) % step // 2, n, step))


def take_slices(array: Shaped[ndarray, "*s"], numbers: list[int]) -> Shaped[ndarray, "w h n"]:
    """These slices of a volume; an image is one slice."""
    return array[..., None] if array.ndim == 2 else array[..., numbers]


def reduce_blocks(fold: np.ufunc, array: Shaped[ndarray, "w h n"], factors: tuple[int, ...]) -> Any:
    """Each block of voxels folded to one value; the last block of an axis may be smaller."""
    for axis, factor in enumerate(factors):
        if factor > 1:
            array = fold.reduceat(array, range(0, array.shape[axis], factor), axis=axis)
    return array


def block_sizes(shape: tuple[int, ...], factors: tuple[int, ...]) -> Any:
    """The number of voxels in each block."""
    return reduce_blocks(np.add, np.ones((*shape, 1), np.float32), factors)


def average_blocks(
    image: Float[ndarray, "*s"], numbers: list[int], factors: tuple[int, ...]
) -> Float[ndarray, "w h n"]:
    """These slices of an image, each block by its mean."""
    stack = take_slices(image, numbers)
    return reduce_blocks(np.add, stack, factors) / block_sizes(stack.shape[:2], factors).astype(stack.dtype)


def sample_blocks(
    labels: Integer[ndarray, "*s"], numbers: list[int], factors: tuple[int, ...]
) -> Integer[ndarray, "w h n"]:
    """These slices of a label map, each block by the voxel in its middle."""
    middles = [np.minimum(np.arange(0, n, f) + f // 2, n - 1) for n, f in zip(labels.shape[:2], factors, strict=True)]
    return take_slices(labels, numbers)[np.ix_(*middles)]
