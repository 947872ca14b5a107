"""ℒ(u) = D(I1(x + u), I0) + α S(u): how alike the images become, and how smooth the motion is. No labels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import squared_gradient, warp

Scalar = Float[Tensor, ""]


def absolute(I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Scalar:
    """mean |I1w − I0|."""
    return (I1w - I0).abs().mean()


def squared(I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Scalar:
    """mean (I1w − I0)²."""
    return (I1w - I0).square().mean()


def diffusion(u: Float[Tensor, "b d *s"]) -> Scalar:
    """The mean of squared forward differences along an axis, averaged over the axes; in voxels.

    (The paper prints central differences, which do not see a checkerboard.)"""
    axes = range(2, u.dim())
    return torch.stack([torch.diff(u, dim=axis).square().mean() for axis in axes]).mean()


def huber(u: Float[Tensor, "b d *s"]) -> Scalar:
    """mean √(0.01 + |∇u|²): nearly linear in large differences."""
    return (0.01 + squared_gradient(u, (1.0,) * u.shape[1])).sqrt().mean()


@dataclass(frozen=True)
class Loss:
    """D, S and α. The paper's are the defaults, but for α: 0.1 UK Biobank, 0.05 ACDC, 1e-4 3D CMR."""

    alpha: float
    similarity: Callable[[Tensor, Tensor], Tensor] = absolute
    smoothness: Callable[[Tensor], Tensor] = diffusion

    def __call__(self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], u: Float[Tensor, "b d *s"]) -> Scalar:
        u = u.float()  # half precision cannot count voxels
        return self.similarity(warp(I1, u), I0) + self.alpha * self.smoothness(u)


SIMILARITIES = {"L1": absolute, "L2": squared}
SMOOTHNESSES = {"Diffusion": diffusion, "Huber": huber}
