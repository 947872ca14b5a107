"""A subject, prepared: what methods are trained on and measured on."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, UInt8
from torch import Tensor

Purpose = Literal["training", "evaluation"]
"""What a subject is prepared for: training sees more slices and frames, and may do without labels."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs of one subject as a batch: its slices (and frames) in 2D, the whole volume in 3D.

    Images are in [0, 1], both of a pair by one scaling unless pairs are made across subjects."""

    name: str
    fixed: Float[Tensor, "b 1 *s"]
    moving: Float[Tensor, "b 1 *s"]
    spacing: tuple[float, ...]
    """Edges of a voxel in mm."""
    fixed_labels: UInt8[Tensor, "b 1 *s"] | None = None
    moving_labels: UInt8[Tensor, "b 1 *s"] | None = None
    field: Float[Tensor, "b d *s"] | None = None
    """The true motion in voxels, where it is known: what lies at x in fixed lies at x + field(x) in moving."""
