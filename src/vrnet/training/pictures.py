"""A strip of pictures for TensorBoard: what a model makes of one pair."""

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import determinant, jacobian, warp

EVERY = 8


def strip(
    I0: Float[Tensor, "1 1 *s"], I1: Float[Tensor, "1 1 *s"], u: Float[Tensor, "1 d *s"]
) -> Float[Tensor, "1 h w"]:
    """Fixed, moving, moving brought to fixed, their difference before and after, a grid, and det(I + ∇u) from 0 to 2;
    of a volume the middle slice."""
    I1w = warp(I1, u)
    det = determinant(jacobian(u))[:, None].clamp(0, 2) / 2
    tiles = [I0, I1, I1w, (I1 - I0).abs(), (I1w - I0).abs(), warp(lines(I0), u), det]
    return torch.cat([middle(tile[0]) for tile in tiles], dim=2)


def lines(I: Float[Tensor, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    """A grid of lines, along the first two axes."""
    grid = torch.zeros_like(I)
    grid[:, :, ::EVERY] = 1
    grid[:, :, :, ::EVERY] = 1
    return grid


def middle(I: Float[Tensor, "1 *s"]) -> Float[Tensor, "1 h w"]:
    return I if I.dim() == 3 else I[..., I.shape[-1] // 2]
