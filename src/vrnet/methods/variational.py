"""The iterative solvers: {L1, L2} data terms x {TV, Diffusion, Bending, Gaussian} denoisers, coarse to fine."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from vrnet.errors import BadInput
from vrnet.methods.identity import no_motion
from vrnet.methods.method import CPU, Method
from vrnet.methods.parameters import changes
from vrnet.variational.cascade import Cascade, DualStep, Step
from vrnet.variational.data_steps import DataStep, l1_step, l2_step
from vrnet.variational.denoisers import TV, Gaussian, Quadratic
from vrnet.variational.descent import Solver
from vrnet.variational.energy import Energy, bending, diffusion, total_variation
from vrnet.variational.pyramid import CoarseToFine

DataTerm = Literal["L1", "L2"]
Regularizer = Literal["TV", "Diffusion", "Bending", "Gaussian"]


@dataclass(frozen=True)
class Variational(Method):
    """min_u ∫ 1/s |I1(x + u) − I0|^s + λ R(u), for images in [0, 1]; lengths count in shortest edges of a voxel."""

    regularizer: Regularizer = "TV"
    """R. Gaussian has none: it smooths the field, as demons do."""
    data: DataTerm = "L1"
    """s = 1 or 2."""
    lam: float = 0.075
    """λ, the weight of R; for Gaussian, the standard deviation in shortest edges of a voxel."""
    theta: tuple[float, float] = (0.1, 0.5)
    """θ at the first and at the last warp of a level: loose at first, so that the data step moves far, then tighter."""
    warps: int = 10
    """N_warp: linearisations a level, at most."""
    iterations: int = 3
    """N_iter: steps a linearisation."""
    levels: int = 3
    """Levels of the pyramid."""
    tolerance: float = 1e-3
    """Stop when three warps together change the energy by less than this part of it."""

    def __post_init__(self) -> None:
        if self.regularizer not in DENSITIES or self.data not in DATA_STEPS:
            raise BadInput(f"there is no {self}: pair {', '.join(DENSITIES)} with {', '.join(DATA_STEPS)}")
        positive = {"lam": self.lam, "warps": self.warps, "iterations": self.iterations, "levels": self.levels}
        for name, value in {**positive, "theta[0]": self.theta[0], "theta[1]": self.theta[1]}.items():
            if not value > 0:
                raise BadInput(f"{name} is {value}: it must be above zero")

    def __str__(self) -> str:
        return f"{self.regularizer}-{self.data}{changes(self, preset(self.regularizer, self.data), FIXED)}"

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return FIXED

    @property
    def summary(self) -> str:
        return f"iterative: {DATA_WORDS[self.data]}, {REGULARIZER_WORDS[self.regularizer]}"

    def build(self, d: int, device: torch.device = CPU) -> Solver:
        """The same cascade at every level, each one the initialiser of the next; the finest is watched."""
        steps = [[self._step(theta)] * self.iterations for theta in self._thetas()]
        cascade = Cascade(no_motion, steps)
        for _ in range(self.levels - 1):
            cascade = Cascade(CoarseToFine(cascade), steps)
        energy = Energy(int(self.data[1]), self.lam, DENSITIES[self.regularizer])
        return Solver(cascade, energy, self.tolerance).to(device)

    def _thetas(self) -> list[float]:
        """A geometric progression, one θ a warp."""
        first, last = self.theta
        return [first * (last / first) ** (w / max(self.warps - 1, 1)) for w in range(self.warps)]

    def _step(self, theta: float) -> nn.Module:
        data, weight = DataStep(DATA_STEPS[self.data], theta), self.lam / theta
        match self.regularizer:
            case "TV":
                return DualStep(data, TV(weight, iterations=1))
            case "Diffusion":
                return Step(data, Quadratic(weight, order=1))
            case "Bending":
                return Step(data, Quadratic(weight, order=2))
            case "Gaussian":
                return Step(data, Gaussian(self.lam))


DATA_STEPS = {"L1": l1_step, "L2": l2_step}
DENSITIES = {"TV": total_variation, "Diffusion": diffusion, "Bending": bending, "Gaussian": None}
DATA_WORDS = {"L1": "absolute differences", "L2": "squared differences"}
REGULARIZER_WORDS = {
    "TV": "total variation (keeps motion discontinuities)",
    "Diffusion": "diffusion (smooth motion)",
    "Bending": "bending energy (very smooth motion, free of affine bias)",
    "Gaussian": "Gaussian smoothing (as demons)",
}
# Tuned on the validation subjects of ACDC: TV-L1 by benchmarks/tune.py, the others by a coarse grid likewise.
PRESETS = (
    Variational("TV", "L1"),
    Variational("TV", "L2", lam=0.01, theta=(0.01, 0.05)),
    Variational("Diffusion", "L1", lam=0.1, theta=(0.05, 0.5), iterations=5),
    Variational("Diffusion", "L2", lam=0.01, theta=(0.01, 0.05)),
    Variational("Bending", "L1", lam=0.4, theta=(0.1, 1.0)),
    Variational("Bending", "L2", lam=0.1, theta=(0.01, 0.05)),
    Variational("Gaussian", "L1", lam=1.0, theta=(0.05, 0.5)),
    Variational("Gaussian", "L2", lam=1.0, theta=(0.01, 0.01)),
)
FIXED = ("regularizer", "data")
"""What the name of a solver says first."""


def preset(regularizer: str, data: str) -> Variational:
    """The solver of these terms with its tuned parameters; with those of TV-L1 where it was not tuned."""
    found = (method for method in PRESETS if (method.regularizer, method.data) == (regularizer, data))
    return next(found, None) or Variational(regularizer, data)  # type: ignore[arg-type]
