"""Two images in the world in, each on its own grid; the transform between them out."""

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrnet.errors import BadInput, Progress, Stage, check_progress
from vrnet.images.grid import Affine, Grid
from vrnet.images.image import Image, as_tensor, as_tensors, check_values, is_lost_in_single, rescale_images_jointly
from vrnet.images.io import ImageLike
from vrnet.images.resample import coverage, match_histogram, place_labels, resample_image
from vrnet.images.transforms import Transform
from vrnet.methods.method import Method
from vrnet.methods.names import parse_method
from vrnet.registration.affine import find_affine
from vrnet.registration.arrays import Plan, find_motion, label_tensors
from vrnet.registration.masks import check_masks, inpaint_image
from vrnet.registration.pair import ImagePair, PairResult
from vrnet.vocabulary import AffineStart, Brightness, Channels, DeviceChoice, Folds, RegistrationOptions, Slices

DEFAULTS = RegistrationOptions()


def register_images(
    fixed: ImageLike, moving: ImageLike, method: str | Method = "default", *,
    affine: AffineStart | Affine = DEFAULTS.affine, slices: Slices = DEFAULTS.slices,
    brightness: Brightness = DEFAULTS.brightness, match_intensities: bool = DEFAULTS.match_intensities,
    fixed_mask: ImageLike | None = None, moving_mask: ImageLike | None = None, folds: Folds = DEFAULTS.folds,
    channels: Channels = DEFAULTS.channels, fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None, average: bool = False, device: DeviceChoice = DEFAULTS.device,
    progress: Progress | None = None,
) -> PairResult:  # fmt: skip
    """Find the transform from fixed to moving, each on its own grid in the world: our images, files, or those of
    SimpleITK or nibabel. How the axes of the arrays are stored does not matter.

    An `affine` start, "rigid" or "affine", is found first, also where headers put the images far apart; or a known map
    is given. With `slices` "each", the slices across the widest spacing are registered one by one, with "together" as a
    volume; "auto" takes them one by one where they are at least two and a half times as far apart as the voxels within
    them (a trained model decides by its dimension). Where moving is plainly brighter or darker, methods that compare
    intensities see it as bright as fixed, unless `brightness` is "keep"; `match_intensities` gives it the histogram of
    fixed; warped keeps its own. Masks lie on the grid of their image and are nonzero inside: only there images are
    compared. Labels lie on the grid of their image too: they are measured, and matched only with `channels` "labels".
    The rest is as of `register`."""
    check_progress(progress)
    pair = ImagePair.read(fixed, moving, fixed_labels, moving_labels, fixed_mask, moving_mask)
    known = None
    if isinstance(affine, Affine):
        known, affine = affine.checked(len(pair.fixed.grid.shape)).about(pair.fixed.grid.centre), "none"
    options = RegistrationOptions(
        affine=affine, slices=slices, brightness=brightness, match_intensities=match_intensities,
        channels=channels, folds=folds, device=device,
    )  # fmt: skip

    def stage(name: str) -> Progress:  # `progress` is told only how far the deformation is
        return progress if progress and name.startswith("registering") else lambda done: None

    return register_pair(pair, parse_method(method, average=average).load(), options, stage, known)


def register_pair(
    pair: ImagePair, method: Method, options: RegistrationOptions, stage: Stage, affine: Affine | None = None
) -> PairResult:
    """Find the transform of a pair; `stage` is told what is done, and `affine` is a start that is known."""
    start, order = perf_counter(), pair.fixed.grid.order
    fixed, moving = pair.fixed.reordered(order), pair.moving.reordered(pair.moving.grid.order)
    check_pair(fixed, moving, must_overlap=options.affine == "none" and affine is None)
    grid, masks = fixed.grid, pair.masks.map(lambda mask: mask.reordered(mask.grid.order))
    slice_axis = choose_slice_axis(grid, options.slices, method.dimensions)
    shown = lambda: (pair.fixed, pair.moving)  # noqa: E731
    plan = Plan.of(method, grid.shape, grid.spacing, slice_axis, options.device, "pair", options.channels, shown)
    # In-painted and scaled here on the grid of each; in `find_motion` on the common grid, slice by slice where asked.
    fixed, moving = masks.apply(inpaint_image, fixed, moving)
    if options.affine != "none":
        whole = pair.fixed.in_world_order(), pair.moving.in_world_order()
        affine = find_affine(*whole, options.affine, pair.masks.map(Image.in_world_order), stage("aligning"))
    moving = match_histogram(moving, fixed) if options.match_intensities else moving
    covered = place_labels(masks.moving, grid, affine).array if masks.moving else coverage(moving.grid, grid, affine)
    compared = covered != 0 if masks.fixed is None else (covered != 0) & masks.fixed.array
    if not compared.any():
        a, b = masks.fixed or fixed, masks.moving or moving
        raise BadInput(f"{a.name} and {b.name} do not overlap in space: check the headers")
    if plan.method.scaling == "each":  # before the border of moving is repeated
        fixed = rescale_images_jointly(fixed, masks=[masks.fixed])[0]
        moving = rescale_images_jointly(moving, masks=[masks.moving])[0]

    stored, backward = np.argsort(order).tolist(), grid.backward
    arrays = fixed.array.astype(np.float32), resample_image(moving, grid, affine).array
    I0, I1 = as_tensors(*(np.flip(array, backward) for array in arrays))
    fixed_inside = None if masks.fixed is None else np.flip(masks.fixed.array, backward)
    moving_inside = np.flip(covered, backward)
    inside = check_masks(fixed_inside, moving_inside, I0, I1)
    labels = None
    if plan.channels.kind == "labels" and pair.fixed_labels and pair.moving_labels:
        L0, L1 = pair.fixed_labels.reordered(order), pair.moving_labels.reordered(pair.moving_labels.grid.order)
        seen = (L0, place_labels(L1, grid, affine))
        labels = label_tensors(*(one.with_array(np.flip(one.array, backward)) for one in seen))
    found = find_motion(I0, I1, inside, plan, options, stage(f"registering with {plan.method}"), labels)
    field = mirror_field(found.field.cpu().numpy(), backward)
    transform = Transform.from_voxels(field, grid).reordered(stored)
    transform = transform.followed_by(affine) if affine else transform
    return PairResult(
        **vars(pair), transform=transform, warped=transform.apply(pair.moving),
        energies=found.energies.cpu().numpy(), affine=affine, remap=found.remap,
        repair=found.repair and found.repair.as_stored(grid.shape, backward, stored),
        **plan.of_method, options=options, device=plan.device.type,
        slice_axis=None if plan.slice_axis is None else order[plan.slice_axis], seconds=perf_counter() - start,
    )  # fmt: skip


def choose_slice_axis(grid: Grid, slices: Slices, dimensions: tuple[int, ...] = (2, 3)) -> int | None:
    """The axis across which slices are to be registered one by one, if they are; `dimensions` are the method's."""
    if len(grid.shape) == 2 and slices == "each":
        raise BadInput("a 2D image has no slices to register each: leave `slices` out")
    if slices == "auto" and len(dimensions) > 1:
        return grid.stacked_across
    is_each = slices == "each" or (slices == "auto" and dimensions == (2,))
    return grid.across if is_each and len(grid.shape) == 3 else None


def check_pair(fixed: Image, moving: Image, must_overlap: bool = True) -> None:
    """BadInput if one of the images shows nothing, or they have no dimension or, if they must, no place in common."""
    if (a := fixed.array.ndim) != (b := moving.array.ndim):
        raise BadInput(f"{fixed.name} is {a}D and {moving.name} {b}D: give two images of one kind")
    for image in (fixed, moving):
        if image.array.dtype.kind not in "iufb":
            raise BadInput(f"{image.name} holds {image.array.dtype}: give an image of real numbers")
        check_values(image.name, image.array)
        if is_lost_in_single(as_tensor(image.array)):
            raise BadInput(f"{image.name} has too little contrast beside its offset: subtract its minimum first")
    if must_overlap and not fixed.grid.overlaps(moving.grid):
        both = f"{fixed.name} and {moving.name}"
        raise BadInput(f'{both} do not overlap in space: check their headers, or ask for `affine="rigid"`')


def mirror_field(u: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """The field of the images mirrored along these axes, given that of the images."""
    out = np.flip(u, [1 + axis for axis in axes]).copy()
    out[list(axes)] *= -1
    return out
