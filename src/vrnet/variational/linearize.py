"""I1(x + u) ≈ I1(x + u^ω) + ⟨∇I1(x + u^ω), u − u^ω⟩: the first-order Taylor expansion of the data term."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import gradient, warp


@dataclass(frozen=True)
class Linearization:
    """The pair as both half steps see it: I0, I1 warped by the field `at` (u^ω), and J, the gradient of that."""

    I0: Float[Tensor, "b c *s"]
    I1w: Float[Tensor, "b c *s"]
    J: Float[Tensor, "b c d *s"]
    at: Float[Tensor, "b d *s"]

    def rho(self, u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b c *s"]:
        """ρ(u) = I1w − I0 + J·(u − u^ω): the linearised difference of the two images."""
        return add_dot(self.rho_0, self.J, u[:, None])

    @cached_property
    def rho_0(self) -> Float[Tensor, "b c *s"]:
        """ρ(0) = I1w − I0 − J·u^ω."""
        return self.I1w - self.I0 - add_dot(torch.zeros_like(self.I0), self.J, self.at[:, None])

    @cached_property
    def JJ(self) -> Float[Tensor, "b c *s"]:
        """|J|² of each channel."""
        return add_dot(torch.zeros_like(self.I0), self.J, self.J)


def add_dot(
    a: Float[Tensor, "b c *s"], x: Float[Tensor, "b c d *s"], y: Float[Tensor, "b #c d *s"]
) -> Float[Tensor, "b c *s"]:
    """a + ⟨x, y⟩ over the components of the vectors. (Fused products: no temporary is as large as x.)"""
    total = a.clone()
    for x_i, y_i in zip(x.unbind(2), y.unbind(2), strict=True):
        total.addcmul_(x_i, y_i)
    return total


def linearize(I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"], u: Float[Tensor, "b d *s"]) -> Linearization:
    """Expand I1(x + u) at u."""
    I1w = warp(I1, u)
    return Linearization(I0=I0, I1w=I1w, J=gradient(I1w), at=u)
