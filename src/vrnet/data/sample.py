"""A subject, prepared: what methods are trained on and measured on."""

from dataclasses import dataclass

from jaxtyping import Float, UInt8
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs of one subject as a batch: its slices in 2D, the whole in 3D. Images are in [0, 1], by one scaling."""

    name: str
    fixed: Float[Tensor, "b 1 *s"]
    moving: Float[Tensor, "b 1 *s"]
    fixed_labels: UInt8[Tensor, "b 1 *s"]
    moving_labels: UInt8[Tensor, "b 1 *s"]
    spacing: tuple[float, ...]
    """In mm."""
