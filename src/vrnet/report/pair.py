"""What is drawn of a registered pair: its arrays, turned as radiologists view them, and how each slice deforms."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Shaped, UInt8
from numpy import ndarray

from vrnet.fields.calculus import determinant, jacobian
from vrnet.fields.folds import smallest_determinant
from vrnet.images.grid import Grid
from vrnet.images.resample import place_labels
from vrnet.registration.pair import PairResult
from vrnet.report.drawing import find_labels, grey_windows, label_colours
from vrnet.verdict.evidence import as_blocks

VIEWS = {0: ((1, 1), (2, -1)), 1: ((0, 1), (2, -1)), 2: ((0, 1), (1, 1))}
"""By the axis of LPS that slices lie across: what runs across the picture and what down it, as (axis of LPS, sign)."""
STILL_VOXELS = 1e-3  # what moves less across slices does so by the rounding of a file


@dataclass(frozen=True, eq=False)
class View:
    """A registered pair on the fixed grid, in the intensities in which it was compared. Moving is resampled by its
    header alone, as it was before; where it is aligned, through the affine start, beyond which the field moves."""

    fixed: Float[ndarray, "*s"]
    moving: Float[ndarray, "*s"]
    warped: Float[ndarray, "*s"]
    field: Float[ndarray, "d *s"]  # in voxels
    grid: Grid
    fixed_labels: Integer[ndarray, "*s"] | None = None
    moving_labels: Integer[ndarray, "*s"] | None = None
    warped_labels: Integer[ndarray, "*s"] | None = None
    mask: Bool[ndarray, "*s"] | None = None  # where the images were compared, of masks that leave anything out
    is_aligned: bool = False  # whether moving is seen through an affine start
    unit: str = "mm"  # of lengths: voxels, where no spacing is known and the grid has 1 instead
    compares_structure: bool = False  # whether the method does

    @classmethod
    def of(cls, result: PairResult) -> "View":
        own, compared = result.moving_labels, result.compared
        moving = None if own is None else place_labels(own, result.grid, result.affine)
        given = result.fixed_labels, moving, result.warped_labels
        fixed_labels, moving_labels, warped_labels = (None if labels is None else labels.array for labels in given)
        return cls(
            result.fixed.array.astype(np.float32),
            result.placed if result.started is None else result.started,
            result.matched_warped,
            result.deformation,
            result.grid,
            fixed_labels,
            moving_labels,
            warped_labels,
            mask=None if compared is None or compared.all() else compared,
            is_aligned=result.affine is not None,
            unit=result.unit,
            compares_structure=result.compares_structure,
        )

    @property
    def images(self) -> dict[str, Float[ndarray, "*s"]]:
        return {"fixed": self.fixed, "moving": self.moving, "warped": self.warped}

    @property
    def label_maps(self) -> dict[str, Integer[ndarray, "*s"]]:
        maps = {name: getattr(self, name) for name in ("fixed_labels", "moving_labels", "warped_labels")}
        return {name: labels for name, labels in maps.items() if labels is not None}

    @property
    def motion_mm(self) -> Float[ndarray, "2 *s"]:
        """The motion across and down the pictures; in voxels where no spacing is known."""
        return self.field[:2] * np.reshape(self.grid.spacing[:2], (2, *[1] * self.fixed.ndim))

    @property
    def depth(self) -> int:
        """The number of slices; an image is one."""
        return 1 if self.fixed.ndim == 2 else self.fixed.shape[2]

    def map_arrays(self, change: Callable[[Any], Any], grid: Grid) -> "View":
        """The pair with its last d axes changed: those of the images, the labels and each component of the field."""
        arrays = {name: change(array) for name, array in vars(self).items() if isinstance(array, ndarray)}
        return replace(self, **arrays, grid=grid)

    def cut(self, k: int) -> "View":
        """Slice k across the last axis of a volume, with the motion within it; an image is its own."""
        if self.fixed.ndim == 2:
            return self
        flat = self.map_arrays(lambda array: array[..., k], Grid.plain(self.grid.shape[:2], self.grid.spacing[:2]))
        return replace(flat, field=flat.field[:2])

    def main_slice(self) -> int:
        """Where the labels of both images are largest inside the mask; else where the mask is; else the middle."""
        labels = [map_ for map_ in (self.fixed_labels, self.moving_labels) if map_ is not None]
        maps = [map_ for map_ in (self.inside_mask(map_) for map_ in labels) if map_.any()]
        maps = maps or ([] if self.mask is None else [self.mask])
        if not maps or self.fixed.ndim == 2:
            return self.depth // 2
        return int(np.argmax(np.min([np.count_nonzero(labels, axis=(0, 1)) for labels in maps], axis=0)))

    def inside_mask(self, labels: Integer[ndarray, "*s"]) -> Integer[ndarray, "*s"]:
        """A label map without what lies outside the mask; whole, where there is none or it leaves no label."""
        if self.mask is None or not labels[self.mask].any():
            return labels
        return np.where(self.mask, labels, 0)


def orient_for_viewing(pair: View) -> View:
    """The pair as radiologists view it: axis 0 across the picture, axis 1 down it, slices, in the order of the file,
    along the last; an image as it is. Axial slices have anterior on top and patient left on the right, coronal ones
    superior on top and patient left on the right, sagittal ones superior on top and anterior on the left."""
    if pair.fixed.ndim == 2:
        return pair
    order, signs = viewing_order(pair.grid)
    grid = pair.grid.reordered(order).flipped([i for i, sign in enumerate(signs) if sign < 0])
    turned = pair.map_arrays(lambda array: turn_array(array, order, signs), grid)
    return replace(turned, field=turned.field[list(order)] * np.reshape(signs, (3, 1, 1, 1)).astype(pair.field.dtype))


def viewing_order(grid: Grid, plane: int | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order in which the axes of a volume are shown, slices last, and the sign of each: -1 is flipped. Slices lie
    across the axis of widest spacing, or nearest to this axis of LPS."""
    plane = grid.order.index(grid.across) if plane is None else plane
    axes = [grid.order[axis] for axis, _ in VIEWS[plane]]
    runs = [sign if grid.axes[axis, i] >= 0 else -sign for (axis, sign), i in zip(VIEWS[plane], axes, strict=True)]
    return (*axes, grid.order[plane]), (*runs, 1)


def edge_letters(grid: Grid) -> dict[str, str]:
    """The letters of what lies left, right, above and below in the pictures of a volume, by the grid of its file; none
    for an image, and none where the header does not say how it lies."""
    if len(grid.shape) == 2 or not grid.is_placed:
        return {}
    ends = (("RL", "AP", "IS")[axis][::sign] for axis, sign in VIEWS[grid.order.index(grid.across)])
    return dict(zip(("left", "right", "top", "bottom"), "".join(ends), strict=True))


def turn_array(array: Any, order: tuple[int, ...], signs: tuple[int, ...]) -> Any:
    """The array with its last three axes in this order, then the axes of sign -1 flipped."""
    leading = array.ndim - 3
    turned = array.transpose(*range(leading), *(leading + i for i in order))
    return turned[(..., *(slice(None, None, sign) for sign in signs))]


class Deformation(NamedTuple):
    """det(I + ∇u) by central differences, and where any determinant of the strict count is ≤ 0."""

    det: Float[ndarray, "w h *n"]
    folded: Bool[ndarray, "w h *n"]


def deformation(field: Float[ndarray, "d *s"], k: int | slice = 0) -> Deformation:
    """How a 2D field, or the slice or slices k across the last axis of a 3D one, deforms: in 3D both neighbours of a
    slice take part. Where nothing moves across the slices near it, it is a 2D field."""
    first, last = (k, k + 1) if isinstance(k, int) else (k.start, k.stop)
    low = max(first - 1, 0)
    near = field if field.ndim == 3 else field[..., low : last + 1]
    is_by_slice = near.ndim == 4 and np.abs(near[2]).max() < STILL_VOXELS
    u = torch.from_numpy(np.ascontiguousarray(np.moveaxis(near[:2], -1, 0) if is_by_slice else near[None]))
    maps = determinant(jacobian(u)), smallest_determinant(u) <= 0
    shown = ... if field.ndim == 3 else (..., k - low if isinstance(k, int) else slice(first - low, last - low))
    return Deformation(*((map_.movedim(0, -1) if is_by_slice else map_[0])[shown].numpy() for map_ in maps))


# What pictures show of a pair: at most MAX_SLICES slices of at most MAX_SIDE_PIXELS a side. A larger volume loses
# slices; a larger slice is shown by the means of blocks of voxels, and its motion is counted in blocks.

MAX_SLICES, MAX_SIDE_PIXELS = 64, 384
SLAB_SLICES = 16  # whose deformation is found at once
FULL_COLOUR_PERCENTILE = 99.9  # of the lengths of the motion: a few outliers do not make all others pale


class PageSlices:
    """What is shown of a pair that is oriented for viewing: (w, h, n), across the picture, down it, and by slice."""

    def __init__(self, pair: View) -> None:
        self.pair = pair
        self.numbers = choose_slices(pair.depth)  # the slices that are shown, from 0
        self.start = int(np.argmin(np.abs(np.array(self.numbers) - pair.main_slice())))  # the place of the first shown
        self.factors = tuple(ceil(n / MAX_SIDE_PIXELS) for n in pair.fixed.shape[:2])  # voxels that make a pixel
        self.images = {name: self.average(image) for name, image in pair.images.items()}
        self.labels = {name: self.sample(labels) for name, labels in pair.label_maps.items()}
        self.windows = grey_windows(self.images)
        self.colours = label_colours(find_labels(self.labels.values()) if self.labels else [])
        lengths = np.hypot(*(self.average(u) for u in pair.motion_mm))
        self.rim_mm = float(np.percentile(lengths, FULL_COLOUR_PERCENTILE)) or 1.0  # the motion that has full colour

    @property
    def motion(self) -> list[Float[ndarray, "w h n"]]:
        """Displacement along each axis, in shown pixels; across slices, in slices of the volume."""
        return [self.average(u) / f for u, f in zip(self.pair.field, (*self.factors, 1), strict=False)]

    @cached_property
    def deformed(self) -> Deformation:
        """How every voxel of the pair deforms, a few slices at a time: all at once would take much memory."""
        field = self.pair.field
        if field.ndim == 3:
            return deformation(field)
        starts = range(0, field.shape[3], SLAB_SLICES)
        slabs = (deformation(field, slice(k, min(k + SLAB_SLICES, field.shape[3]))) for k in starts)
        return Deformation(*(np.concatenate(maps, axis=-1) for maps in zip(*slabs, strict=True)))

    @property
    def folded(self) -> UInt8[ndarray, "w h n"]:
        """1 where any voxel of a block is folded by the strict count."""
        return (self.average(self.deformed.folded.astype(np.float32)) > 0).astype(np.uint8)

    def take(self, array: Shaped[ndarray, "*s"]) -> Shaped[ndarray, "x y n"]:
        """Every voxel of the slices; an image is one slice."""
        return array[..., None] if array.ndim == 2 else array[..., self.numbers]

    def average(self, image: Float[ndarray, "*s"]) -> Float[ndarray, "w h n"]:
        """The slices of an image, each block by its mean."""
        return average_blocks(self.take(image), self.factors)

    def sample(self, labels: Integer[ndarray, "*s"]) -> Integer[ndarray, "w h n"]:
        """The slices of a label map, each block by the voxel in its middle."""
        sides = zip(labels.shape[:2], self.factors, strict=True)
        middles = [np.minimum(np.arange(0, n, f) + f // 2, n - 1) for n, f in sides]
        return self.take(labels)[np.ix_(*middles)]


def choose_slices(n: int, most: int = MAX_SLICES) -> list[int]:
    """At most so many of n slices, evenly spaced and centred."""
    step = ceil(n / most)
    return list(range((n - 1) % step // 2, n, step))


def average_blocks(stack: Float[ndarray, "x y n"], factors: tuple[int, ...]) -> Float[ndarray, "w h n"]:
    """Each block of voxels by its mean; the last block of an axis may be smaller."""
    means = as_blocks(np.moveaxis(stack, -1, 0), factors)[0].numpy()
    return np.moveaxis(means, 0, -1).astype(stack.dtype)
