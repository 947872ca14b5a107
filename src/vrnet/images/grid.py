"""Where voxels are in the world: x_world = origin + direction · diag(spacing) · index, in LPS millimetres."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray


@dataclass(frozen=True)
class Grid:
    """Axis i of an array is axis i of the grid. Direction is row-major, as ITK writes it."""

    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    direction: tuple[float, ...]

    @classmethod
    def plain(cls, shape: tuple[int, ...], spacing: tuple[float, ...]) -> "Grid":
        """Voxel axes along the world's, first voxel at its origin."""
        d = len(shape)
        return cls(shape, spacing, (0.0,) * d, tuple(np.eye(d).ravel().tolist()))

    @property
    def to_world(self) -> Float[ndarray, "d d"]:
        """The matrix that takes a displacement in voxels to one in millimetres."""
        d = len(self.shape)
        return np.multiply(np.reshape(self.direction, (d, d)), self.spacing)
