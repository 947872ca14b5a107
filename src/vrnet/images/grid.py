"""Where voxels are in the world: x_world = origin + direction · diag(spacing) · index, in LPS millimetres."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

MATCH_TOLERANCE_VOXELS = 0.01
SPACING_TOLERANCE = 1e-3
"""Relative: spacings that differ by less are equal, since files keep them in single precision."""
LATTICE_POINTS_PER_AXIS = 9
"""How many voxels along each axis are tried, to see whether a grid reaches into another."""
TIE = 1e-4
"""How much better one of two choices must be; below, as on a grid turned by 45 degrees, a fixed rule chooses, and not
the rounding of a header."""
TILT = TIE * np.array([[0.0, -3.0, 2.0], [3.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
"""An infinitesimal turn of the world's axes, about no axis of symmetry: of two orders as good, it makes one better."""
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
    def is_placed(self) -> bool:
        """Whether the header says how the image lies. One that does not has no turn, its axes being those of the world,
        of LPS or, in a NIfTI file, of RAS; and its first voxel is at the origin, or, as where voxels are counted from
        1, a voxel from it along every axis."""
        to_ras = np.array([-1.0, -1.0, 1.0])[: len(self.shape)]
        is_turned = not any(np.allclose(self.axes, np.diag(signs)) for signs in (abs(to_ras), to_ras))
        steps = np.abs(np.divide(self.origin, self.spacing))
        return is_turned or not any(np.allclose(steps, first, atol=1e-3) for first in (0, 1))

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
        """The axes that run against the axis of the world that they are closest to; of several, the first."""
        d = len(self.shape)
        closest = (np.abs(self.axes) - TIE * np.arange(d)[:, None]).argmax(0)
        return tuple(i for i, w in enumerate(closest) if self.axes[w, i] < 0)

    @property
    def forward_axes(self) -> Float[ndarray, "d d"]:
        """The axes, each turned to run as the axis of the world does that it is closest to."""
        axes = self.axes.copy()
        axes[:, list(self.backward)] *= -1
        return axes

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order of the world's: axis order[i] runs along the world's axis i, as nearly as all can.

        Each goes with another axis of the world, so that the sum of |cosines| between them is greatest. Neither the
        order in which the axes are stored nor the way they run has a part in it."""
        d, axes = len(self.shape), self.forward_axes

        def agreement(order: Sequence[int]) -> float:
            turned = axes[:, order]
            return float(np.abs(turned.diagonal()).sum() + (TILT[:d, :d] * turned).sum())

        return max(permutations(range(d)), key=agreement)

    def reordered(self, order: Sequence[int]) -> "Grid":
        """The same voxels, with axis order[i] as axis i: where the array is transposed so. Nothing is rounded."""
        shape, spacing = tuple(self.shape[axis] for axis in order), tuple(self.spacing[axis] for axis in order)
        return Grid(shape, spacing, self.origin, tuple(self.axes[:, order].ravel().tolist()))

    def flipped(self, axes: Sequence[int]) -> "Grid":
        """The same voxels, counted from the other end along these axes: where the array is flipped so."""
        corner = np.array([[n - 1.0 if axis in axes else 0.0 for axis, n in enumerate(self.shape)]])
        signs = [-1.0 if axis in axes else 1.0 for axis in range(len(self.shape))]
        directions = tuple((self.axes * signs).ravel().tolist())
        return Grid(self.shape, self.spacing, tuple(self.points(corner)[0].tolist()), directions)

    def points(self, index: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Positions in the world, in LPS millimetres, of (fractional) indices."""
        return index @ self.to_world.T + self.origin

    def voxels(self) -> Float[ndarray, "n d"]:
        """Positions in the world, in LPS millimetres, of all voxels; the last axis runs fastest."""
        return self.points(np.indices(self.shape).reshape(len(self.shape), -1).T.astype(np.float64))

    def index(self, points: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """The (fractional) indices of positions in the world, in LPS millimetres."""
        return (points - self.origin) @ np.linalg.inv(self.to_world).T

    @property
    def centre(self) -> Float[ndarray, " d"]:
        """The place in the world that lies midway between the first voxel and the last."""
        return self.points((np.array([self.shape]) - 1) / 2)[0]

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
        return bool(other.holds(self.points(self.lattice())).any())

    def holds(self, points: Float[ndarray, "n d"]) -> Bool[ndarray, " n"]:
        """Which positions in the world, in LPS millimetres, lie in a voxel."""
        index = self.index(points)
        return np.asarray(((index > -0.5) & (index < np.array(self.shape) - 0.5)).all(1))

    @property
    def across(self) -> int:
        """The axis that slices lie across: one with a single voxel; else that of widest spacing; of several, the one
        closest to head-foot; of several, the first of the world's order."""
        order = self.order

        def rank(i: int) -> tuple[bool, bool, float]:
            is_widest = bool(self.spacing[i] > (1 - SPACING_TOLERANCE) * max(self.spacing))
            return self.shape[i] == 1, is_widest, abs(float(self.axes[-1, i])) - TIE * order.index(i)

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
