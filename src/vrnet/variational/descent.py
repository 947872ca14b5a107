"""Run a cascade as a minimiser: watch the energy, stop when it no longer falls, keep the best field."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.fields import warp, zeros
from vrnet.variational.cascade import Cascade
from vrnet.variational.energy import Energy


@dataclass(frozen=True)
class Descent:
    """The field of least energy, and the energies seen: of no motion, of the initial field, then after each warp."""

    v: Float[Tensor, "b d *s"]
    energies: Float[Tensor, "n b"]


class Solver(nn.Module):
    """A cascade and the energy it is meant to lower, as an initialiser `(I0, I1) -> u`.

    A linearised step may overshoot, so nothing guarantees descent but looking: each pair of the batch stops on its own
    once a warp lowers its energy by less than `tolerance` of it, and keeps the best field seen, no motion included."""

    def __init__(self, cascade: Cascade, energy: Energy, tolerance: float) -> None:
        super().__init__()
        self.cascade, self.energy, self.tolerance = cascade, energy, tolerance

    def candidates(self, I0: Tensor, I1: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """(v, I1 warped by v) for the initial field and after each warp."""
        v = self.cascade.init(I0, I1)
        for state in self.cascade.refine(v, I0, I1):
            if state.is_fresh:
                yield state.v, state.lin.I1w
            v = state.v
        yield v, warp(I1, v)

    def descend(self, I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"]) -> Descent:
        best = zeros(I0)
        lowest = self.energy(I0, I1, best)
        energies, last, running = (
            [lowest],
            torch.full_like(lowest, torch.inf),
            torch.ones_like(lowest, dtype=torch.bool),
        )
        for v, I1w in self.candidates(I0, I1):
            E = self.energy(I0, I1w, v)
            better = running & (E < lowest)
            best = torch.where(better.view(-1, *[1] * (v.dim() - 1)), v, best)
            lowest = torch.where(better, E, lowest)
            running = running & (E < last * (1 - self.tolerance))
            energies.append(torch.where(running, E, lowest))
            last = E
            if not running.any():
                break
        return Descent(best, torch.stack(energies))

    def forward(self, I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"]) -> Float[Tensor, "b d *s"]:
        return self.descend(I0, I1).v
