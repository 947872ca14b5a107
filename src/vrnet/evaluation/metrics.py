"""Likeness of images, overlap of label maps (*s), errors in mm, regularity of fields; NaN if unknown."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Real
from numpy import ndarray
from torch import Tensor

from vrnet.data.labels import fill_holes
from vrnet.fields.calculus import determinant, jacobian
from vrnet.fields.folds import smallest_determinant

T = TypeVar("T")
Mask = Bool[ndarray, "*s"]
LabelMap = Integer[ndarray, "*s"]

# d(x, B) = min |x − y| over y ∈ B: how far the surface of one mask lies from that of another, in mm. A mask is a
# boolean array (*s), spacing the size of a voxel in mm along each axis, and a surface a set of voxel centres.


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
        """max(P95 d(x, B), P95 d(y, A)), in mm, interpolated linearly: not the percentile of both sets together."""
        return float(max(np.percentile(self.to_b, 95), np.percentile(self.to_a, 95)))

    @property
    def mean(self) -> float:
        """(Σ d(x, B) + Σ d(y, A)) / (|A| + |B|), in mm: each voxel of both surfaces counts once."""
        return float(np.concatenate(self).mean())


def surface(mask: Mask, axes: Iterable[int]) -> Mask:
    """The voxels of a mask with a neighbour along one of the axes outside it; beyond the image all is outside. An axis
    of length 1 has no neighbours: a slice stored as a volume has the contour of the slice."""
    edge = np.zeros_like(mask)
    for axis in axes:
        if mask.shape[axis] > 1:
            steps = np.moveaxis(np.diff(mask, axis=axis, prepend=False, append=False), axis, 0)
            np.moveaxis(edge, axis, 0)[...] |= steps[:-1] | steps[1:]
    return edge & mask


def nearest_distances(a: Mask, b: Mask, spacing: tuple[float, ...]) -> SurfaceDistances:
    """Distances of the voxels of each mask to the nearest of the other, in mm."""
    A, B = (np.argwhere(mask) * np.asarray(spacing, float) for mask in (a, b))
    if not (len(A) and len(B)):
        return SurfaceDistances(np.array([np.nan]), np.array([np.nan]))
    from scipy.spatial import cKDTree

    # On points of a grid, splitting cells in the middle builds sooner than medians do and searches as fast.
    trees = [cKDTree(X, balanced_tree=False, compact_nodes=False) for X in (A, B)]
    return SurfaceDistances(to_b=trees[1].query(A)[0], to_a=trees[0].query(B)[0])


def surface_distances(a: Mask, b: Mask, spacing: tuple[float, ...]) -> SurfaceDistances:
    return nearest_distances(surface(a, range(a.ndim)), surface(b, range(b.ndim)), spacing)


def mean_absolute_error(a: Real[ndarray, "*s"], b: Real[ndarray, "*s"]) -> float:
    return float(np.abs(a.astype(float) - b.astype(float)).mean())


def normalised_cross_correlation(a: Real[ndarray, "*s"], b: Real[ndarray, "*s"]) -> float:
    """Σ (a − ā)(b − b̄) / √(Σ (a − ā)² Σ (b − b̄)²) over the whole image, in [−1, 1]; NaN if either is constant."""
    if a.min() == a.max() or b.min() == b.max():  # the mean of equal numbers is rounded, so a − ā may miss 0
        return np.nan
    x, y = (image.ravel() - image.mean(dtype=float) for image in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def dice(a: Mask, b: Mask) -> float:
    """2|A ∩ B| / (|A| + |B|): 0 if one of them is empty, NaN if both are."""
    total = int(a.sum()) + int(b.sum())
    return 2 * int((a & b).sum()) / total if total else np.nan


def dice_by_slice(a: LabelMap, b: LabelMap, labels: list[int], across: int) -> Float[ndarray, "l n"]:
    """The Dice of each label in each slice across an axis; NaN where neither map has the label in the slice."""
    slices = [*zip(*(np.moveaxis(map_, across, 0) for map_ in (a, b)), strict=True)]
    found = [dice(x == label, y == label) for label in labels for x, y in slices]
    return np.reshape(found, (len(labels), len(slices)))


def contour_hausdorff(a: Mask, b: Mask, spacing: tuple[float, ...], across: int | None = None) -> float:
    """The paper's Hausdorff distance, in mm: max over both outer contours of the distance to the other. Of a volume,
    the mean over the slices across one axis (`widest_axis` if none is given) that show both; NaN if none does."""
    if a.ndim == 2:
        return contour_hausdorff(a[None], b[None], (1.0, *spacing), 0)
    across = widest_axis(a.shape, spacing) if across is None else across
    within = tuple(h for i, h in enumerate(spacing) if i != across)
    contours = [surface(fill_holes(np.moveaxis(mask, across, 0)), (1, 2)) for mask in (a, b)]
    pairs = [(x, y) for x, y in zip(*contours, strict=True) if x.any() and y.any()]
    found = [nearest_distances(x, y, within).hausdorff for x, y in pairs]
    return float(np.mean(found)) if found else np.nan


def widest_axis(shape: tuple[int, ...], spacing: tuple[float, ...]) -> int:
    """The axis across the slices of a volume: one of length 1, or else the last of those with the widest spacing."""
    return max(range(len(shape)), key=lambda i: (shape[i] == 1, spacing[i], i))


def by_label(measure: Callable[[ndarray, ndarray], T], a: LabelMap, b: LabelMap, labels: Iterable[int]) -> dict[str, T]:
    """{label: measure(mask in a, mask in b)}, labels as text, of masks that are cut to a box around the label."""
    found = {}
    for label in labels:  # one voxel larger on each side: an axis has length 1 only if it has in the image, a slice
        places = np.argwhere((a == label) | (b == label))
        ends = zip(places.min(0), places.max(0), strict=True) if len(places) else ()
        box = tuple(slice(max(low - 1, 0), high + 2) for low, high in ends)
        found[str(label)] = measure(a[box] == label, b[box] == label)
    return found


def nan_mean(values: Iterable[float]) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    found = np.fromiter(values, float)
    return np.nan if np.isnan(found).all() else float(np.nanmean(found))


def folding_strict_percent(u: Float[Tensor, "b d *s"]) -> float:
    """Percentage of voxels where any of the determinants of `folds.py` is ≤ 0: of 4 in 2D, of 10 in 3D."""
    return 100 * (smallest_determinant(u) <= 0).double().mean().item()


def batch_regularity(u: Float[Tensor, "b d *s"]) -> dict[str, float]:
    """Folds and smoothness of a batch of fields in voxels: the percentage of voxels with det(I + ∇u) < 0 by central
    differences, as published, which misses narrow folds; the strict one; and |∇J|, the mean absolute component of the
    gradient of this determinant, along the axes that have more than one voxel."""
    det = determinant(jacobian(u))
    slopes = torch.gradient(det, dim=[1 + axis for axis, n in enumerate(det.shape[1:]) if n > 1])
    folding, strict = 100 * (det < 0).double().mean().item(), folding_strict_percent(u)
    smoothness = {"jacobian_gradient": torch.stack(slopes).abs().mean().item()}
    return {"folding_percent": folding, "folding_strict_percent": strict} | smoothness
