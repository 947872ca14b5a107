"""How much of fixed moving has, as it lay and through a field: by blocks of voxels, whose middles are looked at."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

Inside = Callable[[Float[ndarray, "n d"]], Bool[ndarray, " n"]]
"""Says which points, in voxels of fixed, lie within moving."""


def in_shape(shape: tuple[int, ...]) -> Inside:
    """Whether points, in voxels, lie in an array of this shape."""
    return lambda index: np.asarray(((index > -0.5) & (index < np.array(shape) - 0.5)).all(1))


def covered(u: Float[Tensor, "1 d *t"], sides: tuple[int, ...], inside: Inside) -> tuple[Tensor, Tensor]:
    """Which blocks moving has, as it lay and through the field, which is in voxels."""
    place = block_centres(u.shape[2:], sides)
    return within_moving(place, inside), within_moving(place + u, inside)


def within_moving(points: Float[Tensor, "1 d *t"], inside: Inside) -> Bool[Tensor, "1 1 *t"]:
    """Which of the points, in voxels of fixed, moving has."""
    found = inside(points[0].flatten(1).T.double().numpy())
    return torch.from_numpy(found).view(1, 1, *points.shape[2:])


def block_centres(shape: tuple[int, ...], sides: tuple[int, ...]) -> Float[Tensor, "1 d *t"]:
    """Where the middles of the blocks are, in voxels."""
    axes = [(torch.arange(n, dtype=torch.float32) + 0.5) * side - 0.5 for n, side in zip(shape, sides, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]


def overlap_of(before: Tensor, after: Tensor) -> dict[str, float]:
    """How much of fixed moving has after the registration, and how much less than before."""
    parts = before.float().mean().item(), after.float().mean().item()
    return {"coverage": parts[1], "outside": max(parts[0] - parts[1], 0.0)}
