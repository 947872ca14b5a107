"""Labels of the reference brought to every frame: L_t(y) = L(φ_t⁻¹(y)), φ_t = id + u_t."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy import ndarray
from torch import Tensor

from vrnet.fields import invert, warp
from vrnet.registration.arrays import batch


def propagate_labels(
    labels: Integer[ndarray, "*s"], fields: Float[ndarray, "t d *s"], slice_axis: int | None
) -> Integer[ndarray, "t *s"]:
    """The label map of every frame, given that of the reference; the fields are in voxels.

    A voxel gets the label of greatest weight by linear interpolation. Where the reference has no labels in a slice, no
    frame has."""
    values = np.unique(np.append(labels, labels.dtype.type(0)))
    number = torch.from_numpy(np.searchsorted(values, labels))
    found = np.zeros((len(fields), *labels.shape), labels.dtype)
    with torch.inference_mode():
        whole = batch(number, slice_axis)
        shown = whole.flatten(1).any(1).nonzero()[:, 0]
        for t, field in enumerate(fields):
            moved = torch.zeros_like(whole)
            moved[shown] = move_labels(whole[shown], motion_of(field, slice_axis)[shown], len(values))
            at = moved[0, 0] if slice_axis is None else moved[:, 0].movedim(0, slice_axis)
            found[t] = values[at.numpy()]
    return found


def motion_of(field: Float[ndarray, "d *s"], slice_axis: int | None) -> Float[Tensor, "b e *s"]:
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
    back = invert(u).field
    best, found = torch.full_like(back[:, :1], -1.0), torch.zeros_like(number)
    for value in range(count):
        weight = warp((number == value).to(back), back)
        found = torch.where(weight > best, value, found)
        best = torch.maximum(best, weight)
    return found
