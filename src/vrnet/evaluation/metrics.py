"""Overlap and distance of label maps, and regularity of fields.

Label maps are integer arrays of shape (*s); distances are in millimetres. A structure that is absent gives NaN.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from numpy import ndarray
from torch import Tensor

from vrnet.fields import determinant, jacobian, stencil_determinants


def dice(a: Bool[ndarray, "*s"], b: Bool[ndarray, "*s"]) -> float:
    """2|A ∩ B| / (|A| + |B|); NaN if both are empty."""
    total = int(a.sum()) + int(b.sum())
    return 2 * int((a & b).sum()) / total if total else np.nan


def outer_contour(mask: Bool[ndarray, "h w"], spacing: tuple[float, ...]) -> Float[ndarray, "n 2"]:
    """Positions, in mm, of the voxels of a filled 2D mask that have a side neighbour outside it."""
    from scipy import ndimage

    filled = ndimage.binary_fill_holes(mask)
    edge = filled & ~ndimage.binary_erosion(filled)
    return np.multiply(np.argwhere(edge), spacing)


def contour_hausdorff(a: Bool[ndarray, "*s"], b: Bool[ndarray, "*s"], spacing: tuple[float, ...]) -> float:
    """The paper's Hausdorff distance: max over both outer contours of the distance to the other.

    A volume is measured slice by slice across its axis of widest spacing (the last, if equal), and gives the mean over
    the slices that show the structure in both masks; NaN if none does."""
    if a.ndim == 3:
        across = 2 - int(np.argmax(np.asarray(spacing)[::-1]))
        within = tuple(h for i, h in enumerate(spacing) if i != across)
        slices = zip(np.moveaxis(a, across, 0), np.moveaxis(b, across, 0), strict=True)
        distances = [contour_hausdorff(x, y, within) for x, y in slices if x.any() and y.any()]
        return float(np.mean(distances)) if distances else np.nan
    if not (a.any() and b.any()):
        return np.nan
    from scipy.spatial.distance import cdist

    distances = cdist(outer_contour(a, spacing), outer_contour(b, spacing))
    return float(max(distances.min(0).max(), distances.min(1).max()))


def by_label(
    measure: Callable[[Any, Any], float],
    a: Integer[ndarray, "*s"],
    b: Integer[ndarray, "*s"],
    labels: Iterable[int],
) -> dict[str, float]:
    """measure of each label's two masks, by the label's number, and their "mean" over those present."""
    values = {str(label): measure(a == label, b == label) for label in labels}
    present = [value for value in values.values() if not np.isnan(value)]
    return values | {"mean": float(np.mean(present)) if present else np.nan}


def folding_percent(u: Float[Tensor, "b d *s"]) -> float:
    """Percentage of voxels with det(I + ∇u) < 0 by central differences, as published. It misses narrow folds."""
    return 100 * (determinant(jacobian(u)) < 0).double().mean().item()


def folding_strict_percent(u: Float[Tensor, "b d *s"]) -> float:
    """Percentage of voxels where any of the 2^d forward/backward determinants is ≤ 0."""
    return 100 * (stencil_determinants(u) <= 0).any(1).double().mean().item()


def jacobian_gradient(u: Float[Tensor, "b d *s"]) -> float:
    """|∇J|: mean absolute component of the gradient of det(I + ∇u)."""
    det = determinant(jacobian(u))
    return torch.stack(torch.gradient(det, dim=list(range(1, det.dim())))).abs().mean().item()
