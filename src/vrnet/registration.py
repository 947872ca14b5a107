"""Two images in, the deformation between them out: the main job, start to end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from time import perf_counter
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vrnet.checking import check_axes, check_spacing, check_values, checked, device_named, named, tensor
from vrnet.data.preprocessing import rescale_jointly
from vrnet.errors import BadInput
from vrnet.fields import determinant, jacobian, warp, warp_labels
from vrnet.images.grid import NEARLY, Grid
from vrnet.images.image import Image
from vrnet.images.io import read_image
from vrnet.images.resample import brought, coverage, matched
from vrnet.images.transform import Transform
from vrnet.methods.names import Method
from vrnet.variational.descent import Solver
from vrnet.variational.progress import watching

SMALL = 256 * 256
THICK = 3.0
Array = TypeVar("Array", NDArray[Any], Tensor)
Progress = Callable[[float], None]
Slices = Literal["auto", "each", "together"]


@dataclass(frozen=True, repr=False, eq=False)
class Registration(Generic[Array]):
    """What was found. Arrays in, arrays out; tensors in, tensors out, on their device."""

    field: Array
    """(d, *s), in voxels: the point at x in fixed is at x + field(x) in moving."""
    warped: Array
    """moving(x + field(x)), in the intensities of moving."""
    energies: Array
    """The energy of no motion, then after each linearisation at full resolution; none if no energy was watched."""
    method: str
    seconds: float

    def __repr__(self) -> str:
        return f"Registration({self.method}, field {tuple(self.field.shape)}, {self.seconds:.2f} s)"

    def warp(self, image: Array) -> Array:
        """image(x + field(x)), linear: any image on the grid of moving, (*s)."""
        return self._on_batch(lambda I, u: warp(I if I.is_floating_point() else I.to(u), u), image)

    def warp_labels(self, labels: Array) -> Array:
        """labels(x + field(x)) at the nearest voxel: a label map on the grid of moving, every value and type kept."""
        return self._on_batch(warp_labels, labels)

    def determinant(self) -> Array:
        """det(I + ∇field): below 1 where fixed is larger than moving, negative where the field folds."""
        return self._on_batch(lambda _, u: determinant(jacobian(u))[:, None], self.warped)

    def _on_batch(self, function: Callable[[Tensor, Tensor], Tensor], image: Array) -> Array:
        """function of an image and the field as batches of one, its result as arrays or tensors again."""
        if tuple(image.shape) != tuple(self.field.shape[1:]):
            raise BadInput(f"the image is {tuple(image.shape)}: give one of moving's shape, {tuple(self.warped.shape)}")
        result = function(tensor(image)[None, None], tensor(self.field)[None])[0, 0]
        return result if isinstance(self.field, Tensor) else result.numpy()


def register(
    fixed: Array,
    moving: Array,
    method: str | Method = "default",
    *,
    spacing: tuple[float, ...] | None = None,
    slice_axis: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Registration[Array]:
    """Find u with moving(x + u(x)) ≈ fixed(x).

    Both are floating-point arrays or tensors of one shape, 2D or 3D. The same change of brightness or contrast in both
    does not matter; a different one does, since the same tissue is expected to be equally bright. `spacing` is the
    distance between voxels along each axis, in any unit; without it they are cubes. With a `slice_axis` each slice
    across it moves within itself alone. The work is done in float32, on the device of the images unless one is named
    (auto, cpu, cuda). `progress` is called with the part done, from 0 to 1.
    """
    start = perf_counter()
    I0, I1 = checked(fixed, moving)
    check_spacing(spacing, I0.dim())
    check_axes(tuple(I0.shape), slice_axis)
    chosen, home = named(method), I0.device
    there = device_named(device) if device else home
    field, energies = solve(I0.to(there), I1.to(there), chosen, spacing, slice_axis, progress)
    with torch.inference_mode():
        warped = warp(I1[None, None], field.to(home)[None])[0, 0]
    parts: list[Any] = [part.to(home).clone() for part in (field, warped, energies)]  # clones are usable in autograd
    if not isinstance(fixed, Tensor):
        parts = [part.numpy() for part in parts]
    return Registration(parts[0], parts[1], parts[2], method=str(chosen), seconds=perf_counter() - start)


def solve(
    I0: Tensor,
    I1: Tensor,
    method: Method,
    spacing: tuple[float, ...] | None,
    slice_axis: int | None,
    progress: Progress | None,
) -> tuple[Tensor, Tensor]:
    """(field, energies) of a pair, (*s). Slices are a batch of 2D pairs; of their energies the mean is given."""
    if slice_axis is not None and spacing is not None:
        spacing = tuple(h for axis, h in enumerate(spacing) if axis != slice_axis)
    find = method.build()
    with torch.inference_mode(), few_threads(I0.numel()):
        pairs = [batch(I, slice_axis) for I in rescale_jointly(I0, I1)]
        if not isinstance(find, Solver):
            return unbatch(find(pairs[0], pairs[1], spacing), slice_axis), I0.new_zeros(0)
        with watching(find, tuple(pairs[0].shape[2:]), spacing, progress):
            descent = find.to(I0.device).descend(pairs[0], pairs[1], spacing)
        return unbatch(descent.v, slice_axis), descent.energies.mean(1)


def batch(I: Tensor, slice_axis: int | None) -> Tensor:
    """(*s) as a batch of one, or (n, 1, h, w), a slice each."""
    return I[None, None] if slice_axis is None else I.movedim(slice_axis, 0)[:, None].contiguous()


def unbatch(u: Tensor, slice_axis: int | None) -> Tensor:
    """(d, *s) again; motion across slices is zero."""
    if slice_axis is None:
        return u[0]
    within = u.movedim(0, 1 + slice_axis)
    still = torch.zeros_like(within[:1])
    return torch.cat([within[:slice_axis], still, within[slice_axis:]])


@contextmanager
def few_threads(voxels: int) -> Iterator[None]:
    """One thread for a small image: a second gains nothing, and waiting for a busy core costs several times more.

    PyTorch counts threads for the whole process, so only the main thread of Python may change it."""
    threads, is_main = torch.get_num_threads(), current_thread() is main_thread()
    if is_main and voxels <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if is_main:
            torch.set_num_threads(threads)


@dataclass(frozen=True, repr=False, eq=False)
class ImageRegistration:
    """What was found between two images in the world."""

    transform: Transform
    """From fixed to moving, on the grid of fixed."""
    warped: Image
    """Moving, as it was given, resampled on the grid of fixed through the transform."""
    energies: NDArray[np.floating[Any]]
    method: str
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
    where they are at least three times as far apart as the voxels within them. `match_intensities` gives moving the
    histogram of fixed, for images of two subjects or scanners; the warped image keeps its own. Where moving has no
    voxels nothing pulls at the field."""
    start = perf_counter()
    fixed, given = (image if isinstance(image, Image) else read_image(image) for image in (fixed, moving))
    moving = given
    there, axis = planned(fixed, moving, method, slices, device)
    if match_intensities:
        moving = matched(moving, fixed)
    I0, backward = fixed.array.astype(np.float32), fixed.grid.backward
    found = register(
        np.flip(I0, backward),
        np.flip(filled(brought(moving, fixed.grid).array, coverage(moving.grid, fixed.grid), I0), backward),
        method,
        spacing=fixed.grid.spacing,
        slice_axis=axis,
        device=there.type,
        progress=progress,
    )
    transform = Transform.from_voxels(mirrored(found.field, backward), fixed.grid)
    warped = transform.apply(given)
    seconds = perf_counter() - start
    return ImageRegistration(transform, warped, found.energies, found.method, there.type, axis, seconds)


def planned(
    fixed: Image, moving: Image, method: str | Method, slices: Slices, device: str
) -> tuple[torch.device, int | None]:
    """Where to compute, and across which axis slices are registered one by one; BadInput if anything is in the way."""
    check_pair(fixed, moving)
    there, axis = device_named(device), slice_axis_of(fixed.grid, slices)
    check_axes(fixed.grid.shape, axis)
    named(method).build()  # which fails where a package is missing
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


def slice_axis_of(grid: Grid, slices: str) -> int | None:
    """The axis across which slices are to be registered one by one, if they are."""
    if len(grid.shape) == 2:
        if slices == "each":
            raise BadInput("a 2D image has no slices to register each: leave --slices out")
        return None
    if slices not in ("auto", "each", "together"):
        raise BadInput(f'slices are registered auto, each or together, not "{slices}"')
    within = max(h for axis, h in enumerate(grid.spacing) if axis != grid.across)
    is_thick = grid.spacing[grid.across] > (1 - NEARLY) * THICK * within or grid.shape[grid.across] == 1
    return grid.across if slices == "each" or (slices == "auto" and is_thick) else None
