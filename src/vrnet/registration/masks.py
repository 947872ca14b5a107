"""The masks of a pair: checked where they come in, and images that show nothing of what lies outside them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import ceil
from typing import Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.fields.calculus import RelativeSpacing, repeat_border, resize
from vrnet.images.grid import check_same_grid
from vrnet.images.image import Image, as_tensor, inside_of, mask_tensor
from vrnet.images.io import ImageLike, given_image
from vrnet.variational.cascade import Spacing
from vrnet.variational.initialisers import coarser_shape, coarser_spacing
from vrnet.variational.linearize import Masks

# An image without what lies outside its mask: there it goes on smoothly as it is inside, so that smoothing, gradients
# and networks carry nothing of the outside across the border of the mask.

SMALLEST_PART = 1e-3  # the part of a coarser voxel that must lie inside the mask for the voxel to have a value


def inpaint(I: Float[Tensor, "*s"], inside: Bool[Tensor, "*s"], spacing: Spacing = None) -> Float[Tensor, "*s"]:
    """I inside; outside, the means of I inside over neighbourhoods that are as large as they must be."""

    def fill(I: Tensor, inside: Tensor, spacing: Spacing) -> Tensor:  # outside, from the image at half the resolution
        shape = tuple(I.shape[2:])
        coarse = coarser_shape(shape, spacing, smallest=2)
        if inside.all() or coarse == shape:
            return torch.where(inside, I, I[inside].mean())
        part = resize(inside.to(I), coarse)
        mean = resize(torch.where(inside, I, 0), coarse) / part.clamp(min=SMALLEST_PART)
        below = fill(mean, part > SMALLEST_PART, coarser_spacing(spacing, shape, coarse))
        return torch.where(inside, I, resize(below, shape))

    return fill(I[None, None], inside[None, None], spacing)[0, 0]


M = TypeVar("M", Image, Tensor)


@dataclass(frozen=True)
class PairMasks(Generic[M]):
    """The masks of two images: images, each on the grid of its own, or tensors on one grid. None is everywhere."""

    fixed: M | None = None
    moving: M | None = None

    @property
    def is_everywhere(self) -> bool:
        return self.fixed is None and self.moving is None

    @property
    def of_each(self) -> tuple[M | None, M | None]:
        """Where the intensities of each image are looked at: in its mask, or in that of the other if it has none."""
        fixed = self.moving if self.fixed is None else self.fixed
        return fixed, self.fixed if self.moving is None else self.moving

    def map(self, change: Callable[[M], M]) -> "PairMasks[M]":
        """Those that there are, changed alike."""
        return PairMasks(*(None if mask is None else change(mask) for mask in (self.fixed, self.moving)))

    def apply(self, function: Callable[[M, M], M], fixed: M, moving: M) -> list[M]:
        """function(image, mask) of either image; the image itself where it has no mask."""
        parts = (fixed, self.fixed), (moving, self.moving)
        return [image if mask is None else function(image, mask) for image, mask in parts]


def check_masks(fixed: object, moving: object, I0: Float[Tensor, "*s"], I1: Float[Tensor, "*s"]) -> PairMasks[Tensor]:
    """The masks of a pair, arrays or tensors, or BadInput."""
    inside = PairMasks(mask_tensor("fixed", fixed, I0), mask_tensor("moving", moving, I1))
    if inside.fixed is not None and inside.moving is not None and not (inside.fixed & inside.moving).any():
        raise BadInput("the masks of fixed and moving do not overlap in space: there is nothing to compare")
    for name, I, mask in zip(("fixed", "moving"), (I0, I1), inside.of_each, strict=True):
        if mask is not None and (values := I[mask]).min() == values.max():
            raise BadInput(f"{name} is constant ({float(values[0]):g}) inside the mask: there is nothing to register")
    return inside


def read_mask(name: str, given: ImageLike | None, image: Image) -> Image | None:
    """The mask of an image, True inside, or BadInput."""
    if given is None:
        return None
    mask = given_image(name, given)
    check_same_grid(mask.name, mask.grid, image.name, image.grid)
    inside = inside_of(mask.name, mask.array)
    if mask.array.dtype.kind == "f" and not (mask.array == np.round(mask.array)).all():
        raise BadInput(f"{mask.name} holds values that are not whole numbers: give the part above a threshold")
    return mask.with_array(inside)


def inpaint_image(image: Image, mask: Image) -> Image:
    """The image without what lies outside its mask; BadInput if it is constant inside."""
    if mask.array.all():
        return image
    if (values := image.array[mask.array]).min() == values.max():
        raise BadInput(f"{image.name} is constant ({values[0]:g}) inside {mask.name}: give another mask")
    filled = inpaint(as_tensor(image.array.astype(np.float32)), as_tensor(mask.array), image.grid.spacing)
    return image.with_array(filled.numpy())


# What a method is given of two images. Where a volume has one value nothing is to be found, and the motion is carried
# on; far from small masks nothing is compared, and the motion ends, as it does far from the heart that a cine shows.

MARGIN = 2  # voxels of background that are kept about the content, so that its outline is seen
MASK_MARGIN, MASK_MARGIN_PART = 16.0, 0.25  # kept about a mask: so many shortest edges, or part of its longest side
FADE_PER_MOTION, SHORTEST_FADE = 4.0, 16.0  # motion ends over so many times its length, and so many shortest edges
Box = tuple[slice, ...]  # a part of each spatial axis


def content_box(I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"], fewest: int) -> Box:
    """The smallest box outside of which each image has one value, that of its corners, and a margin."""

    def differs_from_corners(I: Tensor) -> Tensor:
        corners = I[(slice(None), slice(None), *(slice(None, None, max(n - 1, 1)) for n in I.shape[2:]))]
        first = corners.flatten(2)[:, :, 0].view(*I.shape[:2], *[1] * (I.dim() - 2))
        return (first != I) | (corners != first).any()

    content = (differs_from_corners(I0) | differs_from_corners(I1)).flatten(0, 1).any(0)
    return tuple(_extent(content.movedim(axis, 0).flatten(1).any(1), fewest, MARGIN) for axis in range(content.dim()))


HEART_MARGIN_MM = 20.0
"""What is kept about a heart, for its motion."""


def heart_box(heart: Bool[ndarray, "*n h w"], spacing: tuple[float, ...]) -> Box:
    """The box of the heart in all slices and frames, with a margin."""
    there = torch.from_numpy(heart.any(tuple(range(heart.ndim - 2))))
    profiles = zip((there.any(1), there.any(0)), spacing, strict=True)
    return tuple(_extent(each, 1, ceil(HEART_MARGIN_MM / h)) for each, h in profiles)


def _extent(content: Bool[Tensor, " n"], fewest: int, margin: int) -> slice:
    """From the first place that has content to the last, and what else is kept; everything if there is none."""
    places, n = content.nonzero()[:, 0].tolist(), len(content)
    return _at_least(slice(places[0] - margin, places[-1] + 1 + margin), fewest, n) if places else slice(0, n)


def _at_least(part: slice, fewest: int, n: int) -> slice:
    """A part of an axis of n voxels, within it and widened alike at both ends until it has the fewest."""
    more = max((fewest - (part.stop - part.start) + 1) // 2, 0)
    return slice(max(min(part.start - more, n - fewest), 0), min(max(part.stop + more, fewest), n))


def compared_box(box: Box, masks: Masks, h: RelativeSpacing, fewest: int) -> Box:
    """What of a box lies near the masks of both images: farther away nothing is compared, whatever moves there."""
    for mask in (masks.fixed, masks.moving):
        inside = (mask > 0).flatten(0, 1).any(0)
        profiles = [inside.movedim(axis, 0).flatten(1).any(1) for axis in range(inside.dim())]
        sides = [int(profile.sum()) * edge for profile, edge in zip(profiles, h, strict=True)]
        margin = max(MASK_MARGIN, MASK_MARGIN_PART * max(sides))
        near = [_extent(profile, fewest, ceil(margin / edge)) for profile, edge in zip(profiles, h, strict=True)]
        both = zip(box, near, strict=True)
        box = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in both)
    return tuple(_at_least(part, fewest, n) for part, n in zip(box, inside.shape, strict=True))


def cut(I: Float[Tensor, "b c *s"], box: Box) -> Float[Tensor, "b c *t"]:
    return I[(slice(None), slice(None), *box)].contiguous()


def carry_on(u: Float[Tensor, "b d *t"], box: Box, shape: tuple[int, ...]) -> Float[Tensor, "b d *s"]:
    """The field of a box on the whole grid: outside, that of the nearest voxel inside."""
    for axis, (part, n) in enumerate(zip(box, shape, strict=True), start=2):
        u = repeat_border(u, axis, part.start, n - part.stop)
    return u


def fade_out(u: Float[Tensor, "b d *t"], box: Box, shape: tuple[int, ...], h: RelativeSpacing) -> Tensor:
    """The field of a box on the whole grid: outside, that of the nearest voxel inside, less the farther away, to none.
    It falls so slowly that its end alone folds nothing: by 3/8 of a voxel per voxel at most."""
    places = (torch.arange(n, dtype=torch.float32) for n in shape)
    beyond = (  # the squared distance of each place of an axis from the box
        (edge * torch.maximum(part.start - place, place - (part.stop - 1)).clamp(min=0)).square()
        for part, place, edge in zip(box, places, h, strict=True)
    )
    away = reduce(torch.add, torch.meshgrid(*beyond, indexing="ij")).sqrt().to(u)
    carried, edges = carry_on(u, box, shape), u.new_tensor(h).view(-1, 1)
    outside = carried.movedim(1, 0)[:, :, away > 0].flatten(1)
    longest = torch.linalg.vector_norm(outside * edges, dim=0).max().item() if outside.numel() else 0.0
    part = (1 - away / max(FADE_PER_MOTION * longest, SHORTEST_FADE)).clamp(min=0)
    return carried * (part.square() * (3 - 2 * part))
