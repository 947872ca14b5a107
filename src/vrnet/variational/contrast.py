"""E[I1 | I0] and E[I0 | I1]: each of two images as the other would show it. Intensities are in [0, 1]. The curves are
learned where tissue is known even before the images are aligned: in regions that are flat in both. A curve that runs up
and down has no inverse; how far each is to be trusted is what its prediction explains."""

from dataclasses import dataclass
from functools import reduce
from itertools import product

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vrnet.fields.calculus import RelativeSpacing, gradient
from vrnet.variational.linearize import Weight

Image = Float[Tensor, "b 1 *s"]
BothContrasts = Float[Tensor, "b 2 *s"]  # an image in the contrast of I1, and in that of I0
PerImage = Float[Tensor, "b 1 *ones"]  # a number per image, beside its voxels


def beside_voxels(value: Float[Tensor, " b"], I: Image) -> PerImage:
    return value.view(-1, *[1] * (I.dim() - 1))


def mean(y: Image, weight: Weight = None) -> PerImage:
    """Σ wy / Σ w of each image; 0 where nothing counts."""
    if weight is None:
        return beside_voxels(y.flatten(1).mean(1), y)
    total = weight.flatten(1).sum(1).clamp(min=torch.finfo(y.dtype).tiny)
    return beside_voxels((weight * y).flatten(1).sum(1) / total, y)


# p(a, b): what the joint histogram of two images says of one given the other.
#
# H is the entropy in nats; the normalised mutual information (H(a) + H(b)) / H(a, b) is 2 if one image determines the
# other, and 1 if it says nothing of it.

SMALLEST_ENTROPY = 1e-6  # in nats: images of less are constant


def shares(I: Image, bins: int) -> list[tuple[Integer[Tensor, "b n"], Float[Tensor, "b n"]]]:
    """(bin, share) of every voxel in the two bins whose centres are nearest: 0, 1/(bins − 1), … 1."""
    place = I.flatten(1).clamp(0, 1) * (bins - 1)
    below = place.detach().long().clamp(max=bins - 2)
    fraction = place - below
    return [(below, 1 - fraction), (below + 1, fraction)]


def joint_histogram(a: Image, b: Image, bins: int, weight: Weight = None) -> Float[Tensor, "b bins bins"]:
    """How many voxels of each pair of images fall in each pair of bins of equal width, each counted by its weight."""
    rows, columns = ((I.flatten(1) * bins).long().clamp(0, bins - 1) for I in (a, b))
    counts = torch.zeros(len(a), bins * bins, dtype=torch.float64, device=a.device)
    each = (torch.ones_like(a) if weight is None else weight).flatten(1).to(counts)
    return counts.scatter_add_(1, rows * bins + columns, each).view(-1, bins, bins)


def smooth_joint_histogram(a: Image, b: Image, bins: int) -> Float[Tensor, "b bins bins"]:
    """The same with voxels shared linearly among the nearest bins, so that it has a gradient."""
    counts = a.new_zeros(len(a), bins * bins)
    for (row, share), (column, part) in product(shares(a, bins), shares(b, bins)):
        counts = counts.scatter_add(1, row * bins + column, share * part)
    return counts.view(-1, bins, bins)


def entropy(counts: Float[Tensor, "b *n"]) -> Float[Tensor, " b"]:
    """−Σ p log p, in nats; 0 where nothing was counted."""
    tiny = torch.finfo(counts.dtype).tiny
    p = counts.flatten(1) / counts.flatten(1).sum(1, keepdim=True).clamp(min=tiny)
    return -(p * p.clamp(min=tiny).log()).sum(1)  # p log p has no slope at 0


def normalised_mutual_information(counts: Float[Tensor, "b m n"]) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """(H(a) + H(b)) / H(a, b), and H(a, b), of a joint histogram; constant images say all of each other."""
    joint = entropy(counts).clamp(min=SMALLEST_ENTROPY)
    nmi = (entropy(counts.sum(2)) + entropy(counts.sum(1))) / joint
    return torch.where(joint > SMALLEST_ENTROPY, nmi, torch.full_like(nmi, 2.0)), joint


def conditional_curve(y: Image, x: Image, bins: int, weight: Weight = None) -> Float[Tensor, "b bins"]:
    """E[y | x] at the centres of the bins of x, each with one voxel of the mean of y, or rare values decide."""
    values = y.flatten(1)
    counts, sums = (torch.zeros(len(y), bins, dtype=torch.float64, device=y.device) for _ in range(2))
    for index, share in shares(x, bins):  # in double precision: single cannot count ten million voxels
        part = share if weight is None else share * weight.flatten(1)
        counts = counts.scatter_add(1, index, part.double())
        sums = sums.scatter_add(1, index, (part * values).double())
    return ((sums + mean(y, weight).flatten(1)) / (counts + 1)).to(y)


def apply_curve(curve: Float[Tensor, "b bins"], x: Image) -> Image:
    """A function of x that is linear between the centres of its bins."""
    parts = shares(x, curve.shape[1])
    return reduce(torch.add, (share * curve.gather(1, index) for index, share in parts)).view(x.shape)


def conditional_mean(y: Image, x: Image, bins: int, weight: Weight = None) -> Image:
    """E[y | x] at every voxel."""
    return apply_curve(conditional_curve(y, x, bins, weight), x)


BINS = 32
FLAT_SLOPE = 0.05  # the squared slope of what is as good as flat, as a part of the mean over the image
LEAST_PART = 0.01  # of the variance: neither what a prediction explains nor what it leaves is taken for less
LEAST_FLATNESS = 1e-12  # of a mean: it is more than half of one over the number of voxels, unless nothing counts


@dataclass(frozen=True)
class Curve:
    """E[y | x] as slope · x + offset + bend(x), the bend at the centres of bins of [0, 1]. Of an image and itself the
    slope is 1 and the rest 0, to the bit, so that nothing moves."""

    slope: PerImage
    offset: PerImage
    bend: Float[Tensor, "b n"]

    @classmethod
    def learn(cls, y: Image, x: Image, weight: Weight) -> "Curve":
        """The line of least squares, and what remains of y in each bin of x."""
        x_mean, y_mean = mean(x, weight), mean(y, weight)
        dx, dy = x - x_mean, y - y_mean
        slope = mean(dx * dy, weight) / mean(dx * dx, weight).clamp(min=torch.finfo(x.dtype).tiny)
        offset = y_mean - slope * x_mean
        return cls(slope, offset, conditional_curve(y - (slope * x + offset), x, BINS, weight))

    def __call__(self, x: Image) -> Image:
        return self.slope * x + self.offset + apply_curve(self.bend, x)


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
    steepness = torch.zeros_like(I0)  # |∇I|² in space, as a multiple of its mean over the image
    for I in (I0, I1w):
        slope = reduce(torch.add, ((J / edge).square() for J, edge in zip(gradient(I).unbind(2), h, strict=True)))
        steepness = steepness + slope / mean(slope).clamp(min=torch.finfo(I.dtype).tiny)
    flat = 1 / (steepness + FLAT_SLOPE)
    flat = flat / mean(flat, weight).clamp(min=LEAST_FLATNESS)
    weight = flat if weight is None else weight * flat
    return Curves(Curve.learn(I1w, I0, weight), Curve.learn(I0, I1w, weight))


def trust(A0: BothContrasts, A1w: BothContrasts, weight: Weight = None) -> Float[Tensor, "b 2"]:
    """(R²/(1 − R²))² of the prediction of I1 and of that of I0, R² being the part of the variance that it explains;
    squared, since the direction in which tissues become one misleads more than it helps."""
    parts = []
    for k, target in enumerate((A1w[:, :1], A0[:, 1:])):
        variance = mean((target - mean(target, weight)).square(), weight).clamp(min=torch.finfo(target.dtype).tiny)
        left = (mean((A1w - A0)[:, k : k + 1].square(), weight) / variance).clamp(LEAST_PART, 1 - LEAST_PART)
        parts.append(((1 - left) / left).square())
    return torch.cat(parts, dim=1).flatten(1)
