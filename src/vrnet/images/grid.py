"""Where voxels are in the world: x_world = origin + direction · diag(spacing) · index, in LPS millimetres."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float
from numpy import ndarray

MATCH_TOLERANCE_VOXELS = 0.01
SPACING_TOLERANCE = 1e-3
"""Relative: spacings that differ by less are equal, since files keep them in single precision."""
LATTICE_POINTS_PER_AXIS = 9
"""How many voxels along each axis are tried, to see whether a grid reaches into another."""
STACK_SPACING_RATIO = 2.5
"""From here on, slices this many times as far apart as the voxels within them are a stack, not a volume."""


@dataclass(frozen=True)
class Grid:
    """The voxels of an image: axis i of its array is axis i of the grid. Direction is row-major, as ITK writes it."""

    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    direction: tuple[float, ...]

    @classmethod
    def plain(cls, shape: tuple[int, ...], spacing: tuple[float, ...]) -> "Grid":
        """The grid whose axes are the world's, with its first voxel at the world's origin."""
        d = len(shape)
        return cls(shape, spacing, (0.0,) * d, tuple(np.eye(d).ravel().tolist()))

    @property
    def axes(self) -> Float[ndarray, "d d"]:
        """Column i is the unit vector, in the world, along which axis i runs."""
        d = len(self.shape)
        return np.reshape(self.direction, (d, d))

    @property
    def to_world(self) -> Float[ndarray, "d d"]:
        """The matrix that takes a displacement in voxels to one in millimetres."""
        return np.multiply(self.axes, self.spacing)

    @property
    def backward(self) -> tuple[int, ...]:
        """The axes that run against the axis of the world that they are closest to."""
        closest = np.abs(self.axes).argmax(0)
        return tuple(i for i, w in enumerate(closest) if self.axes[w, i] < 0)

    def points(self, index: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Positions in the world, in LPS millimetres, of (fractional) indices."""
        return index @ self.to_world.T + self.origin

    def index(self, points: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """The (fractional) indices of positions in the world, in LPS millimetres."""
        return (points - self.origin) @ np.linalg.inv(self.to_world).T

    def matches(self, other: "Grid") -> bool:
        """Whether both grids have the same voxels: every corner within a hundredth of a voxel."""
        if self.shape != other.shape:
            return False
        corners = np.array(list(product(*((0.0, n - 1.0) for n in self.shape))))
        return bool(np.abs(other.index(self.points(corners)) - corners).max() < MATCH_TOLERANCE_VOXELS)

    def overlaps(self, other: "Grid") -> bool:
        """Whether either grid has a voxel, out of a lattice of them, inside the other."""
        return self.has_voxel_inside(other) or other.has_voxel_inside(self)

    def lattice(self) -> Float[ndarray, "n d"]:
        """Indices of a few voxels along each axis, from the first to the last."""
        return np.array(list(product(*(np.linspace(0, n - 1, LATTICE_POINTS_PER_AXIS) for n in self.shape))))

    def has_voxel_inside(self, other: "Grid") -> bool:
        """Whether a voxel of a lattice over this grid lies inside the other."""
        index = other.index(self.points(self.lattice()))
        return bool(((index > -0.5) & (index < np.array(other.shape) - 0.5)).all(1).any())

    @property
    def across(self) -> int:
        """The axis that slices lie across: one with a single voxel; else that of widest spacing; of several, the one
        closest to head-foot."""

        def rank(i: int) -> tuple[bool, bool, float]:
            is_widest = bool(self.spacing[i] > (1 - SPACING_TOLERANCE) * max(self.spacing))
            return self.shape[i] == 1, is_widest, abs(float(self.axes[-1, i]))

        return max(range(len(self.shape)), key=rank)

    @property
    def stacked_across(self) -> int | None:
        """The axis across which slices lie that make no volume: a single slice, or slices at least two and a half times
        as far apart as the voxels within them; None for a volume and for a 2D image."""
        if len(self.shape) == 2:
            return None
        within = max(h for axis, h in enumerate(self.spacing) if axis != self.across)
        is_thick = (
            self.spacing[self.across] > (1 - SPACING_TOLERANCE) * STACK_SPACING_RATIO * within
            or self.shape[self.across] == 1
        )
        return self.across if is_thick else None
