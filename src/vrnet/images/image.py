"""An image: an array, and where its voxels are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from math import inf, isfinite
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel
import numpy as np
import SimpleITK as sitk
import torch
from jaxtyping import Bool, Float, Shaped
from nibabel.spatialimages import SpatialImage
from numpy import ndarray
from numpy.typing import NDArray
from torch import Tensor

from vrnet.errors import BadInput, type_name
from vrnet.images.grid import ORTHONORMAL_TOLERANCE, Grid, checked_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# SimpleITK has LPS millimetres, as a grid has, and arrays whose axes are reversed. nibabel has arrays whose axes are
# the grid's, and an affine map of indices to RAS: x = diag(-1, -1, 1) · affine · (i, j, k, 1).

ITK_TYPES = {"?": np.uint8, "e": np.float32, "g": np.float64}  # for bool, half and extended, which ITK does not have
RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
UNITS_MM = {"meter": 1e3, "micron": 1e-3}  # the units of length of a NIfTI header that are not the millimetre
UNITS_MS = {"sec": 1e3, "msec": 1.0, "usec": 1e-3}


def grid_of(image: sitk.Image) -> Grid:
    return Grid(image.GetSize(), image.GetSpacing(), image.GetOrigin(), image.GetDirection())


def to_sitk(array: Shaped[ndarray, "..."], grid: Grid, is_vector: bool = False) -> sitk.Image:
    """A SimpleITK image of an array whose axes are the grid's; of a vector image the components come first."""
    image = sitk.GetImageFromArray(array.astype(stored_type(array), copy=False).T, isVector=is_vector)
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin)
    image.SetDirection(grid.direction)
    return image


def stored_type(array: Shaped[ndarray, "..."]) -> Any:
    """The number type of an array in a file, in the byte order of this machine."""
    return ITK_TYPES.get(array.dtype.char, array.dtype.newbyteorder("="))


def grid_of_nibabel(image: SpatialImage, shape: tuple[int, ...], name: str) -> Grid:
    """Where the voxels of an image of nibabel are; `shape` is that of its axes in space; BadInput if nobody knows."""
    d = len(shape)
    if image.affine is None:
        raise BadInput(f"{name} has no affine map, so that nobody knows where it lies: give it one")
    header = image.header
    unit = UNITS_MM.get(header.get_xyzt_units()[0], 1.0) if hasattr(header, "get_xyzt_units") else 1.0
    form = RAS_TO_LPS @ np.diag([unit, unit, unit, 1.0]) @ np.asarray(image.affine, np.float64)
    spacing = np.linalg.norm(form[:3, :d], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        axes = form[:d, :d] / spacing
    if d == 2 and not np.allclose(axes.T @ axes, np.eye(2), atol=ORTHONORMAL_TOLERANCE):
        raise BadInput(f"{name} is a picture that is tilted in space: give it three axes, as (x, y, 1)")
    return checked_grid(Grid.of(shape, spacing, form[:d, 3], axes), Path(name))


def frame_step(header: Any) -> float | None:
    """From one frame to the next in ms, by a header of nibabel; None where it does not say."""
    unit = UNITS_MS.get(header.get_xyzt_units()[1]) if hasattr(header, "get_xyzt_units") else None
    return unit and float(header.get_zooms()[3]) * unit


Times = tuple[float, ...] | None  # when frames were taken, in ms
MAX_SEGMENTS, MAX_SCATTER = 256, 0.5  # of a segmentation: values, and the part of neighbours that differ
# More different numbers are intensities, unless they come in patches, as those of FreeSurfer do.
NOT_LABELS = 64, "not a label map; give the labels that were drawn on it"
NOT_A_MASK = 20, "not a mask, which is 0 outside and 1 inside; give a mask, or a label map"


@dataclass(frozen=True, repr=False, eq=False)
class Image:
    """A 2D or 3D image. Axis i of the array is axis i of the grid, as in nibabel (in SimpleITK they are reversed)."""

    array: Shaped[ndarray, "*s"]
    grid: Grid
    name: str = "the image"  # what messages call it: the file it came from

    def __post_init__(self) -> None:
        if self.array.shape != self.grid.shape:
            raise BadInput(f"{self.name} is {self.array.shape} on a grid of {self.grid.shape}: give both one shape")

    def __repr__(self) -> str:
        spacing = " x ".join(f"{h:.4g}" for h in self.grid.spacing)
        return f"Image({self.name}: {self.array.shape} {self.array.dtype}, {spacing} mm)"

    @classmethod
    def from_sitk(cls, image: sitk.Image, name: str = "the image") -> "Image":
        """The image of a SimpleITK image: its voxels where they were, of the type that they were."""
        if (components := image.GetNumberOfComponentsPerPixel()) > 1:
            raise BadInput(f"{name} holds {components} values per voxel (colours, or a transform): give a grey image")
        if len(image.GetSize()) == 4 and image.GetSize()[3] == 1:
            image = sitk.Extract(image, (*image.GetSize()[:3], 0))
        array = checked_numbers(sitk.GetArrayFromImage(image).T, name)
        return cls(array, checked_grid(grid_of(image), Path(name)), name)

    def to_sitk(self) -> sitk.Image:
        """The image as SimpleITK has it. Its arrays have their axes reversed; booleans become 8 bits."""
        return to_sitk(self.array, self.grid)

    @classmethod
    def from_nibabel(cls, image: SpatialImage, name: str = "the image") -> "Image":
        """The image of an image of nibabel, whose RAS becomes LPS here; scaled as its header says."""
        array = np.asanyarray(image.dataobj)
        array = checked_numbers(array[..., 0] if array.ndim == 4 and array.shape[3] == 1 else array, name)
        return cls(array, grid_of_nibabel(image, array.shape, name), name)

    def to_nibabel(self) -> "nibabel.Nifti1Image":
        """The image as nibabel has it, in RAS; booleans become 8 bits. A picture lies in the plane z = 0."""
        d, form, dtype = len(self.grid.shape), np.eye(4), stored_type(self.array)
        form[:d, :d], form[:d, 3] = self.grid.to_world, self.grid.origin
        make: Any = nibabel.Nifti1Image  # which has no types
        image = make(self.array.astype(dtype, copy=False), RAS_TO_LPS @ form, dtype=np.dtype(dtype))
        image.header.set_xyzt_units("mm")
        return image

    def to_numpy(self) -> Shaped[ndarray, "*s"]:
        """The array itself, whose axes are the grid's."""
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Shaped[ndarray, "*s"]:
        """For `numpy.asarray`."""
        return np.array(self.array, dtype=dtype, copy=copy)

    def show(self) -> "Figure":
        """A figure of matplotlib: the picture, or of a volume the middle slice in each plane."""
        from vrnet.report.figures import image_figure

        return image_figure(self)

    def _repr_html_(self) -> str:
        from vrnet.report.figures import image_card

        return image_card(self)

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


def checked_numbers(array: Shaped[ndarray, "*s"], name: str) -> Shaped[ndarray, "*s"]:
    """The array; BadInput unless it is a picture or a volume of real, finite numbers."""
    if array.ndim not in (2, 3):
        raise BadInput(f"{name} has {array.ndim} dimensions: give one 2D or 3D image; a cine is for `vrnet track`")
    if array.dtype.kind not in "iufb":
        raise BadInput(f"{name} holds {array.dtype}: give an image of real numbers, such as a magnitude")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadInput(f"{name} contains NaN or infinite values: replace them first (numpy.nan_to_num)")
    return array


def segment_count(image: Image) -> int | None:
    """How many values an image has that is evidently a segmentation: whole numbers, few, in patches; otherwise None."""
    array: ndarray[Any, Any] = image.array
    few = len(np.unique(array.flat[:: 1 + array.size // 100_000])) <= MAX_SEGMENTS  # to sort all takes long
    count = len(np.unique(array)) if few and (array.dtype.kind in "iu" or (array == np.round(array)).all()) else 0
    return count if 1 < count <= MAX_SEGMENTS and scatter(array) < MAX_SCATTER else None


def scatter(array: Shaped[ndarray, "*s"]) -> float:
    """The part of neighbours above the background whose values differ: of images over 3/4, of label maps up to 1/10."""
    lines, least = [np.moveaxis(array, axis, 0) for axis in range(array.ndim)], array.min()
    both = [np.minimum(line[1:], line[:-1]) > least for line in lines]
    differ = sum(int(((line[1:] != line[:-1]) & shown).sum()) for line, shown in zip(lines, both, strict=True))
    return differ / max(sum(int(shown.sum()) for shown in both), 1)


def as_labels(image: Image) -> Image:
    """The image as a label map: whole numbers, in an integer type; or BadInput."""
    array: ndarray[Any, Any] = image.array
    if array.dtype.kind not in "iu":
        wide = array.astype(np.float64)
        if not ((np.abs(wide) < 2.0**53) & (wide == np.round(wide))).all():
            raise BadInput(f"{image.name} holds values that are not whole numbers: it is an image, not a label map; "
                           "give labels, and resample these to the nearest voxel only")  # fmt: skip
        image = image.with_array(array.astype(np.int64))
    refuse_intensities(image.name, image.array, *NOT_LABELS)
    return image


def refuse_intensities(name: str, array: Shaped[ndarray, "*s"], most: int, advice: str) -> None:
    """BadInput where more than `most` different numbers change from voxel to voxel: it is an image."""
    is_whole = array.dtype.kind in "iub"
    if array.size == 0 or (is_whole and int(array.max()) - int(array.min()) < most) or scatter(array) < MAX_SCATTER:
        return
    if (count := len(np.unique(array))) > most:
        raise BadInput(f"{name} holds {count:,} numbers that change from voxel to voxel: it is an image, {advice}")


@dataclass(frozen=True, repr=False, eq=False)
class Cine:
    """A cycle of 2D images, stacks or volumes; the last frame is followed by the first of the next beat."""

    frames: Shaped[ndarray, "t *s"]
    grid: Grid  # that of each frame
    times_ms: Times = None
    """When each frame was taken, in ms after the R wave; None where the files do not say."""
    name: str = "the cine"  # what messages call it: the file or folder it came from
    doubt: str = ""  # why it may be no cine, where its file leaves that open
    study: tuple[str, ...] = ()
    """Of DICOM, what was taken of each series, or why it was left."""

    def __post_init__(self) -> None:
        shape, own = self.frames.shape, self.grid.shape
        if len(shape) < 1 or shape[1:] != own or len(own) not in (2, 3):
            raise BadInput(f"{self.name} is {shape} on a grid of {own}: give (t, *shape), its frames 2D or 3D")
        if len(self.frames) < 2:
            raise BadInput(f"{self.name} holds one frame only: give a cine, or register two images by `vrnet register`")
        for k, frame in enumerate(self.frames):
            name = f"frame {k} of {self.name}"
            checked_numbers(frame, name)
            if frame.size == 0 or (frame == frame.flat[0]).all():
                raise BadInput(f"{name} is the same everywhere: it shows nothing; leave it out of the cine")
        times = self.times_ms
        if times is not None and len(times) != len(self.frames):
            raise BadInput(f"{self.name} has {len(self.frames)} frames and {len(times)} times: give one per frame")
        if not all(before < time < inf for before, time in pairwise((-inf, *(times or ())))):
            raise BadInput(f"the times of {self.name} do not increase from frame to frame: mend their order")

    def __repr__(self) -> str:
        spacing = " x ".join(f"{h:.4g}" for h in self.grid.spacing)
        return f"Cine({self.name}: {len(self.frames)} frames of {self.grid.shape}, {spacing} mm)"

    def __len__(self) -> int:
        """How many frames it has."""
        return len(self.frames)

    def image(self, k: int) -> Image:
        """Frame k."""
        return Image(self.frames[k], self.grid, f"frame {k} of {self.name}")

    def show(self) -> "Figure":
        """A figure of matplotlib: the middle slice at a few frames, evenly through the cycle."""
        from vrnet.report.figures import image_figure

        return image_figure(self)

    def _repr_html_(self) -> str:
        from vrnet.report.figures import image_card

        return image_card(self.image(0), repr(self))


def as_tensor(array: NDArray[Any] | Tensor) -> Tensor:
    if isinstance(array, Tensor):
        return array
    wide = np.float64 if array.dtype.kind == "f" and array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(array.astype(wide, order="C"))


def as_tensors(fixed: object, moving: object) -> tuple[Tensor, Tensor]:
    """The pair as tensors of floats, of one shape on one device, or BadInput if it cannot be registered."""
    images = []
    for name, given in (("fixed", fixed), ("moving", moving)):
        if not isinstance(given, (np.ndarray, Tensor)):
            raise BadInput(f"{name} is {type_name(given)}: give an array or tensor; vrnet.register_images takes files")
        if given.ndim not in (2, 3):
            raise BadInput(f"{name} has {given.ndim} dimensions: give a 2D or 3D image, without batch or channel axes")
        if given.is_complex() if isinstance(given, Tensor) else given.dtype.kind not in "iufb":
            raise BadInput(f"{name} holds {given.dtype}: give an image of real numbers")
        if isinstance(given, Tensor) and (given.layout != torch.strided or given.is_quantized or given.is_meta):
            raise BadInput(f"{name} is a sparse, quantized or meta tensor: give a dense one")
        image = as_tensor(given)
        if image.dtype != torch.float64:
            image = image.to(torch.float64 if is_lost_in_single(image) else torch.float32)
        check_values(name, image.detach())
        images.append(image)
    I0, I1 = images
    if I0.shape != I1.shape:
        raise BadInput(f"fixed is {tuple(I0.shape)} and moving {tuple(I1.shape)}: bring them to one grid first")
    if I0.device != I1.device:
        raise BadInput(f"fixed is on {I0.device} and moving on {I1.device}: move them to one device")
    return I0, I1


def check_values(name: str, image: NDArray[Any] | Tensor) -> None:
    """BadInput if the image has no voxels, is not finite or is constant."""
    if 0 in image.shape:
        raise BadInput(f"{name} is {tuple(image.shape)}: it has no voxels")
    low, high = float(image.min()), float(image.max())  # either is NaN where any voxel is
    if not (isfinite(low) and isfinite(high)):
        raise BadInput(f"{name} contains NaN or infinite values: replace them first (numpy.nan_to_num)")
    if low == high:
        raise BadInput(f"{name} is constant ({low:g}): there is nothing to register")


def is_lost_in_single(image: Tensor) -> bool:
    """Whether single precision would round an image by more than a shade of its range, as beside a large offset."""
    if image.element_size() < 4 or image.dtype == torch.float32 or image.numel() == 0:
        return False
    exact = image.detach().to(torch.float64)
    error = (exact.to(torch.float32).to(torch.float64) - exact).abs().max()
    return bool(error > (exact.max() - exact.min()) / 256)  # one shade of grey on a screen


def as_float(array: Shaped[ndarray, "*s"]) -> Float[ndarray, "*s"]:
    """The array in single precision; in double, where single would lose what it shows."""
    return array.astype(np.float64 if is_lost_in_single(as_tensor(array)) else np.float32)


def check_spacing(spacing: object, d: int) -> None:
    """BadInput unless the spacing, if there is one, is a positive number per axis."""
    numbers = spacing if isinstance(spacing, Sequence) else ()
    is_fit = len(numbers) == d and all(isinstance(h, Real) and 0 < float(h) < inf for h in numbers)
    if spacing is not None and not is_fit:
        raise BadInput(f"the spacing is {spacing!r}: give {d} numbers above zero, one per axis")


Mask = Bool[Tensor, "*s"] | None


def mask_tensor(name: str, given: object, I: Float[Tensor, "*s"]) -> Mask:
    """Which voxels of an image are inside, nonzero in its mask; None if all are; BadInput if that makes no sense."""
    if given is None:
        return None
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"the mask of {name} is {type_name(given)}: give a NumPy array or a torch tensor")
    if tuple(given.shape) != tuple(I.shape):
        raise BadInput(f"the mask of {name} is {tuple(given.shape)} and {name} {tuple(I.shape)}: give both one shape")
    inside = inside_of(f"the mask of {name}", as_tensor(given).cpu().numpy())
    return None if inside.all() else torch.from_numpy(inside).to(I.device)


def inside_of(name: str, mask: Shaped[ndarray, "*s"]) -> Bool[ndarray, "*s"]:
    """Where a mask is not 0; BadInput if it makes no sense."""
    if not np.isfinite(mask).all():
        raise BadInput(f"{name} contains NaN or infinite values: a mask is 0 outside and 1 inside")
    refuse_intensities(name, mask, *NOT_A_MASK)
    if not mask.any():
        raise BadInput(f"{name} is empty: give a mask that is not 0 inside")
    return mask != 0


# Intensities in [0, 1]: one scaling for both images of a pair, or the same tissue would no longer be equally bright.
# Between subjects or scanners it is not equally bright to begin with: there, each image has its own scaling.

PERCENTILES = (1, 99)
Inside = Sequence[Bool[Tensor, "..."] | None]  # which voxels of each image count; of None, all


def rescale_jointly(*images: Float[Tensor, "..."], inside: Inside = ()) -> tuple[Float[Tensor, "..."], ...]:
    """Map the 1st to 99th percentile of all images together to [0, 1] and clip; in their precision, then float32."""
    seen = [image.flatten() if mask is None else image[mask] for image, mask in zip_longest(images, inside)]
    values = torch.cat(seen).cpu().numpy()
    low, high = (float(p) for p in np.percentile(values, PERCENTILES))
    if high <= low:  # a few bright voxels on an even ground
        low, high = float(values.min()), float(values.max())
    return tuple(((image - low) / (high - low)).clamp(0, 1).float() for image in images)


def rescale_each(*images: Float[Tensor, "..."], inside: Inside = ()) -> tuple[Float[Tensor, "..."], ...]:
    """Map the 1st to 99th percentile of each image by itself to [0, 1] and clip; as float32."""
    return tuple(rescale_jointly(image, inside=[mask])[0] for image, mask in zip_longest(images, inside))


def rescale_images_jointly(*images: Image, masks: Sequence[Image | None] = ()) -> list[Image]:
    """`rescale_jointly` of images by what is inside their masks; before padding, or a border counts more than once."""
    inside = [None if mask is None else torch.from_numpy(mask.array) for mask in masks]
    arrays = rescale_jointly(*(torch.from_numpy(image.array.astype(np.float64)) for image in images), inside=inside)
    return [image.with_array(array.numpy()) for image, array in zip(images, arrays, strict=True)]
