"""Ax = b, and its like under bounds, at every voxel at once, for matrices of a few rows."""

from collections.abc import Sequence
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

INTERIOR_POINT_ROUNDS = 15
SMALLEST_SCALE = 1e-5


def solve_positive(A: list[list[Tensor]], b: Sequence[Tensor]) -> Float[Tensor, "b d *s"]:
    """A⁻¹b at every voxel, for small positive definite A, by elimination, which needs no pivots then."""
    d, b = len(b), list(b)
    for i, j in combinations(range(d), 2):
        factor = A[j][i] / A[i][i]
        A[j] = [A[j][k] - factor * A[i][k] if k > i else A[j][k] for k in range(d)]
        b[j] = b[j] - factor * b[i]
    for i in reversed(range(d)):
        for k in range(i + 1, d):
            b[i] = b[i] - A[i][k] * b[k]
        b[i] = b[i] / A[i][i]
    return torch.stack(b, dim=1)


def maximize_in_box(G: Float[Tensor, "*n c c"], r: Float[Tensor, "*n c"]) -> Float[Tensor, "*n c"]:
    """argmax of ⟨r, z⟩ − ⟨z, Gz⟩/2 over |z| ≤ 1, for small positive definite G, by an interior-point method.

    a and b are the multipliers of z ≤ 1 and −z ≤ 1. Each Newton step aims at a·(1 − z) = b·(1 + z) = μ, with μ a
    twentieth of what it was, and stops short of the walls of the box; a dozen reach five digits whatever G is. In
    float64, since close to a wall float32 has no digits left."""
    dtype, G, r = r.dtype, G.double(), r.double()
    scale = r.abs().amax(-1, keepdim=True) + SMALLEST_SCALE
    z, a, b = torch.zeros_like(r), scale.expand_as(r), scale.expand_as(r)
    for _ in range(INTERIOR_POINT_ROUNDS):
        above, below = 1 - z, 1 + z
        mu = (a * above + b * below).mean(-1, keepdim=True) / 20
        mu = torch.maximum(mu, 10 * torch.finfo(r.dtype).eps * scale)
        dz = solve(G + torch.diag_embed(a / above + b / below), r - times(G, z) - mu / above + mu / below)
        da, db = (mu + a * dz) / above - a, (mu - b * dz) / below - b
        fastest = torch.cat([dz / above, -dz / below, -da / a, -db / b], dim=-1).amax(-1, keepdim=True)
        step = 0.95 / fastest.clamp(min=0.95)
        z, a, b = z + step * dz, a + step * da, b + step * db
    return z.to(dtype)


def as_matrices(J: Float[Tensor, "b k d *s"]) -> Float[Tensor, "b *s k d"]:
    """One matrix per voxel."""
    return J.movedim((1, 2), (-2, -1))


def beside_vectors(theta: Tensor) -> Tensor:
    """θ as a factor of vectors (b, *s, k)."""
    return theta.movedim(1, -1) if theta.dim() else theta


def identity(n: int, like: Tensor) -> Float[Tensor, "n n"]:
    return torch.eye(n, dtype=like.dtype, device=like.device)


def times(A: Float[Tensor, "*n a b"], x: Float[Tensor, "*n b"]) -> Float[Tensor, "*n a"]:
    return (A @ x[..., None])[..., 0]


def solve(A: Float[Tensor, "*n a a"], x: Float[Tensor, "*n a"]) -> Float[Tensor, "*n a"]:
    return torch.linalg.solve(A, x[..., None])[..., 0]
