"""The paper's protocols for cardiac MR.

2D: slices at 1.8 mm, 160x160 about the centre, intensities scaled by the 1st and 99th percentile of all frames
together. Measured on: the slices at 25, 50 and 75 % of those that show at least 10 pixels of LV and of Myo at both
phases. Trained on: every slice that is not constant; or, of whole cycles, three slices of every frame. 3D: one grid for
all, intensities scaled first; images cropped, or padded by their borders, labels by 0."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput, shape_text
from vrnet.files import exists
from vrnet.images.grid import Grid, check_same_grid
from vrnet.images.image import Image, as_labels, rescale_images_jointly, rescale_jointly
from vrnet.images.io import read_cine, read_image
from vrnet.images.resample import place_image, place_labels, resample_image
from vrnet.vocabulary import HEART

# Grids that images are brought to, of one shape and spacing, about the centre of each image; and the images on them.


def centred_grid(own: Grid, shape: tuple[int, ...], spacing: tuple[float, ...], axes: Float[ndarray, "d d"]) -> Grid:
    """The grid about the centre of an image's own grid, whose axes are the columns of `axes`."""
    return Grid.of(shape, spacing, own.centre - axes @ (np.array(spacing) * (np.array(shape) - 1) / 2), axes)


def snap_to_voxels(grid: Grid, own: Grid) -> Grid:
    """The grid moved by up to half a voxel, so that an image of its spacing is only cropped and padded, not blurred."""
    index = own.index(np.array([grid.origin])).round(6)  # or the rounding of a header decides which way ½ goes
    return replace(grid, origin=tuple(own.points(np.round(index))[0].tolist()))


def slices_last(own: Grid) -> tuple[int, ...]:
    """The axes of an image in the order of the world's, with the axis across its slices moved to the end."""
    return *(axis for axis in own.order if axis != own.across), own.across


def to_batch(array: Shaped[ndarray, "*s"], across: int | None) -> Shaped[Tensor, "b 1 *t"]:
    """An image as a batch of one, or a stack as a batch of the slices that lie across an axis."""
    images = array[None] if across is None else np.moveaxis(array, across, 0)
    return torch.from_numpy(np.ascontiguousarray(images))[:, None]


def image_on(image: Image, grid: Grid, across: int | None = None) -> Float[Tensor, "b 1 *s"]:
    """The image on a grid, smoothed first where that is coarser; beyond its border the border goes on."""
    return to_batch(resample_image(image, grid).array, across).clamp(0, 1)


def labels_on(mask: Image, grid: Grid, across: int | None = None) -> UInt8[Tensor, "b 1 *s"]:
    """The nearest labels on a grid; 0 beyond the border."""
    return to_batch(place_labels(mask, grid).array, across)


Purpose = Literal["training", "evaluation"]  # training sees more slices and frames, and may do without labels


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs of one subject as a batch: its slices (and frames) in 2D, the whole volume in 3D. Images are in [0, 1], as
    further channels are, both of a pair by one scaling unless pairs are made across subjects."""

    name: str
    fixed: Float[Tensor, "b c *s"]
    moving: Float[Tensor, "b c *s"]
    spacing: tuple[float, ...]
    """Edges of a voxel in mm."""
    fixed_labels: UInt8[Tensor, "b 1 *s"] | None = None
    moving_labels: UInt8[Tensor, "b 1 *s"] | None = None
    field: Float[Tensor, "b d *s"] | None = None
    """The true motion in voxels, where it is known: what lies at x in fixed lies at x + field(x) in moving."""


Images = Sequence[Image]
SPACING_MM, SIZE = 1.8, 160
ACROSS_STACK = 2  # the axis across the slices of a stack, as `read_volume` turns it
QUANTILES = 0.25, 0.5, 0.75
MIN_PIXELS = 10


def slices_of(images: Images, masks: Images, spacing: float, size: int) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """The slices of stacks, all scaled as one, and of their masks, on the grid of the first stack's slices."""
    grid = grid_of_slices(images[0].grid, spacing, size)
    stacks = rescale_jointly(*(to_batch(place_image(image, grid).array, ACROSS_STACK) for image in images))
    return stacks, [labels_on(mask, grid, ACROSS_STACK) for mask in masks]


def grid_of_slices(own: Grid, spacing: float, size: int) -> Grid:
    """The slices of a stack where they are, in size x size voxels about its centre."""
    return centred_grid(own, (size, size, own.shape[2]), (spacing, spacing, own.spacing[2]), own.forward_axes)


def three_slices(name: str, images: Images, masks: Images, spacing: float, size: int) -> Sample:
    """End-systole (the second image) to end-diastole (the first) in the slices to be measured on."""
    stacks, labels = slices_of(images, masks, spacing, size)
    chosen = choose_slices(labels, name)
    fixed, moving, *labels = (part[chosen] for part in (*stacks, *labels))
    return Sample(name, fixed, moving, (spacing, spacing), *labels)


def all_slices(name: str, images: Images, masks: Images, spacing: float, size: int) -> Sample:
    """Every later frame to the first, in all slices that are not constant in either."""
    parts = []
    for first, *later in filter(None, slices_of(images, masks, spacing, size)):
        parts += [first.repeat(len(later), 1, 1, 1), torch.cat(later)]
    shown = not_constant(parts[0]) & not_constant(parts[1])
    if not shown.any():
        raise BadInput(f"{name} has no slice that shows something at two times: there is nothing to register")
    fixed, moving, *labels = (part[shown] for part in parts)
    return Sample(name, fixed, moving, (spacing, spacing), *labels)


def cycle_to_frame(name: str, frames: Images, fixed: int, phases: Images, masks: Images, here: Grid) -> Sample:
    """Every frame of a cycle to one, in the slices to be measured on, on a grid of the cine; scaled as both phases."""
    measured = grid_of_slices(phases[0].grid, here.spacing[0], SIZE)
    cycle = [to_batch(place_image(frame, here, repeat_border=True).array, ACROSS_STACK) for frame in frames]
    both = [to_batch(place_image(phase, measured).array, ACROSS_STACK) for phase in phases]
    none = torch.zeros_like(cycle[0], dtype=torch.bool)  # of the frames: what is beside the heart may be cut off
    scaled = rescale_jointly(*cycle, *both, inside=[none] * len(cycle))[: len(cycle)]
    chosen = choose_slices([labels_on(mask, here, ACROSS_STACK) for mask in masks], name)
    still, *moving = (scaled[t][chosen] for t in (fixed, *(t for t in range(len(cycle)) if t != fixed)))
    return Sample(name, still.repeat(len(moving), 1, 1, 1), torch.cat(moving), here.spacing[:2])


def choose_slices(labels: Sequence[UInt8[Tensor, "n 1 h w"]], name: str) -> list[int]:
    """The slices at the quantiles of those that show enough LV and Myo at both phases."""
    enough = [(mask == HEART[part]).sum((1, 2, 3)) >= MIN_PIXELS for mask in labels for part in ("LV", "Myo")]
    valid = torch.stack(enough).all(0).nonzero()[:, 0].tolist()
    if not valid:
        raise BadInput(f"{name} has no slice with LV and Myo at both phases: leave it out of split.csv")
    return [valid[round(q * (len(valid) - 1))] for q in QUANTILES]


def not_constant(images: Float[Tensor, "b 1 *s"]) -> Bool[Tensor, " b"]:
    return images.flatten(1).amax(1) > images.flatten(1).amin(1)


def volume_pair(name: str, images: Images, masks: Images, grid: Grid) -> Sample:
    """The second image to the first on a grid; without masks, no labels."""
    fixed, moving = (image_on(image, grid) for image in rescale_images_jointly(*images))
    return Sample(name, fixed, moving, grid.spacing, *(labels_on(mask, grid) for mask in masks))


LARGEST_LABEL = 255


def read_shown(path: Path) -> Image:
    """An image that is not constant, its axes in the order of the world's."""
    image = read_image(path)
    if image.array.min() == image.array.max():
        raise BadInput(f"{path} is constant ({image.array.flat[0]:g}): there is nothing to register")
    return image.reordered(image.grid.order)


def read_volume(path: Path) -> Image:
    """A stack or a volume that is not constant, the axis across its slices last, the others in the world's order."""
    image = read_shown(path)
    if len(image.grid.shape) != 3:
        raise BadInput(f"{path} is {len(image.grid.shape)}D: a stack of slices or a volume should be there")
    return image.reordered(slices_last(image.grid))


def read_phases(paths: Sequence[Path]) -> list[Image]:
    """The volumes of one subject at several times, all of one shape and in one place."""
    first, *others = images = [read_volume(path) for path in paths]
    for other in others:
        a, b = shape_text(first.grid.shape), shape_text(other.grid.shape)
        if a != b:
            raise BadInput(f"{first.name} and {other.name} differ in shape ({a} and {b}): they should be of one series")
        check_overlap(first, other)
    return images


def check_overlap(first: Image, other: Image) -> None:
    if not first.grid.overlaps(other.grid):
        raise BadInput(f"{first.name} and {other.name} do not overlap in space: check their headers")


def read_frames(path: Path) -> list[Image]:
    cine = read_cine(path)
    if len(cine.grid.shape) != 3:
        raise BadInput(f"{path} is not a series of volumes: frames over time should be its fourth axis")
    return [cine.image(t).reordered(slices_last(cine.grid)) for t in range(len(cine))]


def labels_for(purpose: Purpose, paths: list[Path]) -> list[Path]:
    """The label maps of a subject: for evaluation all of them; for training all, or none if one is missing."""
    return paths if purpose == "evaluation" or all(map(exists, paths)) else []


def read_labels(path: Path, image: Image) -> Image:
    """The label map of an image, on its grid, as uint8."""
    stored = as_labels(read_image(path))
    orders = permutations(range(len(stored.grid.shape)))
    labels = next((turned for turned in map(stored.reordered, orders) if turned.grid.matches(image.grid)), stored)
    check_same_grid(str(path), labels.grid, image.name, image.grid)
    if labels.array.min() < 0 or labels.array.max() > LARGEST_LABEL:
        raise BadInput(f"{path} has labels below 0 or above {LARGEST_LABEL}: renumber them")
    return labels.with_array(labels.array.astype(np.uint8))
