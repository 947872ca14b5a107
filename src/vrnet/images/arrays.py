"""Arrays and tensors as a caller gives them: checked once, where they come in."""

from collections.abc import Sequence
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.wording import type_name

MAX_ROUNDING = 1 / 256
"""The part of the range of an image by which it may be rounded: one shade of grey on a screen."""


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
    """The image as a tensor of float32 or float64, or BadInput if it cannot be registered.

    Integers become float32, or float64 where that would hide what they show."""
    if not isinstance(given, (np.ndarray, Tensor)):
        files = "vrnet.register_images takes files and images in space"
        raise BadInput(f"{name} is {type_name(given)}: give a NumPy array or a torch tensor; {files}")
    if given.ndim not in (2, 3):
        raise BadInput(f"{name} has {given.ndim} dimensions: give one 2D or 3D image, without batch or channel axes")
    if given.is_complex() if isinstance(given, Tensor) else given.dtype.kind not in "iufb":
        raise BadInput(f"{name} holds {given.dtype}: give an image of real numbers")
    image = as_tensor(given)
    if image.dtype != torch.float64:
        image = image.to(torch.float64 if is_lost_in_single(image) else torch.float32)
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


def is_lost_in_single(image: Tensor) -> bool:
    """Whether single precision would round an image by more than a shade of its range, as beside a large offset."""
    if image.element_size() < 4 or image.dtype == torch.float32 or image.numel() == 0:
        return False
    exact = image.detach().to(torch.float64)
    low, high = float(exact.min()), float(exact.max())
    allowed = MAX_ROUNDING * (high - low)
    if max(abs(low), abs(high)) * 2.0**-24 <= allowed:  # the most that it rounds a number
        return False
    return bool((exact.to(torch.float32).to(torch.float64) - exact).abs().max() > allowed)


def check_spacing(spacing: object, d: int) -> None:
    """BadInput unless the spacing, if there is one, is a positive number per axis."""
    is_per_axis = isinstance(spacing, Sequence) and len(spacing) == d and all(map(is_length, spacing))
    if spacing is not None and not is_per_axis:
        example = ", ".join(["1.0"] * d)
        raise BadInput(f"the spacing is {spacing!r}: give {d} numbers above zero, one per axis, such as ({example})")


def is_length(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < inf


def field_tensor(given: object, shape: tuple[int, ...]) -> Tensor:
    """A displacement field in voxels (d, *s) of images of this shape, or BadInput."""
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"the field is {type_name(given)}: give an array or a tensor, as that of register")
    if tuple(given.shape) != (len(shape), *shape):
        expected = (len(shape), *shape)
        raise BadInput(f"the field is {tuple(given.shape)}: give one of shape {expected}, an axis first, in voxels")
    field = as_tensor(given).to(torch.float32)
    if not bool(torch.isfinite(field).all()):
        raise BadInput("the field contains NaN or infinite values: give one that was found")
    return field
