"""E(u) = mean of D(I1(x + u), I0) + λ R(u), or, under a weight, Σ (w D + λ R) / Σ w: run a cascade to minimise it, stop
when it changes no more, keep the best field."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.errors import Progress
from vrnet.fields.calculus import RelativeSpacing, relative_spacing, warp
from vrnet.variational.cascade import Cascade, Spacing, State, Step
from vrnet.variational.data_terms import DataTerm
from vrnet.variational.initialisers import SMALLEST_AXIS, RelearnContrast, coarser_shape, coarser_spacing
from vrnet.variational.linearize import Density, Field, Images, Masks, Weight
from vrnet.variational.regularizers import Regularizer

PATIENCE = 3  # linearisations over which the energy must have changed
Energies = Float[Tensor, " b"]


@dataclass(frozen=True)
class Energy:
    """What a solver minimises: a data term and λ times a regulariser, each as a mean over voxels."""

    data: DataTerm[Any]
    regularizer: Regularizer
    lam: float

    def __call__(self, I0: Images, I1w: Images, u: Field, h: RelativeSpacing, weight: Weight = None) -> Energies:
        """E(u) of each pair in the batch, given I1w = I1(x + u), on voxels with edges h."""
        return self.of(self.data.value(I1w, I0, h, weight), u, h, weight)

    def of(self, D: Density, u: Field, h: RelativeSpacing, weight: Weight = None) -> Energies:
        """E(u), given the data term at every voxel. Under a weight λR counts as much beside D as in the steps. A field
        that leaves nothing to compare is worst: nothing unlike must not be as good as all alike."""
        rough = self.regularizer.value(u, h)
        if weight is None:
            return D.flatten(1).mean(1) + self.lam * rough.flatten(1).mean(1)
        total = (weight[:, 0] * D + self.lam * rough).flatten(1).sum(1)
        compared = weight.flatten(1).sum(1)
        return torch.where(compared > 0, total / compared, torch.inf)


@dataclass(frozen=True)
class Descent:
    """The field of least energy, and the energies seen: of no motion, then after the steps of each linearisation."""

    v: Field
    energies: Float[Tensor, "n b"]


class Solver(nn.Module):
    """A cascade and the energy it is meant to lower, as an initialiser `(I0, I1, spacing, masks) -> u`. A linearised
    step may overshoot: each pair of the batch keeps the best field seen, no motion included, and stops on its own once
    PATIENCE linearisations together change its energy by less than `tolerance` of it."""

    def __init__(self, cascade: Cascade, energy: Energy, tolerance: float) -> None:
        super().__init__()
        self.cascade, self.energy, self.tolerance = cascade, energy, tolerance

    def candidates(
        self, I0: Images, I1: Images, spacing: Spacing, masks: Masks | None = None
    ) -> Iterator[tuple[Field, Density]]:
        """(v, the data term at v) after the steps of each linearisation."""
        v, moved = self.cascade.init(I0, I1, spacing, masks), False
        for state in self.cascade.refine(v, I0, I1, spacing, masks):
            v = state.v
            if state.is_fresh and moved:
                yield v, self.energy.data.value_at(state.lin)
            moved = True
            del state  # with its linearisation, before the next one is made
        h = relative_spacing(spacing, v.shape[1])
        yield v, self.energy.data.value(warp(I1, v), I0, h, masks and masks.weight(v))

    def descend(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Descent:
        """Refine the initial field until every pair's energy has settled; where nothing is compared, 0, at rest."""
        d = I0.dim() - 2
        best, h = I0.new_zeros(()).expand(len(I0), d, *I0.shape[2:]), relative_spacing(spacing, d)  # without memory
        lowest = self.energy(I0, I1, best, h, masks and masks.weight(best))
        running = lowest != torch.inf
        energies = [lowest := torch.where(running, lowest, 0)]
        for v, D in self.candidates(I0, I1, spacing, masks):
            E = torch.where(running, self.energy.of(D, v, h, masks and masks.weight(v)), lowest)
            is_better = E < lowest
            if is_better.any():  # without a copy where all pairs agree
                best = v if is_better.all() else torch.where(is_better.view(-1, *[1] * (v.dim() - 1)), v, best)
            lowest = torch.where(is_better, E, lowest)
            energies.append(E)
            if len(energies) > PATIENCE + 1:
                running = running & ((E - energies[-1 - PATIENCE]).abs() > self.tolerance * E)
            if not running.any():
                break
            del v, D
        return Descent(best.contiguous(), torch.stack(energies))

    def starting_from(self, v: Field) -> "Solver":
        """The same solver, which begins with a given field, and not with that of a coarser level."""
        cascade = Cascade(lambda *pair: v, self.cascade.steps, self.cascade.linearize)
        return Solver(cascade, self.energy, self.tolerance)

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        return self.descend(I0, I1, spacing, masks).v


@contextmanager
def watch(solver: Solver, shape: tuple[int, ...], spacing: Spacing, progress: Progress | None) -> Iterator[None]:
    """While inside, tell the part done. A step counts by its voxels; a level that stops early jumps ahead."""
    if progress is None:
        yield
        return
    parts = list(solver.modules())
    steps = [sum(map(len, part.schedule)) for part in parts if isinstance(part, Cascade)]  # finest first
    rounds = next((part.rounds for part in parts if isinstance(part, RelearnContrast)), 1)
    finest, *coarser = (n * size for n, size in zip(steps, level_sizes(shape, spacing), strict=False))
    done, total = 0, finest + rounds * sum(coarser)

    def tick(module: nn.Module, args: tuple[State], state: State) -> None:
        nonlocal done
        done += prod(state.v.shape[2:])
        progress(done / total)

    hooks = [part.register_forward_hook(tick) for part in parts if isinstance(part, Step)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    progress(1.0)


def fewest_voxels(solver: Solver) -> int:
    """Those of an axis that is halved at every level but the coarsest."""
    levels = sum(isinstance(part, Cascade) for part in solver.modules())
    return int(SMALLEST_AXIS * 2 ** (levels - 1))


def level_sizes(shape: tuple[int, ...], spacing: Spacing) -> list[int]:
    """Voxels at each level of a full pyramid, finest first."""
    below = coarser_shape(shape, spacing)
    return [prod(shape)] + (level_sizes(below, coarser_spacing(spacing, shape, below)) if below != shape else [])
