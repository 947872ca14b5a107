"""A protocol's grid: of one shape and spacing for all, about the centre of an image."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.images.grid import Grid


def centred(own: Grid, shape: tuple[int, ...], spacing: tuple[float, ...], axes: Float[ndarray, "d d"]) -> Grid:
    """The grid with the same centre in the world, whose axes are the columns of `axes`."""
    middle = own.points((np.array([own.shape]) - 1) / 2)[0]
    origin = middle - axes @ (np.array(spacing) * (np.array(shape) - 1) / 2)
    return Grid(shape, spacing, tuple(origin.tolist()), tuple(axes.ravel().tolist()))


def on_voxels(grid: Grid, own: Grid) -> Grid:
    """The grid moved, by up to half a voxel of the image, so that its first voxel is on one of the image's.

    An image that has the spacing already is then only cropped and padded, not blurred."""
    nearest = own.points(np.round(own.index(np.array([grid.origin]))))[0]
    return Grid(grid.shape, grid.spacing, tuple(nearest.tolist()), grid.direction)


def forward_axes(own: Grid) -> Float[ndarray, "d d"]:
    """The axes of the image, those turned about that run against the world's: what `vrnet register` shows a method."""
    axes = own.axes.copy()
    axes[:, list(own.backward)] *= -1
    return axes
