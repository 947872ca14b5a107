"""Labels of the reference brought to every frame: L_t(y) = L(φ_t⁻¹(y)), φ_t = id + u_t."""

from math import ceil
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy import ndarray
from torch import Tensor

from vrnet.devices import few_threads
from vrnet.fields import warp
from vrnet.inversion import invert
from vrnet.registration.arrays import batch

TOLERANCE_VOXELS, MAX_ITERATIONS = 0.05, 30
"""Of the inverse: labels need no better, and are brought to many frames."""
MARGIN_VOXELS = 2
"""Beyond where labels are moved to: their inverse is sought between voxels."""


def propagate_labels(
    labels: Integer[ndarray, "*s"], fields: Float[ndarray, "t d *s"], slice_axis: int | None
) -> Integer[ndarray, "t *s"]:
    """The label map of every frame, given that of the reference; the fields are in voxels.

    A voxel gets the label of greatest weight by linear interpolation. Where the reference has no labels in a slice, no
    frame has."""
    values = np.unique(np.append(labels, labels.dtype.type(0)))
    number = torch.from_numpy(np.searchsorted(values, labels))
    found = np.zeros((len(fields), *labels.shape), labels.dtype)
    whole = batch(number, slice_axis)
    shown = whole.flatten(1).any(1).nonzero()[:, 0]
    with torch.inference_mode(), few_threads(whole[0].numel()):
        for t, field in enumerate(fields):
            u, moved = motion_of(field, slice_axis)[shown], torch.zeros_like(whole)
            box = (slice(None), slice(None), *box_of_motion(whole[shown], u))
            part = torch.zeros_like(whole[shown])
            part[box] = move_labels(whole[shown][box], u[box], len(values))
            moved[shown] = part
            at = moved[0, 0] if slice_axis is None else moved[:, 0].movedim(0, slice_axis)
            found[t] = values[at.numpy()]
    return found


def box_of_motion(number: Integer[Tensor, "b 1 *s"], u: Float[Tensor, "b d *s"]) -> tuple[slice, ...]:
    """The part of the grid that holds all labels, before the motion and after it."""
    slices = []
    for axis, n in enumerate(number.shape[2:]):
        others = [dim for dim in range(number.dim()) if dim != 2 + axis]
        there = (number != 0).sum(others).nonzero()[:, 0] if number.numel() else torch.zeros(1)
        reach = ceil(u[:, axis].abs().max().item()) + MARGIN_VOXELS if u.numel() else 0
        slices.append(slice(max(0, int(there[0]) - reach), min(n, int(there[-1]) + reach + 1)))
    return tuple(slices)


def motion_of(field: Float[ndarray, "d *s"], slice_axis: int | None) -> Float[Tensor, "b e *within"]:
    """A field as a batch of one, or of slices, each with the motion within itself."""
    u: Any = torch.from_numpy(np.ascontiguousarray(field))
    if slice_axis is None:
        return u[None]
    within = [axis for axis in range(len(field)) if axis != slice_axis]
    return u[within].movedim(1 + slice_axis, 0)


def move_labels(number: Integer[Tensor, "b 1 *s"], u: Float[Tensor, "b d *s"], count: int) -> Integer[Tensor, "b 1 *s"]:
    """Labels 0 to count − 1 through the inverse of a motion; labels are the same where nothing moves."""
    if not len(number) or not u.any():
        return number
    back = invert(u, TOLERANCE_VOXELS, MAX_ITERATIONS).field
    best, found = torch.full_like(back[:, :1], -1.0), torch.zeros_like(number)
    for value in range(count):
        weight = warp((number == value).to(back), back)
        found = torch.where(weight > best, value, found)
        best = torch.maximum(best, weight)
    return found
