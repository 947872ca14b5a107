"""R(u): how rough a field is. `prox` solves the v-subproblem argmin_v w R(v) + 1/2 ∫|v − u|², `value` is the density
that the energy sums, `loss` what training weighs with α, `strength` the w that λ and θ come to.

R and lengths are taken in space, where the shortest edge of a voxel counts as 1: component i of the field is v_i = h_i
u_i there, and a difference along axis j is divided by h_j."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import pi
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vrnet.fields import calculus
from vrnet.fields.calculus import RelativeSpacing, gradient, scale, smooth, squared_gradient, squared_norm
from vrnet.fields.folds import determinants
from vrnet.variational.linearize import Density, Field

Scalar = Float[Tensor, ""]
Memory = Tensor | None  # what a prox keeps for its next call, which may overwrite it: the dual variable of TV


@runtime_checkable
class Penalty(Protocol):
    """A measure of roughness."""

    name: ClassVar[str]
    summary: ClassVar[str]
    is_for_training: ClassVar[bool] = True
    """Whether its value can be minimised by gradients, so that it can be part of a loss."""

    @abstractmethod
    def value(self, u: Field, h: RelativeSpacing) -> Density:
        """R at every voxel, of a field in voxels with edges h."""

    def loss(self, u: Field) -> Scalar:
        """What training weighs with α: the mean of the value, taking voxels for cubes."""
        return self.value(u, (1.0,) * u.shape[1]).mean()


@runtime_checkable
class Regularizer(Penalty, Protocol):
    """A penalty whose proximal map can be computed, so that a solver can use it."""

    @abstractmethod
    def prox(self, u: Field, weight: float, h: RelativeSpacing, memory: Memory) -> tuple[Field, Memory]:
        """The v that minimises weight · R(v) + 1/2 |v − u|², and what to remember for the next time."""

    def strength(self, lam: float, theta: float) -> float:
        """The weight of R in the v-subproblem: λ/θ."""
        return lam / theta


@dataclass(frozen=True)
class TV(Regularizer):
    """|∇v|: isotropic, and coupled over the components, so that they jump together or not at all."""

    name = "TV"
    summary = "total variation (keeps motion discontinuities)"

    iterations: int = 1  # steps of the dual ascent at each call; one is enough where the dual variable is remembered

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        return squared_gradient(scale(u, h), h).sqrt()

    def loss(self, u: Field) -> Scalar:
        """The mean of √(ε + |∇u|²): where the field is flat, the root alone has no gradient."""
        return (1e-6 + squared_gradient(u, (1.0,) * u.shape[1])).sqrt().mean()

    def prox(self, u: Field, weight: float, h: RelativeSpacing, memory: Memory) -> tuple[Field, Memory]:
        """v = u + w div p after p ← (p + τ∇v) / max(1, |p + τ∇v|): projected gradient ascent on the dual, |p| ≤ 1. p is
        the memory, or starts from zero; it is overwritten unless grad mode is on."""
        d, u, overwrite = u.shape[1], scale(u, h), not torch.is_grad_enabled()
        p = u.new_zeros(u.shape[0], d, d, *u.shape[2:]) if memory is None else memory
        tau = 1 / (4 * weight * sum(edge**-2 for edge in h))
        weights = tuple(weight / edge for edge in h)
        v = calculus.add_divergence(u, p, weights)
        for _ in range(self.iterations):
            p = p if overwrite else p.clone()
            for i, (n, edge) in enumerate(zip(u.shape[2:], h, strict=True)):
                inner, a = p[:, :, i].narrow(2 + i, 0, n - 1), tau / edge
                inner.add_(v.narrow(2 + i, 1, n - 1), alpha=a).sub_(v.narrow(2 + i, 0, n - 1), alpha=a)
            shrink = squared_norm(p.flatten(1, 2)).clamp_(min=1).rsqrt_()[:, None, None]
            p = p.mul_(shrink) if overwrite else p * shrink
            v = calculus.add_divergence(u, p, weights, out=v if overwrite else None)
        return scale(v, tuple(1 / edge for edge in h)), p


class Quadratic(Regularizer, Protocol):
    """1/2 v·K v with K = (−Δ)^order, reflecting border. The cosine transform diagonalises K, so the prox is exact."""

    order: ClassVar[int]

    def prox(self, u: Field, weight: float, h: RelativeSpacing, memory: Memory) -> tuple[Field, Memory]:
        laplacian = u.new_zeros(u.shape[2:])  # −Δ = ∇ᵀ∇ has the eigenvalues Σ_i 4 sin²(πk_i/2n_i) / h_i²
        for i, (n, edge) in enumerate(zip(u.shape[2:], h, strict=True)):
            frequency = torch.arange(n, dtype=u.dtype, device=u.device) * (pi / (2 * n))
            laplacian += 4 / edge**2 * frequency.sin().square().view(-1, *[1] * (u.dim() - 3 - i))
        return cosine_transform(cosine_transform(u) / (1 + weight * laplacian**self.order), inverse=True), None


@dataclass(frozen=True)
class Diffusion(Quadratic):
    """1/2 |∇v|²."""

    name = "Diffusion"
    summary = "diffusion (smooth motion)"
    order = 1

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        return squared_gradient(scale(u, h), h) / 2

    def loss(self, u: Field) -> Scalar:
        """The mean of squared forward differences along an axis, averaged over the axes, in voxels: what the paper's α
        weighs. (The paper prints central differences, which do not see a checkerboard.)"""
        return torch.stack([torch.diff(u, dim=axis).square().mean() for axis in range(2, u.dim())]).mean()


@dataclass(frozen=True)
class Bending(Quadratic):
    """1/2 |Δv|². Its integral is that of the bending energy 1/2 Σ_ij |∂_ij v|², up to boundary terms."""

    name = "Bending"
    summary = "bending energy (very smooth motion, free of affine bias)"
    order = 2

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        v = scale(u, h)
        squares = tuple(edge**-2 for edge in h)
        laplacian = calculus.add_divergence(torch.zeros_like(v), calculus.forward_gradient(v), squares)
        return laplacian.square().sum(1) / 2


@dataclass(frozen=True)
class Gaussian(Regularizer):
    """Gaussian smoothing, as in demons: the prox of a penalty on all derivatives, which is not summed anywhere."""

    name = "Gaussian"
    summary = "Gaussian smoothing (as demons)"
    is_for_training = False

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        return torch.zeros_like(u[:, 0])  # the energy that is watched is the data term alone

    def prox(self, u: Field, weight: float, h: RelativeSpacing, memory: Memory) -> tuple[Field, Memory]:
        """u smoothed with a standard deviation of `weight` shortest edges."""
        return smooth(u, tuple(weight / edge for edge in h)), None

    def strength(self, lam: float, theta: float) -> float:
        return lam  # the standard deviation, whatever θ is


@dataclass(frozen=True)
class CentralDiffusion(Penalty):
    """1/2 |∇v|² by central differences, as the paper prints it, for training only: a checkerboard is smooth to it."""

    name = "CentralDiffusion"
    summary = "diffusion by central differences, which do not see a checkerboard"

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        squares = [squared_norm(J) / edge**2 for J, edge in zip(gradient(scale(u, h)).unbind(2), h, strict=True)]
        return torch.stack(squares).sum(0) / 2

    def loss(self, u: Field) -> Scalar:
        """The mean of squared central differences along an axis, averaged over the axes, in voxels."""
        return gradient(u).square().mean()


@dataclass(frozen=True)
class Huber(Penalty):
    """√(0.01 + |∇v|²): nearly linear in large differences. For training only: it has no prox."""

    name = "Huber"
    summary = "Huber-type smoothness (nearly linear in large differences)"

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        return (0.01 + squared_gradient(scale(u, h), h)).sqrt()


@dataclass(frozen=True)
class Folding(Penalty):
    """max(0, margin − D)², the mean over the simplices of a cell (`folds.py`): 0 where no determinant D is below the
    margin. For training only, beside another: it does not make a field smooth."""

    name = "Folding"
    summary = "what folds, or nearly does"
    margin: float = 0.1  # the determinant from which a simplex counts as nearly folded

    def value(self, u: Field, h: RelativeSpacing) -> Density:
        lacking = torch.stack([(self.margin - D).clamp(min=0).square() for _, D in determinants(u)]).mean(0)
        return functional.pad(lacking, (0, 1) * (u.dim() - 2))  # no cell begins at the far border


REGULARIZERS: dict[str, Regularizer] = {term.name: term for term in (TV(), Diffusion(), Bending(), Gaussian())}
TRAINING_PENALTIES: dict[str, Penalty] = {term.name: term for term in (CentralDiffusion(), Huber(), Folding())}


@lru_cache(maxsize=64)
def cosine_basis(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "n n"]:
    """The orthonormal DCT-II: row k is the cosine of frequency πk/n."""
    with torch.inference_mode(False):  # what is cached must serve autograd too
        k = torch.arange(n, dtype=torch.float64)
        basis = torch.cos(pi / n * k[:, None] * (k + 0.5)) * (2 / n) ** 0.5
        basis[0] *= 0.5**0.5
        return basis.to(device=device, dtype=dtype)


def cosine_transform(u: Float[Tensor, "b c *s"], inverse: bool = False) -> Float[Tensor, "b c *s"]:
    """Cosine transform along every spatial axis, as matrix products: fast at image sizes, on any device."""
    for axis in range(2, u.dim()):
        basis = cosine_basis(u.shape[axis], u.dtype, u.device)
        u = torch.matmul(u.transpose(axis, -1), basis if inverse else basis.T).transpose(axis, -1)
    return u
