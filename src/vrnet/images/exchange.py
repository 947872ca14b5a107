"""Images of SimpleITK and of nibabel, and the same voxels at the same places as arrays on a grid.

SimpleITK has LPS millimetres, as a grid has, and arrays whose axes are reversed. nibabel has arrays whose axes are the
grid's, and an affine map of indices to RAS: x = diag(-1, -1, 1) · affine · (i, j, k, 1).
"""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.checks import ORTHONORMAL_TOLERANCE
from vrnet.images.grid import Grid

if TYPE_CHECKING:
    import nibabel
    import SimpleITK as sitk

ITK_TYPES = {"?": np.uint8, "e": np.float32, "g": np.float64}
"""What stands for the number types of NumPy that ITK does not have: bool, half and extended precision."""
RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
UNITS_MM = {"meter": 1000.0, "micron": 0.001}
"""The units of length of a NIfTI header that are not the millimetre."""
UNITS_MS = {"sec": 1000.0, "msec": 1.0, "usec": 0.001}


@runtime_checkable
class SimpleITKImage(Protocol):
    """An image of SimpleITK, known by what it can say of itself: nobody need import SimpleITK to ask."""

    def GetSize(self) -> tuple[int, ...]: ...
    def GetSpacing(self) -> tuple[float, ...]: ...
    def GetOrigin(self) -> tuple[float, ...]: ...
    def GetDirection(self) -> tuple[float, ...]: ...
    def GetNumberOfComponentsPerPixel(self) -> int: ...


@runtime_checkable
class NibabelImage(Protocol):
    """An image of nibabel that lies in space, known by what it has."""

    @property
    def affine(self) -> Any: ...
    @property
    def dataobj(self) -> Any: ...
    @property
    def header(self) -> Any: ...


def grid_of(image: "sitk.Image") -> Grid:
    """Where the voxels of a SimpleITK image are."""
    return Grid(image.GetSize(), image.GetSpacing(), image.GetOrigin(), image.GetDirection())


def to_sitk(array: Shaped[ndarray, "..."], grid: Grid, is_vector: bool = False) -> "sitk.Image":
    """A SimpleITK image of an array whose axes are the grid's; of a vector image the components come first.

    Numbers of a type that ITK does not have become the nearest type that it has."""
    import SimpleITK as sitk

    dtype: Any = ITK_TYPES.get(array.dtype.char, array.dtype.newbyteorder("="))
    return move_to(sitk.GetImageFromArray(array.astype(dtype, copy=False).T, isVector=is_vector), grid)


def move_to(image: "sitk.Image", grid: Grid) -> "sitk.Image":
    """The image, itself, with its voxels on this grid."""
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin)
    image.SetDirection(grid.direction)
    return image


def to_nibabel(array: Shaped[ndarray, "*s"], grid: Grid) -> "nibabel.Nifti1Image":
    """A NIfTI image of nibabel; numbers of a type that NIfTI does not have become the nearest type that it has."""
    import nibabel

    dtype: Any = ITK_TYPES.get(array.dtype.char, array.dtype.newbyteorder("="))
    make: Any = nibabel.Nifti1Image  # which has no types
    image = make(array.astype(dtype, copy=False), affine_of(grid), dtype=np.dtype(dtype))
    image.header.set_xyzt_units("mm")
    return image


def affine_of(grid: Grid) -> Float[ndarray, "4 4"]:
    """The map of indices to RAS millimetres; a picture lies in the plane z = 0."""
    d, form = len(grid.shape), np.eye(4)
    form[:d, :d], form[:d, 3] = grid.to_world, grid.origin
    return RAS_TO_LPS @ form


def grid_of_nibabel(image: NibabelImage, shape: tuple[int, ...], name: str) -> Grid:
    """Where the voxels of an image of nibabel are; `shape` is that of its axes in space; BadInput if nobody knows."""
    d = len(shape)
    if image.affine is None:
        raise BadInput(f"{name} has no affine map, so that nobody knows where it lies: give it one")
    form = RAS_TO_LPS @ np.diag([units_of(image, UNITS_MM, 0, 1.0)] * 3 + [1.0]) @ np.asarray(image.affine, np.float64)
    spacing = np.linalg.norm(form[:3, :d], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        axes = form[:d, :d] / spacing
    if d == 2 and not np.allclose(axes.T @ axes, np.eye(2), atol=ORTHONORMAL_TOLERANCE):
        raise BadInput(f"{name} is a picture that is tilted in space: give it three axes, as (x, y, 1)")
    return Grid(shape, tuple(spacing.tolist()), tuple(form[:d, 3].tolist()), tuple(axes.ravel().tolist()))


def frame_ms_of(image: NibabelImage) -> float | None:
    """From one frame of an image of nibabel to the next; None where its header does not say."""
    unit, zooms = units_of(image, UNITS_MS, 1, 0.0), image.header.get_zooms()
    return float(zooms[3]) * unit or None if len(zooms) > 3 else None


def units_of(image: NibabelImage, sizes: dict[str, float], which: int, otherwise: float) -> float:
    """How large the unit of length (0) or of time (1) is that the header of an image names."""
    name = image.header.get_xyzt_units()[which] if hasattr(image.header, "get_xyzt_units") else ""
    return sizes.get(name, otherwise)
