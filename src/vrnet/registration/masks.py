"""The masks of a pair: checked where they come in, and images that show nothing of what lies outside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.images.affine import Affine
from vrnet.images.array_masks import Mask, mask_tensor
from vrnet.images.arrays import as_tensor
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_mask
from vrnet.images.inpainting import inpaint
from vrnet.images.inputs import ImageLike, given_image
from vrnet.images.resample import coverage, place_labels
from vrnet.images.same_grid import check_same_grid
from vrnet.variational.cascade import Spacing


@dataclass(frozen=True)
class Inside:
    """Which voxels of two images on one grid are inside the mask of each; None stands for all of them."""

    fixed: Mask = None
    moving: Mask = None

    @property
    def is_everywhere(self) -> bool:
        return self.fixed is None and self.moving is None

    @property
    def of_each(self) -> tuple[Mask, Mask]:
        """Where the intensities of each image are looked at: of one without a mask, in that of the other."""
        fixed = self.moving if self.fixed is None else self.fixed
        return fixed, self.fixed if self.moving is None else self.moving

    def to(self, device: torch.device) -> "Inside":
        """The masks on another device."""
        return Inside(*(None if mask is None else mask.to(device) for mask in (self.fixed, self.moving)))

    def inpaint(self, I0: Float[Tensor, "*s"], I1: Float[Tensor, "*s"], spacing: Spacing) -> list[Tensor]:
        """The images without what lies outside their masks."""
        parts = (I0, self.fixed), (I1, self.moving)
        return [I if mask is None else inpaint(I, mask, spacing) for I, mask in parts]


def check_masks(fixed: object, moving: object, I0: Float[Tensor, "*s"], I1: Float[Tensor, "*s"]) -> Inside:
    """The masks of a pair, arrays or tensors, or BadInput."""
    inside = Inside(mask_tensor("fixed", fixed, I0), mask_tensor("moving", moving, I1))
    if inside.fixed is not None and inside.moving is not None and not (inside.fixed & inside.moving).any():
        raise BadInput("the masks of fixed and moving do not overlap in space: there is nothing to compare")
    for name, I, mask in zip(("fixed", "moving"), (I0, I1), inside.of_each, strict=True):
        if mask is not None and (values := I[mask]).min() == values.max():
            raise BadInput(f"{name} is constant ({float(values[0]):g}) inside the mask: there is nothing to register")
    return inside


@dataclass(frozen=True)
class ImageMasks:
    """The masks of two images in the world, each on the grid of its image; None stands for all of it."""

    fixed: Image | None = None
    moving: Image | None = None

    @classmethod
    def read(
        cls,
        fixed_mask: ImageLike | None,
        moving_mask: ImageLike | None,
        fixed: Image,
        moving: Image,
    ) -> "ImageMasks":
        """The masks of these images, given as images or files; BadInput if one is not for its image."""
        return cls(read_mask("fixed_mask", fixed_mask, fixed), read_mask("moving_mask", moving_mask, moving))

    def reordered(self, fixed: Sequence[int], moving: Sequence[int]) -> "ImageMasks":
        """The masks with axis order[i] as axis i, by the order of either."""
        parts = (self.fixed, fixed), (self.moving, moving)
        return ImageMasks(*(None if mask is None else mask.reordered(order) for mask, order in parts))

    def in_world_order(self) -> "ImageMasks":
        """The masks with their axes in the order of the world's, and running as these do."""
        return ImageMasks(*(None if mask is None else mask.in_world_order() for mask in (self.fixed, self.moving)))

    def without_full(self) -> "ImageMasks":
        """The masks that leave anything out: a mask of all of its image is none."""
        return ImageMasks(*(None if mask is None or mask.array.all() else mask for mask in (self.fixed, self.moving)))

    def inpaint(self, fixed: Image, moving: Image) -> list[Image]:
        """The images without what lies outside their masks, before they are smoothed, matched or resampled."""
        return [without_outside(fixed, self.fixed), without_outside(moving, self.moving)]

    def on(self, grid: Grid, moving: Image, affine: Affine | None) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """Both masks on the grid of fixed, where moving, seen through an affine map, is outside if it has no voxels."""
        if self.moving is None:
            covered = coverage(moving.grid, grid, affine)
        else:
            covered = place_labels(self.moving, grid, affine).array
        if not covered.any():
            raise BadInput(f"{moving.name} has no voxel inside, within fixed: check the headers and the mask")
        return None if self.fixed is None else self.fixed.array, None if covered.all() else covered


def read_mask(name: str, given: ImageLike | None, image: Image) -> Image | None:
    """The mask of an image, True inside, or BadInput."""
    if given is None:
        return None
    mask = as_mask(given_image(name, given))
    check_same_grid(mask.name, mask.grid, image.name, image.grid)
    if not mask.array.any():
        raise BadInput(f"{mask.name} is empty: give a mask that is not 0 inside")
    return mask


def without_outside(image: Image, mask: Image | None) -> Image:
    """The image, in-painted outside its mask; itself where there is none; BadInput if it is constant inside."""
    if mask is None or mask.array.all():
        return image
    if (values := image.array[mask.array]).min() == values.max():
        raise BadInput(
            f"{image.name} is constant ({values[0]:g}) inside {mask.name}: give a mask in which it shows something"
        )
    filled = inpaint(as_tensor(image.array.astype(np.float32)), as_tensor(mask.array), image.grid.spacing)
    return image.with_array(filled.numpy())
