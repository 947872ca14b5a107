"""What is used where no method is named: the model in the box where it can be right, the iterative solver elsewhere."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from vrnet.methods.trained import Trained, is_in_reach, load_method
from vrnet.methods.variational import PRESETS, Variational
from vrnet.variational.cascade import Spacing

WEIGHTS = Path(__file__).parents[1] / "weights" / "short_axis.safetensors"
SOLVER = PRESETS[0]
FAR = 3.0
"""How many times coarser or finer than the model's own: hearts of that size in voxels it has never seen."""


@cache
def short_axis() -> Trained:
    """The model in the box, read when it is first asked for; all who ask share it."""
    return load_method(WEIGHTS)


@dataclass(frozen=True)
class Default:
    """A choice that waits for the images; what it comes to has a name of its own."""

    what: ClassVar = f"where none is named: short-axis for 2D images and slice by slice, {SOLVER} for volumes"

    def __str__(self) -> str:
        return "default"

    def settled(self, d: int, spacing: Spacing) -> Trained | Variational:
        """The method for images of d dimensions; a spacing far from the model's leaves the solver."""
        is_for_model = d == 2 and (spacing is None or is_in_reach(short_axis().card.spacing_mm, spacing, FAR))
        return short_axis() if is_for_model else SOLVER
