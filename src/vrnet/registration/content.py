"""Where two volumes show anything: what a solver is given of them.

Skull-stripped brains, phantoms and padded crops lie in a volume of one value, where nothing is to be found and the
motion is only carried on. In the volume that is left, a solver is as much faster as it has fewer voxels.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vrnet.fields import repeat_border

MARGIN = 2
"""Voxels of background that are kept about the content, so that its outline is seen."""
Box = tuple[slice, ...]
"""A part of each spatial axis."""


def content_box(I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"], fewest: int) -> Box:
    """The smallest box outside of which each image has the value of its corners everywhere, and a margin.

    An axis keeps the `fewest` voxels at least. Where the corners of an image differ, it has no background."""
    content = (differs_from_corners(I0) | differs_from_corners(I1)).flatten(0, 1).any(0)
    return tuple(_extent(content.movedim(axis, 0).flatten(1).any(1), fewest) for axis in range(content.dim()))


def differs_from_corners(I: Float[Tensor, "b c *s"]) -> Bool[Tensor, "b c *s"]:
    """Where an image has not the value that all its corners have; everywhere, if they have not all the same."""
    corners = I
    for axis, n in enumerate(I.shape[2:], start=2):
        corners = corners.index_select(axis, torch.tensor([0, n - 1], device=I.device))
    first = corners.flatten(2)[:, :, 0].view(*I.shape[:2], *[1] * (I.dim() - 2))
    return (first != I) | (corners != first).any()


def _extent(content: Bool[Tensor, " n"], fewest: int) -> slice:
    """From the first place that has content to the last, and what else is kept; everything if there is none.

    Mirrored content has the mirrored extent."""
    places, n = content.nonzero()[:, 0].tolist(), len(content)
    if not places:
        return slice(0, n)
    start, stop = places[0] - MARGIN, places[-1] + 1 + MARGIN
    more = max((fewest - (stop - start) + 1) // 2, 0)
    return slice(max(min(start - more, n - fewest), 0), min(max(stop + more, fewest), n))


def cut(I: Float[Tensor, "b c *s"], box: Box) -> Float[Tensor, "b c *t"]:
    """The part of an image in a box."""
    for axis, part in enumerate(box, start=2):
        I = I.narrow(axis, part.start, part.stop - part.start)
    return I.contiguous()


def carry_on(u: Float[Tensor, "b d *t"], box: Box, shape: tuple[int, ...]) -> Float[Tensor, "b d *s"]:
    """The field of a box on the whole grid: outside, that of the nearest voxel inside."""
    for axis, (part, n) in enumerate(zip(box, shape, strict=True), start=2):
        u = repeat_border(u, axis, part.start, n - part.stop)
    return u
