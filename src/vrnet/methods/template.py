"""A template as a method: Template-48x64x48 is the shape of what a file of weights holds."""

import re
from dataclasses import dataclass, replace

import torch

from vrnet.errors import BadInput, shape_text
from vrnet.methods.method import CPU
from vrnet.methods.parameters import PerDimension
from vrnet.methods.solvers import preset
from vrnet.variational.data_terms import LNCC
from vrnet.variational.solver import Solver
from vrnet.variational.template import ThroughTemplate

SIZE = "[1-9][0-9]{0,3}"
FORM = re.compile(rf"Template-({SIZE}(?:x{SIZE}){{1,2}})", flags=re.IGNORECASE)
DETAIL = LNCC(radii=(2.0, 4.0))
"""The local correlation by which images are brought to a template, in smaller boxes than those of two images: it is
sharper and less noisy than any of them."""
SOLVER = replace(preset("Gaussian", "LNCC"), lam=PerDimension(0.7, 0.65))
# λ and the radii were chosen on the validation pairs of hippocampus, by Dice and strict folds.


def make_solver(d: int, device: torch.device = CPU) -> Solver:
    """What brings images to a template."""
    return SOLVER.solver(DETAIL, d).to(device)


@dataclass(frozen=True)
class Template:
    """What a file of weights holds where it holds a template of this shape; once read, it is a method."""

    shape: tuple[int, ...]

    network_count = 0
    """It has no networks."""

    def __str__(self) -> str:
        return f"Template-{shape_text(self.shape)}"

    def build(self, d: int, device: torch.device = CPU) -> ThroughTemplate:
        """A template that shows nothing yet."""
        if d != len(self.shape):
            raise BadInput(f"{self} has {len(self.shape)} dimensions, not {d}")
        image = torch.zeros(1, 1, *self.shape, device=device)
        return ThroughTemplate(image, torch.ones_like(image), make_solver)


def parse_template(name: str) -> Template | None:
    """The template that a name stands for; None if it is the name of none."""
    found = FORM.fullmatch(name)
    return found and Template(tuple(int(n) for n in found[1].split("x")))
