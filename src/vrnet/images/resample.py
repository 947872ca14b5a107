"""Images and label maps on other grids, by SimpleITK."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool
from numpy import ndarray

from vrnet.images.grid import Affine, Grid
from vrnet.images.image import Image, as_float, to_sitk

FULL_COVERAGE_PERCENT = 99.0  # below it, the reader is told which part of fixed moving covers
Map: TypeAlias = sitk.Transform | Affine | None  # from a place in a grid to one in an image
SMOOTH_ABOVE_SPACING_RATIO = 1.2  # an image is smoothed along axes whose new spacing is more times the old one


def resample(source: sitk.Image, grid: Grid, map_: Map, method: int, outside: float | None) -> ndarray:
    """source(map(x)) at the voxels x of a grid; outside the source, this value, or its border if None."""
    transform = map_.itk if isinstance(map_, Affine) else map_ or sitk.Transform(len(grid.shape), sitk.sitkIdentity)
    place = grid.origin, grid.spacing, grid.direction
    repeats_border, kind = outside is None, source.GetPixelID()
    found = sitk.Resample(source, grid.shape, transform, method, *place, outside or 0.0, kind, repeats_border)
    return sitk.GetArrayFromImage(found).T


def resample_image(image: Image, grid: Grid, affine: Affine | None = None) -> Image:
    """image(affine(x)) on another grid, float32; smoothed first along axes coarser there, its border repeated."""
    if affine is None and image.grid.matches(grid):
        return Image(image.array.astype(np.float32), grid, image.name)
    own, there = image.grid, affine.image_of(grid) if affine else grid
    source = to_sitk(image.array.astype(np.float32), own)
    closest = np.abs(own.axes.T @ there.axes).argmax(1)
    for axis, (n, h) in enumerate(zip(own.shape, own.spacing, strict=True)):
        factor = there.spacing[closest[axis]] / h
        if factor > SMOOTH_ABOVE_SPACING_RATIO and n > 3:  # ITK's recursive filter needs four voxels
            source = sitk.RecursiveGaussian(source, 0.5 * h * (factor**2 - 1) ** 0.5, direction=axis)
    return Image(resample(source, grid, affine, sitk.sitkLinear, outside=None), grid, image.name)


def place_image(image: Image, grid: Grid, affine: Affine | None = None, repeat_border: bool = False) -> Image:
    """The image on another grid, by its header, or through an affine map; outside, its least value, or its border."""
    if affine is None and image.grid.matches(grid):
        return Image(as_float(image.array), grid, image.name)
    source = to_sitk(as_float(image.array), image.grid)
    outside = None if repeat_border else float(image.array.min())
    return Image(resample(source, grid, affine, sitk.sitkLinear, outside), grid, image.name)


def place_labels(labels: Image, grid: Grid, affine: Affine | None = None) -> Image:
    """The label map on another grid, by its header, or through an affine map: the nearest label, 0 outside the map."""
    return labels if affine is None and labels.grid.matches(grid) else resample_labels(labels, grid, affine)


def coverage(own: Grid, grid: Grid, map_: Map = None) -> Bool[ndarray, "*s"]:
    """Which voxels of a grid lie, or are taken by a map, within an image whose own grid is given first."""
    if map_ is None and own.matches(grid):
        return np.ones(grid.shape, bool)
    everywhere = to_sitk(np.ones(own.shape, np.uint8), own)
    return resample(everywhere, grid, map_, sitk.sitkNearestNeighbor, 0.0).astype(bool)


def match_histogram(image: Image, other: Image) -> Image:
    """The image with the histogram of the other: intensities above the mean are matched at 15 quantiles."""
    pair = (to_sitk(part.array.astype(np.float32), part.grid) for part in (image, other))
    return image.with_array(sitk.GetArrayFromImage(sitk.HistogramMatching(*pair, 256, 15, True)).T)


def resample_labels(labels: Image, grid: Grid, map_: Map, smooth: bool = False) -> Image:
    """The nearest label; or, smooth, the label of greatest weight by linear interpolation; 0 outside. ITK sees
    positions in a list, so that every value and type is kept."""
    values, positions = np.unique(np.append(labels.array, labels.array.dtype.type(0)), return_inverse=True)
    source = to_sitk(positions[:-1].reshape(labels.array.shape).astype(np.int32), labels.grid)
    method = sitk.sitkLabelLinear if smooth else sitk.sitkNearestNeighbor
    return Image(values[resample(source, grid, map_, method, float(positions[-1]))], grid, labels.name)


lock, counts_before = Lock(), list[int]()


@contextmanager
def one_thread() -> Iterator[None]:
    """While inside, what ITK makes has one thread: in the whole process, while any thread of Python wants it."""
    with lock:
        counts_before.append(sitk.ProcessObject.GetGlobalDefaultNumberOfThreads())
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    try:
        yield
    finally:
        with lock:
            before = counts_before.pop()  # the last to leave takes what the first one found
            if not counts_before:
                sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(before)
