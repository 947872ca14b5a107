"""Intensities in [0, 1]: one scaling for both images of a pair, or the same tissue would no longer be equally bright.

Between subjects or scanners it is not equally bright to begin with: there, each image has its own scaling."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vrnet.images.image import Image

PERCENTILES = (1, 99)


Inside = Sequence[Bool[Tensor, "..."] | None]
"""Which voxels of each image count; of None, all."""


def rescale_jointly(*images: Float[Tensor, "..."], inside: Inside = ()) -> tuple[Float[Tensor, "..."], ...]:
    """Map the 1st to 99th percentile of all images together to [0, 1] and clip, so that no outlier drags the field.

    The scaling is done in the precision of the images, the result is float32."""
    seen = [image if mask is None else image[mask] for image, mask in zip_longest(images, inside)]
    values = torch.cat([part.flatten() for part in seen]).cpu().numpy()
    low, high = (float(p) for p in np.percentile(values, PERCENTILES))
    if high <= low:  # a few bright voxels on an even ground
        low, high = float(values.min()), float(values.max())
    return tuple(((image - low) / (high - low)).clamp(0, 1).float() for image in images)


def rescale_each(*images: Float[Tensor, "..."], inside: Inside = ()) -> tuple[Float[Tensor, "..."], ...]:
    """Map the 1st to 99th percentile of each image by itself to [0, 1] and clip; as float32."""
    return tuple(rescale_jointly(image, inside=[mask])[0] for image, mask in zip_longest(images, inside))


def rescale_images_jointly(*images: Image, masks: Sequence[Image | None] = ()) -> list[Image]:
    """Images whose 1st to 99th percentile, of all together, is mapped to [0, 1] and clipped; as float32.

    To be done before an image is padded, or its border would count more than once. Percentiles are those inside the
    masks."""
    inside = [None if mask is None else torch.from_numpy(mask.array) for mask in masks]
    given = (torch.from_numpy(image.array.astype(np.float64)) for image in images)
    arrays = rescale_jointly(*given, inside=inside)
    return [image.with_array(array.numpy()) for image, array in zip(images, arrays, strict=True)]
