"""Images averaged over blocks of voxels, so that the evidence on a brain takes a fraction of a second."""

from math import ceil

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from vrnet.images.inpainting import inpaint

MAX_VOXELS = 150_000
"""Larger images are averaged over blocks first."""
POOL = {2: functional.avg_pool2d, 3: functional.avg_pool3d}
CONTEXT = 8
"""Shortest edges of a voxel that are kept about what is compared: windows and shifts reach no farther."""
Box = tuple[slice, ...]


def box_about(compared: Bool[ndarray, "*s"], spacing: tuple[float, ...]) -> Box:
    """The smallest box that holds what is compared, and its CONTEXT."""
    ends = ((int(places.min()), int(places.max()) + 1) for places in np.nonzero(compared))
    context = (ceil(CONTEXT * min(spacing) / h) for h in spacing)
    return tuple(slice(max(start - n, 0), stop + n) for (start, stop), n in zip(ends, context, strict=True))


def block_sides(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Sides, in voxels, of the blocks to average so that at most MAX_VOXELS are left, as near to cubes as can be."""
    shape_, side = np.array(shape), min(spacing)
    sides = np.ones(len(shape), int)
    while np.prod(-(-shape_ // sides)) > MAX_VOXELS:
        side *= 1.1
        sides = np.clip(np.round(side / np.array(spacing)).astype(int), 1, shape_)
    return tuple(sides.tolist())


def as_blocks(image: Shaped[ndarray, "c *s"], sides: tuple[int, ...]) -> Float[Tensor, "1 c *t"]:
    """Means over blocks, as a batch of one; the blocks at the end may be smaller."""
    whole = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))[None]
    if max(sides) == 1:
        return whole
    return POOL[len(sides)](whole, sides, ceil_mode=True, count_include_pad=False)


def filled_from(
    image: Float[ndarray, "*s"], compared: Bool[ndarray, "*s"] | None, spacing: tuple[float, ...]
) -> Float[ndarray, "*s"]:
    """The image where it is compared; elsewhere it goes on smoothly, so that windows and blocks show nothing else."""
    if compared is None:
        return image
    values, known = (torch.from_numpy(np.ascontiguousarray(part)) for part in (image, compared))
    return inpaint(values, known, spacing).numpy()


def most_of(part: Float[Tensor, "1 1 *t"]) -> Bool[Tensor, "1 1 *t"]:
    """The blocks of which more than half is compared; where there are none, as in a thin mask, those with any."""
    return part > 0.5 if (part > 0.5).any() else part > 0
