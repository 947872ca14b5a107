"""Two images in the world in, each on its own grid; the transform between them out."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vrnet.devices import find_device
from vrnet.errors import BadInput, Progress, Stage
from vrnet.images.grid import Affine, AffineKind, Grid
from vrnet.images.image import Image, as_tensor, check_values, is_lost_in_single, rescale_images_jointly
from vrnet.images.io import ImageLike, given_image
from vrnet.images.resample import match_histogram, resample_image
from vrnet.images.transforms import Inverse, Transform
from vrnet.methods.method import Method
from vrnet.methods.names import ready
from vrnet.registration.affine import find_affine
from vrnet.registration.arrays import (
    Registration,
    RegistrationResult,
    Repair,
    check_axes,
    explain_bad_keyword,
    register,
    spacing_within,
)
from vrnet.registration.intensity import Remap
from vrnet.registration.masks import ImageMasks
from vrnet.registration.options import RegistrationOptions
from vrnet.vocabulary import AffineStart, Brightness, DeviceChoice, Folds, Slices

# What is decided about two images before they are registered: the method, the device, which slices by themselves.


@dataclass(frozen=True)
class Plan:
    """What was decided for a pair."""

    method: Method
    """Never `default`."""
    device: torch.device
    slice_axis: int | None
    """The axis across which slices are registered one by one, if they are, in the order of the world's axes."""
    folds: Folds
    brightness: Brightness
    """What is done about it beside what was done to the images already."""


def make_plan(fixed: Image, moving: Image, method: Method, options: RegistrationOptions, must_overlap: bool) -> Plan:
    """How a pair, its axes in the order of the world's, is to be registered; BadInput if anything is in the way."""
    check_pair(fixed, moving, must_overlap)
    chosen = resolve_on_grid(method, fixed.grid, options.slices)
    place = find_device(options.device, chosen.devices)
    axis = choose_slice_axis(fixed.grid, options.slices, chosen.dimensions)
    check_axes(fixed.grid.shape, axis)
    d = len(fixed.grid.shape) - (axis is not None)
    chosen.build(d, place)  # BadInput where a package is missing, or the model has another dimension
    return Plan(chosen, place, axis, options.folds, "keep" if options.match_intensities else options.brightness)


def resolve_on_grid(method: Method, grid: Grid, slices: Slices = "auto") -> Method:
    """The method itself; of a choice such as `default`, what it comes to for images on this grid."""
    grid = grid.reordered(grid.order)
    axis = choose_slice_axis(grid, slices, method.dimensions)
    return method.resolve(len(grid.shape) - (axis is not None), spacing_within(grid.spacing, axis))


def check_pair(fixed: Image, moving: Image, must_overlap: bool = True) -> None:
    """BadInput if one of the images shows nothing, or they have no dimension or, if they must, no place in common."""
    if len(fixed.grid.shape) != len(moving.grid.shape):
        d = [len(image.grid.shape) for image in (fixed, moving)]
        raise BadInput(f"{fixed.name} is {d[0]}D and {moving.name} {d[1]}D: give two images of one kind")
    for image in (fixed, moving):
        if image.array.dtype.kind not in "iufb":
            raise BadInput(f"{image.name} holds {image.array.dtype}: give an image of real numbers")
        check_values(image.name, image.array)
        if is_lost_in_single(as_tensor(image.array)):
            low = image.array.min()
            raise BadInput(
                f"{image.name} has too little contrast beside its offset ({low:g}): subtract its minimum first"
            )
    if must_overlap and not fixed.grid.overlaps(moving.grid):
        raise BadInput(
            f'{fixed.name} and {moving.name} do not overlap in space: check their headers, or ask for `affine="rigid"`'
        )


def choose_slice_axis(grid: Grid, slices: Slices, dimensions: tuple[int, ...] = (2, 3)) -> int | None:
    """The axis across which slices are to be registered one by one, if they are; `dimensions` are the method's."""
    if len(grid.shape) == 2:
        if slices == "each":
            raise BadInput("a 2D image has no slices to register each: leave `slices` out")
        return None
    if slices == "auto" and len(dimensions) > 1:
        return grid.stacked_across
    return grid.across if slices == "each" or (slices == "auto" and dimensions == (2,)) else None


DEFAULTS = RegistrationOptions()


@dataclass(frozen=True, repr=False, eq=False)
class ImageRegistration(RegistrationResult[ImageLike]):
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
    repair: Repair | None
    """What was changed to free the field of folds: None where nothing was."""
    remap: Remap | None
    """What made moving as bright as fixed while they were compared: None where nothing had to."""
    options: RegistrationOptions
    """What was asked for."""
    fixed: Image
    """The images, as they were given."""
    moving: Image
    masks: ImageMasks
    details: dict[str, str]
    """What a page says of the method beside its name."""

    def __repr__(self) -> str:
        return f"ImageRegistration({self.method}, {self.transform}, {self.seconds:.2f} s)"

    def inverse(self, grid: Grid | None = None) -> Inverse:
        """(transform, residual): the transform from moving to fixed, which takes points of moving to fixed, and brings
        fixed to the grid of moving; and how far, in mm, each voxel ends from where it began. On the grid given, or on
        that of moving."""
        return self.transform.inverse(grid or self.moving.grid)


@explain_bad_keyword
def register_images(
    fixed: ImageLike,
    moving: ImageLike,
    method: str | Method = "default",
    *,
    affine: AffineStart | Affine = DEFAULTS.affine,
    slices: Slices = DEFAULTS.slices,
    brightness: Brightness = DEFAULTS.brightness,
    match_intensities: bool = DEFAULTS.match_intensities,
    fixed_mask: ImageLike | None = None,
    moving_mask: ImageLike | None = None,
    folds: Folds = DEFAULTS.folds,
    average: bool = False,
    device: DeviceChoice = DEFAULTS.device,
    progress: Progress | None = None,
) -> ImageRegistration:
    """Find the transform from fixed to moving, each on its own grid in the world: our images, files, or those of
    SimpleITK or nibabel.

    How the axes of the arrays are stored does not matter: methods see them in the order of the world's, and running as
    these do. An `affine` start, "rigid" or "affine", is found first, also where headers put the images far apart; the
    deformation is sought beyond it. An affine map that is known can be given instead. With `slices` "each", the slices
    across the widest spacing are registered one by one, with "together" as a volume; "auto" takes them one by one where
    they are at least two and a half times as far apart as the voxels within them (a trained model decides by its
    dimension: in 2D one by one, in 3D together). Where moving is plainly brighter or darker, methods that compare
    intensities see it as bright as fixed, unless `brightness` is "keep"; `match_intensities` gives it the histogram of
    fixed; warped keeps its own. Of masks, each on its image's grid, what is not zero is inside: only there images are
    compared, and where moving has voxels; the outside can only guide an affine start. The rest is as of `register`."""
    I0, I1 = given_image("fixed", fixed), given_image("moving", moving)
    known = affine.checked(len(I0.grid.shape)).about(I0.grid.centre) if isinstance(affine, Affine) else None
    options = RegistrationOptions(
        affine="none" if isinstance(affine, Affine) else affine,
        slices=slices,
        brightness=brightness,
        match_intensities=match_intensities,
        folds=folds,
        device=device,
    )
    masks = ImageMasks.read(fixed_mask, moving_mask, I0, I1)
    return register_image_pair(I0, I1, masks, ready(method, average), options, deformation_stage(progress), known)


def register_image_pair(
    fixed: Image,
    moving: Image,
    masks: ImageMasks,
    method: Method,
    options: RegistrationOptions,
    stage: Stage,
    affine: Affine | None = None,
) -> ImageRegistration:
    """Find the transform from fixed to moving, inside their masks; `stage` is told what is done. A start that is known
    is given as `affine`; otherwise the options say whether one is sought."""
    start, order = perf_counter(), fixed.grid.order
    I0, I1 = fixed.reordered(order), moving.reordered(moving.grid.order)
    plan = make_plan(I0, I1, method, options, must_overlap=options.affine == "none" and affine is None)
    I0, I1 = (inside := masks.reordered(order, moving.grid.order)).inpaint(I0, I1)
    if options.affine != "none":
        affine = find_start(fixed, moving, masks, options.affine, stage("aligning"))
    I1 = match_histogram(I1, I0) if options.match_intensities else I1
    found = find_field(I0, I1, inside, plan, affine, stage(f"registering with {plan.method}"))
    stored, backward = np.argsort(order).tolist(), I0.grid.backward
    transform = Transform.from_voxels(mirror_field(found.field, backward), I0.grid).reordered(stored)
    transform = transform.followed_by(affine) if affine else transform
    return ImageRegistration(
        transform=transform,
        warped=transform.apply(moving),
        energies=found.energies,
        method=str(plan.method),
        weights=plan.method.weights,
        device=plan.device.type,
        slice_axis=None if plan.slice_axis is None else order[plan.slice_axis],
        affine=affine,
        seconds=perf_counter() - start,
        repair=found.repair and found.repair.mirrored(I0.grid.shape, backward).reordered(stored),
        remap=found.remap,
        options=options,
        fixed=fixed,
        moving=moving,
        masks=masks,
        details=plan.method.details,
    )


def find_start(fixed: Image, moving: Image, masks: ImageMasks, kind: AffineKind, progress: Progress) -> Affine:
    """The affine start, however the axes of the images are stored."""
    return find_affine(fixed.in_world_order(), moving.in_world_order(), kind, masks.in_world_order(), progress)


def deformation_stage(progress: Progress | None) -> Stage:
    """The stages of a registration, of which `progress` hears of the last: of the deformation that is sought."""
    return lambda name: progress if progress and name.startswith("registering") else ignore


def ignore(done: float) -> None:
    """Nobody asked for the progress."""


def find_field(
    fixed: Image,
    moving: Image,
    masks: ImageMasks,
    plan: Plan,
    affine: Affine | None,
    progress: Progress,
) -> Registration[NDArray[Any]]:
    """What is found on the grid of fixed, its axes turned as the world's run.

    Moving is seen through the affine map, if there is one."""
    fixed_mask, moving_mask = masks.on(fixed.grid, moving, affine)
    if plan.method.scaling == "each":  # before the border of moving is repeated
        fixed, moving = (
            rescale_images_jointly(image, masks=[mask])[0]
            for image, mask in ((fixed, masks.fixed), (moving, masks.moving))
        )
    I0, backward = fixed.array.astype(np.float32), fixed.grid.backward
    I1 = resample_image(moving, fixed.grid, affine).array
    return register(
        np.flip(I0, backward),
        np.flip(I1, backward),
        plan.method,
        fixed_mask=None if fixed_mask is None else np.flip(fixed_mask, backward),
        moving_mask=None if moving_mask is None else np.flip(moving_mask, backward),
        spacing=fixed.grid.spacing,
        slice_axis=plan.slice_axis,
        folds=plan.folds,
        brightness=plan.brightness,
        device=plan.device.type,
        progress=progress,
    )


def mirror_field(u: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """The field of the images mirrored along these axes, given that of the images."""
    out = np.flip(u, [1 + axis for axis in axes]).copy()
    out[list(axes)] *= -1
    return out
