"""An image: an array, and where its voxels are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.checks import check_grid
from vrnet.images.exchange import NibabelImage, SimpleITKImage, grid_of, grid_of_nibabel, to_nibabel, to_sitk
from vrnet.images.grid import Grid
from vrnet.images.nifti import NOT_FINITE
from vrnet.views import viewer

if TYPE_CHECKING:
    import nibabel
    import SimpleITK as sitk
    from matplotlib.figure import Figure

MAX_SEGMENTS, MAX_EDGE_SHARE = 256, 0.5
"""A segmentation has no more values than this, and neighbours of different values at no more than this part."""
MAX_SCATTERED_LABELS, MAX_SCATTERED_IN_MASK = 64, 20
"""More different numbers that change from voxel to voxel are intensities. Those of FreeSurfer are more, but come in
patches; images have about a hundred or more. A mask has two values, or those of a label map."""
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

    @classmethod
    def from_sitk(cls, image: SimpleITKImage, name: str = "the image") -> "Image":
        """The image of a SimpleITK image: its voxels where they were, of the type that they were."""
        import SimpleITK as sitk

        if (components := image.GetNumberOfComponentsPerPixel()) > 1:
            raise BadInput(f"{name} holds {components} values per voxel (colours, or a transform): give a grey image")
        if len(image.GetSize()) == 4 and image.GetSize()[3] == 1:
            image = sitk.Extract(image, (*image.GetSize()[:3], 0))
        check_dimension(len(image.GetSize()), name)
        grid = grid_of(image)
        check_grid(grid, Path(name))
        return cls(checked_numbers(sitk.GetArrayFromImage(image).T, name), grid, name)

    def to_sitk(self) -> "sitk.Image":
        """The image as SimpleITK has it. Its arrays have their axes reversed; booleans become 8 bits."""
        return to_sitk(self.array, self.grid)

    @classmethod
    def from_nibabel(cls, image: NibabelImage, name: str = "the image") -> "Image":
        """The image of an image of nibabel, whose RAS becomes LPS here; scaled as its header says."""
        array = np.asanyarray(image.dataobj)
        array = array[..., 0] if array.ndim == 4 and array.shape[3] == 1 else array
        check_dimension(array.ndim, name)
        grid = grid_of_nibabel(image, array.shape, name)
        check_grid(grid, Path(name))
        return cls(checked_numbers(array, name), grid, name)

    def to_nibabel(self) -> "nibabel.Nifti1Image":
        """The image as nibabel has it, in RAS; booleans become 8 bits."""
        return to_nibabel(self.array, self.grid)

    def to_numpy(self) -> Shaped[ndarray, "*s"]:
        """The array itself, whose axes are the grid's."""
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Shaped[ndarray, "*s"]:
        """For `numpy.asarray`."""
        return np.array(self.array, dtype=dtype, copy=copy)

    def show(self) -> "Figure":
        """A figure of matplotlib: the picture, or of a volume the middle slice in each plane."""
        return viewer().draw(self)

    def _repr_html_(self) -> str:
        return viewer().card(self)

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


def check_dimension(d: int, name: str) -> None:
    """BadInput unless an image is a picture or a volume."""
    if d not in (2, 3):
        raise BadInput(
            f"{name} has {d} dimensions: give one 2D or 3D image, such as one time frame; a whole cine is for "
            "`vrnet track`"
        )


def checked_numbers(array: Shaped[ndarray, "*s"], name: str) -> Shaped[ndarray, "*s"]:
    """The array; or BadInput if its numbers are not real and finite."""
    if array.dtype.kind == "c":
        raise BadInput(f"{name} holds complex numbers: give an image of real ones, such as their magnitude")
    if array.dtype.kind not in "iufb":
        raise BadInput(f"{name} holds {array.dtype}: give an image of real numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadInput(f"{name} {NOT_FINITE}")
    return array


def segment_count(image: Image) -> int | None:
    """How many values an image has that is evidently a segmentation: whole numbers, few, in patches; otherwise None."""
    array: ndarray[Any, Any] = image.array
    if len(np.unique(array.flat[:: 1 + array.size // SAMPLED_VOXELS])) > MAX_SEGMENTS:
        return None
    if array.dtype.kind not in "iu" and not (array == np.round(array)).all():
        return None
    count = len(np.unique(array))
    return count if 1 < count <= MAX_SEGMENTS and edge_share(array) < MAX_EDGE_SHARE else None


def label_maps(fixed: Image, moving: Image) -> tuple[str, ...]:
    """Which of two images, fixed or moving, are evidently segmentations."""
    return tuple(role for role, image in (("fixed", fixed), ("moving", moving)) if segment_count(image) is not None)


def edge_share(array: Shaped[ndarray, "*s"]) -> float:
    """The part of all pairs of neighbours, but for those in the background of least value, whose values differ."""
    lines = [np.moveaxis(array, axis, 0) for axis in range(array.ndim)]
    differ = sum(int((line[1:] != line[:-1]).sum()) for line in lines)
    shown = sum(int((np.maximum(line[1:], line[:-1]) > array.min()).sum()) for line in lines)
    return differ / max(shown, 1)


def scatter(array: Shaped[ndarray, "*s"]) -> float:
    """The part of all pairs of neighbours, both above the background of least value, whose values differ: of images
    more than three quarters, of label maps a tenth or less. Single voxels in the background have none."""
    lines, least = [np.moveaxis(array, axis, 0) for axis in range(array.ndim)], array.min()
    both = [np.minimum(line[1:], line[:-1]) > least for line in lines]
    differ = sum(int(((line[1:] != line[:-1]) & shown).sum()) for line, shown in zip(lines, both, strict=True))
    return differ / max(sum(int(shown.sum()) for shown in both), 1)


def as_labels(image: Image) -> Image:
    """The image as a label map: whole numbers, in an integer type; or BadInput."""
    array: ndarray[Any, Any] = image.array
    if array.dtype.kind not in "iu":
        wide = array.astype(np.float64)
        is_whole = (np.abs(wide) < MAX_WHOLE_FLOAT).all() and (wide == np.round(wide)).all()
        if not is_whole:
            raise BadInput(f"{image.name} holds values that are not whole numbers: it is an image, not a label map; "
                           "give labels, and resample these to the nearest voxel only")  # fmt: skip
        image = image.with_array(array.astype(np.int64))
    instead = "not a label map; give the labels that were drawn on it"
    refuse_intensities(image.name, image.array, MAX_SCATTERED_LABELS, instead)
    return image


def refuse_intensities(name: str, array: Shaped[ndarray, "*s"], most: int, instead: str) -> None:
    """BadInput where more than `most` different numbers change from voxel to voxel: it is an image, not what it was
    given for."""
    if (count := scattered_count(array, most)) > most:
        raise BadInput(f"{name} holds {count:,} different numbers that change from voxel to voxel: it is an image, "
                       f"{instead}")  # fmt: skip


def scattered_count(array: Shaped[ndarray, "*s"], least: int) -> int:
    """How many different numbers a map holds; 0 where they are evidently fewer than `least`, or in patches: all voxels
    of a large map are sorted only where it must be."""
    is_whole = array.dtype.kind in "iub"
    if array.size == 0 or (is_whole and int(array.max()) - int(array.min()) < least) or scatter(array) < MAX_EDGE_SHARE:
        return 0
    return len(np.unique(array))


def as_mask(image: Image) -> Image:
    """The image as a mask: True where a label map is not zero; or BadInput."""
    if not np.isfinite(image.array).all():
        raise BadInput(f"{image.name} contains NaN or infinite values: a mask is 0 outside and 1 inside")
    if image.array.dtype.kind == "f" and not (image.array == np.round(image.array)).all():
        raise BadInput(f"{image.name} holds values that are not whole numbers: a mask is 0 outside and 1 inside; of a "
                       "soft one, give the part above a threshold")  # fmt: skip
    refuse_image_as_mask(image.name, image.array)
    return image.with_array(image.array != 0)


def refuse_image_as_mask(name: str, array: Shaped[ndarray, "*s"]) -> None:
    """BadInput where what is given as a mask has the many values, from voxel to voxel, of an image."""
    instead = "not a mask, which is 0 outside and 1 inside; give a mask, or a label map"
    refuse_intensities(name, array, MAX_SCATTERED_IN_MASK, instead)
