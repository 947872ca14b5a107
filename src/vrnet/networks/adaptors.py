"""What makes a network a part of Algorithm 1: an initialiser (I0, I1, spacing) -> u, or a denoiser (u, lin) -> v.

Displacements reach tens of voxels while images are in [0, 1]: fields are scaled down into a network and up out of it.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.fields import compose, warp
from vrnet.variational.cascade import Spacing
from vrnet.variational.linearize import Linearization

SCALE = 10.0


class Predict(nn.Module):
    """u = 10 net(I0, I1): a network as an initialiser, and, alone, VoxelMorph or Siamese."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        return SCALE * padded(self.net, torch.cat([I0, I1], dim=1))


class Plain(nn.Module):
    """v = 10 net(u / 10): the paper's U."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, u: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return SCALE * padded(self.net, u / SCALE)


class Residual(nn.Module):
    """v = u + 10 net(u / 10): the paper's R."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, u: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return u + SCALE * padded(self.net, u / SCALE)


class Recurse(nn.Module):
    """v = u ∘ 10 net(I0, I1(x + u)): a denoiser that sees how well the images agree; without a data step, RC-Net."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, u: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        I1w = lin.I1w if u is lin.at else warp(lin.I1, u)
        return compose(u, SCALE * padded(self.net, torch.cat([lin.I0, I1w], dim=1)))


class Keep(nn.Module):
    """u = v: no data step."""

    def forward(self, v: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return v


def padded(net: nn.Module, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *s"]:
    """net(x) for x of any size: the border is repeated up to the multiple that the net needs, and cropped after it.

    What comes out is as precise a type as what went in, whatever the net itself computes with."""
    sizes, multiple = x.shape[2:], cast(int, net.multiple)
    extra = [-n % multiple for n in sizes]
    if not any(extra):
        return net(x).to(x.dtype)
    before = [e // 2 for e in extra]
    sides = [side for e, b in zip(reversed(extra), reversed(before), strict=True) for side in (b, e - b)]
    out = net(functional.pad(x, sides, mode="replicate")).to(x.dtype)
    for axis, (b, n) in enumerate(zip(before, sizes, strict=True), start=2):
        out = out.narrow(axis, b, n)
    return out
