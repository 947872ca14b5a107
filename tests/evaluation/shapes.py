"""Masks to measure, as arrays and as images of SimpleITK."""

import numpy as np
import SimpleITK as sitk
from scipy import ndimage

SPACING = {2: (0.7, 2.5), 3: (0.7, 2.5, 1.3)}


def blobs(shape, seed=0):
    """A seeded mask of smooth blobs, some of which touch the border of the image."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    return ndimage.gaussian_filter(noise, 2) > 0.02


def disc(shape, radius, centre=None):
    """A ball of this radius about a point, the middle if none is given."""
    centre = np.array(shape) // 2 if centre is None else np.array(centre)
    x = np.indices(shape) - centre.reshape(-1, *[1] * len(shape))
    return np.linalg.norm(x, axis=0) <= radius


def itk_image(array, spacing=None):
    """An array (x, y, z) as an image of unsigned integers."""
    image = sitk.GetImageFromArray(array.T.astype(np.uint8))
    image.SetSpacing(spacing or (1.0,) * array.ndim)
    return image


def neighbours(mask, x):
    """The mask's values at the face neighbours of voxel x; beyond the border they are False."""
    for step in np.concatenate([np.eye(mask.ndim, dtype=int), -np.eye(mask.ndim, dtype=int)]):
        y = tuple(x + step)
        yield mask[y] if all(0 <= i < n for i, n in zip(y, mask.shape, strict=True)) else False


def brute_force_surface(mask):
    """Voxels of a mask that have a face neighbour outside it, one by one."""
    return np.array([x for x in np.argwhere(mask) if not all(neighbours(mask, x))])


def brute_force_distances(A, B):
    """Distance of each point of A to the nearest of B, and of each of B to the nearest of A, pair by pair."""
    return [np.array([min(np.linalg.norm(p - q) for q in to) for p in of]) for of, to in ((A, B), (B, A))]
