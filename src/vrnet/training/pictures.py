"""A strip of pictures for TensorBoard: what a model makes of one pair."""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vrnet.fields import determinant, jacobian, warp

TILES = "fixed, moving, warped, difference before, after, grid, det 0 to 2"
EVERY, GAP = 8, 2


def strip(
    I0: Float[Tensor, "1 1 *s"], I1: Float[Tensor, "1 1 *s"], u: Float[Tensor, "1 d *s"]
) -> Float[Tensor, "1 h w"]:
    """Fixed, moving, moving brought to fixed, their difference before and after, a grid, and det(I + ∇u) from 0 to 2;
    of a volume the middle slice. The first axis runs to the right."""
    I1w = warp(I1, u)
    det = determinant(jacobian(u))[:, None].clamp(0, 2) / 2
    tiles = [I0, I1, I1w, (I1 - I0).abs(), (I1w - I0).abs(), warp(lines(I0), u), det]
    return torch.cat([functional.pad(middle(tile[0]).mT, (0, GAP), value=1.0) for tile in tiles], dim=2)[..., :-GAP]


def lines(I: Float[Tensor, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    """A grid of soft lines across the first two axes, since sharp ones break where they are warped."""
    x, y = (torch.arange(n, device=I.device) % EVERY * (2 * pi / EVERY) for n in I.shape[2:4])
    waves = torch.maximum(x.cos()[:, None], y.cos()).clamp(min=0).pow(4)
    return waves.view(1, 1, *waves.shape, *[1] * (I.dim() - 4)).expand_as(I)


def middle(I: Float[Tensor, "1 *s"]) -> Float[Tensor, "1 h w"]:
    return I if I.dim() == 3 else I[..., I.shape[-1] // 2]
