"""Where voxels are in the world: x_world = origin + direction · diag(spacing) · index, in LPS millimetres."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool, Float
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.files import unreadable

MATCH_TOLERANCE_VOXELS = 0.01
SPACING_TOLERANCE = 1e-3  # relative: spacings that differ by less are equal, since files keep them in single precision
TIE = 1e-4  # how much better one choice must be than another; below, a fixed rule chooses, not the rounding of a header
# An infinitesimal turn of the world's axes, about no axis of symmetry: of two orders as good, it makes one better.
TILT = TIE * np.array([[0.0, -3.0, 2.0], [3.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
STACK_SPACING_RATIO = 2.5  # from here on, slices so many times as far apart as the voxels within them are a stack

SHEARED = "its header's axes are sheared or coincide"
BAD_SPACING = "its header has a spacing that is not positive"
MIN_SPACING_MM, MAX_SPACING_MM = 1e-6, 1e6
MAX_ORIGIN_MM = 1e9
ORTHONORMAL_TOLERANCE = 1e-3


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
        return cls.of(shape, spacing, np.zeros(len(shape)), np.eye(len(shape)))

    @classmethod
    def of(cls, shape: Iterable[Any], spacing: Iterable[Any], origin: Iterable[Any], axes: ndarray) -> "Grid":
        """The grid of these numbers, of any type; column i of `axes` is the direction of axis i."""
        h, start = (tuple(map(float, part)) for part in (spacing, origin))
        return cls(tuple(map(int, shape)), h, start, tuple(axes.ravel().tolist()))

    @property
    def is_placed(self) -> bool:
        """Whether the header says how the image lies. One that does not has the axes of the world, of LPS or RAS, and
        its first voxel at the origin or, as where voxels are counted from 1, a voxel from it along every axis."""
        to_ras, steps = np.array([-1.0, -1.0, 1.0])[: len(self.shape)], np.abs(np.divide(self.origin, self.spacing))
        is_turned = not any(np.allclose(self.axes, np.diag(signs)) for signs in (abs(to_ras), to_ras))
        return is_turned or not any(np.allclose(steps, first, atol=1e-3) for first in (0, 1))

    @property
    def axes(self) -> Float[ndarray, "d d"]:
        """Column i is the unit vector, in the world, along which axis i runs."""
        return np.reshape(self.direction, (len(self.shape), -1))

    @property
    def is_mirrored(self) -> bool:
        """Whether the axes of the array are left-handed in the world."""
        return bool(np.linalg.det(self.axes) < 0)

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
        """The axes in the world's order: order[i] runs along its axis i, so that the sum of |cosines| is greatest."""
        d, axes = len(self.shape), self.forward_axes

        def agreement(order: Sequence[int]) -> float:
            turned = axes[:, order]
            return float(np.abs(turned.diagonal()).sum() + (TILT[:d, :d] * turned).sum())

        return max(permutations(range(d)), key=agreement)

    def reordered(self, order: Sequence[int]) -> "Grid":
        """The same voxels, with axis order[i] as axis i: where the array is transposed so. Nothing is rounded."""
        return Grid.of(np.take(self.shape, order), np.take(self.spacing, order), self.origin, self.axes[:, order])

    def flipped(self, axes: Sequence[int]) -> "Grid":
        """The same voxels, counted from the other end along these axes: where the array is flipped so."""
        is_flipped = np.isin(np.arange(len(self.shape)), axes)
        corner = np.where(is_flipped, np.subtract(self.shape, 1.0), 0.0)[None]
        return Grid.of(self.shape, self.spacing, self.points(corner)[0], self.axes * np.where(is_flipped, -1.0, 1.0))

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
        corners = self.lattice(2)
        apart = other.index(self.points(corners)) - corners if self.shape == other.shape else np.inf
        return bool(np.abs(apart).max() < MATCH_TOLERANCE_VOXELS)

    def overlaps(self, other: "Grid") -> bool:
        """Whether either grid has a voxel, out of a lattice of them, inside the other."""
        return any(b.holds(a.points(a.lattice())).any() for a, b in ((self, other), (other, self)))

    def lattice(self, count: int = 9) -> Float[ndarray, "n d"]:
        """Indices of a few voxels along each axis, from the first to the last; of two, the corners."""
        return np.array(list(product(*(np.linspace(0, n - 1, count) for n in self.shape))))

    def holds(self, points: Float[ndarray, "n d"]) -> Bool[ndarray, " n"]:
        """Which positions in the world, in LPS millimetres, lie in a voxel."""
        index = self.index(points)
        return np.asarray(((index > -0.5) & (index < np.array(self.shape) - 0.5)).all(1))

    @property
    def across(self) -> int:
        """The axis across slices: of one voxel, else of widest spacing, closest to head-foot, first of `order`."""
        order = self.order

        def rank(i: int) -> tuple[bool, bool, float]:
            is_widest = bool(self.spacing[i] > (1 - SPACING_TOLERANCE) * max(self.spacing))
            return self.shape[i] == 1, is_widest, abs(float(self.axes[-1, i])) - TIE * order.index(i)

        return max(range(len(self.shape)), key=rank)

    @property
    def stacked_across(self) -> int | None:
        """The axis across which slices lie that make no volume, one or far apart; None for a volume or a 2D image."""
        if len(self.shape) == 2:
            return None
        across = self.across
        within = max(h for axis, h in enumerate(self.spacing) if axis != across)
        is_thick = self.spacing[across] > (1 - SPACING_TOLERANCE) * STACK_SPACING_RATIO * within
        return across if is_thick or self.shape[across] == 1 else None

    @property
    def is_volume(self) -> bool:
        """Whether slices lie so close together that they make a volume."""
        return len(self.shape) == 3 and self.stacked_across is None


def checked_grid(grid: Grid, path: Path) -> Grid:
    """The grid; BadInput unless its voxels lie at different, finite places along orthogonal axes."""
    low, high = min(grid.spacing[:3]), max(grid.spacing[:3])
    if not all(h > 0 for h in grid.spacing[:3]):
        raise unreadable(path, BAD_SPACING)
    if low < MIN_SPACING_MM or high > MAX_SPACING_MM:
        raise unreadable(path, f"its spacing is {low:.3g} to {high:.3g} mm; check its header")
    if not (np.abs(grid.origin) <= MAX_ORIGIN_MM).all() or not np.isfinite(grid.spacing).all():
        raise unreadable(path, "its header puts it at no finite place; check its origin")
    is_small = np.abs(grid.direction).max() < 2  # not where it is NaN; a product of large numbers could overflow
    if not is_small or not np.allclose(grid.axes.T @ grid.axes, np.eye(len(grid.shape)), atol=ORTHONORMAL_TOLERANCE):
        raise unreadable(path, SHEARED)
    return grid


def check_same_grid(name: str, own: Grid, image: str, grid: Grid, others: dict[str, Grid] | None = None) -> None:
    """BadInput unless what is called `name` has the voxels of an image; if it has those of another, that is named."""
    if own.matches(grid):
        return

    def text(grid: Grid) -> str:
        size, spacing = " x ".join(map(str, grid.shape)), " x ".join(f"{h:.4g}" for h in grid.spacing)
        return f"{size} voxels of {spacing} mm at {', '.join(f'{x:.4g}' for x in grid.origin)}"

    sizes = f"it has {text(own)}, and that grid has {text(grid)}"
    if text(own) == text(grid):
        gap = np.linalg.norm(own.points(own.lattice(2)) - grid.points(own.lattice(2)), axis=1).max()
        sizes = f"both have {text(own)}, but turned or placed otherwise, up to {gap:.3g} mm apart"
    advice = "give the one that was drawn on this image, or resample it to that grid, to the nearest voxel"
    if fitting := next((other for other, each in (others or {}).items() if own.matches(each)), None):
        advice = f"it lies on that of {fitting}: give each to its own image"
    elif own.shape == grid.shape:
        advice = f"if its header alone is wrong, give it that of the image; else {advice}"
    raise BadInput(f"{name} is not on the grid of {image}: {sizes}; {advice}")


# Affine maps of the world: x ↦ M (x − c) + c + t, from a point of fixed to one of moving, in LPS millimetres.

AffineKind = Literal["rigid", "affine"]  # a rotation and a shift; or scaling and shear, too
LARGEST_CONDITION = 1e6  # how much more a map may stretch one direction than another


@dataclass(frozen=True, repr=False, eq=False)
class Affine:
    """x ↦ matrix (x − centre) + centre + translation, about the centre of fixed."""

    kind: AffineKind
    matrix: Float[ndarray, "d d"]
    translation: Float[ndarray, " d"]
    centre: Float[ndarray, " d"]

    def __repr__(self) -> str:
        said = "Affine({kind}: {rotation_deg:.3g}°, {translation_mm:.3g} mm, scale {scale:.3g})"
        return said.format(**self.summary())

    def checked(self, d: int) -> "Affine":
        """The map itself; BadInput unless it maps images of d dimensions, and neither mirrors nor flattens them."""
        parts = self.matrix, self.translation, self.centre
        if [np.shape(part) for part in parts] != [(d, d), (d,), (d,)]:
            raise BadInput(f"the affine map is {len(self.centre)}D and the images are {d}D: give one of their kind")
        if not all(np.isfinite(part).all() for part in parts):
            raise BadInput("the affine map has NaN or infinite numbers: give one that was found")
        if np.linalg.cond(self.matrix) > LARGEST_CONDITION:
            raise BadInput("the affine map takes space onto a plane or a line, or nearly so: give one with an inverse")
        if np.linalg.det(self.matrix) < 0:
            raise BadInput("the affine map mirrors, by its determinant: give one that does not, and moving flipped")
        return self

    @classmethod
    def from_sitk(cls, transform: sitk.Transform) -> "Affine":
        """A linear transform of SimpleITK of any kind, about the origin; it is rigid if it keeps all distances."""
        d = transform.GetDimension()
        zero, *ends = (np.array(transform.TransformPoint(point.tolist())) for point in np.eye(d + 1, d, -1))
        matrix = (np.array(ends) - zero).T
        is_rigid = np.allclose(matrix.T @ matrix, np.eye(d), atol=1e-9) and np.linalg.det(matrix) > 0
        return cls("rigid" if is_rigid else "affine", matrix, zero, np.zeros(d))

    def points(self, x: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Where points of fixed are in moving."""
        return (x - self.centre) @ self.matrix.T + self.centre + self.translation

    def compose(self, first: "Affine") -> "Affine":
        """x ↦ self(first(x)), of the kind and about the centre of `first`."""
        moved = self.points((first.centre + first.translation)[None])[0]
        return Affine(first.kind, self.matrix @ first.matrix, moved - first.centre, first.centre)

    def about(self, centre: Float[ndarray, " d"]) -> "Affine":
        """The same map, written about another centre."""
        if np.array_equal(centre, self.centre):
            return self
        return replace(self, translation=self.points(centre[None])[0] - centre, centre=centre)

    def inverse(self) -> "Affine":
        """From a point of moving to one of fixed, about the same centre."""
        matrix = np.linalg.inv(self.matrix)
        return Affine(self.kind, matrix, -matrix @ self.translation, self.centre)

    def image_of(self, grid: Grid) -> Grid:
        """A grid as it lies in moving; where the map shears, its axes are not at right angles there."""
        steps = self.matrix @ grid.to_world
        lengths = np.linalg.norm(steps, axis=0)
        return Grid.of(grid.shape, lengths, self.points(np.array([grid.origin]))[0], steps / lengths)

    @cached_property
    def itk(self) -> sitk.Transform:
        """The map as an object of SimpleITK."""
        parts = self.matrix.ravel(), self.translation, self.centre
        return sitk.AffineTransform(*(part.tolist() for part in parts))

    def to_sitk(self) -> sitk.Transform:
        """The map as an object of SimpleITK: `itk`, named as that of images is."""
        return self.itk

    @property
    def rotation(self) -> Float[ndarray, "d d"]:
        """R in M = R S, where R is orthogonal and S symmetric and positive."""
        U, _, V = np.linalg.svd(self.matrix)
        return U @ V

    def summary(self) -> dict[str, Any]:
        """For metrics.json: the angle of R, how far the centre of fixed moves, and the d-th root of det M."""
        R = self.rotation
        sine, cosine = np.linalg.norm(R - R.T) / 8**0.5, (np.trace(R) - (len(R) - 2)) / 2
        angle, shift = float(np.degrees(np.arctan2(sine, cosine))), float(np.linalg.norm(self.translation))
        scale = float(np.linalg.det(self.matrix) ** (1 / len(self.centre)))
        return {"kind": self.kind, "rotation_deg": angle, "translation_mm": shift, "scale": scale}
