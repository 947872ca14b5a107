"""3D protocols: whole volumes on one grid for all, cropped, or padded by their borders; labels by 0."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.data.sample import Sample
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.intensity import rescale_jointly
from vrnet.images.resample import place_labels, resample_image


def volume_pair(name: str, images: Sequence[Image], masks: Sequence[Image], grid: Grid) -> Sample:
    """The second image to the first on a grid; no masks, no labels."""
    fixed, moving = (on_grid(image, grid) for image in scaled(*images))
    labels = [labels_on(mask, grid) for mask in masks]
    return Sample(name, fixed, moving, grid.spacing, *labels)


def scaled(*images: Image) -> list[Image]:
    """In [0, 1], by one scaling, taken before padding so that no border counts more than once."""
    arrays = rescale_jointly(*(torch.from_numpy(image.array.astype(np.float64)) for image in images))
    return [image.with_array(array.numpy()) for image, array in zip(images, arrays, strict=True)]


def on_grid(image: Image, grid: Grid) -> Float[Tensor, "1 1 *s"]:
    """The image on a grid, smoothed first where that is coarser; beyond its border the border goes on."""
    return torch.from_numpy(np.ascontiguousarray(resample_image(image, grid).array))[None, None].clamp(0, 1)


def labels_on(mask: Image, grid: Grid) -> UInt8[Tensor, "1 1 *s"]:
    return torch.from_numpy(np.ascontiguousarray(place_labels(mask, grid).array))[None, None]
