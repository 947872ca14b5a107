"""Two images and their masks from coarse to fine, in the coordinates in which an affine map is sought.

There, fixed lies about 0 with a root mean square of 1 along an axis."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.images.exchange import grid_of, to_sitk
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.intensity import rescale_images_jointly
from vrnet.registration.masks import ImageMasks

if TYPE_CHECKING:
    import SimpleITK as sitk

COARSEST_VOXELS = 28
"""About how many voxels the longest side of fixed has at the coarsest level."""
MAX_VOXELS = 1e6
"""A level of more voxels would cost time and gain nothing that can be measured."""
MIN_VOXELS_PER_AXIS = 4
MAX_VOXELS_OF_SHARE = 4000
"""How many voxels inside a mask are looked at, at most, where some will do."""
NO_MASKS = ImageMasks()


class Level(NamedTuple):
    """Both images at one coarseness, in the optimiser's coordinates."""

    fixed: "sitk.Image"
    moving: "sitk.Image"
    spacing: float
    fixed_mask: "sitk.Image | None" = None
    """Where samples are taken; if None, anywhere."""
    moving_mask: "sitk.Image | None" = None


def rms_distance(grid: Grid) -> float:
    """The root mean square, over the grid and the axes, of the distance from its centre along an axis."""
    return float(np.linalg.norm(np.multiply(grid.shape, grid.spacing)) / (12 * len(grid.shape)) ** 0.5)


def make_levels(fixed: Image, moving: Image, unit: float, masks: ImageMasks = NO_MASKS) -> list[Level]:
    """Both images, without what lies outside their masks, from coarse to fine, about the centre of fixed, with lengths
    in a unit of millimetres. A coarse voxel is inside if any part of it is."""
    import SimpleITK as sitk

    centre, place = fixed.grid.centre, fixed.grid
    images = [rescale_images_jointly(image)[0] for image in masks.inpaint(fixed, moving)]
    given = [mask and mask.with_array(mask.array.astype(np.float32)) for mask in (masks.fixed, masks.moving)]
    parts = [image and to_optimiser(image, centre, unit) for image in (*images, *given)]
    spacings = [max(np.multiply(place.shape, place.spacing)) / COARSEST_VOXELS]
    while max(shrink_factors(place, spacings[-1])) > 1 and count_voxels(place, spacings[-1] / 2) < MAX_VOXELS:
        spacings.append(spacings[-1] / 2)
    levels: list[Level] = []
    for spacing in reversed(spacings):
        parts = [None if part is None else shrink(part, spacing / unit) for part in parts]
        inside = (None if part is None else sitk.Greater(part, 0) for part in parts[2:])
        levels.insert(0, Level(parts[0], parts[1], spacing / unit, *inside))
    return levels


def to_optimiser(image: Image, centre: Float[ndarray, " d"], unit: float) -> "sitk.Image":
    """The image about a centre, with lengths in a unit of millimetres."""
    grid, origin = image.grid, (np.array(image.grid.origin) - centre) / unit
    place = Grid(grid.shape, tuple(h / unit for h in grid.spacing), tuple(origin.tolist()), grid.direction)
    return to_sitk(image.array, place)


def shrink(image: "sitk.Image", spacing: float) -> "sitk.Image":
    """The image at about this spacing, by means over blocks of voxels."""
    import SimpleITK as sitk

    return sitk.BinShrink(image, shrink_factors(grid_of(image), spacing))


def shrink_factors(grid: Grid, spacing: float) -> list[int]:
    """How many voxels become one along each axis: 1 where they are that coarse, as in thick slices, or few."""
    sides = zip(grid.shape, grid.spacing, strict=True)
    return [max(1, min(round(spacing / h), n // MIN_VOXELS_PER_AXIS)) for n, h in sides]


def count_voxels(grid: Grid, spacing: float) -> int:
    """How many voxels an image on this grid has at about this spacing."""
    return int(np.prod(np.floor_divide(grid.shape, shrink_factors(grid, spacing))))


def some_voxels(level: Level) -> Float[ndarray, "n d"]:
    """Indices of voxels of fixed: a lattice of them, or some inside its mask."""
    import SimpleITK as sitk

    if level.fixed_mask is None:
        return grid_of(level.fixed).lattice()
    inside = np.argwhere(sitk.GetArrayViewFromImage(level.fixed_mask).T).astype(np.float64)
    return inside[:: 1 + len(inside) // MAX_VOXELS_OF_SHARE]


def count_inside(level: Level) -> int:
    """How many voxels of fixed samples can be taken from: inside its mask, or all."""
    import SimpleITK as sitk

    if level.fixed_mask is None:
        return int(level.fixed.GetNumberOfPixels())
    return max(1, int(np.count_nonzero(sitk.GetArrayViewFromImage(level.fixed_mask))))
