"""The paper's protocols for cardiac MR: slices of short-axis stacks in 2D, whole volumes in 3D.

2D: 1.8 mm in-plane, 160x160 about the centre, intensities scaled by the 1st and 99th percentile of all frames together.
Measured on: the slices at 25, 50 and 75 % of those that show at least 10 pixels of LV and of Myo at both phases.
Trained on: every slice that is not constant.

3D: one grid for all, intensities scaled first; images cropped, or padded by their borders, labels by 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from vrnet.data.grids import centred_grid
from vrnet.data.sample import Sample
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.intensity import rescale_images_jointly, rescale_jointly
from vrnet.images.resample import place_image, place_labels, resample_image
from vrnet.structures import HEART

SPACING_MM, SIZE = 1.8, 160
QUANTILES = 0.25, 0.5, 0.75
MIN_PIXELS = 10


@dataclass(frozen=True)
class Plane:
    """Resolution within the slices, in mm, and their edge, in voxels."""

    spacing: float = SPACING_MM
    size: int = SIZE

    def grid(self, own: Grid) -> Grid:
        """The stack's slices, sampled anew about their centre, their axes running as the world's do."""
        shape, spacing = (self.size, self.size, own.shape[2]), (self.spacing, self.spacing, own.spacing[2])
        return centred_grid(own, shape, spacing, own.forward_axes)


def three_slices(name: str, images: Sequence[Image], masks: Sequence[Image], plane: Plane) -> Sample:
    """End-systole (the second image) to end-diastole (the first) in the slices to be measured on."""
    labels = label_slices(masks, plane.grid(images[0].grid))
    chosen = choose_slices(labels, name)
    parts = *image_slices(images, plane.grid(images[0].grid)), *labels
    fixed, moving, fixed_labels, moving_labels = (part[chosen] for part in parts)
    return Sample(name, fixed, moving, (plane.spacing,) * 2, fixed_labels, moving_labels)


def all_slices(name: str, images: Sequence[Image], plane: Plane, masks: Sequence[Image] = ()) -> Sample:
    """Every later frame to the first, in all slices that are not constant in either; with the masks of all frames, or
    without labels."""
    grid = plane.grid(images[0].grid)
    fixed, moving = later_to_first(image_slices(images, grid))
    shown = not_constant(fixed) & not_constant(moving)
    if not shown.any():
        raise BadInput(f"{name} has no slice that shows something at two times: there is nothing to register")
    labels = [part[shown] for part in later_to_first(label_slices(masks, grid))] if masks else []
    return Sample(name, fixed[shown], moving[shown], (plane.spacing,) * 2, *labels)


def later_to_first(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The slices of the first frame, again for each later one, and those of the later ones."""
    first, *later = frames
    return first.repeat(len(later), 1, 1, 1), torch.cat(later)


def image_slices(images: Sequence[Image], grid: Grid) -> list[Float[Tensor, "n 1 h w"]]:
    """The slices of each stack on a grid, all scaled as one."""
    return [to_slices(stack) for stack in rescale_jointly(*(to_tensor(place_image(image, grid)) for image in images))]


def label_slices(masks: Sequence[Image], grid: Grid) -> list[UInt8[Tensor, "n 1 h w"]]:
    """The slices of each stack of labels on a grid."""
    return [to_slices(to_tensor(place_labels(mask, grid))) for mask in masks]


def choose_slices(labels: Sequence[UInt8[Tensor, "n 1 h w"]], name: str) -> list[int]:
    """The slices at the quantiles of those that show enough LV and Myo at both phases."""
    enough = [(mask == HEART[part]).sum((1, 2, 3)) >= MIN_PIXELS for mask in labels for part in ("LV", "Myo")]
    valid = torch.stack(enough).all(0).nonzero()[:, 0].tolist()
    if not valid:
        raise BadInput(f"{name} has no slice with LV and Myo at both phases: leave it out of split.csv")
    return [valid[round(q * (len(valid) - 1))] for q in QUANTILES]


def not_constant(images: Float[Tensor, "b 1 *s"]) -> Bool[Tensor, " b"]:
    """Which images of a batch show something."""
    return images.flatten(1).amax(1) > images.flatten(1).amin(1)


def volume_pair(name: str, images: Sequence[Image], masks: Sequence[Image], grid: Grid) -> Sample:
    """The second image to the first on a grid; without masks, no labels."""
    fixed, moving = (volume_on(image, grid) for image in rescale_images_jointly(*images))
    labels = [labels_on(mask, grid) for mask in masks]
    return Sample(name, fixed, moving, grid.spacing, *labels)


def volume_on(image: Image, grid: Grid) -> Float[Tensor, "1 1 *s"]:
    """The image on a grid, smoothed first where that is coarser; beyond its border the border goes on."""
    return to_tensor(resample_image(image, grid))[None, None].clamp(0, 1)


def labels_on(mask: Image, grid: Grid) -> UInt8[Tensor, "1 1 *s"]:
    """The nearest labels on a grid; 0 beyond the border."""
    return to_tensor(place_labels(mask, grid))[None, None]


def to_tensor(image: Image) -> Tensor:
    """The values of an image, axes as they are."""
    return torch.from_numpy(np.ascontiguousarray(image.array))


def to_slices(stack: Tensor) -> Tensor:
    """(h, w, n) to (n, 1, h, w)."""
    return stack.movedim(2, 0)[:, None].contiguous()
