"""How much of what each slice of a stack shows is not found again in a frame: of a whole stack, one slice is little."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool, Float, Real
from numpy import ndarray
from torch import Tensor

from vrnet.evaluation.blocks import as_blocks, block_sides
from vrnet.evaluation.evidence import Evidence, range_of_moving
from vrnet.evaluation.likeness import MATCHED, NOISE, RADIUS, LocalCorrelation, intensity_range
from vrnet.evaluation.registered import RegisteredPair


def judge_frames(
    pairs: Iterable[tuple[int, RegisteredPair]], across: int | None
) -> tuple[tuple[tuple[int, Evidence], ...], dict[int, Float[ndarray, " z"]]]:
    """The evidence of every frame as a pair, and, where slices lie across an axis, the unmatched part of each."""
    frames, unmatched = [], {}
    for k, pair in pairs:
        frames.append((k, pair.evidence()))
        if across is not None:
            images = pair.fixed, pair.moving, pair.warped
            unmatched[k] = unmatched_by_slice(*images, pair.grid.spacing, across)
    return tuple(frames), unmatched


def unmatched_by_slice(
    fixed: Real[ndarray, "*s"],
    moving: Real[ndarray, "*s"],
    warped: Real[ndarray, "*s"],
    spacing: tuple[float, ...],
    across: int,
) -> Float[ndarray, " z"]:
    """`Evidence.unmatched` within every slice across an axis of s: the part of its structure in fixed whose local
    correlation with warped is below one half. Windows lie within slices; one that shows nothing has 0."""
    sides = tuple(1 if axis == across else side for axis, side in enumerate(block_sides(fixed.shape, spacing)))
    I0, I1, I1w = (as_blocks(image[None], sides) for image in (fixed, moving, warped))
    F, W = intensity_range(I0).scale(I0), range_of_moving(I1.flatten(), I1w.flatten()).scale(I1w)
    radius = tuple(0 if axis == across else RADIUS[F.dim() - 3] for axis in range(F.dim() - 2))
    measure = LocalCorrelation(tuple(F.shape[2:]), radius)
    a, after = measure.windows(F), measure.windows(W)
    structure = a.variance.sqrt() * (a.variance > NOISE)
    return part_by_slice(measure.squared(a, after) < MATCHED, structure, across)


def part_by_slice(where: Bool[Tensor, "1 1 *t"], weight: Float[Tensor, "1 1 *t"], across: int) -> Float[ndarray, " z"]:
    """The part of the weight of every slice that lies at these places; 0 where nothing weighs."""
    within = [2 + axis for axis in range(weight.dim() - 2) if axis != across]
    found, whole = ((each.double().sum(within).flatten()) for each in (weight * where, weight))
    return np.asarray(torch.where(whole > 0, found / whole.clamp(min=1e-12), 0.0).numpy())
