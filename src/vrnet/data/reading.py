"""Files of one subject, read and found fit for use; or BadInput."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

from vrnet.data.grids import slices_last
from vrnet.data.sample import Purpose
from vrnet.errors import BadInput
from vrnet.files import exists
from vrnet.images.exchange import grid_of
from vrnet.images.image import Image, as_labels
from vrnet.images.io import read_image, read_sitk
from vrnet.images.same_grid import check_same_grid
from vrnet.wording import shape_text

LARGEST_LABEL = 255


def read_shown(path: Path) -> Image:
    """An image in which there is something to see, its axes in the order of the world's."""
    image = read_image(path)
    if image.array.min() == image.array.max():
        raise BadInput(f"{path} is constant ({image.array.flat[0]:g}): there is nothing to register")
    return image.reordered(image.grid.order)


def read_volume(path: Path) -> Image:
    """An image with three axes in which there is something to see: a stack of slices, or a volume. Whatever the order
    in which they are stored, its slices lie across the last, and the others are in the order of the world's."""
    image = read_shown(path)
    if len(image.grid.shape) != 3:
        raise BadInput(f"{path} is {len(image.grid.shape)}D: a stack of slices or a volume should be there")
    return image.reordered(slices_last(image.grid))


def read_phases(paths: Sequence[Path]) -> list[Image]:
    """The volumes of one subject at several times, all of one shape and in one place."""
    first, *others = images = [read_volume(path) for path in paths]
    for image in others:
        check_series(first, image)
    return images


def check_series(first: Image, other: Image) -> None:
    """BadInput unless both images have one shape and overlap in space."""
    if first.grid.shape != other.grid.shape:
        shapes = " and ".join(shape_text(image.grid.shape) for image in (first, other))
        raise BadInput(f"{first.name} and {other.name} differ in shape ({shapes}): they should be of one series")
    check_overlap(first, other)


def check_overlap(first: Image, other: Image) -> None:
    """BadInput unless some voxels of both images are in one place."""
    if not first.grid.overlaps(other.grid):
        raise BadInput(f"{first.name} and {other.name} do not overlap in space: check their headers")


def read_frames(path: Path) -> list[Image]:
    """The frames of a 4D file, each as a volume; the first is not constant."""
    import SimpleITK as sitk

    series = read_sitk(path)
    if series.GetDimension() != 4 or series.GetSize()[3] < 2:
        raise BadInput(f"{path} is not a series of volumes: frames over time should be its fourth axis")
    frames = [series[..., t] for t in range(series.GetSize()[3])]
    stored = [Image(sitk.GetArrayFromImage(frame).T, grid_of(frame), str(path)) for frame in frames]
    images = [image.reordered(slices_last(image.grid)) for image in stored]
    if images[0].array.min() == images[0].array.max():
        raise BadInput(f"{path} is constant in its first frame: there is nothing to register")
    return images


def labels_for(purpose: Purpose, paths: list[Path]) -> list[Path]:
    """The label maps of a subject: all of them to be measured on; to be trained on, all or none, as they are there."""
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
