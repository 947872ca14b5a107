"""I1(x + u) ≈ I1(x + u^ω) + ⟨∇I1(x + u^ω), u − u^ω⟩: the first-order Taylor expansion of the data term."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import RelativeSpacing, gradient, scale, warp


@dataclass(frozen=True)
class Linearization:
    """The pair as both half steps see it: I0, I1, I1 warped by the field `at` (u^ω), J, the gradient of that, and the
    edges h of a voxel, the shortest being 1, so that |u|² = Σ (h_i u_i)² is a length in space."""

    I0: Float[Tensor, "b c *s"]
    I1: Float[Tensor, "b c *s"]
    I1w: Float[Tensor, "b c *s"]
    J: Float[Tensor, "b c d *s"]
    at: Float[Tensor, "b d *s"]
    h: RelativeSpacing

    def rho(self, u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b c *s"]:
        """ρ(u) = I1w − I0 + J·(u − u^ω): the linearised difference of the two images."""
        return add_dot(self.rho_0, self.J, u[:, None])

    @cached_property
    def rho_0(self) -> Float[Tensor, "b c *s"]:
        """ρ(0) = I1w − I0 − J·u^ω."""
        return self.I1w - self.I0 - add_dot(torch.zeros_like(self.I0), self.J, self.at[:, None])

    @cached_property
    def G(self) -> Float[Tensor, "b c d *s"]:
        """J_i / h_i²: the field, in voxels, of steepest ascent in space. J itself if voxels are cubes."""
        return scale(self.J.flatten(0, 1), tuple(edge**-2 for edge in self.h)).view(self.J.shape)

    @cached_property
    def JG(self) -> Float[Tensor, "b c *s"]:
        """⟨J, G⟩ of each channel: the squared slope in space; |J|² if voxels are cubes."""
        return add_dot(torch.zeros_like(self.I0), self.J, self.G)


def add_dot(
    a: Float[Tensor, "b c *s"], x: Float[Tensor, "b c d *s"], y: Float[Tensor, "b #c d *s"]
) -> Float[Tensor, "b c *s"]:
    """a + ⟨x, y⟩ over the components of the vectors. (Fused products: no temporary is as large as x.)"""
    total = a.clone()
    for x_i, y_i in zip(x.unbind(2), y.unbind(2), strict=True):
        total.addcmul_(x_i, y_i)
    return total


def linearize(
    I0: Float[Tensor, "b c *s"],
    I1: Float[Tensor, "b c *s"],
    u: Float[Tensor, "b d *s"],
    h: RelativeSpacing | None = None,
) -> Linearization:
    """Expand I1(x + u) at u, on voxels with edges h (cubes, if not given)."""
    I1w = warp(I1, u)
    return Linearization(I0=I0, I1=I1, I1w=I1w, J=gradient(I1w), at=u, h=h or (1.0,) * u.shape[1])
