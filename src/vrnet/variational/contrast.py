"""E[I1 | I0] and E[I0 | I1]: each of two images as the other would show it.

The curves are learned where tissue is known even before the images are aligned: in regions that are flat in both. A
curve that runs up and down has no inverse, so that one of the directions may say little; how far each is to be trusted
is what its prediction explains.
"""

from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import RelativeSpacing, gradient
from vrnet.variational.histogram import apply_curve, conditional_curve, mean
from vrnet.variational.masks import Weight

BINS = 32
FLAT_SLOPE = 0.05
"""The squared slope of what is as good as flat, as a part of the mean over the image."""
LEAST_PART = 0.01
"""Of the variance: neither what a prediction explains nor what it leaves is taken for less."""
LEAST_FLATNESS = 1e-12
"""Of a mean: it is more than half of one over the number of voxels, unless nothing counts."""
Image = Float[Tensor, "b 1 *s"]
BothContrasts = Float[Tensor, "b 2 *s"]
"""An image in the contrast of I1, and in that of I0."""


@dataclass(frozen=True)
class Curve:
    """E[y | x] as slope · x + offset + bend(x); the bend is given at the centres of bins of [0, 1].

    Of an image and itself the slope is 1 and the rest is 0, to the bit, so that nothing moves."""

    slope: Float[Tensor, " b"]
    offset: Float[Tensor, " b"]
    bend: Float[Tensor, "b n"]

    def __call__(self, x: Image) -> Image:
        return each(self.slope, x) * x + each(self.offset, x) + apply_curve(self.bend, x)


@dataclass(frozen=True)
class Curves:
    """E[I1 | I0] and E[I0 | I1]."""

    forward: Curve
    backward: Curve

    def apply(self, I0: Image, I1: Image) -> tuple[BothContrasts, BothContrasts]:
        """(E[I1 | I0], I0) and (I1, E[I0 | I1])."""
        return torch.cat([self.forward(I0), I0], 1), torch.cat([I1, self.backward(I1)], 1)


def learn_curves(I0: Image, I1w: Image, h: RelativeSpacing, weight: Weight = None) -> Curves:
    """What two images say of each other's contrast where they lie on one another, mostly in flat regions."""
    flat = 1 / (steepness(I0, h) + steepness(I1w, h) + FLAT_SLOPE)
    flat = flat / each(mean(flat, weight).clamp(min=LEAST_FLATNESS), flat)
    weight = flat if weight is None else weight * flat
    return Curves(learn_curve(I1w, I0, weight), learn_curve(I0, I1w, weight))


def learn_curve(y: Image, x: Image, weight: Weight) -> Curve:
    """The line of least squares, and what remains of y in each bin of x."""
    x_mean, y_mean = mean(x, weight), mean(y, weight)
    dx, dy = x - each(x_mean, x), y - each(y_mean, y)
    slope = mean(dx * dy, weight) / mean(dx * dx, weight).clamp(min=torch.finfo(x.dtype).tiny)
    offset = y_mean - slope * x_mean
    left = y - (each(slope, x) * x + each(offset, x))
    return Curve(slope, offset, conditional_curve(left, x, BINS, weight))


def each(value: Float[Tensor, " b"], I: Image) -> Float[Tensor, "b 1 *ones"]:
    """A number per image, beside its voxels."""
    return value.view(-1, *[1] * (I.dim() - 1))


def steepness(I: Image, h: RelativeSpacing) -> Image:
    """|∇I|² in space, as a multiple of its mean over the image."""
    slope = reduce(torch.add, ((J / edge).square() for J, edge in zip(gradient(I).unbind(2), h, strict=True)))
    return slope / each(mean(slope).clamp(min=torch.finfo(I.dtype).tiny), I)


def trust(A0: BothContrasts, A1w: BothContrasts, weight: Weight = None) -> Float[Tensor, "b 2"]:
    """(R²/(1 − R²))² of the prediction of I1 and of that of I0, R² being the part of the variance that it explains.

    Squared, since the direction in which tissues become one misleads more than it helps."""
    parts = []
    for k, target in enumerate((A1w[:, :1], A0[:, 1:])):
        middle = mean(target, weight)
        spread = mean((target - each(middle, target)).square(), weight).clamp(min=torch.finfo(target.dtype).tiny)
        left = (mean((A1w - A0)[:, k : k + 1].square(), weight) / spread).clamp(LEAST_PART, 1 - LEAST_PART)
        parts.append(((1 - left) / left).square())
    return torch.stack(parts, dim=1)
