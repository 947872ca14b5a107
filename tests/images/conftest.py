"""Grids in several poses, and smooth things on them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.transform import Rotation

from tests.conftest import SHAPES
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.transforms import Transform

POSES = {
    "plain": lambda d: np.eye(d),
    "oblique": lambda d: turn(d, 0.5, 0.3, -0.8),
    "flipped": lambda d: np.diag([1.0, -1.0, 1.0][:d]),
    "oblique and flipped": lambda d: turn(d, 0.5, 0.3, -0.8) @ np.diag([-1.0, 1.0, 1.0][:d]),
    "axes exchanged": lambda d: np.roll(np.eye(d), 1, axis=0),
}


def turn(d, *angles):
    """A rotation; in 2D by the first angle."""
    return Rotation.from_euler("zyx", angles if d == 3 else (angles[0], 0, 0)).as_matrix()[:d, :d]


def make_grid(shape, spacing, origin, direction):
    """A grid whose direction is a matrix."""
    return Grid(shape, tuple(spacing), tuple(origin), tuple(np.ravel(direction).tolist()))


@pytest.fixture
def grid(d):
    """A grid with a different spacing along each axis, turned and flipped in the world."""
    return make_grid(SHAPES[d], (1.3, 0.7, 2.5)[:d], (10.0, -20.0, 5.0)[:d], POSES["oblique and flipped"](d))


def indices(shape):
    """(n, d): the index of every voxel."""
    return np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, len(shape)).astype(float)


def overlapping_grid(grid):
    """A grid of another size, spacing and pose that covers the middle of the given one, and more along one axis."""
    d = len(grid.shape)
    spacing, direction = np.array((0.9, 1.1, 1.7)[:d]), turn(d, -0.4, 0.2, 0.1)
    extent = np.multiply(grid.shape, grid.spacing)
    shape = np.ceil([1.5, 0.7, 0.7][:d] * np.full(d, extent.max()) / spacing).astype(int)
    centre = grid.points((np.array([grid.shape]) - 1) / 2)[0]
    return make_grid(tuple(shape.tolist()), spacing, centre - direction @ (spacing * (shape - 1)) / 2, direction)


def smooth(shape, sigma, seed=0):
    """A random smooth array from 0 to 1."""
    array = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma, mode="nearest")
    return (array - array.min()) / np.ptp(array)


def picture(grid, sigma=2.0, seed=7):
    """A random smooth image from 0 to 1 on a grid."""
    return Image(smooth(grid.shape, sigma, seed).astype(np.float32), grid, "picture")


def blobs(grid, dtype=np.uint8):
    """A smooth label map of 0, 1, 2, 3."""
    return Image((4 * smooth(grid.shape, 1.5, 3)).clip(0, 3).astype(dtype), grid, "blobs")


def motion(shape, amplitude=3.0, sigma=4.0):
    """A smooth field of up to about half the amplitude, in voxels, different along each axis."""
    return amplitude * np.stack([smooth(shape, sigma, seed) - 0.5 for seed in range(1, len(shape) + 1)])


def smooth_transform(grid, **options):
    """A transform that moves the voxels of a grid as `motion` does."""
    return Transform.from_voxels(motion(grid.shape, **options), grid)


def refine(grid, factor=2):
    """A grid of the same extent with more voxels."""
    shape = tuple((n - 1) * factor + 1 for n in grid.shape)
    return replace(grid, shape=shape, spacing=tuple(h / factor for h in grid.spacing))
