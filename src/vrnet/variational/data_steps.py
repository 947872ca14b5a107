"""argmin_u 1/s ∫|ρ(u)|^s + θ/2 ∫|u − v|²: the point-wise u-subproblem, solved in closed form.

ρ may have several channels (vector images: patches, gradients, features); one is the ordinary case.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.variational.linearize import Linearization

EPSILON = 1e-5
SWEEPS = 30


def l2_step(v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
    """u = v − (JᵀJ + θ1)⁻¹ Jᵀρ(v); with one channel, Sherman–Morrison makes it u = v − Jρ(v) / (|J|² + θ)."""
    if lin.J.shape[1] == 1:
        return v - lin.J[:, 0] * (lin.rho(v) / (lin.JJ + theta))
    J = lin.J.movedim((1, 2), (-2, -1))
    rho = lin.rho(v).movedim(1, -1).unsqueeze(-1)
    normal = J.mT @ J + theta * torch.eye(J.shape[-1], dtype=J.dtype, device=J.device)
    return v - torch.linalg.solve(normal, J.mT @ rho).squeeze(-1).movedim(-1, 1)


def l1_step(v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
    """u = v − Jᵀz/θ, where z maximises the dual ⟨ρ(v), z⟩ − |Jᵀz|²/2θ over the box |z| ≤ 1.

    With one channel z = clip(θρ(v)/|J|², −1, 1). With several, the same formula for one channel at a time, the others
    held, ascends the dual to its maximum."""
    channels = lin.J.shape[1]
    u, z = v, [torch.zeros_like(v[:, 0])] * channels
    for _ in range(SWEEPS if channels > 1 else 1):
        for c in range(channels):
            ascent = theta * lin.rho(u)[:, c] / (lin.JJ[:, c] + EPSILON)
            z_c = (z[c] + ascent).clamp(-1, 1)
            u = u - (z_c - z[c])[:, None] * lin.J[:, c] / theta
            z[c] = z_c
    return u


class DataStep(nn.Module):
    """One u-step with its own positive penalty θ, stored as log θ so that it can be learned."""

    def __init__(self, step: Callable[[Tensor, Linearization, Tensor], Tensor], theta: float = 0.1) -> None:
        super().__init__()
        self.step = step
        self.log_theta = nn.Parameter(torch.tensor(theta).log())

    def forward(self, v: Float[Tensor, "b d *s"], lin: Linearization) -> Float[Tensor, "b d *s"]:
        return self.step(v, lin, self.log_theta.exp())
