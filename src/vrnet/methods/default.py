"""What is used where no method is named: the model in the box where it can be right, the iterative solver elsewhere."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from vrnet.methods.method import CPU, Method
from vrnet.methods.trained import Trained, is_in_reach, load_method
from vrnet.methods.variational import preset
from vrnet.variational.cascade import Initializer, Spacing

WEIGHTS = Path(__file__).parents[1] / "weights" / "short_axis.safetensors"
SOLVER = preset("Gaussian", "LNCC")
"""Best of the solvers on hippocampi of validation, and as good as any on hearts; brightness and contrast may differ."""
SHORT_AXIS = "short-axis"
MAX_SPACING_RATIO = 3.0
"""How many times coarser or finer than the model's own: hearts of that size in voxels it has never seen."""


@cache
def short_axis() -> Trained:
    """The model in the box, read when it is first asked for; all who ask share it."""
    return load_method(WEIGHTS, name=SHORT_AXIS)


@dataclass(frozen=True)
class Default(Method):
    """A choice that waits for the images; what it comes to has a name of its own."""

    @property
    def summary(self) -> str:
        return (
            f"where none is named: short-axis for 2D images and slices of 0.6 to 5.4 mm a pixel, {SOLVER} for the rest"
        )

    def __str__(self) -> str:
        return "default"

    def resolve(self, d: int, spacing: Spacing) -> Method:
        """The method for images of d dimensions; a spacing far from the model's leaves the solver."""
        if d != 2:
            return SOLVER
        own = short_axis().card.spacing_mm
        return short_axis() if spacing is None or is_in_reach(own, spacing, MAX_SPACING_RATIO) else SOLVER

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return self.resolve(d, None).build(d, device)
