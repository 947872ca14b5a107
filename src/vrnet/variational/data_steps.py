"""argmin_u 1/s ∫|ρ(u)|^s + θ/2 ∫|u − v|²: the point-wise u-subproblem, solved in closed form.

ρ may have several channels (vector images: patches, gradients, features); one is the ordinary case.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.variational.linearize import Linearization

EPSILON = 1e-5
ROUNDS = 15


def l2_step(v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
    """u = v − (JᵀJ + θ1)⁻¹ Jᵀρ(v); with one channel, Sherman–Morrison makes it u = v − Jρ(v) / (|J|² + θ)."""
    if lin.J.shape[1] == 1:
        return v - lin.J[:, 0] * (lin.rho(v) / (lin.JJ + theta))
    J, rho = lin.J.movedim((1, 2), (-2, -1)), lin.rho(v).movedim(1, -1)
    return v - solve(J.mT @ J + theta * identity(J.shape[-1], J), times(J.mT, rho)).movedim(-1, 1)


def l1_step(v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
    """u = v − Jᵀz/θ, where z maximises the dual ⟨ρ(v), z⟩ − |Jᵀz|²/2θ over the box |z| ≤ 1.

    With one channel, z = clip(θρ(v) / |J|², −1, 1)."""
    if lin.J.shape[1] == 1:
        z = (theta * lin.rho(v) / (lin.JJ + EPSILON)).clamp(-1, 1)
        return torch.addcmul(v, z / theta, lin.J[:, 0], value=-1)
    J, rho = lin.J.movedim((1, 2), (-2, -1)), lin.rho(v).movedim(1, -1)
    z = box_maximum(J @ J.mT + EPSILON * identity(J.shape[-2], J), theta * rho)
    return v - times(J.mT, z).movedim(-1, 1) / theta


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
        self.log_theta = nn.Parameter(torch.tensor(theta).log())

    def forward(self, v: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return self.step(v, lin, self.log_theta.exp())
