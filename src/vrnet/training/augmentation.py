"""More pairs than there are: one random affine map and one gamma for both images of a pair, which may change places.

Drawing and applying are apart, so that several devices can each apply their part of one draw.
"""

from dataclasses import dataclass
from itertools import combinations
from math import radians
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional


class RandomTransform(NamedTuple):
    """What was drawn for each pair of a batch."""

    affine: Float[Tensor, "b d e"]
    """A and t: the new image at x is the old one at A x + t; x runs from -1 to 1 along each axis."""
    gamma: Float[Tensor, "b"]
    """The exponent of intensities in [0, 1]."""
    swap: Bool[Tensor, "b"]
    """Whether fixed and moving are exchanged."""

    def select(self, rows: slice, device: torch.device) -> "RandomTransform":
        """The part for some of the pairs, on a device."""
        return RandomTransform(*(tensor[rows].to(device) for tensor in self))


@dataclass(frozen=True)
class Augmentation:
    """How far images may be changed; zeros and False leave them as they are."""

    flip: bool = True
    """Mirror along each axis, half of the time."""
    rotation: float = 180.0
    """Largest turn within the plane of the first two axes, in degrees."""
    tilt: float = 0.0
    """In 3D, the largest turn in the other two planes, in degrees."""
    scale: float = 0.2
    """Largest change of size, as a part of it."""
    translation: float = 0.1
    """Largest shift along each axis, as a part of half the image."""
    gamma: float = 0.3
    """Intensities are raised to the power e^g, |g| at most this."""
    swap: bool = True
    """Exchange fixed and moving, half of the time."""

    def draw(self, batch: int, shape: tuple[int, ...], spacing: tuple[float, ...]) -> RandomTransform:
        """A transform for each of `batch` pairs; angles are true in space whatever the spacing of voxels."""
        d = len(shape)
        rotation = self._rotation(draw_uniform(batch, d * (d - 1) // 2), d)
        size = (1 + self.scale * draw_uniform(batch, 1)) * torch.where(
            (draw_uniform(batch, d) < 0) & self.flip, -1.0, 1.0
        )
        extent = torch.tensor([h * (n - 1) for h, n in zip(spacing, shape, strict=True)])
        A = rotation * extent / extent[:, None] * size[:, None]
        t = self.translation * draw_uniform(batch, d)
        swap = (draw_uniform(batch) < 0) & self.swap
        gamma = (self.gamma * draw_uniform(batch)).exp()
        return RandomTransform(torch.cat([A, t[..., None]], dim=2), gamma, swap)

    def _rotation(self, chance: Float[Tensor, "b planes"], d: int) -> Float[Tensor, "b d d"]:
        """A rotation in each plane of two axes, one after the other, by chance (from -1 to 1) times the largest."""
        rotation = torch.eye(d).expand(len(chance), d, d)
        for k, (i, j) in enumerate(combinations(range(d), 2)):
            angle = chance[:, k] * radians(self.tilt if k else self.rotation)
            plane = torch.eye(d).repeat(len(chance), 1, 1)
            plane[:, i, i] = plane[:, j, j] = angle.cos()
            plane[:, i, j], plane[:, j, i] = -angle.sin(), angle.sin()
            rotation = plane @ rotation
        return rotation


def augment(
    I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], transform: RandomTransform
) -> tuple[Float[Tensor, "b 1 *s"], Float[Tensor, "b 1 *s"]]:
    """Apply what was drawn to the pairs; outside the images their border is repeated."""
    pair = torch.cat([I0, I1], dim=1)
    A, t = transform.affine[..., :-1].flip(1, 2), transform.affine[..., -1:].flip(1)  # torch counts axes backward
    grid = functional.affine_grid(torch.cat([A, t], dim=2), list(pair.shape), align_corners=True)
    pair = functional.grid_sample(pair, grid, padding_mode="border", align_corners=True)
    column = (-1, *[1] * (pair.dim() - 1))
    pair = pair.clamp(min=1e-6).pow(transform.gamma.view(column))
    pair = torch.where(transform.swap.view(column), pair.flip(1), pair)
    return pair[:, :1], pair[:, 1:]


def draw_uniform(*size: int) -> Tensor:
    """Independent numbers, uniform from -1 to 1."""
    return 2 * torch.rand(*size) - 1
