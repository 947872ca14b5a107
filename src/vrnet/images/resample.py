"""Images brought to other grids, by SimpleITK."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import to_sitk

if TYPE_CHECKING:
    import SimpleITK as sitk

COARSER = 1.2


def resample(
    source: "sitk.Image", grid: Grid, transform: "sitk.Transform", method: int, outside: float | None
) -> ndarray:
    """source(transform(x)) at the voxels x of a grid; outside the source, one value, or its border if None."""
    import SimpleITK as sitk

    place = grid.origin, grid.spacing, grid.direction
    border, kind = outside is None, source.GetPixelID()
    return sitk.GetArrayFromImage(
        sitk.Resample(source, grid.shape, transform, method, *place, outside or 0.0, kind, border)
    ).T


def resample_image(image: Image, grid: Grid) -> Image:
    """The image on another grid, by its header alone, as float32: low-passed first along axes that are coarser there.

    Outside the image its border is repeated."""
    import SimpleITK as sitk

    if image.grid.matches(grid):
        return Image(image.array.astype(np.float32), grid, image.name)
    source = low_passed(to_sitk(image.array.astype(np.float32), image.grid), image.grid, grid)
    return Image(resample(source, grid, still(grid), sitk.sitkLinear, outside=None), grid, image.name)


def place_image(image: Image, grid: Grid) -> Image:
    """The image on another grid, by its header alone, as float32, exactly as a transform that moves nothing does it."""
    import SimpleITK as sitk

    if image.grid.matches(grid):
        return Image(image.array.astype(np.float32), grid, image.name)
    source, outside = to_sitk(image.array.astype(np.float32), image.grid), float(image.array.min())
    return Image(resample(source, grid, still(grid), sitk.sitkLinear, outside), grid, image.name)


def coverage(own: Grid, grid: Grid) -> Bool[ndarray, "*s"]:
    """At which voxels of another grid an image on its own has something to show."""
    import SimpleITK as sitk

    if own.matches(grid):
        return np.ones(grid.shape, bool)
    everywhere = to_sitk(np.ones(own.shape, np.uint8), own)
    return resample(everywhere, grid, still(grid), sitk.sitkNearestNeighbor, 0.0).astype(bool)


def match_histogram(image: Image, other: Image) -> Image:
    """The image with the histogram of the other: what is brighter than the mean is matched at 15 quantiles."""
    import SimpleITK as sitk

    pair = (to_sitk(part.array.astype(np.float32), part.grid) for part in (image, other))
    return image.with_array(sitk.GetArrayFromImage(sitk.HistogramMatching(*pair, 256, 15, True)).T)


def place_labels(labels: Image, grid: Grid) -> Image:
    """The same for a label map: the label of the nearest voxel."""
    return labels if labels.grid.matches(grid) else resample_labels(labels, grid, still(grid))


def still(grid: Grid) -> "sitk.Transform":
    import SimpleITK as sitk

    return sitk.Transform(len(grid.shape), sitk.sitkIdentity)


def resample_labels(labels: Image, grid: Grid, transform: "sitk.Transform", smooth: bool = False) -> Image:
    """The label of the nearest voxel; or, smooth, the label of greatest weight by linear interpolation.

    Outside the map it is 0. Every value and type is kept, since what ITK moves are places in a list of labels."""
    import SimpleITK as sitk

    listed, places = np.unique(np.append(labels.array, labels.array.dtype.type(0)), return_inverse=True)
    source = to_sitk(places[:-1].reshape(labels.array.shape).astype(np.int32), labels.grid)
    method = sitk.sitkLabelLinear if smooth else sitk.sitkNearestNeighbor
    return Image(listed[resample(source, grid, transform, method, float(places[-1]))], grid, labels.name)


def low_passed(image: "sitk.Image", own: Grid, other: Grid) -> "sitk.Image":
    """Smoothed along each axis that the other grid samples less finely, along the nearest axis of its own."""
    import SimpleITK as sitk

    nearest = np.abs(own.axes.T @ other.axes).argmax(1)
    for axis, (n, h) in enumerate(zip(own.shape, own.spacing, strict=True)):
        factor = other.spacing[nearest[axis]] / h
        if factor > COARSER and n > 3:  # ITK's recursive filter needs four voxels
            image = sitk.RecursiveGaussian(image, 0.5 * h * (factor**2 - 1) ** 0.5, direction=axis)
    return image
