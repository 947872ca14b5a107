"""The measures of one registered pair, under the names that `metrics.json` gives them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy import ndarray

from vrnet.evaluation.metrics import (
    by_label,
    contour_hausdorff,
    dice,
    folding_percent,
    folding_strict_percent,
    jacobian_gradient,
)


def similarity(
    fixed: Float[ndarray, "*s"], moving: Float[ndarray, "*s"], warped: Float[ndarray, "*s"]
) -> dict[str, float]:
    """Mean absolute difference from fixed, in its intensities."""
    return {
        "mae_before": float(np.abs(moving - fixed).mean()),
        "mae_after": float(np.abs(warped - fixed).mean()),
    }


def regularity(field: Float[ndarray, "d *s"]) -> dict[str, float]:
    """Foldings and smoothness of a field in voxels."""
    u = torch.from_numpy(field)[None]
    return {
        "folding_percent": folding_percent(u),
        "folding_strict_percent": folding_strict_percent(u),
        "jacobian_gradient": jacobian_gradient(u),
    }


def overlap(
    fixed: Integer[ndarray, "*s"],
    moving: Integer[ndarray, "*s"],
    warped: Integer[ndarray, "*s"],
    spacing: tuple[float, ...],
) -> dict[str, Any]:
    """Dice and Hausdorff distance of every label in either image, before and after."""
    labels = [int(label) for label in np.union1d(fixed, moving) if label != 0]
    measures: dict[str, Callable[..., float]] = {
        "dice": dice,
        "hausdorff_mm": partial(contour_hausdorff, spacing=spacing),
    }
    return {
        name: {
            "before": by_label(measure, fixed, moving, labels),
            "after": by_label(measure, fixed, warped, labels),
        }
        for name, measure in measures.items()
    }
