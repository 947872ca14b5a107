"""Gradient checkpointing: what a row of a cascade computes is not kept, but computed again for the backward pass.

A row is one linearisation and its steps.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vrnet.variational.cascade import Cascade, Spacing
from vrnet.variational.regularizers import Memory


class RecomputedCascade(nn.Module):
    """A cascade whose training takes the memory of its largest row, for about a third more time."""

    def __init__(self, cascade: Cascade) -> None:
        super().__init__()
        self.cascade = cascade

    def forward(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        v, memory = recompute(self.cascade.init, I0, I1, spacing), None
        for row in range(len(self.cascade.schedule)):
            v, memory = recompute(run_row, self.cascade, row, v, memory, I0, I1, spacing)
        return v


def run_row(
    cascade: Cascade, row: int, v: Tensor, memory: Memory, I0: Tensor, I1: Tensor, spacing: Spacing
) -> tuple[Tensor, Memory]:
    """The field after one linearisation at v and its steps, and what is remembered."""
    *_, last = cascade.linearize_and_step(row, v, memory, I0, I1, spacing)
    return last.v, last.memory


def recompute(function: Callable[..., Any], *inputs: object) -> Any:
    """function(*inputs); what lies between is computed again when gradients are asked for."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
