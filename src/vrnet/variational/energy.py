"""E(u) = ∫ 1/s |I1(x + u) − I0|^s + λ R(u): what the iterative solvers minimise, as a mean over voxels."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vrnet.fields import divergence, forward_gradient, squared_gradient


def total_variation(v: Float[Tensor, "b d *s"]) -> Float[Tensor, "b *s"]:
    """|∇v|: isotropic, and coupled over the components, so that they jump together or not at all."""
    return squared_gradient(v).sqrt()


def diffusion(v: Float[Tensor, "b d *s"]) -> Float[Tensor, "b *s"]:
    """1/2 |∇v|²."""
    return squared_gradient(v) / 2


def bending(v: Float[Tensor, "b d *s"]) -> Float[Tensor, "b *s"]:
    """1/2 |Δv|². Its integral is that of the bending energy 1/2 Σ_ij |∂_ij v|², up to boundary terms."""
    return divergence(forward_gradient(v)).square().sum(1) / 2


@dataclass(frozen=True)
class Energy:
    """The functional with exponent s, weight λ and regulariser R (a density); without R, the data term alone."""

    s: int
    lam: float
    R: Callable[[Tensor], Tensor] | None

    def __call__(
        self, I0: Float[Tensor, "b c *s"], I1w: Float[Tensor, "b c *s"], u: Float[Tensor, "b d *s"]
    ) -> Float[Tensor, " b"]:
        """E(u) of each pair in the batch, given I1w = I1(x + u)."""
        difference = I1w - I0
        data = difference.abs() if self.s == 1 else difference.square() / 2
        data = data.sum(1).flatten(1).mean(1)
        return data if self.R is None else data + self.lam * self.R(u).flatten(1).mean(1)
