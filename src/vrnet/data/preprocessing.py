"""Intensities: one scaling for both images of a pair, or brightness constancy is gone."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

PERCENTILES = (1, 99)


def rescale_jointly(
    I0: Float[Tensor, "*s"], I1: Float[Tensor, "*t"]
) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*t"]]:
    """Map the 1st to 99th percentile of both images together to [0, 1] and clip, so that no outlier drags the field.

    The scaling is done in the precision of the images, the result is float32."""
    both = torch.cat([I0.flatten(), I1.flatten()]).cpu().numpy()
    low, high = (float(p) for p in np.percentile(both, PERCENTILES))
    if high <= low:  # a few bright voxels on an even ground
        low, high = float(both.min()), float(both.max())
    scaled = [((I - low) / (high - low)).clamp(0, 1).float() for I in (I0, I1)]
    return scaled[0], scaled[1]
