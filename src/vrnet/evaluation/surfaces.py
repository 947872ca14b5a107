"""d(x, B) = min |x − y| over y ∈ B: how far the surface of one mask lies from that of another, in mm.

Masks are boolean arrays of shape (*s), spacing is the size of a voxel in mm along each axis, and a surface is a set of
voxel centres.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vrnet.images.enclosed import fill_holes


class SurfaceDistances(NamedTuple):
    """d(x, B) of each x ∈ A and d(y, A) of each y ∈ B, in mm; one NaN each if either surface is empty."""

    to_b: Float[ndarray, " n"]
    to_a: Float[ndarray, " m"]

    @property
    def hausdorff(self) -> float:
        """max(max d(x, B), max d(y, A)), in mm."""
        return float(max(self.to_b.max(), self.to_a.max()))

    @property
    def hausdorff95(self) -> float:
        """max(P95 d(x, B), P95 d(y, A)), in mm: the larger of the two directed 95th percentiles, not the percentile of
        both sets together. A percentile that falls between two distances is interpolated linearly."""
        return float(max(np.percentile(self.to_b, 95), np.percentile(self.to_a, 95)))

    @property
    def mean(self) -> float:
        """(Σ d(x, B) + Σ d(y, A)) / (|A| + |B|), in mm: the average symmetric surface distance. Each voxel counts once,
        so that the larger surface weighs more than it does in the mean of the two directed means."""
        return float(np.concatenate(self).mean())


def surface(mask: Bool[ndarray, "*s"], axes: Iterable[int]) -> Bool[ndarray, "*s"]:
    """The voxels of a mask with a neighbour along one of the axes outside it; beyond the image all is outside.

    An axis of length 1 has no neighbours: a slice stored as a volume has the contour of the slice."""
    edge = np.zeros_like(mask)
    for axis in axes:
        if mask.shape[axis] > 1:
            steps = np.moveaxis(np.diff(mask, axis=axis, prepend=False, append=False), axis, 0)
            np.moveaxis(edge, axis, 0)[...] |= steps[:-1] | steps[1:]
    return edge & mask


def voxel_positions(mask: Bool[ndarray, "*s"], spacing: tuple[float, ...]) -> Float[ndarray, "n d"]:
    """Positions of a mask's voxels, in mm from the first voxel of the image."""
    return np.argwhere(mask) * np.asarray(spacing, float)


def nearest_distances(A: Float[ndarray, "n d"], B: Float[ndarray, "m d"]) -> SurfaceDistances:
    """Distances of the points of each set to the nearest of the other, in their unit."""
    if not (len(A) and len(B)):
        return SurfaceDistances(np.array([np.nan]), np.array([np.nan]))
    from scipy.spatial import cKDTree

    # On points of a grid, splitting cells in the middle builds sooner than medians do and searches as fast.
    trees = [cKDTree(X, balanced_tree=False, compact_nodes=False) for X in (A, B)]
    return SurfaceDistances(to_b=trees[1].query(A)[0], to_a=trees[0].query(B)[0])


def surface_distances(a: Bool[ndarray, "*s"], b: Bool[ndarray, "*s"], spacing: tuple[float, ...]) -> SurfaceDistances:
    """Distances between the surfaces of two masks, in mm."""
    A, B = (voxel_positions(surface(mask, range(mask.ndim)), spacing) for mask in (a, b))
    return nearest_distances(A, B)


def outer_contours(slices: Bool[ndarray, "n h w"]) -> Bool[ndarray, "n h w"]:
    """The surface of each 2D mask whose holes are filled."""
    return surface(fill_holes(slices), (1, 2))
