"""Gradient checkpointing: what a row of a cascade computes is not kept, but computed again for the backward pass.

A row is one linearisation and its steps.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vrnet.variational.cascade import Cascade, Spacing
from vrnet.variational.linearize import Linearize


class RecomputedCascade(nn.Module):
    """A cascade whose training takes the memory of its largest row, for about a third more time."""

    def __init__(self, cascade: Cascade) -> None:
        super().__init__()
        self.cascade = cascade

    def forward(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        v = recompute(self.cascade.init, I0, I1, spacing)
        for inner in self.cascade.steps:
            v = recompute(run_row, inner, self.cascade.linearize, v, I0, I1, spacing)
        return v


def run_row(
    inner: list[nn.Module], linearize: Linearize, v: Tensor, I0: Tensor, I1: Tensor, spacing: Spacing
) -> Tensor:
    """The field after one linearisation at v and its steps."""
    return Cascade(lambda *_: v, [inner], linearize)(I0, I1, spacing)


def recompute(function: Callable[..., Tensor], *inputs: object) -> Tensor:
    """function(*inputs); what lies between is computed again when gradients are asked for."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
