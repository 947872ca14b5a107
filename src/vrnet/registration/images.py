"""Two images in the world, each on its own grid, in; the transform between them out."""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from vrnet.data.protocols import rescale_images
from vrnet.devices import find_device
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import read_image
from vrnet.images.resample import coverage, match_histogram, resample_image
from vrnet.images.transform import Transform
from vrnet.methods.method import Method
from vrnet.methods.names import ready
from vrnet.progress import Progress
from vrnet.registration.arrays import register, spacing_within
from vrnet.registration.checks import check_axes, check_values

Slices = Literal["auto", "each", "together"]


@dataclass(frozen=True, repr=False, eq=False)
class ImageRegistration:
    """What was found between two images in the world."""

    transform: Transform
    """From fixed to moving, on the grid of fixed."""
    warped: Image
    """Moving, as it was given, resampled on the grid of fixed through the transform."""
    energies: NDArray[np.floating[Any]]
    method: str
    weights: str | None
    """The file that the weights of a trained model came from."""
    device: str
    slice_axis: int | None
    """Across which axis slices were registered one by one, if they were."""
    seconds: float

    def __repr__(self) -> str:
        return f"ImageRegistration({self.method}, {self.transform}, {self.seconds:.2f} s)"


def register_images(
    fixed: Image | str | Path,
    moving: Image | str | Path,
    method: str | Method = "default",
    *,
    slices: Slices = "auto",
    match_intensities: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> ImageRegistration:
    """Find the transform from fixed to moving, images or files, each on its own grid in the world.

    Which way the axes of the arrays run does not matter: they are turned to run as the world's do. `slices`: "each"
    registers the slices across the widest spacing one by one, "together" as a volume; "auto" takes them one by one
    where they are at least two and a half times as far apart as the voxels within them (a trained model that is named
    decides for itself: one in 2D takes them one by one, one in 3D together). `match_intensities` gives moving the
    histogram of fixed, for images of two subjects or scanners; the warped image keeps its own. Where moving has no
    voxels nothing pulls at the field."""
    start = perf_counter()
    fixed, given = (image if isinstance(image, Image) else read_image(image) for image in (fixed, moving))
    moving = given
    chosen = suited(ready(method), fixed.grid, slices)
    there, axis = planned(fixed, moving, chosen, slices, device)
    if match_intensities:
        moving = match_histogram(moving, fixed)
    if chosen.scaling == "each":
        fixed, moving = (rescale_images(image)[0] for image in (fixed, moving))  # before either fills the other's gaps
    I0, backward = fixed.array.astype(np.float32), fixed.grid.backward
    found = register(
        np.flip(I0, backward),
        np.flip(filled(resample_image(moving, fixed.grid).array, coverage(moving.grid, fixed.grid), I0), backward),
        chosen,
        spacing=fixed.grid.spacing,
        slice_axis=axis,
        device=there.type,
        progress=progress,
    )
    transform = Transform.from_voxels(mirrored(found.field, backward), fixed.grid)
    warped = transform.apply(given)
    seconds = perf_counter() - start
    how = found.method, chosen.weights, there.type, axis
    return ImageRegistration(transform, warped, found.energies, *how, seconds)


def suited(method: Method, grid: Grid, slices: Slices = "auto") -> Method:
    """The method itself, or what the default comes to on a grid."""
    axis = slice_axis_of(grid, slices, method.dimensions)
    return method.resolve(len(grid.shape) - (axis is not None), spacing_within(grid.spacing, axis))


def planned(
    fixed: Image, moving: Image, method: Method, slices: Slices, device: str
) -> tuple[torch.device, int | None]:
    """Where to compute, and across which axis slices are registered one by one; BadInput if anything is in the way."""
    check_pair(fixed, moving)
    there, axis = find_device(device), slice_axis_of(fixed.grid, slices, method.dimensions)
    check_axes(fixed.grid.shape, axis)
    method.build(
        len(fixed.grid.shape) - (axis is not None), there
    )  # which fails where a package is missing, or a model unfit
    return there, axis


def filled(moving: NDArray[Any], covered: NDArray[np.bool_], fixed: NDArray[Any]) -> NDArray[Any]:
    """Moving where there is such a thing, and elsewhere fixed itself, which asks for no motion."""
    return moving if covered.all() else np.where(covered, moving, fixed)


def mirrored(u: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """The field that mirror images along these axes have."""
    out = np.flip(u, [1 + axis for axis in axes]).copy()
    out[list(axes)] *= -1
    return out


def check_pair(fixed: Image, moving: Image) -> None:
    """BadInput if there is nothing to see in one of them, or nothing of one in the other."""
    if len(fixed.grid.shape) != len(moving.grid.shape):
        d = [len(image.grid.shape) for image in (fixed, moving)]
        raise BadInput(f"{fixed.name} is {d[0]}D and {moving.name} {d[1]}D: give two images of one kind")
    for image in (fixed, moving):
        if image.array.dtype.kind not in "iufb":
            raise BadInput(f"{image.name} holds {image.array.dtype}: give an image of real numbers")
        check_values(image.name, image.array)
    if not fixed.grid.overlaps(moving.grid):
        raise BadInput(f"{fixed.name} and {moving.name} do not overlap in space: check their headers")


def slice_axis_of(grid: Grid, slices: str, dimensions: tuple[int, ...] = (2, 3)) -> int | None:
    """The axis across which slices are to be registered one by one, if they are; a trained model has a dimension."""
    if len(grid.shape) == 2:
        if slices == "each":
            raise BadInput("a 2D image has no slices to register each: leave --slices out")
        return None
    if slices not in ("auto", "each", "together"):
        raise BadInput(f'slices are registered auto, each or together, not "{slices}"')
    if slices == "auto" and len(dimensions) > 1:
        return grid.stacked_across
    return grid.across if slices == "each" or (slices == "auto" and dimensions == (2,)) else None
