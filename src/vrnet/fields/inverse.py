"""The inverse of a displacement field: w with (id + u) ∘ (id + w) = id."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields.calculus import jacobian, sample

SMALLEST_STEP = 1e-3
NEWTON_ITERATIONS = 30
DAMPING = 1e-3  # added to the diagonal of I + ∇u, which may be singular where the field folds


class Inverse(NamedTuple):
    """A field w with (id + u) ∘ (id + w) ≈ id, and how far from it each voxel ends, in voxels: of a batch (b, d, *s)
    and (b, *s); of a registration without b, and the point at y in moving is at y + field(y) in fixed."""

    field: Any
    residual: Any

    def __repr__(self) -> str:
        return f"Inverse(field {tuple(self.field.shape)}, {describe_residual(self.residual, 'voxels')})"


def describe_residual(residual: Any, unit: str) -> str:
    values = torch.as_tensor(residual)
    most = f"half of its voxels end within {values.median():.2g} {unit} of where they began"
    return f"from moving to fixed and back {most}, all within {values.max():.2g} {unit}"


def invert(u: Float[Tensor, "b d *s"], tolerance: float = 1e-3, max_iterations: int = 100) -> Inverse:
    """The inverse of id + u at the voxels of its grid, each to a tolerance. Where u folds, a point has several origins
    and w names one of them: (id + w) ∘ (id + u) then is not id."""
    axes = [torch.arange(n, dtype=u.dtype, device=u.device) for n in u.shape[2:]]
    x = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
    found = [torch.stack(invert_at(one[None], x, tolerance, max_iterations)) for one in u]
    both = torch.stack(found).view(len(u), 2, *u.shape[1:])
    return Inverse(both[:, 0], torch.linalg.vector_norm(both[:, 1], dim=1))


def invert_at(
    u: Float[Tensor, "1 d *s"], x: Float[Tensor, "d n"], tolerance: float = 1e-3, max_iterations: int = 100
) -> tuple[Float[Tensor, "d n"], Float[Tensor, "d n"]]:
    """(w, w + u(x + w)) at any points x, in voxels, by w ← w - step · (w + u(x + w)). Outside its grid u goes on as at
    its border. A step is halved whenever the residual would grow, as where |∇u| > 1; points that are stuck go on by
    Newton's method."""
    w = -sample_inside(u, x)
    error = w + sample_inside(u, x + w)
    lower_error(u, x, w, error, tolerance, max_iterations)
    if (error.square().sum(0) > tolerance**2).any():
        lower_error(u, x, w, error, tolerance, NEWTON_ITERATIONS, jacobian(u).flatten(1, 2))
    return w, error


def sample_inside(field: Float[Tensor, "1 c *s"], x: Float[Tensor, "d n"]) -> Float[Tensor, "c n"]:
    """A field at points, in voxels; of those outside its grid, at the nearest inside."""
    return sample(field, [x_i.clamp(0, n - 1)[None] for x_i, n in zip(x, field.shape[2:], strict=True)])[0]


def lower_error(
    u: Tensor, x: Tensor, w: Tensor, error: Tensor, tolerance: float, max_iterations: int, J: Tensor | None = None
) -> None:
    """Steps against the error, or with J = I + ∇u against J⁻¹ error, in place, at the points that need them."""
    step = torch.ones_like(w[0])
    for _ in range(max_iterations):
        active = ((error.square().sum(0) > tolerance**2) & (step > SMALLEST_STEP)).nonzero()[:, 0]
        if not len(active):
            break
        start, move = x[:, active], error[:, active]
        if J is not None:
            d = len(move)
            matrices = sample_inside(J, start + w[:, active]).T.view(-1, d, d)
            damped = matrices + DAMPING * torch.eye(d, dtype=J.dtype, device=J.device)
            move = (torch.linalg.pinv(damped) @ move.T[..., None])[..., 0].T
        tried = w[:, active] - step[active] * move
        left = tried + sample_inside(u, start + tried)
        better = left.square().sum(0) < error[:, active].square().sum(0)
        gained = active[better]
        w[:, gained], error[:, gained] = tried[:, better], left[:, better]
        step[active[~better]] /= 2
