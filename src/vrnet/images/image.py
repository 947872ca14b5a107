"""An image: an array, and where its voxels are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.grid import Grid

MAX_SEGMENTS, MAX_EDGE_SHARE = 256, 0.5
"""A segmentation has no more values than this, and neighbours of different values at no more than this part."""
MAX_LABELS = 1000
"""More different numbers are intensities, not labels, unless they come in patches, as supervoxels do."""
SAMPLED_VOXELS = 100_000
"""So many are looked at first, since to sort all voxels of a large image takes long."""
MAX_WHOLE_FLOAT = 2.0**53
"""Below this, every whole number is a float64 of its own."""


@dataclass(frozen=True, repr=False, eq=False)
class Image:
    """A 2D or 3D image. Axis i of the array is axis i of the grid, as in nibabel (in SimpleITK they are reversed)."""

    array: Shaped[ndarray, "*s"]
    grid: Grid
    name: str = "the image"
    """What messages call the image: the file it came from."""

    def __post_init__(self) -> None:
        if self.array.shape != self.grid.shape:
            raise BadInput(f"{self.name} is {self.array.shape} on a grid of {self.grid.shape}: give both one shape")

    def __repr__(self) -> str:
        spacing = " x ".join(f"{h:.4g}" for h in self.grid.spacing)
        return f"Image({self.name}: {self.array.shape} {self.array.dtype}, {spacing} mm)"

    def with_array(self, array: Shaped[ndarray, "*s"]) -> "Image":
        """An image of other values on the same grid, under the same name."""
        return replace(self, array=array)

    def reordered(self, order: Sequence[int]) -> "Image":
        """The same image, with axis order[i] as axis i."""
        return replace(self, array=self.array.transpose(order), grid=self.grid.reordered(order))

    def in_world_order(self) -> "Image":
        """The same image with its axes in the order of the world's, and running as these do."""
        ordered = self.reordered(self.grid.order)
        axes = ordered.grid.backward
        return replace(self, array=np.flip(ordered.array, axes), grid=ordered.grid.flipped(axes))


def segment_count(image: Image) -> int | None:
    """How many values an image has that is evidently a segmentation: whole numbers, few, in patches; otherwise None."""
    array: ndarray[Any, Any] = image.array
    if len(np.unique(array.flat[:: 1 + array.size // SAMPLED_VOXELS])) > MAX_SEGMENTS:
        return None
    if array.dtype.kind not in "iu" and not (array == np.round(array)).all():
        return None
    count = len(np.unique(array))
    return count if 1 < count <= MAX_SEGMENTS and edge_share(array) < MAX_EDGE_SHARE else None


def edge_share(array: Shaped[ndarray, "*s"]) -> float:
    """The part of all pairs of neighbours, but for those in the background of least value, whose values differ."""
    lines = [np.moveaxis(array, axis, 0) for axis in range(array.ndim)]
    differ = sum(int((line[1:] != line[:-1]).sum()) for line in lines)
    shown = sum(int((np.maximum(line[1:], line[:-1]) > array.min()).sum()) for line in lines)
    return differ / max(shown, 1)


def as_labels(image: Image) -> Image:
    """The image as a label map: whole numbers, in an integer type; or BadInput."""
    array: ndarray[Any, Any] = image.array
    if array.dtype.kind not in "iu":
        wide = array.astype(np.float64)
        is_whole = (np.abs(wide) < MAX_WHOLE_FLOAT).all() and (wide == np.round(wide)).all()
        if not is_whole:
            raise BadInput(f"{image.name} holds values that are not whole numbers: it is an image, not a label map")
        image = image.with_array(array.astype(np.int64))
    if (count := label_count(image.array)) > MAX_LABELS and edge_share(image.array) >= MAX_EDGE_SHARE:
        raise BadInput(f"{image.name} holds {count:,} different numbers: it is an image, not a label map")
    return image


def label_count(labels: Shaped[ndarray, "*s"]) -> int:
    """How many different numbers a map of integers holds; of a narrow range of numbers, at most how many."""
    span = int(labels.max()) - int(labels.min()) + 1 if labels.size else 0
    return span if span <= MAX_LABELS else len(np.unique(labels))


def as_mask(image: Image) -> Image:
    """The image as a mask: True where a label map is not zero; or BadInput."""
    if not np.isfinite(image.array).all():
        raise BadInput(f"{image.name} contains NaN or infinite values: a mask is 0 outside and 1 inside")
    return image.with_array(as_labels(image).array != 0)
