"""The models in the box: learned methods that come with their weights, by names of their own."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from vrnet.methods.method import CPU, Images, Method
from vrnet.methods.solvers import preset
from vrnet.methods.weights import MAX_SPACING_RATIO, Trained, is_in_reach, load_method
from vrnet.variational.cascade import Initializer, Spacing

FOLDER = Path(__file__).parents[1] / "weights"
SHORT_AXIS, SHORT_AXIS_CINE = "short-axis", "short-axis-cine"


BUNDLED = {
    SHORT_AXIS: "learned, in the box: VR-Net for short-axis cine MR, ED and ES of a heart, in 2D",
    SHORT_AXIS_CINE: "learned, in the box: VR-Net for the frames of short-axis cine MR, in 2D; the default of "
                     "`vrnet track`",
    "hippocampus": "learned, in the box: VR-Net for T1 images cut to the hippocampus, of two people, in 3D",
    "hippocampus-template": "in the box: through a template of 140 T1 images cut to the hippocampus, made without "
                            "labels, in 3D",
}  # fmt: skip
"""Every model in the box: its name, and a line on what it is."""


def is_bundled(name: str) -> bool:
    """Whether a model in the box has this name."""
    return name.casefold() in BUNDLED


def bundled_file(name: str) -> Path:
    """The file of weights of a model in the box, by its name in whatever case."""
    return FOLDER / f"{name.casefold().replace('-', '_')}.safetensors"


@cache
def load_bundled(name: str) -> Trained:
    """The model of a name, in whatever case, read when it is first asked for; all who ask share it."""
    own = name.casefold()
    return load_method(bundled_file(own), name=own) if name == own else load_bundled(own)


# What is used where no method is named: a model of hearts where it can be right, the iterative solver elsewhere.

SOLVER = preset("Gaussian", "LNCC")
"""Best of the solvers on hippocampi of validation, and as good as any on hearts; brightness and contrast may differ."""
MODELS: dict[Images, str] = {"pair": SHORT_AXIS, "cine": SHORT_AXIS_CINE}
"""For slices. The first brings the labels of two phases together best; the second strains the tissue between them most
nearly as phantoms do, whose motion is known."""


@dataclass(frozen=True)
class Default(Method):
    """A method that is chosen once the images are known; the chosen method has a name of its own."""

    summary = (
        "where none is named: short-axis for 2D images and slices of 0.6 to 5.4 mm a pixel (short-axis-cine where "
        f"they are tracked), {SOLVER} for the rest"
    )

    def __str__(self) -> str:
        return "default"

    def resolve(self, d: int, spacing: Spacing, images: Images = "pair") -> Method:
        """The method for images of d dimensions; a spacing far from the model's leaves the solver."""
        if d != 2:
            return SOLVER
        model = load_bundled(MODELS[images])
        own = model.card.spacing_mm
        return model if spacing is None or is_in_reach(own, spacing, MAX_SPACING_RATIO) else SOLVER

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return self.resolve(d, None).build(d, device)
