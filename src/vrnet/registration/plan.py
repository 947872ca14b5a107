"""What is decided about two images before they are registered: the method, the device, which slices by themselves."""

from dataclasses import dataclass

import torch

from vrnet.choices import Brightness, Folds, Slices
from vrnet.devices import find_device
from vrnet.errors import BadInput
from vrnet.images.arrays import as_tensor, check_values, is_lost_in_single
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.methods.method import Method
from vrnet.registration.arrays import spacing_within
from vrnet.registration.checks import check_axes
from vrnet.registration.options import RegistrationOptions


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
