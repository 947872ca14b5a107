"""Intensities: one scaling for both images of a pair, or brightness constancy is gone.

Between subjects or scanners there is no such constancy: there, each image has its own."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

PERCENTILES = (1, 99)


def rescale_jointly(*images: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], ...]:
    """Map the 1st to 99th percentile of all images together to [0, 1] and clip, so that no outlier drags the field.

    The scaling is done in the precision of the images, the result is float32."""
    values = torch.cat([image.flatten() for image in images]).cpu().numpy()
    low, high = (float(p) for p in np.percentile(values, PERCENTILES))
    if high <= low:  # a few bright voxels on an even ground
        low, high = float(values.min()), float(values.max())
    return tuple(((image - low) / (high - low)).clamp(0, 1).float() for image in images)


def rescale_each(*images: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], ...]:
    """The same of each image alone."""
    return tuple(scaled for image in images for scaled in rescale_jointly(image))
