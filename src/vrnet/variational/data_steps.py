"""argmin_u 1/s ∫|ρ(u)|^s + θ/2 ∫|u − v|²: the point-wise u-subproblem, solved in closed form.

ρ may have several channels (vector images: patches, gradients, features); one is the ordinary case.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.variational.linearize import Linearization

EPSILON = 1e-5
ROUNDS = 12


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
        return v - z * lin.J[:, 0] / theta
    J, rho = lin.J.movedim((1, 2), (-2, -1)), lin.rho(v).movedim(1, -1)
    z = box_maximum(J @ J.mT + EPSILON * identity(J.shape[-2], J), theta * rho)
    return v - times(J.mT, z).movedim(-1, 1) / theta


def box_maximum(G: Float[Tensor, "*n c c"], r: Float[Tensor, "*n c"]) -> Float[Tensor, "*n c"]:
    """argmax of ⟨r, z⟩ − ⟨z, Gz⟩/2 over |z| ≤ 1, for small positive definite G.

    Each round clips one coordinate's maximum after another, then goes to the maximum on the face so found, or as far
    towards it as the box allows. Once the face is the right one, that is the answer."""
    diagonal = G.diagonal(dim1=-2, dim2=-1)
    z = (r / diagonal).clamp(-1, 1)
    for _ in range(ROUNDS):
        for c in range(z.shape[-1]):
            peak = z[..., c] + (r[..., c] - (G[..., c, :] * z).sum(-1)) / diagonal[..., c]
            z = z.index_copy(-1, torch.tensor([c], device=z.device), peak.clamp(-1, 1)[..., None])
        free = (z.abs() < 1).to(z)
        masked = G * free[..., :, None] * free[..., None, :] + torch.diag_embed(1 - free)
        move = solve(masked, free * (r - times(G, z)))
        room = ((move.sign() - z) / torch.where(move == 0, 1, move)).where(move != 0, torch.inf)
        step = room.amin(-1, keepdim=True).clamp(max=1)
        z = torch.where(room <= step, move.sign(), z + step * move)
    return z


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
