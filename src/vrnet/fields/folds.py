"""Where a displacement field folds: where x ↦ x + u(x) turns space inside out, or flattens it.

Each cell of the grid (2^d neighbouring voxels) is cut into simplices, on which the map is linear: a corner with its d
neighbours, for every corner; in 3D also the two tetrahedra that these leave in the middle, one for each of the two ways
to cut a cube into five. The determinant of the map on a simplex, 1 where nothing moves, is its volume after over that
before. Where all are positive, neither way of cutting folds, nor, in 2D, the bilinear map. (Liu et al., On finite
difference Jacobian computation in deformable image registration, IJCV 2024.)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from vrnet.devices import threads_for
from vrnet.fields.calculus import check_finite, determinant, minor, squared_norm

Corner = tuple[int, ...]  # the place of a voxel in its cell: 0 or 1 along each axis
Simplex = tuple[Corner, ...]
CELLS_AT_ONCE = 2**16  # cells whose determinants are computed together: few enough to stay in a processor's cache


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
    """The edges from the first corner of a simplex to the others, as columns. Kept: a CUDA graph may not copy them."""
    with torch.inference_mode(False):  # what is cached must serve autograd too
        first, *others = torch.tensor(simplex, dtype=dtype)
        return torch.stack([other - first for other in others], dim=1).to(device)


@lru_cache
def volume(simplex: Simplex) -> int:
    """The determinant of its edges; negative where they are not in the order of the axes."""
    return round(torch.linalg.det(edges(simplex, torch.float64, torch.device("cpu"))).item())


def smallest_determinant(u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b *s"]:
    """The least determinant at each voxel: of simplices at it and, in 3D, in the middle of the cell it begins."""
    moving, _ = drop_flat_axes(u)
    if moving.shape[1] == 0 or not moving.any():
        return torch.ones_like(u[:, 0])
    least = torch.full_like(moving[:, 0], torch.inf)
    rows, first = max(CELLS_AT_ONCE // moving[:, 0, 0].numel(), 1), (0,) * moving.shape[1]
    for start in range(0, moving.shape[2] - 1, rows):
        lowered, part = least[:, start : start + rows + 1], moving[:, :, start : start + rows + 1]
        for k, (simplex, D) in enumerate(determinants(part)):
            corner = simplex[0] if k < 2 ** len(first) else first  # of a simplex in the middle: where its cell begins
            place = lowered[(slice(None), *_part(corner, part.shape[2:]))]
            torch.minimum(place, D, out=place)
    return least.view(u.shape[0], *u.shape[2:])


def drop_flat_axes(u: Float[Tensor, "b d *s"]) -> tuple[Float[Tensor, "b c *t"], list[int]]:
    """The motion along the axes longer than one voxel, and these: across a single slice nothing is known to change."""
    axes = [i for i, n in enumerate(u.shape[2:]) if n > 1]
    return u[:, axes].reshape(u.shape[0], len(axes), *(u.shape[2 + i] for i in axes)), axes


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


# The repair of folds: a field near u, u itself far from folds, whose determinants are at least MARGIN.
#
# Rounds of two kinds, on the voxels of folded cells alone. To open a fold, each simplex with D(u) < MARGIN asks for the
# shortest move to D = TARGET to first order, u ← u + (TARGET − D) ∇D / |∇D|². A voxel that several ask makes the mean
# of the moves, weighted by how much each lacks. That moves little but takes long where sheets overlap by many voxels.
# There smoothing helps, u ← the mean of the neighbours' u, and reaches further the longer a fold stays. What folds
# after MAX_ROUNDS is smoothed in a neighbourhood that grows until nothing folds. If that is the whole grid, u is drawn
# towards its mean: D → 1 as all motion relative to it is halved again and again, so there is an end.

MARGIN = 0.02  # the least determinant of a repaired field: enough that rounding it, as files do, folds nothing again
TARGET = 0.03
OPENING_ROUNDS = 2  # rounds that open folds before the first that smooths; then the two kinds take turns
ROUNDS_PER_WIDENING = 16  # after how many rounds smoothing reaches one voxel further beyond the folds
MAX_ROUNDS = 128
RELAXATION = 2.0
SMOOTHING = 0.6
FLATTEST = 1e-3  # keeps a move finite where a simplex has shrunk to a line or a point, and ∇D vanishes
LONGEST_MOVE = 4.0  # how far along an axis, in voxels, a fold may be opened at once


class Unfolded(NamedTuple):
    """A field without folds, and which voxels were folded before."""

    field: Float[Tensor, "b d *s"]
    folded: Bool[Tensor, "b *s"]
    drawn: Bool[Tensor, "b *s"]  # about folds that rounds did not undo: there much of the motion is lost


def unfold(u: Float[Tensor, "b d *s"]) -> Unfolded:
    """A field near u without folds; u itself where every determinant of u is at least MARGIN."""
    least = smallest_determinant(u)
    narrow = ~(least >= MARGIN)  # of displacements too large to multiply, too
    if not narrow.any():
        return Unfolded(u, narrow, narrow)
    check_finite(u, "a field with folds")
    moving, axes = drop_flat_axes(u)
    mesh, flat = Mesh(moving), moving.transpose(0, 1).flatten(1).contiguous().clone()
    cells = mesh.narrow_cells(flat, mesh.cells_around(narrow.flatten().nonzero()[:, 0]))
    for k in range(MAX_ROUNDS):
        if not len(cells):
            break
        if k < OPENING_ROUNDS or k % 2:
            voxels = mesh.open(flat, cells)
        else:
            reach = k // ROUNDS_PER_WIDENING
            voxels = mesh.smooth(flat, cells, reach, rounds=reach + 1)
        cells = mesh.narrow_cells(flat, mesh.cells_around(voxels))  # no other cell has changed

    fields = flat.view(len(flat), -1, *mesh.shape).transpose(0, 1)
    drawn, reach = torch.zeros_like(mesh.is_cell), 1
    while len(cells):
        voxels = mesh.smooth(flat, cells, reach, rounds=reach**2)
        drawn[voxels] = True
        for k in drawn.view(len(u), -1).all(1).nonzero().flatten().tolist():  # where that is all of a grid
            whole, part, fields[k] = moving[k].double(), 1.0, moving[k]
            centre = whole.flatten(1).mean(1).view(-1, *[1] * len(mesh.shape))
            while not (smallest_determinant(fields[k : k + 1]) >= TARGET).all():
                part /= 2
                fields[k] = centre + part * (whole - centre)
        cells = mesh.narrow_cells(flat, mesh.cells_around(voxels))
        reach += max(reach // 2, 1)
    field = u.clone()
    field[:, axes] = fields.view(len(u), len(axes), *u.shape[2:])
    return Unfolded(field, ~(least > 0), drawn.view_as(narrow))


class Mesh:
    """The cells of a batch of grids. A voxel is its place in the flattened batch, a cell its first voxel."""

    def __init__(self, u: Float[Tensor, "b d *s"]) -> None:
        self.shape, cut = tuple(u.shape[2:]), simplices(u.shape[1])
        # How far apart, in the flattened grid, are neighbours along each axis, and a cell's corners and its first one.
        self.strides = [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        places = list(product((0, 1), repeat=len(self.shape)))
        self.offsets = (torch.tensor(places) * torch.tensor(self.strides)).sum(1).to(u.device)
        is_cell = torch.zeros(len(u), *self.shape, dtype=torch.bool, device=u.device)
        is_cell[(slice(None), *(slice(n - 1) for n in self.shape))] = True
        self.is_cell = is_cell.flatten()  # whether a cell begins at a voxel: not at the far border
        # Of each simplex: which of the cell's corners it has, its edges at rest as columns, and their determinant.
        self.corners = torch.tensor([[places.index(corner) for corner in simplex] for simplex in cut]).to(u.device)
        self.edges = torch.stack([edges(simplex, u.dtype, u.device) for simplex in cut])
        self.volumes = u.new_tensor([volume(simplex) for simplex in cut])

    def cells_around(self, voxels: Integer[Tensor, " n"]) -> Integer[Tensor, " cells"]:
        """The cells that have one of these voxels as a corner."""
        near = torch.zeros_like(self.is_cell)
        near[voxels - self.offsets[:, None]] = True  # beyond the near border: a voxel of the far one, no cell's first
        return (near & self.is_cell).nonzero()[:, 0]

    def voxels_of(self, cells: Integer[Tensor, " cells"]) -> Integer[Tensor, " n"]:
        near = torch.zeros_like(self.is_cell)
        near[cells + self.offsets[:, None]] = True
        return near.nonzero()[:, 0]

    def jacobians(self, u: Tensor, cells: Tensor) -> Float[Tensor, "simplices d d cells"]:
        """The edges of every simplex of these cells after the motion, as columns."""
        places = u[:, cells + self.offsets[:, None]]
        first, others = places[:, self.corners[:, :1]], places[:, self.corners[:, 1:]]
        return (others - first).transpose(0, 1) + self.edges[..., None]

    def narrow_cells(self, u: Tensor, cells: Tensor) -> Integer[Tensor, " narrow"]:
        """Those of the cells in which a determinant is below MARGIN."""
        found = []
        for some in torch.split(cells, CELLS_AT_ONCE):
            D = determinant(self.jacobians(u, some)) / self.volumes[:, None]
            found.append(some[~(D >= MARGIN).all(0)])
        return torch.cat(found)

    def open(self, u: Tensor, cells: Tensor) -> Integer[Tensor, " n"]:
        """Move the corners of narrow simplices of these cells, in place, and return which voxels may have moved."""
        voxels = self.voxels_of(cells)
        number = torch.empty_like(self.is_cell, dtype=torch.long)
        number[voxels] = torch.arange(len(voxels), device=u.device)
        moves, weights = u.new_zeros(len(u), len(voxels)), u.new_zeros(len(voxels))
        for some in torch.split(cells, CELLS_AT_ONCE):
            for offset, move, weight in zip(self.offsets, *self.moves(u, some), strict=True):
                places = number[some + offset]  # each once, so that sums do not depend on threads
                moves[:, places] += move
                weights[places] += weight
        move = RELAXATION * moves / weights.clamp(min=torch.finfo(u.dtype).tiny)
        u[:, voxels] += move.nan_to_num(0, 0, 0).clamp(-LONGEST_MOVE, LONGEST_MOVE)
        return voxels

    def moves(self, u: Tensor, cells: Tensor) -> tuple[Float[Tensor, "corners d m"], Float[Tensor, "corners m"]]:
        """What the narrow simplices of these cells ask of each corner, times what they lack; and what they lack."""
        J = self.jacobians(u, cells)
        D = determinant(J) / self.volumes[:, None]
        lacking = (TARGET - D) * (D < MARGIN)
        axes = range(J.shape[1])
        without = [tuple(other for other in axes if other != axis) for axis in axes]
        cofactors = [[(-1) ** (i + j) * minor(J, without[i], without[j]) for j in axes] for i in axes]
        slope = torch.stack([torch.stack(row, dim=1) for row in cofactors], dim=1) / self.volumes[:, None, None, None]
        slope = torch.cat([-reduce(torch.add, slope.unbind(2))[:, :, None], slope], dim=2)  # that of the first corner
        step = lacking.square() / (squared_norm(slope.flatten(1, 2)) + FLATTEST)
        moves, weights = u.new_zeros(len(self.offsets), len(u), len(cells)), u.new_zeros(len(self.offsets), len(cells))
        for corners, move, weight in zip(self.corners, slope * step[:, None, None], lacking, strict=True):
            moves[corners] += move.transpose(0, 1)
            weights[corners] += weight
        return moves, weights

    def smooth(self, u: Tensor, cells: Tensor, reach: int, rounds: int) -> Integer[Tensor, " n"]:
        """Draw the corners of these cells and all within `reach` voxels of them to the mean of their neighbours."""
        voxels = self.voxels_of(cells)
        for _ in range(reach):
            voxels = self.voxels_of(self.cells_around(voxels))
        for _ in range(rounds):
            total = torch.zeros_like(u[:, voxels])  # of the 2d neighbours of each; the border is repeated outside
            for stride, n in zip(self.strides, self.shape, strict=True):
                x = voxels // stride % n
                total += u[:, voxels + stride * (x < n - 1)] + u[:, voxels - stride * (x > 0)]
            u[:, voxels] = u[:, voxels].lerp(total / (2 * len(self.shape)), SMOOTHING)
        return voxels


@dataclass(frozen=True)
class Repair:
    """How much of a field was changed to free it of folds. Moves are means and maxima over the changed voxels."""

    folded_percent: float
    """Voxels that were folded, by the strict count."""
    changed_percent: float
    mean_move_voxels: float
    max_move_voxels: float
    mean_move_mm: float | None
    """None where no spacing is known."""
    max_move_mm: float | None
    farthest_voxel: tuple[int, ...]
    """The voxel of fixed whose end was moved the most."""
    drawn_percent: float = 0.0
    """Voxels about folds that could not be opened: their motion was drawn towards that of what lies around."""

    @property
    def moves(self) -> tuple[float, float, str]:
        """The mean and the greatest move, in mm, or in voxels where no spacing is known."""
        if self.mean_move_mm is None or self.max_move_mm is None:
            return self.mean_move_voxels, self.max_move_voxels, "voxels"
        return self.mean_move_mm, self.max_move_mm, "mm"

    @property
    def is_slight(self) -> bool:
        """Whether next to nothing was changed, by mm, or voxels of unknown size."""
        return self.changed_percent < 0.01 and self.moves[1] < 0.1

    def __str__(self) -> str:
        parts = self.folded_percent, self.changed_percent, self.drawn_percent
        folded, changed, drawn = (f"{part:.2g} %" if part >= 1e-3 else "less than 0.001 %" for part in parts)
        cause = f"{folded} of the voxels were folded, which no tissue does"
        if not self.folded_percent:
            cause = f"No voxel was folded, but some were squeezed to less than {100 * MARGIN:.0f} % of their size"
        mean, most, unit = self.moves
        place = ", ".join(map(str, self.farthest_voxel))
        moves = f"{mean:.2g} {unit} on average and {most:.2g} {unit} at most, at voxel ({place})"
        lost = (
            f"; about folds that did not open, {drawn} of them lost much of their motion" if self.drawn_percent else ""
        )
        return f"{cause}: {changed} of the voxels were moved to mend that, by {moves}{lost}"

    def as_stored(self, shape: tuple[int, ...], mirrored: tuple[int, ...], order: Sequence[int]) -> "Repair":
        """The repair of images that are mirrored along some axes, and then have axis order[i] as axis i."""
        ends = enumerate(zip(self.farthest_voxel, shape, strict=True))
        place = [n - 1 - i if axis in mirrored else i for axis, (i, n) in ends]
        return replace(self, farthest_voxel=tuple(place[axis] for axis in order))


@torch.inference_mode()
def repair_folds(
    field: Float[Tensor, "d *s"], spacing: tuple[float, ...] | None, slice_axis: int | None
) -> tuple[Float[Tensor, "d *s"], Repair | None]:
    """A field in voxels without folds, and what was changed, if anything was. Slices are repaired each by itself."""
    within = [axis for axis in range(len(field)) if axis != slice_axis]
    u = field[None] if slice_axis is None else field[within].movedim(1 + slice_axis, 0)
    with threads_for(False, field[0].numel()):
        found = unfold(u)
    if found.field is u:
        return field, None
    repaired = field.clone()
    repaired[within] = found.field[0] if slice_axis is None else found.field.movedim(0, 1 + slice_axis)
    moved = (repaired - field).abs().amax(0) > 0
    voxels = (repaired - field)[:, moved].double()
    mm = voxels * voxels.new_tensor(spacing or (1.0,) * len(field))[:, None]
    lengths, lengths_mm = (torch.linalg.vector_norm(moves, dim=0) for moves in (voxels, mm))
    folded, changed, drawn = (100 * mask.double().mean().item() for mask in (found.folded, moved, found.drawn))
    mean_mm, max_mm = (lengths_mm.mean().item(), lengths_mm.max().item()) if spacing else (None, None)
    farthest, mean, most = tuple(moved.nonzero()[lengths_mm.argmax()].tolist()), lengths.mean(), lengths.max()
    return repaired, Repair(folded, changed, mean.item(), most.item(), mean_mm, max_mm, farthest, drawn)
