"""Where two images with masks are compared: where both are inside."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.resample import place_labels
from vrnet.images.transform import Transform


def compared_voxels(
    fixed_mask: Image | None, moving_mask: Image | None, grid: Grid, transform: Transform
) -> NDArray[Any] | None:
    """The voxels of fixed inside both masks, before a transform and after it; None, for all, without masks."""
    fixed = np.ones(grid.shape, bool) if fixed_mask is None else fixed_mask.array != 0
    if moving_mask is None:
        return None if fixed_mask is None else fixed
    before, after = place_labels(moving_mask, grid), transform.apply_labels(moving_mask, grid)
    wanted = [fixed & (after.array != 0) & (before.array != 0), fixed & (after.array != 0), fixed]
    return next(voxels for voxels in wanted if voxels.any())  # headers or the motion may put the masks far apart
