"""Arrays as short-axis slices: (x, y, z) with slices across z, cut to the part around the heart."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.evaluation.metrics import slice_axis

Box = tuple[slice, slice]
MARGIN_VOXELS = 12
"""Around the wall: what lies farther away has no influence on a cubic spline, to seven digits."""


@dataclass(frozen=True)
class SliceAxes:
    """Which axes of an array lie within slices and, last, which across; a 2D array has two, and is one slice."""

    order: tuple[int, ...]
    spacing: tuple[float, ...]  # in mm, along the axes of the array

    @classmethod
    def of(cls, shape: tuple[int, ...], spacing: tuple[float, ...], across: int | None) -> "SliceAxes":
        """Slices across this axis, or across that of widest spacing if none is given."""
        if len(shape) not in (2, 3) or len(spacing) != len(shape):
            raise BadInput(f"slices have 2 or 3 axes with a spacing each, not the shape {shape} and spacing {spacing}")
        if len(shape) == 2:
            return cls((0, 1), spacing)
        last = slice_axis(shape, spacing) if across is None else across
        return cls((*(axis for axis in range(3) if axis != last), last), spacing)

    @property
    def within(self) -> tuple[float, float]:
        """The spacing within slices, in mm."""
        return self.spacing[self.order[0]], self.spacing[self.order[1]]

    def stack(self, labels: Shaped[ndarray, "*s"]) -> Shaped[ndarray, "x y z"]:
        """A map as a stack of slices."""
        turned = labels.transpose(self.order)
        return turned if turned.ndim == 3 else turned[..., None]

    def motion_mm(self, fields: Float[ndarray, "t d *s"], box: Box) -> Float[ndarray, "t d x y z"]:
        """Displacements in voxels as those of a stack in mm, first within and then across slices, cut to a box."""
        components = (
            self.spacing[axis] * fields[:, axis].transpose(0, *(1 + i for i in self.order)) for axis in self.order
        )
        turned = [component if component.ndim == 4 else component[..., None] for component in components]
        return np.stack([component[:, *box] for component in turned], 1)


def box_around(wall: Bool[ndarray, "x y z"]) -> Box:
    """The part of slices that the strain of a wall depends on; everything if there is none."""
    if not wall.any():
        return slice(None), slice(None)
    sides = (np.flatnonzero(wall.any(others)) for others in ((1, 2), (0, 2)))
    x, y = (slice(max(int(side[0]) - MARGIN_VOXELS, 0), int(side[-1]) + MARGIN_VOXELS + 1) for side in sides)
    return x, y
