"""argmin_u 1/s ∫|ρ(u)|^s + θ/2 ∫|u − v|²: the point-wise u-subproblem, solved in closed form.

ρ may have several channels (vector images: patches, gradients, features); one is the ordinary case. The length |u − v|
is taken in space, so that G, the gradient in space, stands where J would if voxels were cubes.
"""

from collections.abc import Callable
from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.variational.linearize import Linearization

EPSILON = 1e-5
ROUNDS = 15


def l2_step(v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
    """u = v − Gᵀ(JGᵀ + θ1)⁻¹ρ(v); with one channel, u = v − Gρ(v) / (⟨J, G⟩ + θ)."""
    if lin.J.shape[1] == 1:
        return v - lin.G[:, 0] * (lin.rho(v) / (lin.JG + theta))
    J, G, rho = matrices(lin.J), matrices(lin.G), lin.rho(v).movedim(1, -1)
    return v - times(G.mT, solve(J @ G.mT + theta * identity(J.shape[-2], J), rho)).movedim(-1, 1)


def l1_step(v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
    """u = v − Gᵀz/θ, where z maximises the dual ⟨ρ(v), z⟩ − ⟨Jᵀz, Gᵀz⟩/2θ over the box |z| ≤ 1.

    With one channel, z = clip(θρ(v) / ⟨J, G⟩, −1, 1)."""
    if lin.J.shape[1] == 1:
        z = (theta * lin.rho(v) / (lin.JG + EPSILON)).clamp(-1, 1)
        return torch.addcmul(v, z / theta, lin.G[:, 0], value=-1)
    J, G, rho = matrices(lin.J), matrices(lin.G), lin.rho(v).movedim(1, -1)
    z = box_maximum(J @ G.mT + EPSILON * identity(J.shape[-2], J), theta * rho)
    return v - times(G.mT, z).movedim(-1, 1) / theta


def box_maximum(G: Float[Tensor, "*n c c"], r: Float[Tensor, "*n c"]) -> Float[Tensor, "*n c"]:
    """argmax of ⟨r, z⟩ − ⟨z, Gz⟩/2 over |z| ≤ 1, for small positive definite G, by an interior-point method.

    a and b are the multipliers of z ≤ 1 and −z ≤ 1. Each Newton step aims at a·(1 − z) = b·(1 + z) = μ, with μ a
    twentieth of what it was, and stops short of the walls of the box; a dozen reach five digits whatever G is. In
    float64, since close to a wall float32 has no digits left."""
    dtype, G, r = r.dtype, G.double(), r.double()
    scale = r.abs().amax(-1, keepdim=True) + EPSILON
    z, a, b = torch.zeros_like(r), scale.expand_as(r), scale.expand_as(r)
    for _ in range(ROUNDS):
        above, below = 1 - z, 1 + z
        mu = (a * above + b * below).mean(-1, keepdim=True) / 20
        mu = torch.maximum(mu, 10 * torch.finfo(r.dtype).eps * scale)
        dz = solve(G + torch.diag_embed(a / above + b / below), r - times(G, z) - mu / above + mu / below)
        da, db = (mu + a * dz) / above - a, (mu - b * dz) / below - b
        fastest = torch.cat([dz / above, -dz / below, -da / a, -db / b], dim=-1).amax(-1, keepdim=True)
        step = 0.95 / fastest.clamp(min=0.95)
        z, a, b = z + step * dz, a + step * da, b + step * db
    return z.to(dtype)


def matrices(J: Float[Tensor, "b c d *s"]) -> Float[Tensor, "b *s c d"]:
    return J.movedim((1, 2), (-2, -1))


def identity(n: int, like: Tensor) -> Float[Tensor, "n n"]:
    return torch.eye(n, dtype=like.dtype, device=like.device)


def times(A: Float[Tensor, "*n a b"], x: Float[Tensor, "*n b"]) -> Float[Tensor, "*n a"]:
    return (A @ x[..., None])[..., 0]


def solve(A: Float[Tensor, "*n a a"], x: Float[Tensor, "*n a"]) -> Float[Tensor, "*n a"]:
    return torch.linalg.solve(A, x[..., None])[..., 0]


class DataStep(nn.Module):
    """One u-step with its own positive penalty θ, stored as log θ so that it can be learned."""

    def __init__(self, step: Callable[[Tensor, Linearization, Tensor], Tensor], theta: float = 0.1) -> None:
        super().__init__()
        self.step = step
        self.log_theta = nn.Parameter(torch.tensor(log(theta)))

    def forward(self, v: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return self.step(v, lin, self.log_theta.exp())
