"""ρ(u) = ρ(u^ω) + ⟨J, u − u^ω⟩: the first-order Taylor expansion of the difference of two images.

For plain intensities ρ(u^ω) = I1(x + u^ω) − I0 and J = ∇I1(x + u^ω). A data term may compare other channels of the
images than their intensities; then ρ and J have as many channels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.attributes import cached_property
from vrnet.fields import RelativeSpacing, gradient, scale, warp


@dataclass(frozen=True)
class Linearization:
    """A pair of images, expanded at the field u^ω.

    Lengths are in space, where the shortest edge of a voxel counts as 1: |u|² = Σ (h_i u_i)²."""

    I0: Float[Tensor, "b c *s"]
    I1: Float[Tensor, "b c *s"]
    I1w: Float[Tensor, "b c *s"]
    """I1(x + u^ω)."""
    residual: Float[Tensor, "b k *s"]
    """ρ(u^ω): the difference of the images, in the channels that are compared."""
    J: Float[Tensor, "b k d *s"]
    """The gradient of each channel of the warped image, per voxel."""
    at: Float[Tensor, "b d *s"]
    """u^ω."""
    h: RelativeSpacing

    def rho(self, u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b k *s"]:
        """ρ(u) = ρ(u^ω) + J·(u − u^ω)."""
        return add_dot(self.rho_0, self.J, u[:, None])

    @cached_property
    def rho_0(self) -> Float[Tensor, "b k *s"]:
        """ρ(0) = ρ(u^ω) − J·u^ω."""
        return self.residual - add_dot(torch.zeros_like(self.residual), self.J, self.at[:, None])

    @cached_property
    def G(self) -> Float[Tensor, "b k d *s"]:
        """J_i / h_i²: the field, in voxels, of steepest ascent in space. J itself if voxels are cubes."""
        return scale(self.J.flatten(0, 1), tuple(h**-2 for h in self.h)).view(self.J.shape)

    @cached_property
    def JG(self) -> Float[Tensor, "b k *s"]:
        """⟨J, G⟩ of each channel: the squared slope in space; |J|² if voxels are cubes."""
        return add_dot(torch.zeros_like(self.residual), self.J, self.G)


Linearize = Callable[[Tensor, Tensor, Tensor, RelativeSpacing], Linearization]
"""(I0, I1, u^ω, h) -> the expansion at u^ω."""


def linearize(
    I0: Float[Tensor, "b c *s"],
    I1: Float[Tensor, "b c *s"],
    u: Float[Tensor, "b d *s"],
    h: RelativeSpacing,
    channels: Callable[[Tensor], Tensor] = lambda I: I,
) -> Linearization:
    """Expand the difference of the channels of two images, plain intensities if not given, at u."""
    I1w = warp(I1, u)
    seen = channels(I1w)
    # J before the residual: autograd adds their gradients up in this order, and sums of floats depend on it
    return Linearization(I0, I1, I1w, J=gradient(seen), residual=seen - channels(I0), at=u, h=h)


def add_dot(
    a: Float[Tensor, "b c *s"], x: Float[Tensor, "b c d *s"], y: Float[Tensor, "b #c d *s"]
) -> Float[Tensor, "b c *s"]:
    """a + ⟨x, y⟩ over the components of the vectors, by fused products, so that no temporary is as large as x."""
    total = a.clone()
    for x_i, y_i in zip(x.unbind(2), y.unbind(2), strict=True):
        total.addcmul_(x_i, y_i)
    return total
