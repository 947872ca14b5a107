"""An image without what lies outside its mask: there it goes on smoothly as it is inside.

Nothing of the outside is left that smoothing, gradients or a network could carry across the border of the mask.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vrnet.fields import resize
from vrnet.variational.cascade import Spacing
from vrnet.variational.pyramid import coarser_shape, coarser_spacing

SMALLEST_PART = 1e-3
"""The part of a coarser voxel that must lie inside the mask for the voxel to have a value."""


def inpaint(I: Float[Tensor, "*s"], inside: Bool[Tensor, "*s"], spacing: Spacing = None) -> Float[Tensor, "*s"]:
    """I inside; outside, the means of I inside over neighbourhoods that are as large as they must be."""
    return fill_from_coarser(I[None, None], inside[None, None], spacing)[0, 0]


def fill_from_coarser(
    I: Float[Tensor, "1 1 *s"], inside: Bool[Tensor, "1 1 *s"], spacing: Spacing
) -> Float[Tensor, "1 1 *s"]:
    """Outside, what the image at half the resolution has there: means of what is inside, themselves filled likewise."""
    shape = tuple(I.shape[2:])
    coarse = coarser_shape(shape, spacing, smallest=2)
    if inside.all() or coarse == shape:
        return torch.where(inside, I, I[inside].mean())
    part = resize(inside.to(I), coarse)
    mean = resize(torch.where(inside, I, 0), coarse) / part.clamp(min=SMALLEST_PART)
    below = fill_from_coarser(mean, part > SMALLEST_PART, coarser_spacing(spacing, shape, coarse))
    return torch.where(inside, I, resize(below, shape))
