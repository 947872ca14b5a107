"""Where a displacement field folds: where x ↦ x + u(x) turns space inside out, or flattens it.

Each cell of the grid (2^d neighbouring voxels) is cut into simplices, on which the map is taken to be linear: a corner
with its d neighbours, once for every corner; in 3D also the two tetrahedra that these leave in the middle, one for each
of the two ways to cut a cube into five. The determinant of the map on a simplex, 1 where nothing moves, is its volume
after over that before. Where all are positive, neither way of cutting the grid folds, nor, in 2D, the bilinear map.
(Liu et al., On finite difference Jacobian computation in deformable image registration, IJCV 2024.)
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import determinant

Corner = tuple[int, ...]
"""The place of a voxel in its cell: 0 or 1 along each axis."""
Simplex = tuple[Corner, ...]
REST = 2
"""Voxels at rest about those that move, all simplices of the outermost being at rest, too."""
CELLS_AT_ONCE = 2**16
"""Cells whose determinants are computed together: few enough to stay in a processor's cache."""


@lru_cache
def simplices(d: int) -> tuple[Simplex, ...]:
    """The simplices of a cell, each by its d + 1 corners: those at a corner, named first; then those in the middle."""
    corners = list(product((0, 1), repeat=d))
    found: list[Simplex] = [(c, *((*c[:i], 1 - c[i], *c[i + 1 :]) for i in range(d))) for c in corners]
    for parity in (0, 1):
        middle = tuple(c for c in corners if sum(c) % 2 == parity)
        if d > 1 and len(middle) == d + 1:  # in 3D; in 2D nothing is left in the middle
            found.append(middle)
    return tuple(found)


@lru_cache
def edges(simplex: Simplex, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "d d"]:
    """The edges from the first corner of a simplex to the others, as columns. Kept: a step of training that is recorded
    as a CUDA graph may not copy from the processor."""
    with torch.inference_mode(False):  # what is cached must serve autograd too
        first, *others = torch.tensor(simplex, dtype=dtype)
        return torch.stack([other - first for other in others], dim=1).to(device)


@lru_cache
def volume(simplex: Simplex) -> int:
    """The determinant of its edges; negative where they are not in the order of the axes."""
    return round(torch.linalg.det(edges(simplex, torch.float64, torch.device("cpu"))).item())


def smallest_determinant(u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b *s"]:
    """The least determinant of each voxel: of the 2^d simplices at it as a corner and, in 3D, of the two in the middle
    of the cell that begins at it. Every simplex of the grid is counted, at one voxel; flat axes are left out."""
    whole = drop_flat_axes(u)
    if whole.shape[1] == 0 or (box := _moving_box(whole)) is None:
        return torch.ones_like(u[:, 0])
    least, moving = torch.ones_like(whole[:, 0]), whole[(slice(None), slice(None), *box)]
    part = torch.full_like(moving[:, 0], torch.inf)
    cells_of_row = moving[0, 0, 0].numel() * len(moving)
    rows = max(CELLS_AT_ONCE // cells_of_row, 1)
    for start in range(0, moving.shape[2] - 1, rows):
        _lower(part[:, start : start + rows + 1], moving[:, :, start : start + rows + 1])
    least[(slice(None), *box)] = part
    return least.view(u.shape[0], *u.shape[2:])


def _moving_box(u: Float[Tensor, "b d *s"]) -> tuple[slice, ...] | None:
    """The box outside of which nothing moves, and REST voxels more; None where nothing moves at all."""
    moves = (u != 0).flatten(0, 1).any(0)
    places = [
        moves.movedim(axis, 0).reshape(moves.shape[axis], -1).any(1).nonzero()[:, 0].tolist()
        for axis in range(moves.dim())
    ]
    if not places[0]:
        return None
    return tuple(slice(max(place[0] - REST, 0), place[-1] + 1 + REST) for place in places)


def drop_flat_axes(u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b c *t"]:
    """The motion along the axes longer than one voxel: across a single slice nothing is known to change."""
    axes = long_axes(u)
    return u[:, axes].reshape(u.shape[0], len(axes), *(u.shape[2 + i] for i in axes))


def long_axes(u: Float[Tensor, "b d *s"]) -> list[int]:
    """The axes longer than one voxel."""
    return [i for i, n in enumerate(u.shape[2:]) if n > 1]


def _lower(least: Tensor, u: Tensor) -> None:
    """Lower the numbers at the voxels of u to the determinants of its simplices."""
    shape = u.shape[2:]
    for k, (simplex, D) in enumerate(determinants(u)):
        place = least[(slice(None), *_part(simplex[0] if k < 2 ** len(shape) else (0,) * len(shape), shape))]
        torch.minimum(place, D, out=place)


def determinants(u: Float[Tensor, "b d *s"]) -> Iterator[tuple[Simplex, Float[Tensor, "b *c"]]]:
    """The determinant of each simplex in all cells, one simplex after the other."""
    shape = u.shape[2:]
    for simplex in simplices(u.shape[1]):
        rest = edges(simplex, u.dtype, u.device)
        first, *others = (u[(slice(None), slice(None), *_part(corner, shape))] for corner in simplex)
        steps = [other - first for other in others]
        J = torch.stack(steps, dim=2) + rest.view(1, *rest.shape, *[1] * len(shape))
        yield simplex, determinant(J) / volume(simplex)


def _part(corner: Corner, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The voxels of a grid that are at this corner of a cell."""
    return tuple(slice(c, n - 1 + c) for c, n in zip(corner, shape, strict=True))
