"""What a wall encloses: the holes of 2D masks, and which of two ventricles the wall of the heart goes all round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.images.image import Image

SMALLEST_CAVITY = 0.05
"""Of the wall: less is a pit in it."""
Array = NDArray[Any]


def enclosed_label(maps: Sequence[Image], wall: int, either: tuple[int, int]) -> int | None:
    """Which of two labels the wall goes all round, slice by slice, in most voxels of all maps: that of the LV. None
    where it encloses as much of both, as where its slices are open."""
    found = np.concatenate([labels_inside(each, wall) for each in maps])
    first, second = ((found == label).sum() for label in either)
    return None if first == second else either[int(second > first)]


def labels_inside(labels: Image, wall: int) -> Array:
    """The labels of the voxels in the cavities that the wall encloses."""
    inside = [enclosed(plane) for plane in in_planes(labels.array == wall, labels)]
    return in_planes(labels.array, labels)[np.stack(inside)]


def in_planes(array: Array, labels: Image) -> Array:
    """A view of what is on the grid of labels: its slices first; an image of two axes is one slice."""
    return array[None] if array.ndim == 2 else np.moveaxis(array, labels.grid.across, 0)


def enclosed(wall: Bool[ndarray, "x y"]) -> Bool[ndarray, "x y"]:
    """The largest part of a slice that the wall encloses, where that is its cavity: pits within the wall are none. A
    hole that is small and beside the middle of the wall is a pit, too, as those of an open wall are."""
    found = largest_part(fill_holes(wall[None])[0] & ~wall, diagonal=False)
    if found.sum() > SMALLEST_CAVITY * wall.sum():
        return found
    is_in_the_middle = found.any() and found[tuple(np.argwhere(wall).mean(0).round().astype(int))]
    return found if is_in_the_middle else np.zeros_like(wall)


def largest_part(mask: Bool[ndarray, "x y"], diagonal: bool) -> Bool[ndarray, "x y"]:
    """The largest connected part of a mask; empty if the mask is."""
    from scipy import ndimage

    parts, n = ndimage.label(mask, np.ones((3, 3)) if diagonal else None)
    return parts == 1 + np.argmax(np.bincount(parts.ravel(), minlength=2)[1:]) if n else mask


def fill_holes(slices: Bool[ndarray, "n h w"]) -> Bool[ndarray, "n h w"]:
    """2D masks and their holes: whatever cannot be left through sides of voxels.

    Labelling the background is faster than scipy.ndimage.binary_fill_holes, which spreads voxel by voxel."""
    from scipy import ndimage

    in_plane = np.zeros((3, 3, 3), bool)
    in_plane[1] = ndimage.generate_binary_structure(2, 1)
    background = np.pad(~slices, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    parts, _ = ndimage.label(background, in_plane)
    return (parts != parts[:, :1, :1])[:, 1:-1, 1:-1]
