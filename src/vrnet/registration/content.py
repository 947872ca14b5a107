"""Where two volumes show anything that is compared: what a solver is given of them.

Skull-stripped brains, phantoms and padded crops lie in a volume of one value, where nothing is to be found and the
motion is only carried on. Far from small masks nothing is compared, and the motion ends. In the volume that is left, a
solver is as much faster as it has fewer voxels.
"""

from functools import reduce
from math import ceil

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vrnet.fields import RelativeSpacing, repeat_border
from vrnet.variational.masks import Masks

MARGIN = 2
"""Voxels of background that are kept about the content, so that its outline is seen."""
MASK_MARGIN, MASK_MARGIN_PART = 16.0, 0.25
"""What is kept about a mask, for the motion: so many shortest edges, or this part of its longest side, if that is more.
"""
FADE_PER_MOTION, SHORTEST_FADE = 4.0, 16.0
"""Motion ends over this many times its length, so that nothing folds; over so many shortest edges at least."""
ENDS = "start", "stop"
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


def _extent(content: Bool[Tensor, " n"], fewest: int, margin: int = MARGIN) -> slice:
    """From the first place that has content to the last, and what else is kept; everything if there is none.

    Mirrored content has the mirrored extent."""
    places, n = content.nonzero()[:, 0].tolist(), len(content)
    if not places:
        return slice(0, n)
    return _at_least(slice(places[0] - margin, places[-1] + 1 + margin), fewest, n)


def _at_least(part: slice, fewest: int, n: int) -> slice:
    """A part of an axis of n voxels, within it and widened alike at both ends until it has the fewest."""
    more = max((fewest - (part.stop - part.start) + 1) // 2, 0)
    return slice(max(min(part.start - more, n - fewest), 0), min(max(part.stop + more, fewest), n))


def compared_box(box: Box, masks: Masks, h: RelativeSpacing, fewest: int) -> Box:
    """What of a box lies near the masks of both images: farther away nothing is compared, whatever moves there."""
    shape = tuple(masks.fixed.shape[2:])
    boxes = [box, *(_near(mask, h, fewest) for mask in (masks.fixed, masks.moving))]
    starts, stops = ([[getattr(part, end) for part in parts] for parts in zip(*boxes, strict=True)] for end in ENDS)
    common = (slice(max(start), min(stop)) for start, stop in zip(starts, stops, strict=True))
    return tuple(_at_least(part, fewest, n) for part, n in zip(common, shape, strict=True))


def _near(mask: Float[Tensor, "b 1 *s"], h: RelativeSpacing, fewest: int) -> Box:
    """The box of a mask and a margin for the motion."""
    inside = (mask > 0).flatten(0, 1).any(0)
    profiles = [inside.movedim(axis, 0).flatten(1).any(1) for axis in range(inside.dim())]
    sides = [int(profile.sum()) * edge for profile, edge in zip(profiles, h, strict=True)]
    margin = max(MASK_MARGIN, MASK_MARGIN_PART * max(sides))
    return tuple(_extent(profile, fewest, ceil(margin / edge)) for profile, edge in zip(profiles, h, strict=True))


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


def fade_out(u: Float[Tensor, "b d *t"], box: Box, shape: tuple[int, ...], h: RelativeSpacing) -> Tensor:
    """The field of a box on the whole grid: outside, that of the nearest voxel inside, less the farther away, to none.

    It falls so slowly that its end alone folds nothing: by 3/8 of a voxel per voxel at most."""
    away = reduce(torch.add, torch.meshgrid(*map(_beyond, box, shape, h), indexing="ij")).sqrt().to(u)
    carried, edges = carry_on(u, box, shape), u.new_tensor(h).view(-1, 1)
    outside = carried.movedim(1, 0)[:, :, away > 0].flatten(1)
    longest = torch.linalg.vector_norm(outside * edges, dim=0).max().item() if outside.numel() else 0.0
    part = (1 - away / max(FADE_PER_MOTION * longest, SHORTEST_FADE)).clamp(min=0)
    return carried * (part.square() * (3 - 2 * part))


def _beyond(part: slice, n: int, edge: float) -> Float[Tensor, " n"]:
    """The squared distance of each place of an axis from a part of it."""
    place = torch.arange(n, dtype=torch.float32)
    return (edge * torch.maximum(part.start - place, place - (part.stop - 1)).clamp(min=0)).square()
