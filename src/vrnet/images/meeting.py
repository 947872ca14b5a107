"""Whether things meet in space: an image and what a transform leads to; the transforms of a chain, and their order."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import InputWarning
from vrnet.images.exchange import grid_of, to_sitk
from vrnet.images.grid import Grid
from vrnet.images.itk_transforms import map_points
from vrnet.images.resample import resample
from vrnet.wording import percent

if TYPE_CHECKING:
    import SimpleITK as sitk

LEAST_MET = 0.1
"""A warning is given where less of the smaller of two grids is met."""


def warn_if_apart(name: str, image: Grid, reference: Grid, transform: "sitk.Transform") -> None:
    """An InputWarning where a transform takes hardly any of the reference into an image."""
    import SimpleITK as sitk

    if part_met(map_points(transform, reference.points(reference.lattice())), reference, image) >= LEAST_MET:
        return
    everywhere = to_sitk(np.ones(image.shape, np.uint8), image)
    covered = float(resample(everywhere, reference, transform, sitk.sitkNearestNeighbor, 0.0).mean())
    if covered == 0:
        warn(f"the transform leads to no place in {name}: the result is empty. Check that this is the moving image of "
             "the transform, its header, and the order of transforms")  # fmt: skip
    elif scaled(covered, reference, image) < LEAST_MET:
        warn(f"the transform takes {small_part(covered)} of the reference into {name}: the rest of the result is "
             "empty. Check that this is the moving image of the transform, and its header")  # fmt: skip


def warn_of_order(names: Sequence[str], maps: "Sequence[sitk.Transform]", reference: Grid) -> None:
    """An InputWarning where points that go through transforms, one after another, miss the grid of one of them, or
    where a later one, and not the first, is on the grid that they come from."""
    grids = [field_grid(transform) for transform in maps]
    is_own = [grid is not None and grid.matches(reference) for grid in grids]
    if any(is_own) and grids[0] is not None and not is_own[0]:
        warn(f"{names[is_own.index(True)]} is on the grid of the reference, and {names[0]}, which points go through "
             "first, is not. Check their order: first the one from the reference")  # fmt: skip
    points = reference.points(reference.lattice())
    for name, grid, transform in zip(names, grids, maps, strict=True):
        if grid is not None and part_met(points, reference, grid) < LEAST_MET:
            warn(f"hardly any point comes to lie in the grid of {name}, and outside of it nothing moves. Check that it "
                 "is for this reference, and the order of transforms")  # fmt: skip
        points = map_points(transform, points)


def field_grid(transform: "sitk.Transform") -> Grid | None:
    """The grid of a displacement field; None for a transform of another kind."""
    import SimpleITK as sitk

    is_field = transform.GetTransformEnum() == sitk.sitkDisplacementField
    return grid_of(sitk.DisplacementFieldTransform(transform).GetDisplacementField()) if is_field else None


def part_met(ends: Float[ndarray, "n d"], start: Grid, end: Grid) -> float:
    """About which part of the smaller of two grids is met, where points spread over the first end as given."""
    return scaled(float(end.holds(ends).mean()), start, end)


def scaled(share: float, start: Grid, end: Grid) -> float:
    """The share of a grid that is taken into another one, as a part of the smaller of both."""
    sizes = [float(np.prod(np.multiply(grid.shape, grid.spacing))) for grid in (start, end)]
    return min(1.0, share * max(1.0, sizes[0] / sizes[1]))


def small_part(share: float) -> str:
    """A part as a percentage; a very small one in words."""
    return percent(share) if share >= 0.01 else "less than 1 %"


def warn(message: str) -> None:
    warnings.warn(message, InputWarning, stacklevel=3)
