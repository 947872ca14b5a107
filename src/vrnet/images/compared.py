"""Where two images with masks are compared: where both are inside."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrnet.errors import InputWarning
from vrnet.images.affine import Affine
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_mask
from vrnet.images.resample import place_labels
from vrnet.images.transform import Transform

NO_OVERLAP = (
    "the masks of fixed and moving have no voxel in common after the registration: the images are compared inside that "
    "of fixed alone, or everywhere if it has none. Check the masks and the headers"
)


def compared_voxels(
    fixed_mask: Image | None,
    moving_mask: Image | None,
    grid: Grid,
    transform: Transform,
    affine: Affine | None = None,
) -> NDArray[Any] | None:
    """The voxels of fixed inside both masks, before a transform and after it; None, for all, without masks.

    After an affine start, before is where that put moving: the headers of images that lie apart would leave little.
    Where the masks have no voxel in common, the user is told, and all inside that of fixed are compared."""
    fixed = np.ones(grid.shape, bool) if fixed_mask is None else as_mask(fixed_mask).array
    if moving_mask is None:
        return None if fixed_mask is None else fixed
    moving = as_mask(moving_mask)
    before, after = place_labels(moving, grid, affine), transform.apply_labels(moving, grid)
    wanted = [fixed & (after.array != 0) & (before.array != 0), fixed & (after.array != 0)]
    found = next((voxels for voxels in wanted if voxels.any()), None)  # headers may put the masks far apart
    if found is not None:
        return found
    warnings.warn(NO_OVERLAP, InputWarning, stacklevel=3)
    return fixed
