"""The grid that the inverse of a transform needs, and how exact it is: where points end that go there and back."""

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.affine import Affine
from vrnet.images.grid import Grid
from vrnet.images.itk_transforms import map_points
from vrnet.images.transform import Transform, sample_transform

if TYPE_CHECKING:
    import SimpleITK as sitk

POINTS, SEED = 10_000, 0
MAX_GROWTH = 8.0
"""A grid that is found may have so many times the voxels of the transform; it is large where a few lead far away."""


class RoundTrip(NamedTuple):
    """How far points that move by more than a threshold end from where they were, in millimetres."""

    threshold: float
    error: Float[ndarray, " n"]
    """Of those that lead into the grid of the inverse."""
    outside: float
    """The part of them that do not."""


def grid_of_range(there: Transform) -> Grid:
    """A grid that holds every place that a transform leads to: its own, turned and shifted by a large affine part, and
    grown by as many voxels as it takes. BadInput if that would be far too many."""
    affine = there.affine_part()
    frame = turned(affine, there.grid) if affine else there.grid
    index = frame.index(there.ends())
    low = np.minimum(np.floor(index.min(0) + 0.5), 0)
    high = np.maximum(np.ceil(index.max(0) - 0.5), np.array(frame.shape) - 1)
    shape, origin = high - low + 1, frame.points(low[None])[0]
    if shape.prod() > MAX_GROWTH * np.prod(frame.shape):
        raise BadInput("the transform leads to places that lie far apart: give the grid of moving (`reference`)")
    return Grid(tuple(map(int, shape)), frame.spacing, tuple(origin.tolist()), frame.direction)


def turned(affine: Affine, grid: Grid) -> Grid:
    """A grid as it lies in moving, with its axes kept at right angles where the map shears."""
    there, axes = affine.image_of(grid), affine.rotation @ grid.axes
    return Grid(there.shape, there.spacing, there.origin, tuple(axes.ravel().tolist()))


def sampled_before(transform: "sitk.Transform", moving: Grid) -> Transform:
    """A SimpleITK transform that has no grid, at the voxels from which its linear parts lead to a grid of moving."""
    return sample_transform(transform, turned(linear_part(transform).inverse(), moving))


def linear_part(transform: "sitk.Transform") -> Affine:
    """What is left of a transform, which may be made of several, without its fields and splines."""
    import SimpleITK as sitk

    if transform.GetTransformEnum() == sitk.sitkComposite:
        chain = sitk.CompositeTransform(transform)
        parts = [linear_part(chain.GetNthTransform(k)) for k in range(chain.GetNumberOfTransforms())]
        return reduce(Affine.compose, parts)
    is_linear = transform.IsLinear()
    return Affine.from_sitk(transform if is_linear else sitk.Transform(transform.GetDimension(), sitk.sitkIdentity))


def round_trip(there: Transform, back: Transform) -> RoundTrip:
    """|back(there(x)) − x| at random points x of the region that moves.

    They lie between voxels, where an inverse is least exact, and move by more than the shortest edge of a voxel; or, if
    nothing does, by more than half of the longest motion."""
    length, random = np.linalg.norm(there.displacement, axis=0), np.random.default_rng(SEED)
    threshold = min(*there.grid.spacing, float(length.max()) / 2)
    region = np.argwhere(length > threshold) if threshold > 0 else np.argwhere(length == 0)
    voxels = region[random.integers(len(region), size=POINTS)]
    index = voxels + random.uniform(-0.5, 0.5, voxels.shape)
    x = there.grid.points(np.clip(index, 0, np.array(there.grid.shape) - 1))
    y = there.points(x)
    inside = back.grid.holds(y)
    error = np.linalg.norm(back.points(y[inside]) - x[inside], axis=1)
    return RoundTrip(threshold, error, float(1 - inside.mean()))


def linear_error(there: "sitk.Transform", back: "sitk.Transform") -> float:
    """The greatest |back(there(x)) − x|, in millimetres, at random points within half a metre of the origin."""
    d = there.GetDimension()
    x = np.random.default_rng(SEED).uniform(-500.0, 500.0, (100, d))
    return float(np.linalg.norm(map_points(back, map_points(there, x)) - x, axis=1).max())
