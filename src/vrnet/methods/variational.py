"""The iterative solvers: a data term and a regulariser of any names, coarse to fine."""

from dataclasses import dataclass
from itertools import product

import torch

from vrnet.errors import BadInput
from vrnet.methods.method import CPU, Method
from vrnet.methods.parameters import changes, check_at_most, check_positive
from vrnet.variational.cascade import Cascade, DataStep, Denoise, Step, no_motion
from vrnet.variational.data_terms import DATA_TERMS
from vrnet.variational.pyramid import CoarseToFine
from vrnet.variational.regularizers import REGULARIZERS
from vrnet.variational.solver import Energy, Solver

MAX_STEPS, MAX_LEVELS = 100_000, 32
"""More of either is a slip of the pen, which would never end."""
FIXED = ("regularizer", "data")
"""The fields that come first in the name of a solver."""


@dataclass(frozen=True)
class Variational(Method):
    """min_u ∫ D(I1(x + u), I0) + λ R(u), for images in [0, 1]; lengths count in shortest edges of a voxel."""

    regularizer: str = "TV"
    """R: the name of a regulariser."""
    data: str = "L1"
    """D: the name of a data term."""
    lam: float = 0.075
    """λ, the weight of R; for Gaussian, the standard deviation in shortest edges of a voxel."""
    theta: tuple[float, float] = (0.1, 0.5)
    """θ at the first and at the last warp of a level: loose at first, so that the data step moves far, then tighter."""
    warps: int = 10
    """N_warp: linearisations per level, at most."""
    iterations: int = 3
    """N_iter: steps per linearisation."""
    levels: int = 3
    """Levels of the pyramid."""
    tolerance: float = 1e-3
    """Stop when three warps together change the energy by less than this part of it."""

    def __post_init__(self) -> None:
        if self.regularizer not in REGULARIZERS or self.data not in DATA_TERMS:
            known = f"pair {', '.join(REGULARIZERS)} with {', '.join(DATA_TERMS)}"
            raise BadInput(f"there is no {self.regularizer}-{self.data}: {known}")
        positive = {"lam": self.lam, "warps": self.warps, "iterations": self.iterations, "levels": self.levels}
        check_positive({**positive, "theta[0]": self.theta[0], "theta[1]": self.theta[1]})
        if not self.tolerance >= 0:
            raise BadInput(f"tolerance is {self.tolerance}: it must be zero or more")
        check_at_most("warps times iterations", self.warps * self.iterations, MAX_STEPS)
        check_at_most("levels", self.levels, MAX_LEVELS)

    def __str__(self) -> str:
        return f"{self.regularizer}-{self.data}{changes(self, preset(self.regularizer, self.data), FIXED)}"

    @property
    def summary(self) -> str:
        return f"iterative: {DATA_TERMS[self.data].summary}, {REGULARIZERS[self.regularizer].summary}"

    @property
    def masks(self) -> str:
        return "a weight in the data term"

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return FIXED

    def build(self, d: int, device: torch.device = CPU) -> Solver:
        """One cascade at every level, each the initialiser of the next; the energy of the finest is watched."""
        data, regularizer = DATA_TERMS[self.data], REGULARIZERS[self.regularizer]
        steps = [[self._step(theta)] * self.iterations for theta in self._thetas()]
        cascade = Cascade(no_motion, steps, data.linearize)
        for _ in range(self.levels - 1):
            cascade = Cascade(CoarseToFine(cascade), steps, data.linearize)
        return Solver(cascade, Energy(data, regularizer, self.lam), self.tolerance).to(device)

    def _thetas(self) -> list[float]:
        """A geometric progression, one θ per warp."""
        first, last = self.theta
        return [first * (last / first) ** (w / max(self.warps - 1, 1)) for w in range(self.warps)]

    def _step(self, theta: float) -> Step:
        regularizer = REGULARIZERS[self.regularizer]
        return Step(DataStep(DATA_TERMS[self.data], theta), Denoise(regularizer, regularizer.strength(self.lam, theta)))


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


def preset(regularizer: str, data: str) -> Variational:
    """The solver of these terms with its tuned parameters; with those of TV-L1 where it was not tuned."""
    found = (method for method in PRESETS if (method.regularizer, method.data) == (regularizer, data))
    return next(found, None) or Variational(regularizer, data)


def solvers() -> list[Variational]:
    """Every data term with every regulariser, each with its tuned parameters."""
    return [preset(*terms) for terms in product(REGULARIZERS, DATA_TERMS)]
