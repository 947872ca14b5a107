"""Where two volumes show anything: a solver needs to see no more of them.

Skull-stripped brains, phantoms and padded crops lie in a volume of one value, where nothing is to be found and the
motion is only carried on. In the volume that is left, a solver is as much faster as it has fewer voxels.
"""

from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import repeat_border

MARGIN = 2
"""Voxels of background that are kept about the content, so that its outline is seen."""
FEWEST = 32
"""Voxels that an axis keeps at least."""
Box = tuple[slice, ...]
"""A part of each spatial axis."""


def content_box(I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"]) -> Box:
    """The smallest box outside of which either image has the value of its first corner everywhere, and a margin."""
    content = reduce(torch.logical_or, (I != corner(I) for I in (I0, I1))).flatten(0, 1)
    content = content.any(0)
    return tuple(_extent(content.movedim(axis, 0).flatten(1).any(1)) for axis in range(content.dim()))


def corner(I: Float[Tensor, "b c *s"]) -> Float[Tensor, "b c *ones"]:
    """The first voxel."""
    return I.flatten(2)[:, :, 0].view(*I.shape[:2], *[1] * (I.dim() - 2))


def _extent(content: Tensor) -> slice:
    """From the first place that has content to the last, with the margin; everything if there is none."""
    places, n = content.nonzero()[:, 0].tolist(), len(content)
    if not places:
        return slice(0, n)
    start, stop = places[0] - MARGIN, places[-1] + 1 + MARGIN
    lacking = max(FEWEST - (stop - start), 0)
    return slice(max(start - lacking // 2, 0), min(stop + (lacking + 1) // 2, n))


def cut(I: Float[Tensor, "b c *s"], box: Box) -> Float[Tensor, "b c *t"]:
    """The part of an image in a box."""
    for axis, part in enumerate(box, start=2):
        I = I.narrow(axis, part.start, part.stop - part.start)
    return I.contiguous()


def carry_on(u: Float[Tensor, "b d *t"], box: Box, shape: tuple[int, ...]) -> Float[Tensor, "b d *s"]:
    """The field of a box on the whole grid: outside, that of the nearest voxel inside, which folds nothing."""
    for axis, (part, n) in enumerate(zip(box, shape, strict=True), start=2):
        if part != slice(0, n):
            u = repeat_border(u, axis, part.start, n - part.stop)
    return u
