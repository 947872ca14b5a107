"""Grids that images are brought to: one shape and spacing for all, about the centre of each image.

Where a stack lies in slices too far apart to be a volume, each slice is an image, and slices stay where they are.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy import ndarray
from torch import Tensor

from vrnet.images.grid import Grid

SHAPE_MULTIPLE = 16
"""Voxels: networks halve their images up to four times."""
SPACING_TOLERANCE = 1e-3
"""Relative: headers round spacings."""
INDEX_DIGITS = 6
"""Of a voxel: half a voxel is rounded as such, and not as the rounding of a header has it."""


def centred_grid(own: Grid, shape: tuple[int, ...], spacing: tuple[float, ...], axes: Float[ndarray, "d d"]) -> Grid:
    """The grid about the centre of an image's own grid, whose axes are the columns of `axes`."""
    middle = own.points((np.array([own.shape]) - 1) / 2)[0]
    origin = middle - axes @ (np.array(spacing) * (np.array(shape) - 1) / 2)
    return Grid(shape, spacing, tuple(origin.tolist()), tuple(axes.ravel().tolist()))


def snap_to_voxels(grid: Grid, own: Grid) -> Grid:
    """The grid moved, by up to half a voxel of the image, so that its first voxel is on one of the image's.

    An image that has the spacing already is then only cropped and padded, not blurred."""
    index = own.index(np.array([grid.origin])).round(INDEX_DIGITS)
    nearest = own.points(np.round(index))[0]
    return Grid(grid.shape, grid.spacing, tuple(nearest.tolist()), grid.direction)


def slices_last(own: Grid) -> tuple[int, ...]:
    """The axes of an image in the order of the world's, but for that across its slices, which is the last."""
    return *(axis for axis in own.order if axis != own.across), own.across


def registered_dimension(own: Grid) -> int:
    """In how many dimensions an image is registered: 2 for a stack of slices."""
    return len(own.shape) - (own.stacked_across is not None)


def common_spacing(own: Grid) -> tuple[float, ...]:
    """The spacing along the axes that are registered, in mm, to three digits."""
    return tuple(float(f"{h:.3g}") for h in _along_registered_axes(own, own.spacing))


def common_shape(grids: Sequence[Grid], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Room for the largest image at a spacing, in multiples of 16 voxels."""
    extents = [_along_registered_axes(own, np.multiply(own.shape, own.spacing).tolist()) for own in grids]
    voxels = np.max(extents, axis=0) / spacing
    return tuple(SHAPE_MULTIPLE * ceil((n - SPACING_TOLERANCE * n) / SHAPE_MULTIPLE) for n in voxels.tolist())


def _along_registered_axes(own: Grid, values: Sequence[float]) -> list[float]:
    """The values of the axes that are registered along, out of one value per axis."""
    return [value for axis, value in enumerate(values) if axis != own.stacked_across]


def common_grid(own: Grid, shape: tuple[int, ...], spacing: tuple[float, ...]) -> Grid:
    """The common grid about the centre of an image, its axes running as the world's do; slices stay where they are."""
    if (across := own.stacked_across) is not None:
        shape = (*shape[:across], own.shape[across], *shape[across:])
        spacing = (*spacing[:across], own.spacing[across], *spacing[across:])
    return centred_grid(own, shape, spacing, own.forward_axes)


def to_batch(array: Shaped[ndarray, "*s"], across: int | None) -> Shaped[Tensor, "b 1 *t"]:
    """An image as a batch of one, or a stack as a batch of the slices that lie across an axis."""
    images = array[None] if across is None else np.moveaxis(array, across, 0)
    return torch.from_numpy(np.ascontiguousarray(images))[:, None]
