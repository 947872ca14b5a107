"""D(I1(x + u), I0): how unlike two images are. A data term is one object that knows all that is to be known of it.

`linearize` expands it, `prox` solves the point-wise u-subproblem argmin_u D(ρ(u)) + θ/2 ∫|u − v|² in closed form,
`value` is the density that the energy sums, `loss` what training minimises. To add one, write its class and list it in
DATA_TERMS: solvers, networks, energies, losses, names and commands then know it.

ρ may have several channels (vector images: gradients, patches, features). The length |u − v| is taken in space, so that
G, the gradient in space, stands where J would if voxels were cubes.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import RelativeSpacing
from vrnet.variational.linearize import Linearization, linearize

EPSILON = 1e-5
"""Added to |J|² by L1, so that flat regions do not divide by zero."""
INTERIOR_POINT_ROUNDS = 15
Scalar = Float[Tensor, ""]
Density = Float[Tensor, "b *s"]


@runtime_checkable
class DataTerm(Protocol):
    """How unlike two images are, voxel by voxel."""

    name: ClassVar[str]
    """As in TV-L1 and R-L1-3x2."""
    summary: ClassVar[str]

    @abstractmethod
    def prox(self, v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
        """The u that minimises D(ρ(u)) + θ/2 |u − v|² at every voxel; θ is one number, or one per voxel (b, 1, *s)."""

    @abstractmethod
    def value(self, I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Density:
        """D at every voxel, of I0 and the warped image I1w."""

    def linearize(
        self,
        I0: Float[Tensor, "b c *s"],
        I1: Float[Tensor, "b c *s"],
        v: Float[Tensor, "b d *s"],
        h: RelativeSpacing,
    ) -> Linearization:
        """Expand the difference of the channels at the field v, on voxels with edges h."""
        return linearize(I0, I1, v, h, self.channels)

    def channels(self, I: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *s"]:
        """What is compared of an image: its intensities, unless a term says otherwise."""
        return I

    def loss(self, I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Scalar:
        """What training minimises: the mean of the value."""
        return self.value(I1w, I0).mean()


@dataclass(frozen=True)
class L1(DataTerm):
    """|ρ|, summed over channels."""

    name = "L1"
    summary = "absolute differences"

    def prox(self, v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
        """u = v − Gᵀz/θ, where z maximises the dual ⟨ρ(v), z⟩ − ⟨Jᵀz, Gᵀz⟩/2θ over the box |z| ≤ 1.

        With one channel, z = clip(θρ(v) / ⟨J, G⟩, −1, 1)."""
        if lin.J.shape[1] == 1:
            z = (theta * lin.rho(v) / (lin.JG + EPSILON)).clamp(-1, 1)
            return torch.addcmul(v, z / theta, lin.G[:, 0], value=-1)
        J, G, rho = as_matrices(lin.J), as_matrices(lin.G), lin.rho(v).movedim(1, -1)
        z = maximize_in_box(J @ G.mT + EPSILON * identity(J.shape[-2], J), beside_vectors(theta) * rho)
        return v - times(G.mT, z).movedim(-1, 1) / theta

    def value(self, I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Density:
        return (self.channels(I1w) - self.channels(I0)).abs().sum(1)


@dataclass(frozen=True)
class L2(DataTerm):
    """1/2 |ρ|², summed over channels."""

    name = "L2"
    summary = "squared differences"

    def prox(self, v: Float[Tensor, "b d *s"], lin: Linearization, theta: Tensor) -> Float[Tensor, "b d *s"]:
        """u = v − Gᵀ(JGᵀ + θ1)⁻¹ρ(v); with one channel, u = v − Gρ(v) / (⟨J, G⟩ + θ)."""
        if lin.J.shape[1] == 1:
            return v - lin.G[:, 0] * (lin.rho(v) / (lin.JG + theta))
        J, G, rho = as_matrices(lin.J), as_matrices(lin.G), lin.rho(v).movedim(1, -1)
        penalty = beside_vectors(theta)[..., None] * identity(J.shape[-2], J)
        return v - times(G.mT, solve(J @ G.mT + penalty, rho)).movedim(-1, 1)

    def value(self, I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Density:
        return ((self.channels(I1w) - self.channels(I0)).square() / 2).sum(1)

    def loss(self, I1w: Float[Tensor, "b c *s"], I0: Float[Tensor, "b c *s"]) -> Scalar:
        """The mean squared difference, without the 1/2 of the energy."""
        return 2 * self.value(I1w, I0).mean()


DATA_TERMS: dict[str, DataTerm] = {term.name: term for term in (L1(), L2())}
"""Every data term by its name."""


def maximize_in_box(G: Float[Tensor, "*n c c"], r: Float[Tensor, "*n c"]) -> Float[Tensor, "*n c"]:
    """argmax of ⟨r, z⟩ − ⟨z, Gz⟩/2 over |z| ≤ 1, for small positive definite G, by an interior-point method.

    a and b are the multipliers of z ≤ 1 and −z ≤ 1. Each Newton step aims at a·(1 − z) = b·(1 + z) = μ, with μ a
    twentieth of what it was, and stops short of the walls of the box; a dozen reach five digits whatever G is. In
    float64, since close to a wall float32 has no digits left."""
    dtype, G, r = r.dtype, G.double(), r.double()
    scale = r.abs().amax(-1, keepdim=True) + EPSILON
    z, a, b = torch.zeros_like(r), scale.expand_as(r), scale.expand_as(r)
    for _ in range(INTERIOR_POINT_ROUNDS):
        above, below = 1 - z, 1 + z
        mu = (a * above + b * below).mean(-1, keepdim=True) / 20
        mu = torch.maximum(mu, 10 * torch.finfo(r.dtype).eps * scale)
        dz = solve(G + torch.diag_embed(a / above + b / below), r - times(G, z) - mu / above + mu / below)
        da, db = (mu + a * dz) / above - a, (mu - b * dz) / below - b
        fastest = torch.cat([dz / above, -dz / below, -da / a, -db / b], dim=-1).amax(-1, keepdim=True)
        step = 0.95 / fastest.clamp(min=0.95)
        z, a, b = z + step * dz, a + step * da, b + step * db
    return z.to(dtype)


def as_matrices(J: Float[Tensor, "b k d *s"]) -> Float[Tensor, "b *s k d"]:
    """One matrix per voxel."""
    return J.movedim((1, 2), (-2, -1))


def beside_vectors(theta: Tensor) -> Tensor:
    """θ as a factor of vectors (b, *s, k)."""
    return theta.movedim(1, -1) if theta.dim() else theta


def identity(n: int, like: Tensor) -> Float[Tensor, "n n"]:
    return torch.eye(n, dtype=like.dtype, device=like.device)


def times(A: Float[Tensor, "*n a b"], x: Float[Tensor, "*n b"]) -> Float[Tensor, "*n a"]:
    return (A @ x[..., None])[..., 0]


def solve(A: Float[Tensor, "*n a a"], x: Float[Tensor, "*n a"]) -> Float[Tensor, "*n a"]:
    return torch.linalg.solve(A, x[..., None])[..., 0]
