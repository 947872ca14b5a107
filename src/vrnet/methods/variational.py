"""The iterative solvers: {L1, L2} data terms x {TV, Diffusion, Bending, Gaussian} denoisers, coarse to fine."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from vrnet.fields import zeros
from vrnet.variational.cascade import Cascade, DualStep, Step
from vrnet.variational.data_steps import DataStep, l1_step, l2_step
from vrnet.variational.denoisers import TV, Gaussian, Quadratic
from vrnet.variational.descent import Solver
from vrnet.variational.energy import Energy, bending, diffusion, total_variation
from vrnet.variational.pyramid import CoarseToFine

DataTerm = Literal["L1", "L2"]
Regularizer = Literal["TV", "Diffusion", "Bending", "Gaussian"]


@dataclass(frozen=True)
class Variational:
    """min_u ∫ 1/s |I1(x + u) − I0|^s + λ R(u), for images in [0, 1] and u in voxels."""

    regularizer: Regularizer = "TV"
    """R. Gaussian has none: it smooths the field, as demons do."""
    data: DataTerm = "L1"
    """s = 1 or 2."""
    lam: float = 0.05
    """λ, the weight of R; for Gaussian, the standard deviation in voxels."""
    theta: float = 0.2
    """θ, the penalty that ties the data step to the denoiser."""
    warps: int = 10
    """N_warp: linearisations a level, at most."""
    iterations: int = 10
    """N_iter: steps a linearisation."""
    levels: int = 3
    """Levels of the pyramid."""
    tolerance: float = 1e-3
    """Stop when a warp lowers the energy by less than this part of it."""

    def __str__(self) -> str:
        return f"{self.regularizer}-{self.data}"

    def build(self) -> Solver:
        """The solver, one level inside the other."""
        return self._level(self._step(), self.levels)

    def _level(self, step: nn.Module, levels: int) -> Solver:
        init = CoarseToFine(self._level(step, levels - 1)) if levels > 1 else lambda I0, I1: zeros(I0)
        return Solver(Cascade(init, [[step] * self.iterations] * self.warps), self._energy(), self.tolerance)

    def _step(self) -> nn.Module:
        data = DataStep({"L1": l1_step, "L2": l2_step}[self.data], self.theta)
        weight = self.lam / self.theta
        match self.regularizer:
            case "TV":
                return DualStep(data, TV(weight, iterations=1))
            case "Diffusion":
                return Step(data, Quadratic(weight, order=1))
            case "Bending":
                return Step(data, Quadratic(weight, order=2))
            case "Gaussian":
                return Step(data, Gaussian(self.lam))

    def _energy(self) -> Energy:
        R = {"TV": total_variation, "Diffusion": diffusion, "Bending": bending, "Gaussian": None}[self.regularizer]
        return Energy(s=int(self.data[1]), lam=self.lam, R=R)


PRESETS = (
    Variational("TV", "L1"),
    Variational("TV", "L2"),
    Variational("Diffusion", "L1"),
    Variational("Diffusion", "L2"),
    Variational("Bending", "L1"),
    Variational("Bending", "L2"),
    Variational("Gaussian", "L1"),
    Variational("Gaussian", "L2"),
)
