"""argmin_v w R(v) + 1/2 ∫|v − u|²: the v-subproblem, with w = λ/θ, for hand-crafted R.

A denoiser is a half step `(u, lin) -> v`; these look at the field and at the edges h of a voxel. R and the length are
taken in space: component i is h_i u_i there, and a difference along axis j is divided by h_j.
"""

from functools import lru_cache
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.fields import RelativeSpacing, add_divergence, scale, smooth, squared_norm
from vrnet.variational.linearize import Linearization


class TV(nn.Module):
    """prox of w·TV by projected gradient ascent on its dual: v = u + w div p, |p| ≤ 1.

    As a half step it starts from p = 0 and runs `iterations`. An outer loop does better to keep p: `resume` takes the
    last one up, and then one iteration is enough."""

    def __init__(self, weight: float, iterations: int) -> None:
        super().__init__()
        self.weight, self.iterations = weight, iterations

    def forward(self, u: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return self.resume(u, None, lin.h)[0]

    def resume(
        self, u: Float[Tensor, "b d *s"], p: Float[Tensor, "b d d *s"] | None, h: RelativeSpacing
    ) -> tuple[Float[Tensor, "b d *s"], Float[Tensor, "b d d *s"]]:
        """(v, p) after p ← (p + τ∇v) / max(1, |p + τ∇v|), `iterations` times. Overwrites p unless grad mode is on."""
        d, u, overwrite = u.shape[1], scale(u, h), not torch.is_grad_enabled()
        p = u.new_zeros(u.shape[0], d, d, *u.shape[2:]) if p is None else p
        tau = 1 / (4 * self.weight * sum(edge**-2 for edge in h))
        weights = tuple(self.weight / edge for edge in h)
        v = add_divergence(u, p, weights)
        for _ in range(self.iterations):
            p = p if overwrite else p.clone()
            for i, (n, edge) in enumerate(zip(u.shape[2:], h, strict=True)):
                inner, a = p[:, :, i].narrow(2 + i, 0, n - 1), tau / edge
                inner.add_(v.narrow(2 + i, 1, n - 1), alpha=a).sub_(v.narrow(2 + i, 0, n - 1), alpha=a)
            shrink = squared_norm(p.flatten(1, 2)).clamp_(min=1).rsqrt_()[:, None, None]
            p = p.mul_(shrink) if overwrite else p * shrink
            v = add_divergence(u, p, weights, out=v if overwrite else None)
        return scale(v, tuple(1 / edge for edge in h)), p


class Quadratic(nn.Module):
    """prox of w/2 ∫ v·K v with K = (−Δ)^order, reflecting border: exact, since the cosine transform diagonalises K.

    Order 1 is diffusion, order 2 bending."""

    def __init__(self, weight: float, order: int) -> None:
        super().__init__()
        self.weight, self.order = weight, order

    def forward(self, u: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        symbol = laplacian_symbol(u.shape[2:], lin.h, u) ** self.order
        return cosine_transform(cosine_transform(u) / (1 + self.weight * symbol), inverse=True)


class Gaussian(nn.Module):
    """Gaussian smoothing over sigma shortest edges, as in demons: the prox of a penalty on all derivatives."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, u: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return smooth(u, tuple(self.sigma / edge for edge in lin.h))


@lru_cache(maxsize=64)
def cosine_basis(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "n n"]:
    """The orthonormal DCT-II: row k is the cosine of frequency πk/n."""
    with torch.inference_mode(False):  # what is cached must serve autograd too
        k = torch.arange(n, dtype=torch.float64)
        basis = torch.cos(pi / n * k[:, None] * (k + 0.5)) * (2 / n) ** 0.5
        basis[0] *= 0.5**0.5
        return basis.to(device=device, dtype=dtype)


def cosine_transform(u: Float[Tensor, "b c *s"], inverse: bool = False) -> Float[Tensor, "b c *s"]:
    """Cosine transform along every spatial axis, as matrix products: fast at image sizes, on any device."""
    for axis in range(2, u.dim()):
        basis = cosine_basis(u.shape[axis], u.dtype, u.device)
        u = torch.matmul(u.transpose(axis, -1), basis if inverse else basis.T).transpose(axis, -1)
    return u


def laplacian_symbol(shape: tuple[int, ...], h: RelativeSpacing, like: Tensor) -> Float[Tensor, "*s"]:
    """Eigenvalues of −Δ = ∇ᵀ∇ on the cosine basis: Σ_i 4 sin²(πk_i/2n_i) / h_i²."""
    total = like.new_zeros(shape)
    for i, (n, edge) in enumerate(zip(shape, h, strict=True)):
        frequency = torch.arange(n, dtype=like.dtype, device=like.device) * (pi / (2 * n))
        total += 4 / edge**2 * frequency.sin().square().view(-1, *[1] * (len(shape) - 1 - i))
    return total
