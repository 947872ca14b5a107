"""What is used where no method is named: a model of hearts where it can be right, the iterative solver elsewhere."""

from dataclasses import dataclass

import torch

from vrnet.methods.boxed import SHORT_AXIS, SHORT_AXIS_CINE, boxed
from vrnet.methods.method import CPU, Images, Method
from vrnet.methods.trained import MAX_SPACING_RATIO, is_in_reach
from vrnet.methods.variational import preset
from vrnet.variational.cascade import Initializer, Spacing

SOLVER = preset("Gaussian", "LNCC")
"""Best of the solvers on hippocampi of validation, and as good as any on hearts; brightness and contrast may differ."""
MODELS: dict[Images, str] = {"pair": SHORT_AXIS, "cine": SHORT_AXIS_CINE}
"""For slices. The first brings the labels of two phases together best; the second strains the tissue between them most
nearly as phantoms do, whose motion is known."""


@dataclass(frozen=True)
class Default(Method):
    """A choice that waits for the images; what it comes to has a name of its own."""

    @property
    def summary(self) -> str:
        return (
            f"where none is named: short-axis for 2D images and slices of 0.6 to 5.4 mm a pixel (short-axis-cine where "
            f"they are tracked), {SOLVER} for the rest"
        )

    def __str__(self) -> str:
        return "default"

    def resolve(self, d: int, spacing: Spacing, images: Images = "pair") -> Method:
        """The method for images of d dimensions; a spacing far from the model's leaves the solver."""
        if d != 2:
            return SOLVER
        model = boxed(MODELS[images])
        own = model.card.spacing_mm
        return model if spacing is None or is_in_reach(own, spacing, MAX_SPACING_RATIO) else SOLVER

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return self.resolve(d, None).build(d, device)
