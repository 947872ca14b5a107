"""The inverse of a displacement field: w with (id + u) ∘ (id + w) = id."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import compose, jacobian, sample

SMALLEST_STEP = 1e-3
NEWTON_ITERATIONS = 30
DAMPING = 1e-3
"""Added to the diagonal of I + ∇u, which may be singular where the field folds."""


class Inverse(NamedTuple):
    """A field w with (id + u) ∘ (id + w) ≈ id, and how far from it each voxel ends, in voxels."""

    field: Float[Tensor, "b d *s"]
    residual: Float[Tensor, "b *s"]


def invert(u: Float[Tensor, "b d *s"], tolerance: float = 1e-3, max_iterations: int = 100) -> Inverse:
    """Inverse of id + u by the fixed point w ← w - step · (w + u(x + w)), each voxel until it is within tolerance.

    The plain fixed point needs |∇u| < 1; halving a voxel's step whenever its residual would grow goes further. Voxels
    that are stuck go on by Newton's method. Where u folds, a
    point has several origins and w names one of them: (id + w) ∘ (id + u) then is not id."""
    found = [torch.cat(invert_one(u[k : k + 1], tolerance, max_iterations)) for k in range(u.shape[0])]
    both = torch.stack(found).view(u.shape[0], 2, *u.shape[1:])
    return Inverse(both[:, 0], torch.linalg.vector_norm(both[:, 1], dim=1))


def invert_one(u: Float[Tensor, "1 d *s"], tolerance: float, max_iterations: int) -> tuple[Tensor, Tensor]:
    """(w, w + u(x + w)) of one field."""
    axes = [torch.arange(n, device=u.device) for n in u.shape[2:]]
    x = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
    w, error = (-u).flatten(2)[0], compose(u, -u).flatten(2)[0]
    lower_error(u, x, w, error, tolerance, max_iterations)
    if (error.square().sum(0) > tolerance**2).any():
        lower_error(u, x, w, error, tolerance, NEWTON_ITERATIONS, jacobian(u).flatten(1, 2))
    return w, error


def lower_error(
    u: Tensor, x: Tensor, w: Tensor, error: Tensor, tolerance: float, max_iterations: int, J: Tensor | None = None
) -> None:
    """Steps against the error, or with J = I + ∇u against J⁻¹ error, in place.

    After a few rounds only a few voxels are still being worked at."""
    step, limits = torch.ones_like(w[0]), [n - 1 for n in u.shape[2:]]

    def at(field: Tensor, w: Tensor, which: Tensor) -> Tensor:
        places = [(x_i[which] + w_i).clamp(0, n)[None] for x_i, w_i, n in zip(x, w, limits, strict=True)]
        return sample(field, places)[0]

    for _ in range(max_iterations):
        active = ((error.square().sum(0) > tolerance**2) & (step > SMALLEST_STEP)).nonzero()[:, 0]
        if not len(active):
            break
        move = error[:, active] if J is None else newton_move(at(J, w[:, active], active), error[:, active])
        tried = w[:, active] - step[active] * move
        left = tried + at(u, tried, active)
        better = left.square().sum(0) < error[:, active].square().sum(0)
        gained = active[better]
        w[:, gained], error[:, gained] = tried[:, better], left[:, better]
        step[active[~better]] /= 2


def newton_move(J: Float[Tensor, "dd n"], error: Float[Tensor, "d n"]) -> Float[Tensor, "d n"]:
    """J⁻¹ error at each of n voxels."""
    d = len(error)
    matrices = J.T.view(-1, d, d) + DAMPING * torch.eye(d, dtype=J.dtype, device=J.device)
    return (torch.linalg.pinv(matrices) @ error.T[..., None])[..., 0].T
