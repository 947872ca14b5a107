"""What can be registered: checked once, where images come in."""

from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vrnet.errors import BadInput


def as_tensor(array: NDArray[Any] | Tensor) -> Tensor:
    """A tensor with the values of an array of any layout and byte order."""
    if isinstance(array, Tensor):
        return array
    wide = np.float64 if array.dtype.kind == "f" and array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(array.astype(wide, order="C"))


def as_tensors(fixed: object, moving: object) -> tuple[Tensor, Tensor]:
    """The pair as tensors of one shape on one device, or BadInput."""
    I0, I1 = image_tensor("fixed", fixed), image_tensor("moving", moving)
    if I0.shape != I1.shape:
        raise BadInput(f"fixed is {tuple(I0.shape)} and moving {tuple(I1.shape)}: bring them to one grid first")
    if I0.device != I1.device:
        raise BadInput(f"fixed is on {I0.device} and moving on {I1.device}: move them to one device")
    return I0, I1


def image_tensor(name: str, given: object) -> Tensor:
    """The image as a tensor of float32 or float64, or BadInput if it cannot be registered."""
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"{name} is a {type(given).__name__}: give a NumPy array or a torch tensor")
    if given.ndim not in (2, 3):
        raise BadInput(f"{name} has {given.ndim} dimensions: give one 2D or 3D image, without batch or channel axes")
    if given.is_complex() if isinstance(given, Tensor) else given.dtype.kind not in "iufb":
        raise BadInput(f"{name} holds {given.dtype}: give an image of real numbers")
    image = as_tensor(given)
    is_wide = image.dtype == torch.float64
    image = image if is_wide else image.to(torch.float32)
    check_values(name, image.detach())
    return image


def check_values(name: str, image: NDArray[Any] | Tensor) -> None:
    """BadInput if the image has no voxels, is not finite or is constant."""
    if 0 in image.shape:
        raise BadInput(f"{name} is {tuple(image.shape)}: it has no voxels")
    low, high = float(image.min()), float(image.max())  # either is NaN where any voxel is
    if not (isfinite(low) and isfinite(high)):
        raise BadInput(f"{name} contains NaN or infinite values: replace them first (numpy.nan_to_num)")
    if low == high:
        raise BadInput(f"{name} is constant ({low:g}): there is nothing to register")


def check_spacing(spacing: tuple[float, ...] | None, d: int) -> None:
    """BadInput unless the spacing, if there is one, is a positive number per axis."""
    if spacing is not None and not (len(spacing) == d and all(0 < h < float("inf") for h in spacing)):
        raise BadInput(f"the spacing is {spacing}: give {d} numbers above zero, one per axis")


def check_axes(shape: tuple[int, ...], slice_axis: int | None) -> None:
    """BadInput unless every axis along which motion is sought has at least two voxels."""
    if slice_axis is not None and not (len(shape) == 3 and 0 <= slice_axis < 3):
        raise BadInput(f"slice_axis is {slice_axis} for an image of shape {shape}: only volumes have slices")
    if min(n for axis, n in enumerate(shape) if axis != slice_axis) < 2:
        raise BadInput(f"the images are {shape}: every axis but the one across slices needs at least 2 voxels")
