"""E(u) = ∫ 1/s |I1(x + u) − I0|^s + λ R(u): what the iterative solvers minimise, as a mean over voxels.

R is a density in space: of v_i = h_i u_i, differentiated per shortest edge, on voxels with edges h.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import RelativeSpacing, add_divergence, forward_gradient, scale, squared_gradient


def total_variation(u: Float[Tensor, "b d *s"], h: RelativeSpacing) -> Float[Tensor, "b *s"]:
    """|∇v|: isotropic, and coupled over the components, so that they jump together or not at all."""
    return squared_gradient(scale(u, h), h).sqrt()


def diffusion(u: Float[Tensor, "b d *s"], h: RelativeSpacing) -> Float[Tensor, "b *s"]:
    """1/2 |∇v|²."""
    return squared_gradient(scale(u, h), h) / 2


def bending(u: Float[Tensor, "b d *s"], h: RelativeSpacing) -> Float[Tensor, "b *s"]:
    """1/2 |Δv|². Its integral is that of the bending energy 1/2 Σ_ij |∂_ij v|², up to boundary terms."""
    v = scale(u, h)
    laplacian = add_divergence(torch.zeros_like(v), forward_gradient(v), tuple(edge**-2 for edge in h))
    return laplacian.square().sum(1) / 2


@dataclass(frozen=True)
class Energy:
    """The functional with exponent s, weight λ and regulariser R (a density); without R, the data term alone."""

    s: int
    lam: float
    R: Callable[[Tensor, RelativeSpacing], Tensor] | None

    def __call__(
        self, I0: Float[Tensor, "b c *s"], I1w: Float[Tensor, "b c *s"], u: Float[Tensor, "b d *s"], h: RelativeSpacing
    ) -> Float[Tensor, " b"]:
        """E(u) of each pair in the batch, given I1w = I1(x + u), on voxels with edges h."""
        difference = I1w - I0
        data = difference.abs() if self.s == 1 else difference.square() / 2
        data = data.sum(1).flatten(1).mean(1)
        return data if self.R is None else data + self.lam * self.R(u, h).flatten(1).mean(1)
