"""Two images in the world in, each on its own grid; the transform between them out."""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from vrnet.devices import find_device
from vrnet.errors import BadInput
from vrnet.images.affine import Affine
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.intensity import rescale_images_jointly
from vrnet.images.io import read_image
from vrnet.images.resample import match_histogram, resample_image
from vrnet.images.transform import Inverse, Transform
from vrnet.methods.method import Method
from vrnet.methods.names import ready
from vrnet.progress import Progress
from vrnet.registration.affine import find_affine
from vrnet.registration.arrays import register, spacing_within
from vrnet.registration.checks import check_axes, check_values
from vrnet.registration.folds import Repair
from vrnet.registration.masks import ImageMasks
from vrnet.repair import Folds

Slices = Literal["auto", "each", "together"]
AffineStart = Literal["none", "rigid", "affine"]


@dataclass(frozen=True, repr=False, eq=False)
class ImageRegistration:
    """The result of `register_images`."""

    transform: Transform
    """From fixed to moving, on the grid of fixed: the whole of it, with the affine start."""
    warped: Image
    """Moving, in its own intensities, resampled through the transform on the grid of fixed."""
    energies: NDArray[np.floating[Any]]
    """The energy of no motion, then after each linearisation at full resolution; none if no energy was watched."""
    method: str
    """The name of the method that was used; never `default`."""
    weights: str | None
    """The file that the weights of a trained model came from."""
    device: str
    slice_axis: int | None
    """The axis across which slices were registered one by one, if they were."""
    affine: Affine | None
    """The start, through which moving was seen when the deformation was sought."""
    seconds: float
    repair: Repair | None = None
    """What was changed to free the field of folds: None where nothing was."""

    def __repr__(self) -> str:
        return f"ImageRegistration({self.method}, {self.transform}, {self.seconds:.2f} s)"

    def inverse(self, grid: Grid | None = None) -> Inverse:
        """The transform from moving to fixed, on the grid given, such as that of moving, or on that of fixed."""
        return self.transform.inverse(grid)


def register_images(
    fixed: Image | str | Path,
    moving: Image | str | Path,
    method: str | Method = "default",
    *,
    affine: AffineStart | Affine = "none",
    slices: Slices = "auto",
    match_intensities: bool = False,
    fixed_mask: Image | str | Path | None = None,
    moving_mask: Image | str | Path | None = None,
    folds: Folds = "repair",
    average: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> ImageRegistration:
    """Find the transform from fixed to moving, images or files, each on its own grid in the world.

    In which order the axes of the arrays are stored, and which way they run, does not matter: methods see them in the
    order of the world's, and running as these do. An `affine` start, "rigid" or "affine", is found first, also where
    headers put the images far apart; the deformation is then sought between fixed and moving seen through it. An affine
    map that is known can be given instead. With `slices` "each", the slices across the widest spacing are registered
    one by one, with "together" as a volume; "auto" takes them one by one where they are at least two and a half times
    as far apart as the voxels within them (a trained model decides by its dimension: in 2D one by one, in 3D together).
    `match_intensities` gives moving the histogram of fixed, for images of two subjects or scanners; the warped image
    keeps its own. Of masks, each on its image's grid, what is not zero is inside: only there images are compared, and
    what lies outside has no influence; so where moving has no voxels. `folds` and `average` are those of `register`."""
    start = perf_counter()
    fixed, moving = (image if isinstance(image, Image) else read_image(image) for image in (fixed, moving))
    I0, I1 = fixed.reordered(fixed.grid.order), moving.reordered(moving.grid.order)
    chosen = resolve_on_grid(ready(method, average), I0.grid, slices)
    place, axis = plan(I0, I1, chosen, slices, device, must_overlap=affine == "none")
    masks = ImageMasks.read(fixed_mask, moving_mask, fixed, moving).reordered(fixed.grid.order, moving.grid.order)
    I0, I1 = masks.inpaint(I0, I1)
    aligned = affine if isinstance(affine, Affine) else align_images(I0, I1, affine)
    source = match_histogram(I1, I0) if match_intensities else I1
    field, energies, repair = find_field(I0, source, masks, chosen, axis, folds, place, progress, aligned)
    found = Transform.from_voxels(field, I0.grid).reordered(np.argsort(fixed.grid.order).tolist())
    transform = found.followed_by(aligned) if aligned else found
    run = str(chosen), chosen.weights, place.type, None if axis is None else fixed.grid.order[axis], aligned
    return ImageRegistration(transform, transform.apply(moving), energies, *run, perf_counter() - start, repair)


def align_images(fixed: Image, moving: Image, affine: AffineStart, progress: Progress | None = None) -> Affine | None:
    """The map of this kind from fixed to moving that brings them nearest to each other; None for "none"."""
    if affine not in get_args(AffineStart):
        raise BadInput(f'the affine start is none, rigid or affine, not "{affine}"')
    if affine == "none":
        return None
    check_pair(fixed, moving, must_overlap=False)
    I0, I1 = (image.in_world_order() for image in (fixed, moving))
    return find_affine(I0, I1, affine, progress)


def find_field(
    fixed: Image,
    moving: Image,
    masks: ImageMasks,
    method: Method,
    slice_axis: int | None,
    folds: Folds,
    device: torch.device,
    progress: Progress | None,
    affine: Affine | None = None,
) -> tuple[NDArray[Any], NDArray[Any], Repair | None]:
    """(field in voxels of fixed, energies, repair), found on the grid of fixed, its axes turned as the world's run.

    Moving is seen through the affine map, if there is one."""
    fixed_mask, moving_mask = masks.on(fixed.grid, moving, affine)
    if method.scaling == "each":  # before the border of moving is repeated
        fixed, moving = (
            rescale_images_jointly(image, masks=[mask])[0]
            for image, mask in ((fixed, masks.fixed), (moving, masks.moving))
        )
    I0, backward = fixed.array.astype(np.float32), fixed.grid.backward
    I1 = resample_image(moving, fixed.grid, affine).array
    found = register(
        np.flip(I0, backward),
        np.flip(I1, backward),
        method,
        fixed_mask=None if fixed_mask is None else np.flip(fixed_mask, backward),
        moving_mask=None if moving_mask is None else np.flip(moving_mask, backward),
        spacing=fixed.grid.spacing,
        slice_axis=slice_axis,
        folds=folds,
        device=device.type,
        progress=progress,
    )
    return mirror_field(found.field, backward), found.energies, found.repair


def resolve_on_grid(method: Method, grid: Grid, slices: Slices = "auto") -> Method:
    """The method itself; of a choice such as `default`, what it comes to for images on this grid."""
    grid = grid.reordered(grid.order)
    axis = choose_slice_axis(grid, slices, method.dimensions)
    return method.resolve(len(grid.shape) - (axis is not None), spacing_within(grid.spacing, axis))


def plan(
    fixed: Image, moving: Image, method: Method, slices: Slices, device: str, must_overlap: bool
) -> tuple[torch.device, int | None]:
    """The device, and the axis across which slices are registered one by one; BadInput if anything is in the way."""
    check_pair(fixed, moving, must_overlap)
    place, axis = find_device(device, method.devices), choose_slice_axis(fixed.grid, slices, method.dimensions)
    check_axes(fixed.grid.shape, axis)
    d = len(fixed.grid.shape) - (axis is not None)
    method.build(d, place)  # BadInput where a package is missing, or the model has another dimension
    return place, axis


def mirror_field(u: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """The field of the images mirrored along these axes, given that of the images."""
    out = np.flip(u, [1 + axis for axis in axes]).copy()
    out[list(axes)] *= -1
    return out


def check_pair(fixed: Image, moving: Image, must_overlap: bool = True) -> None:
    """BadInput if one of the images shows nothing, or they have no dimension or, if they must, no place in common."""
    if len(fixed.grid.shape) != len(moving.grid.shape):
        d = [len(image.grid.shape) for image in (fixed, moving)]
        raise BadInput(f"{fixed.name} is {d[0]}D and {moving.name} {d[1]}D: give two images of one kind")
    for image in (fixed, moving):
        if image.array.dtype.kind not in "iufb":
            raise BadInput(f"{image.name} holds {image.array.dtype}: give an image of real numbers")
        check_values(image.name, image.array)
    if must_overlap and not fixed.grid.overlaps(moving.grid):
        raise BadInput(
            f"{fixed.name} and {moving.name} do not overlap in space: check their headers, or ask for `affine=rigid`"
        )


def choose_slice_axis(grid: Grid, slices: str, dimensions: tuple[int, ...] = (2, 3)) -> int | None:
    """The axis across which slices are to be registered one by one, if they are; `dimensions` are the method's."""
    if len(grid.shape) == 2:
        if slices == "each":
            raise BadInput("a 2D image has no slices to register each: leave `slices` out")
        return None
    if slices not in ("auto", "each", "together"):
        raise BadInput(f'slices are registered auto, each or together, not "{slices}"')
    if slices == "auto" and len(dimensions) > 1:
        return grid.stacked_across
    return grid.across if slices == "each" or (slices == "auto" and dimensions == (2,)) else None
