"""D(I1(x + u), I0): how unlike two images are. `linearize` expands it, `prox` solves the point-wise u-subproblem
argmin_u D(ρ(u)) + θ/2 ∫|u − v|² in closed form, `value` is the density that the energy sums, `loss` what training
minimises.

L1 and L2 compare intensities, which must mean the same in both images; LNCC, MIND, NMI and Remap do not need that. ρ
may have several channels (vector images: gradients, patches, features). The length |u − v| is taken in space, so that
G, the gradient in space, stands where J would if voxels were cubes."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from vrnet.errors import check_range
from vrnet.fields.calculus import RelativeSpacing, repeat_border, squared_norm, warp
from vrnet.variational import contrast, linearize
from vrnet.variational.linearize import Density, Field, Images, Linearization, NormalEquations, WarpedPair, Weight

EPSILON = 1e-5  # added to |J|² by L1, so that flat regions do not divide by zero
SMALLEST_VARIANCE = 1e-8
E = TypeVar("E", Linearization, NormalEquations)
Scalar = Float[Tensor, ""]


@runtime_checkable
class DataTerm(Protocol[E]):
    """How unlike two images are, voxel by voxel. E is the kind of expansion that its prox needs."""

    name: ClassVar[str]
    """As in TV-L1 and R-L1-3x2."""
    summary: ClassVar[str]

    compares_intensities: ClassVar[bool]
    """Whether the same tissue must be equally bright in both images."""
    learns_contrast: ClassVar[bool] = False
    """Whether it learns, from a field, what one contrast says of the other: a better field then teaches it more."""
    own_channels: ClassVar[int] = 1
    """How many channels of the images it compares itself; squares compare the others: D + ½ Σ |ρ|²."""

    def linearize(self, I0: Images, I1: Images, v: Field, h: RelativeSpacing, weight: Weight = None) -> E:
        """Expand the difference of two images at the field v, on voxels with edges h, under the weight there."""
        pair, n = WarpedPair(I0, I1, warp(I1, v), v, h, weight), self.own_channels
        if I0.shape[1] <= n:
            return self.expand(pair)
        A, b, D = linearize.squares(pair.I1w[:, n:], pair.I1w[:, n:] - I0[:, n:], share=1.0)
        own = replace(pair, I0=linearize.remember(self.own, I0, h), I1=I1[:, :n], I1w=pair.I1w[:, :n])
        return self.expand(own).beside(NormalEquations(**vars(pair), A=A, b=b, D=D))

    def own(self, I: Images, h: RelativeSpacing) -> Float[Tensor, "b k *s"]:
        """The channels of an image that the term compares itself."""
        return I[:, : self.own_channels]

    @abstractmethod
    def expand(self, pair: WarpedPair) -> E:
        """The expansion at the field by which the pair is warped."""

    @abstractmethod
    def prox(self, v: Field, lin: E, theta: Tensor) -> Field:
        """The u that minimises D(ρ(u)) + θ/2 |u − v|² at every voxel; θ is one number, or one per voxel (b, 1, *s)."""

    @abstractmethod
    def density(self, I1w: Images, I0: Images, h: RelativeSpacing, weight: Weight = None) -> Density:
        """D at every voxel, of its own channels of I0 and I1w; the weight matters to what belongs to whole images."""

    @abstractmethod
    def value_at(self, lin: E) -> Density:
        """What `value` says where the images were expanded, from what is known there."""

    def value(self, I1w: Images, I0: Images, h: RelativeSpacing, weight: Weight = None) -> Density:
        """D + ½ Σ |ρ|² at every voxel, the sum over the channels beyond its own."""
        n = self.own_channels
        if I0.shape[1] <= n:
            return self.density(I1w, I0, h, weight)
        others = squared_norm(I1w[:, n:] - I0[:, n:]) / 2
        return self.density(I1w[:, :n], linearize.remember(self.own, I0, h), h, weight) + others

    def loss(self, I1w: Images, I0: Images) -> Scalar:
        """What training minimises: the mean of the value, taking voxels for cubes."""
        return self.value(I1w, I0, (1.0,) * (I0.dim() - 2)).mean()


class Difference(DataTerm[Linearization], Protocol):
    """A norm of the difference ρ of two images, or of some channels of them."""

    compares_intensities: ClassVar[bool] = True

    @abstractmethod
    def norm(self, rho: Float[Tensor, "b k *s"]) -> Density:
        """D(ρ) at every voxel."""

    def channels(self, I: Images) -> Float[Tensor, "b k *s"]:
        """What is compared of an image: its intensities, unless a term says otherwise."""
        return I

    def expand(self, pair: WarpedPair) -> Linearization:
        return linearize.expand_difference(pair, self.channels)

    def density(self, I1w: Images, I0: Images, h: RelativeSpacing, weight: Weight = None) -> Density:
        return self.norm(self.channels(I1w) - self.channels(I0))

    def value_at(self, lin: Linearization) -> Density:
        return self.norm(lin.residual) + (0 if lin.others is None else lin.others.D)


@dataclass(frozen=True)
class L1(Difference):
    """|ρ| of one channel."""

    name = "L1"
    summary = "absolute differences"

    def prox(self, v: Field, lin: Linearization, theta: Tensor) -> Field:
        """u = v − Gz/θ with z = clip(θρ(v) / ⟨J, G⟩, −1, 1), which maximises the dual ⟨ρ(v), z⟩ − ⟨Jz, Gz⟩/2θ."""
        v, G, JG = lin.complete_square(v, theta)
        (slope,) = G.unbind(1)
        z = (theta * lin.rho(v) / (JG + EPSILON)).clamp(-1, 1)
        return torch.addcmul(v, z / theta, slope, value=-1)

    def norm(self, rho: Float[Tensor, "b 1 *s"]) -> Density:
        return rho.abs()[:, 0]


@dataclass(frozen=True)
class L2(Difference):
    """1/2 |ρ|², summed over channels."""

    name = "L2"
    summary = "squared differences"

    def prox(self, v: Field, lin: Linearization, theta: Tensor) -> Field:
        """u = v − (JᵀJ + θH)⁻¹Jᵀρ(v) with H = diag(h²); with one channel, u = v − Gρ(v) / (⟨J, G⟩ + θ)."""
        v, G, JG = lin.complete_square(v, theta)
        rho = lin.rho(v)
        if lin.J.shape[1] == 1:
            return v - G[:, 0] * (rho / (JG + theta))
        A, b = torch.einsum("bki...,bkj...->bij...", lin.J, lin.J), torch.einsum("bki...,bk...->bi...", lin.J, rho)
        return v - linearize.solve_damped(A if lin.others is None else A + lin.others.A, b, theta, lin.h)

    def norm(self, rho: Float[Tensor, "b k *s"]) -> Density:
        return (rho.square() / 2).sum(1)

    def loss(self, I1w: Images, I0: Images) -> Scalar:
        """The mean squared difference, without the 1/2 of the energy."""
        return 2 * super().loss(I1w, I0)


class Quadratic(DataTerm[NormalEquations], Protocol):
    """A term whose expansion is quadratic in u."""

    compares_intensities: ClassVar[bool] = False

    def prox(self, v: Field, lin: NormalEquations, theta: Tensor) -> Field:
        return lin.minimize(v, theta)

    def value_at(self, lin: NormalEquations) -> Density:
        return lin.D


class Squares(Quadratic, Protocol):
    """½|ρ|², as the mean over several channels: the vector images of the paper's appendix."""

    @abstractmethod
    def channels(self, I: Images, h: RelativeSpacing) -> Float[Tensor, "b k *s"]:
        """What is compared of an image."""

    def expand(self, pair: WarpedPair) -> NormalEquations:
        seen = self.channels(pair.I1w, pair.h)
        A, b, D = linearize.squares(seen, seen - linearize.remember(self.channels, pair.I0, pair.h))
        return NormalEquations(**vars(pair), A=A, b=b, D=D)

    def density(self, I1w: Images, I0: Images, h: RelativeSpacing, weight: Weight = None) -> Density:
        return (self.channels(I1w, h) - linearize.remember(self.channels, I0, h)).square().mean(1) / 2


@dataclass(frozen=True)
class LNCC(Squares):
    """½(n(I1w) − n(I0))² with n = (I − μ)/√(σ² + ε²) in a box about each voxel; for ε = 0, 1 − local correlation."""

    name = "LNCC"
    summary = "local correlation"

    radii: tuple[float, ...] = (2.0, 13.0)
    """Of the boxes, in shortest edges: a small one for detail, and one that sees whole structures."""
    epsilon: float = 0.2
    """Its square is added to the variance, so that noise in flat regions stays small; intensities range over 1."""

    def __post_init__(self) -> None:
        check_range({"the number of radii of LNCC": len(self.radii)}, 1)
        check_range({f"radii[{k}] of LNCC": radius for k, radius in enumerate(self.radii)}, 1, 1000)
        check_range({"epsilon of LNCC": self.epsilon}, most=1000)

    def channels(self, I: Images, h: RelativeSpacing) -> Float[Tensor, "b k *s"]:
        """n for each radius, with the mean μ and the variance σ² over the box of that radius about each voxel."""
        found = []
        for radii in (in_voxels(radius, h) for radius in self.radii):
            mean = local_mean(I, radii)
            variance = (local_mean(I.square(), radii) - mean.square()).clamp(min=0)
            found.append((I - mean) * (variance + self.epsilon**2).rsqrt())
        return torch.cat(found, dim=1)


@dataclass(frozen=True)
class MIND(Squares):
    """½|m(I1w) − m(I0)|² of self-similarities m, which do not know which tissue is bright. The norm is L2."""

    name = "MIND"
    summary = "self-similarity (images of any two contrasts)"

    distance: float = 2.0
    """From a voxel to the neighbours whose patches are compared, in shortest edges."""
    radius: float = 1.0
    """Of the patches."""

    def __post_init__(self) -> None:
        check_range({"distance of MIND": self.distance, "radius of MIND": self.radius}, most=1000)

    def channels(self, I: Images, h: RelativeSpacing) -> Float[Tensor, "b k *s"]:
        """MIND-SSC: exp(−(D − min D)/V) of each pair of neighbours at right angles: k = 4 pairs in 2D, 12 in 3D. D is
        the mean squared difference of the patches about two neighbours, and V the mean of D − min D over the pairs,
        within 1/1000 and 1000 of its mean over the image. (M. Heinrich et al., MICCAI 2013.)"""
        neighbours = []
        for axis, n in enumerate(in_voxels(self.distance, h), start=2):
            places = torch.arange(I.shape[axis], device=I.device)
            for step in (-max(1, n), max(1, n)):  # I(x + step), border repeated
                neighbours.append(I.index_select(axis, (places + step).clamp(0, I.shape[axis] - 1)))
        pairs = [(a, b) for a, b in combinations(range(len(neighbours)), 2) if a // 2 != b // 2]
        patches = in_voxels(self.radius, h)
        D = torch.cat([local_mean((neighbours[a] - neighbours[b]).square(), patches) for a, b in pairs], dim=1)
        D = D - D.amin(1, keepdim=True)
        V = D.mean(1, keepdim=True)
        middle = V.flatten(1).mean(1).view(-1, *[1] * (I.dim() - 1))
        V = torch.maximum(torch.minimum(V, 1e3 * middle), 1e-3 * middle)
        return torch.exp(-D / (V + torch.finfo(I.dtype).tiny))


@dataclass(frozen=True)
class NMI(Quadratic):
    """2 − (H(I0) + H(I1w)) / H(I0, I1w): less the better one image predicts the other."""

    name = "NMI"
    summary = "mutual information (images of two contrasts)"

    bins: int = 32

    def __post_init__(self) -> None:
        check_range({"bins of NMI": self.bins}, 2, 1024)

    def expand(self, pair: WarpedPair) -> NormalEquations:
        """Squares of ρ = E[I0 | I1w] − I0, scaled as the measure is: if ρ is normal with variance s², then H(I0, I1w) =
        H(I1w) + log s + constant, and the measure changes by NMI / H(I0, I1w) · ρδρ/s² with it."""
        I0, I1w, w = pair.I0, pair.I1w, pair.weight
        seen, counts = contrast.conditional_mean(I0, I1w, self.bins, w), contrast.joint_histogram(I0, I1w, self.bins, w)
        nmi, joint = (x.to(I0) for x in contrast.normalised_mutual_information(counts))
        variance = contrast.mean((seen - I0).square(), w).clamp(min=SMALLEST_VARIANCE)
        scale = (contrast.beside_voxels(nmi / joint, I0) / variance).sqrt()
        A, b, _ = linearize.squares(scale * seen, scale * (seen - I0))
        return NormalEquations(**vars(pair), A=A, b=b, D=contrast.beside_voxels(2 - nmi, I0).expand_as(I0)[:, 0])

    def density(self, I1w: Images, I0: Images, h: RelativeSpacing, weight: Weight = None) -> Density:
        nmi, _ = contrast.normalised_mutual_information(contrast.joint_histogram(I0, I1w, self.bins, weight))
        return contrast.beside_voxels(2 - nmi.to(I0), I0).expand_as(I0)[:, 0]

    def loss(self, I1w: Images, I0: Images) -> Scalar:
        counts = contrast.smooth_joint_histogram(I0, I1w, self.bins)  # which has a gradient
        return (2 - contrast.normalised_mutual_information(counts)[0]).mean()


@dataclass(frozen=True)
class BothContrastsLNCC(LNCC):
    """LNCC of two images, each in two contrasts: of channels (E[I1 | I0], I0) and (I1, E[I0 | I1]), each of which
    counts as far as it is to be trusted."""

    summary = "local correlation of images that show two contrasts"
    own_channels = 2

    def compare(self, I0: Images, I1w: Images, h: RelativeSpacing, weight: Weight) -> tuple[Tensor, Tensor]:
        """The channels of the warped image and their residuals, so scaled that ½ the mean of their squares is D."""
        A0, A1w = contrast.learn_curves(I0, I1w, h, weight).apply(I0, I1w) if self.learns_contrast else (I0, I1w)
        share = normalize(contrast.trust(A0, A1w, weight), p=1) * 2
        factors = share.sqrt().repeat(1, len(self.radii)).view(len(I0), -1, *[1] * (I0.dim() - 2))
        seen = self.channels(A1w, h)
        return factors * seen, factors * (seen - self.channels(A0, h))

    def expand(self, pair: WarpedPair) -> NormalEquations:
        A, b, D = linearize.squares(*self.compare(pair.I0, pair.I1w, pair.h, pair.weight))
        return NormalEquations(**vars(pair), A=A, b=b, D=D)

    def density(self, I1w: Images, I0: Images, h: RelativeSpacing, weight: Weight = None) -> Density:
        return self.compare(I0, I1w, h, weight)[1].square().mean(1) / 2


@dataclass(frozen=True)
class Remap(BothContrastsLNCC):
    """LNCC of I1w with E[I1w | I0], and of E[I0 | I1w] with I0: each image remapped to the contrast of the other."""

    name = "Remap"
    summary = "local correlation once contrasts are remapped (images of any two contrasts)"
    learns_contrast = True
    own_channels = 1


DATA_TERMS: dict[str, DataTerm[Any]] = {term.name: term for term in (L1(), L2(), LNCC(), MIND(), NMI(), Remap())}


# What LNCC and MIND compare of two images beside their intensities. Lengths are in shortest edges of a voxel.


def local_mean(I: Float[Tensor, "b c *s"], radii: tuple[int, ...]) -> Float[Tensor, "b c *s"]:
    """The mean over a box that reaches radii voxels to each side, border repeated; by running sums."""
    for axis, radius in enumerate(radii, start=2):
        if radius:
            n, width = I.shape[axis], 2 * radius + 1
            sums = repeat_border(I, axis, radius + 1, radius).cumsum(axis)
            I = (sums.narrow(axis, width, n) - sums.narrow(axis, 0, n)).div_(width)
    return I


def in_voxels(length: float, h: RelativeSpacing) -> tuple[int, ...]:
    """A length along each axis, to the nearest whole number of voxels."""
    return tuple(round(length / edge) for edge in h)
