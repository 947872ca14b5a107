"""The mask of an image that is an array or a tensor: checked where it comes in."""

from math import isfinite

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.images.arrays import as_tensor
from vrnet.images.image import refuse_image_as_mask
from vrnet.wording import type_name

Mask = Bool[Tensor, "*s"] | None


def mask_tensor(name: str, given: object, I: Float[Tensor, "*s"]) -> Mask:
    """Which voxels of an image are inside, nonzero in its mask; None if all are; BadInput if that makes no sense."""
    if given is None:
        return None
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"the mask of {name} is {type_name(given)}: give a NumPy array or a torch tensor")
    if tuple(given.shape) != tuple(I.shape):
        raise BadInput(f"the mask of {name} is {tuple(given.shape)} and {name} {tuple(I.shape)}: give both one shape")
    values = as_tensor(given).to(I.device)
    if not isfinite(float(values.sum(dtype=torch.float64))):
        raise BadInput(f"the mask of {name} contains NaN or infinite values: give 0 outside and 1 inside")
    inside = values != 0
    if not inside.any():
        raise BadInput(f"the mask of {name} is empty: give one that is not 0 inside")
    refuse_image_as_mask(f"the mask of {name}", values.cpu().numpy())
    return None if inside.all() else inside
