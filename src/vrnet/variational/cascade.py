"""Algorithm 1: v = init(I0, I1); then, N_warp times, linearise and take N_iter steps.

Initialisers, cascades and outside tools are (I0, I1, spacing, masks) -> u; spacing is the distance between voxel
centres along each axis, in any unit, and without it voxels are cubes; without masks, all counts. Half steps, steps and
everything between two linearisations are State -> State."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vrnet.fields.calculus import compose, relative_spacing, shorten, smooth, zeros
from vrnet.variational.data_terms import DataTerm
from vrnet.variational.linearize import SMALLEST_WEIGHT, Expansion, Field, Images, Linearize, Masks, linearize
from vrnet.variational.regularizers import Memory, Regularizer

Spacing = tuple[float, ...] | None
LONGEST_MOVE = 0.5  # voxels that a composed data step moves a point at most


@runtime_checkable
class Initializer(Protocol):
    """Whatever finds a field."""

    def __call__(self, I0: Tensor, I1: Tensor, spacing: Spacing = None, masks: Masks | None = None, /) -> Tensor: ...


@dataclass(frozen=True)
class State:
    """Where the algorithm stands."""

    v: Field  # the field as the last half step left it
    lin: Expansion
    is_fresh: bool = True  # whether the pair was just linearised at v, so that lin.I1w is I1 warped by v
    memory: Memory = (
        None  # what a regulariser keeps from step to step, and may overwrite: one slot, as a cascade has one
    )
    move: Field | None = None  # δ of the last composed step, before it was cut, for the next to go on with

    def move_to(self, v: Field) -> "State":
        """The state with another field, away from where the pair was linearised."""
        return replace(self, v=v, is_fresh=False)


class DataStep(nn.Module):
    """u = prox of the data term at v, with a penalty θ > 0 of its own, stored as log θ so that it can be learned. Under
    a weight w the penalty is θ/w, and nothing moves where w is zero."""

    def __init__(self, term: DataTerm[Any], theta: float = 0.1) -> None:
        super().__init__()
        self.term = term
        self.log_theta = nn.Parameter(torch.tensor(log(theta)))

    def forward(self, state: State) -> State:
        v, lin, theta = state.v, state.lin, self.log_theta.exp()
        if lin.weight is None:
            return state.move_to(self.term.prox(v, lin, theta))
        u = self.term.prox(v, lin, theta / lin.weight.clamp(min=SMALLEST_WEIGHT))
        return state.move_to(torch.where(lin.weight < SMALLEST_WEIGHT, v, u))


class ComposedDataStep(nn.Module):
    """u = v ∘ (id + δ): the move of a data step, smoothed, and no longer anywhere than half a voxel, which hardly
    folds. `fluid` is the standard deviation of the smoothing, in shortest edges of a voxel. With a momentum, that part
    of the last move is added to each: many small moves in one direction then become few large ones."""

    def __init__(self, data: DataStep, fluid: float, momentum: float = 0.0) -> None:
        super().__init__()
        self.data, self.fluid, self.momentum = data, fluid, momentum

    def forward(self, state: State) -> State:
        delta = self.data(state).v - state.v
        delta = smooth(delta, tuple(self.fluid / edge for edge in state.lin.h))
        if self.momentum and state.move is not None:
            delta = delta.add_(state.move, alpha=self.momentum)
        u = compose(state.v, shorten(delta, LONGEST_MOVE))
        return replace(state.move_to(u), move=delta if self.momentum else None)


class Denoise(nn.Module):
    """v = prox of weight · R at u, for a hand-crafted regulariser R."""

    def __init__(self, regularizer: Regularizer, weight: float) -> None:
        super().__init__()
        self.regularizer, self.weight = regularizer, weight

    def forward(self, state: State) -> State:
        v, memory = self.regularizer.prox(state.v, self.weight, state.lin.h, state.memory)
        return replace(state.move_to(v), memory=memory)


class Step(nn.Module):
    """Two half steps: data (nn.Identity if there is none), then denoise; in the authors' released code the reverse."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, state: State) -> State:
        return self.second(self.first(state))


class Cascade(nn.Module):
    """The unrolled algorithm. `steps[ω][k]` is a step; the same object in several places shares its parameters."""

    def __init__(self, init: Initializer, steps: Sequence[Sequence[nn.Module]], linearize: Linearize = linearize):
        super().__init__()
        self.init, self.linearize = init, linearize
        self.parts = nn.ModuleList(dict.fromkeys(step for inner in steps for step in inner))
        place = {step: k for k, step in enumerate(self.parts)}
        self.schedule = [[place[step] for step in inner] for inner in steps]  # which part is taken at each step

    @property
    def steps(self) -> list[list[nn.Module]]:
        return [[self.parts[k] for k in inner] for inner in self.schedule]

    def refine(
        self, v: Field, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None
    ) -> Iterator[State]:
        """Every state from a given field on: one after each linearisation, one after each step."""
        memory, move = None, None
        for row in range(len(self.schedule)):
            for state in self.linearize_and_step(row, v, memory, I0, I1, spacing, masks, move):
                yield state
            v, memory, move = state.v, state.memory, state.move
            del state  # before the next linearisation needs the room

    def linearize_and_step(
        self, row: int, v: Field, memory: Memory, I0: Images, I1: Images, spacing: Spacing = None,
        masks: Masks | None = None, move: Field | None = None,
    ) -> Iterator[State]:  # fmt: skip
        """The state after one linearisation, at v, and after each of its steps."""
        lin = self.linearize(I0, I1, v, relative_spacing(spacing, v.shape[1]), masks and masks.weight(v))
        state = State(v, lin, memory=memory, move=move)
        yield state
        for k in self.schedule[row]:
            state = self.parts[k](state)
            yield state

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        v = self.init(I0, I1, spacing, masks)
        for state in self.refine(v, I0, I1, spacing, masks):
            v = state.v
        return v


def no_motion(I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
    """The initialiser u = 0."""
    return zeros(I0)
