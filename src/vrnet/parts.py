"""Arrays made part by part: what a processor holds of a part stays in its cache, and threads share the parts."""

from collections.abc import Callable, Iterator
from math import ceil

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vrnet.threads import share

VOXELS_AT_ONCE = 2**17
"""Voxels that a CPU computes together: few enough that all that is held of them meanwhile stays in its cache."""


def in_parts(I: Tensor) -> bool:
    """Whether what is made of I is better made part by part: by a CPU, where no gradients flow, which need it whole."""
    return I.device.type == "cpu" and not torch.is_grad_enabled()


def slabs(I: Shaped[Tensor, "b c *s"]) -> Iterator[slice]:
    """Parts of the first spatial axis, of about VOXELS_AT_ONCE voxels each; of many, one for each thread."""
    n = I.shape[2]
    rows = max(VOXELS_AT_ONCE // max(len(I) * I.shape[3:].numel(), 1), 1)
    if rows < n:  # else one part is small enough, and threads would wait for each other longer than they compute
        rows = min(rows, ceil(n / torch.get_num_threads()))
    return (slice(start, min(start + rows, n)) for start in range(0, n, rows))


def make_rows(make: Callable[[slice], Tensor], like: Float[Tensor, "b c *s"]) -> Float[Tensor, "b c *s"]:
    """make(rows) for all rows of the first spatial axis, of the shape of `like`; in parts where that is better."""
    if not in_parts(like):
        return make(slice(0, like.shape[2]))
    out = like.new_empty(like.shape)

    def fill(rows: slice) -> None:
        out[:, :, rows] = make(rows)

    share(fill, slabs(like))
    return out
