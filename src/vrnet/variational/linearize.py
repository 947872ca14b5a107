"""ρ(u) = ρ(u^ω) + ⟨J, u − u^ω⟩: the first-order Taylor expansion of the difference of two images. For intensities
ρ(u^ω) = I1(x + u^ω) − I0 and J = ∇I1(x + u^ω); of several channels, or of others that a data term compares, there are
as many.

Lengths are in space, where the shortest edge of a voxel counts as 1: |u|² = Σ (h_i u_i)²."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from vrnet.devices import make_rows
from vrnet.fields.calculus import RelativeSpacing, gradient, scale, squared_norm, warp

Images = Float[Tensor, "b c *s"]
Field = Float[Tensor, "b d *s"]
Density = Float[Tensor, "b *s"]
Weight = Float[Tensor, "b 1 *s"] | None  # w(x): how much each voxel counts; None where all count alike
SMALLEST_WEIGHT = 1e-6  # where the weight is less, the data term counts for nothing: θ/w would overflow


@final
@dataclass(frozen=True)
class Masks:
    """How much each voxel of either image counts: 1 inside its mask, 0 outside, between them on coarser grids; in a
    template, as much as it is heeded there.

    w(x) = w0(x) · w1(x + u(x)) is a weight in the data term. min_u w D(ρ(u)) + θ/2 |u − v|² is the u-subproblem of D
    itself with θ/w in place of θ, and u = v where w is zero. So a data term needs to know nothing of masks."""

    fixed: Float[Tensor, "b 1 *s"]
    moving: Float[Tensor, "b 1 *s"]

    def weight(self, u: Field) -> Float[Tensor, "b 1 *s"]:
        """w(x) = w0(x) · w1(x + u(x))."""
        return self.fixed * warp(self.moving, u)

    def fill(self, I0: Images, I1: Images) -> tuple[Images, Images]:
        """Each image, outside its own mask, as the other is, which asks for no motion: for what takes no weight.
        Outside both, where they are in-painted, both are shown as their mean."""
        w0, w1 = self.fixed + SMALLEST_WEIGHT, self.moving + SMALLEST_WEIGHT
        common = (w0 * I0 + w1 * I1) / (w0 + w1)
        return common.lerp(I0, self.fixed), common.lerp(I1, self.moving)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Masks":
        return Masks(change(self.fixed), change(self.moving))


@dataclass(frozen=True)
class WarpedPair:
    """Two images, the second of them also as the field u^ω warps it: what a data term is expanded of."""

    I0: Images
    I1: Images
    I1w: Images  # I1(x + u^ω)
    at: Field  # u^ω
    h: RelativeSpacing
    weight: Weight = None


@dataclass(frozen=True, kw_only=True)
class NormalEquations(WarpedPair):
    """½|ρ(u)|² = ½⟨δ, Aδ⟩ + ⟨b, δ⟩ + D with δ = u − u^ω, the mean or the sum over channels: all that squares need."""

    A: Float[Tensor, "b d d *s"]  # JᵀJ, per voxel
    b: Field  # Jᵀρ(u^ω), per voxel
    D: Density  # ½|ρ(u^ω)|²

    def minimize(self, v: Field, theta: Float[Tensor, "*theta"]) -> Field:
        """The u of least ½|ρ(u)|² + θ/2 |u − v|²: (A + θH)(u − v) = −(b + A(v − u^ω)), with H = diag(h²)."""

        def make(rows: slice) -> Tensor:
            A, b, w = self.A[:, :, :, rows], self.b[:, :, rows], v[:, :, rows]
            if v is not self.at:
                b = add_dot(b, A, (w - self.at[:, :, rows])[:, None])
            return w - solve_damped(A, b, theta[:, :, rows] if theta.dim() else theta, self.h)

        return make_rows(make, v)

    def beside(self, others: "NormalEquations") -> "NormalEquations":
        """The sum with those of further channels, of images that have them too."""
        return replace(others, A=self.A + others.A, b=self.b + others.b, D=self.D + others.D)


@dataclass(frozen=True, kw_only=True)
class Linearization(WarpedPair):
    """ρ(u) = ρ(u^ω) + ⟨J, u − u^ω⟩."""

    residual: Float[Tensor, "b k *s"]  # ρ(u^ω): the difference of the images, in the channels that are compared
    J: Float[Tensor, "b k d *s"]  # the gradient of each channel of the warped image, per voxel
    others: NormalEquations | None = None  # ½|ρ|² of the further channels of the images, summed, where there are any

    def rho(self, u: Field) -> Float[Tensor, "b k *s"]:
        """ρ(u) = ρ(u^ω) + J·(u − u^ω)."""
        return add_dot(self.rho_0, self.J, u[:, None])

    @cached_property
    def rho_0(self) -> Float[Tensor, "b k *s"]:
        """ρ(0) = ρ(u^ω) − J·u^ω."""
        return self.residual - add_dot(torch.zeros_like(self.residual), self.J, self.at[:, None])

    @cached_property
    def G(self) -> Float[Tensor, "b k d *s"]:
        """J_i / h_i²: the field, in voxels, of steepest ascent in space. J itself if voxels are cubes."""
        return scale(self.J.flatten(0, 1), tuple(h**-2 for h in self.h)).view(self.J.shape)

    @cached_property
    def JG(self) -> Float[Tensor, "b k *s"]:
        """⟨J, G⟩ of each channel: the squared slope in space; |J|² if voxels are cubes."""
        return add_dot(torch.zeros_like(self.residual), self.J, self.G)

    def beside(self, others: NormalEquations) -> "Linearization":
        """The same with further channels, of images that have them too."""
        return replace(self, I0=others.I0, I1=others.I1, I1w=others.I1w, others=others)

    def complete_square(self, v: Field, theta: Float[Tensor, "*theta"]) -> tuple[Field, Tensor, Tensor]:
        """(v′, G, ⟨J, G⟩): the squares of the other channels and θ/2 |u − v|² are ½⟨u − v′, M(u − v′)⟩ + constant with
        M = A + θH, H = diag(h²), and G = θM⁻¹J. Without other channels v′ = v and G = H⁻¹J."""
        if self.others is None:
            return v, self.G, self.JG
        slopes = [solve_damped(self.others.A, J, theta, self.h) for J in self.J.unbind(1)]
        G = (theta[:, None] if theta.dim() else theta) * torch.stack(slopes, dim=1)
        return self.others.minimize(v, theta), G, add_dot(torch.zeros_like(self.residual), self.J, G)


Expansion = Linearization | NormalEquations
Linearize = Callable[[Tensor, Tensor, Tensor, RelativeSpacing, Weight], Expansion]  # (I0, I1, u^ω, h, w) -> at u^ω
Channels = Callable[[Tensor, RelativeSpacing], Tensor]  # (image, h) -> what is compared of it, (b, k, *s)


def linearize(I0: Images, I1: Images, u: Field, h: RelativeSpacing, weight: Weight = None) -> Linearization:
    """Expand the difference of two images at u, channel by channel."""
    return expand_difference(WarpedPair(I0, I1, warp(I1, u), u, h, weight), lambda I: I)


def expand_difference(pair: WarpedPair, channels: Callable[[Tensor], Tensor]) -> Linearization:
    seen = channels(pair.I1w)
    # J before the residual: autograd adds their gradients up in this order, and sums of floats depend on it
    return Linearization(**vars(pair), J=gradient(seen), residual=seen - channels(pair.I0))


def squares(
    seen: Float[Tensor, "b k *s"], residual: Float[Tensor, "b k *s"], share: float | None = None
) -> tuple[Float[Tensor, "b d d *s"], Field, Density]:
    """JᵀJ, Jᵀρ and ½|ρ|² with J = ∇(channels seen): the mean over channels, or a share of each; by one J at a time."""
    d, shape = seen.dim() - 2, seen.shape[2:]
    share = 1 / seen.shape[1] if share is None else share
    A, b = seen.new_zeros(len(seen), d, d, *shape), seen.new_zeros(len(seen), d, *shape)
    for channel, rho in zip(seen.unbind(1), residual.unbind(1), strict=True):
        J = gradient(channel[:, None])[:, 0]
        b.addcmul_(J, rho[:, None], value=share)
        for i in range(d):
            A[:, i].addcmul_(J[:, i : i + 1], J, value=share)
    return A, b, squared_norm(residual) * (share / 2)


# {image: {(channels, h): its channels}}; what is known of an image goes with it
REMEMBERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def remember(channels: Channels, I: Images, h: RelativeSpacing) -> Float[Tensor, "b k *s"]:
    """The channels of an image that stays the same, made once for as long as it lives; anew where gradients flow."""
    if torch.is_grad_enabled():
        return channels(I, h)
    known: dict[tuple[Channels, RelativeSpacing, int | None], Tensor] = REMEMBERED.setdefault(I, {})  # type: ignore[no-untyped-call]
    key = channels, h, None if I.is_inference() else I._version  # the version counts changes in place
    if key not in known:
        known[key] = channels(I, h)
    return known[key]


def add_dot(a: Float[Tensor, "b c *s"], x: Float[Tensor, "b c d *s"], y: Float[Tensor, "b #c d *s"]) -> Tensor:
    """a + ⟨x, y⟩ over the components of the vectors, by fused products, so that no temporary is as large as x."""
    total = a.clone()
    for x_i, y_i in zip(x.unbind(2), y.unbind(2), strict=True):
        total.addcmul_(x_i, y_i)
    return total


def solve_damped(A: Float[Tensor, "b d d *s"], b: Field, theta: Float[Tensor, "*theta"], h: RelativeSpacing) -> Field:
    """(A + θH)⁻¹b with H = diag(h²): of A = Σ ∇m ∇mᵀ and b = Σ ∇m r over channels m, −δ of the paper's Appendix 1. θ is
    one number, or one per voxel (b, 1, *s). By elimination: a positive definite matrix needs no pivots."""
    d, x, penalty = len(h), list(b.unbind(1)), theta[:, 0] if theta.dim() else theta
    M = [[A[:, i, j] + penalty * h[i] ** 2 if i == j else A[:, i, j] for j in range(d)] for i in range(d)]
    for i, j in combinations(range(d), 2):
        factor = M[j][i] / M[i][i]
        M[j] = [M[j][k] - factor * M[i][k] if k > i else M[j][k] for k in range(d)]
        x[j] = x[j] - factor * x[i]
    for i in reversed(range(d)):
        for k in range(i + 1, d):
            x[i] = x[i] - M[i][k] * x[k]
        x[i] = x[i] / M[i][i]
    return torch.stack(x, dim=1)
