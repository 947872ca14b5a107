"""Algorithm 1: v = init(I0, I1); then, N_warp times, linearise and take N_iter steps of (data, denoise).

Initialisers, cascades and outside tools share one signature, (I0, I1, spacing) -> u. Spacing is the distance between
voxel centres along each axis, in any unit; without it voxels are cubes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from vrnet.fields import relative_spacing
from vrnet.variational.denoisers import TV
from vrnet.variational.linearize import Linearization, linearize

Spacing = tuple[float, ...] | None
Initializer = Callable[[Tensor, Tensor, Spacing], Tensor]


@dataclass(frozen=True)
class State:
    """Where the algorithm stands: the field v after the denoiser, and the linearisation.

    p is the dual variable of a denoiser that keeps one; it belongs to the next step, which may overwrite it."""

    v: Float[Tensor, "b d *s"]
    lin: Linearization
    p: Float[Tensor, "b d d *s"] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether the pair was just linearised at v, so that lin.I1w is I1 warped by v."""
        return self.v is self.lin.at


class Step(nn.Module):
    """u = data(v), v = denoise(u)."""

    def __init__(self, data: nn.Module, denoise: nn.Module) -> None:
        super().__init__()
        self.data, self.denoise = data, denoise

    def forward(self, state: State) -> State:
        u = self.data(state.v, state.lin)
        return replace(state, v=self.denoise(u, state.lin))


class ReleasedStep(nn.Module):
    """v = denoise(v), u = data(v), in the order of the authors' released code: u is what goes on."""

    def __init__(self, data: nn.Module, denoise: nn.Module) -> None:
        super().__init__()
        self.data, self.denoise = data, denoise

    def forward(self, state: State) -> State:
        v = self.denoise(state.v, state.lin)
        return replace(state, v=self.data(v, state.lin))


class DualStep(nn.Module):
    """The same with the TV denoiser, whose dual variable starts from where the last step left it."""

    def __init__(self, data: nn.Module, denoise: TV) -> None:
        super().__init__()
        self.data, self.denoise = data, denoise

    def forward(self, state: State) -> State:
        u = self.data(state.v, state.lin)
        v, p = self.denoise.resume(u, state.p, state.lin.h)
        return replace(state, v=v, p=p)


class Cascade(nn.Module):
    """The unrolled algorithm. `steps[ω][k]` is a step; the same object in several places shares its parameters."""

    def __init__(self, init: Initializer, steps: Sequence[Sequence[nn.Module]]) -> None:
        super().__init__()
        self.init = init
        self.steps = [list(inner) for inner in steps]
        self.parts = nn.ModuleList(dict.fromkeys(step for inner in steps for step in inner))

    def iterate(
        self, I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"], spacing: Spacing = None
    ) -> Iterator[State]:
        """Every state from the initial field on: one after each linearisation, one after each step."""
        return self.refine(self.init(I0, I1, spacing), I0, I1, spacing)

    def refine(
        self,
        v: Float[Tensor, "b d *s"],
        I0: Float[Tensor, "b c *s"],
        I1: Float[Tensor, "b c *s"],
        spacing: Spacing = None,
    ) -> Iterator[State]:
        """The same from a given field."""
        p, h = None, relative_spacing(spacing, v.shape[1])
        for inner in self.steps:
            state = State(v, linearize(I0, I1, v, h), p)
            yield state
            for step in inner:
                state = step(state)
                yield state
            v, p = state.v, state.p
            del state  # before the next linearisation needs the room

    def forward(
        self, I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        v = self.init(I0, I1, spacing)
        for state in self.refine(v, I0, I1, spacing):
            v = state.v
        return v
