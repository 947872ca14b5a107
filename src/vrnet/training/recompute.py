"""Gradient checkpointing: what a row of a cascade computes is forgotten, and computed again on the way back."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vrnet.variational.cascade import Cascade, Spacing
from vrnet.variational.linearize import Linearize


class Recomputed(nn.Module):
    """The same cascade in the memory of its largest row, for about a third more time."""

    def __init__(self, cascade: Cascade) -> None:
        super().__init__()
        self.cascade = cascade

    def forward(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        v = again(self.cascade.init, I0, I1, spacing)
        for inner in self.cascade.steps:
            v = again(row, inner, self.cascade.linearize, v, I0, I1, spacing)
        return v


def row(inner: list[nn.Module], linearize: Linearize, v: Tensor, I0: Tensor, I1: Tensor, spacing: Spacing) -> Tensor:
    """One linearisation and its steps: a cascade that starts at v."""
    return Cascade(lambda *_: v, [inner], linearize)(I0, I1, spacing)


def again(function: Callable[..., Tensor], *inputs: object) -> Tensor:
    """function(*inputs), forgetting what lies between."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
