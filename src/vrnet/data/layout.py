"""One grid for images of all sizes: where a stack lies in slices, each slice is an image."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import torch
from jaxtyping import Shaped
from numpy import ndarray
from torch import Tensor

from vrnet.data.centred import centred, forward_axes
from vrnet.images.grid import SPACING_TOLERANCE, Grid

MULTIPLE = 16


def dimension(own: Grid) -> int:
    """In how many dimensions the image is registered."""
    return len(own.shape) - (own.stacked_across is not None)


def used(own: Grid, values: Sequence[float]) -> list[float]:
    """Those of an axis each that are registered along."""
    return [value for axis, value in enumerate(values) if axis != own.stacked_across]


def common_spacing(own: Grid) -> tuple[float, ...]:
    """Its spacing in three digits, in mm."""
    return tuple(float(f"{h:.3g}") for h in used(own, own.spacing))


def common_shape(grids: Sequence[Grid], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Room for the largest at a spacing, in multiples of 16 voxels."""
    extents = [used(own, np.multiply(own.shape, own.spacing).tolist()) for own in grids]
    voxels = np.max(extents, axis=0) / spacing
    return tuple(MULTIPLE * ceil((n - SPACING_TOLERANCE * n) / MULTIPLE) for n in voxels.tolist())


def common_grid(own: Grid, shape: tuple[int, ...], spacing: tuple[float, ...]) -> Grid:
    """The common grid about the centre of an image, its axes running as the world's do; slices stay where they are."""
    if (across := own.stacked_across) is not None:
        shape = (*shape[:across], own.shape[across], *shape[across:])
        spacing = (*spacing[:across], own.spacing[across], *spacing[across:])
    return centred(own, shape, spacing, forward_axes(own))


def batched(array: Shaped[ndarray, "*s"], across: int | None) -> Shaped[Tensor, "b 1 *t"]:
    """The image as a batch of one, or the slices of a stack as a batch."""
    images = array[None] if across is None else np.moveaxis(array, across, 0)
    return torch.from_numpy(np.ascontiguousarray(images))[:, None]
