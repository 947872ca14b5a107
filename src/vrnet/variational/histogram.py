"""p(a, b): what the joint histogram of two images says of one given the other. Intensities are in [0, 1].

H is the entropy in nats; the normalised mutual information (H(a) + H(b)) / H(a, b) is 2 if one image determines the
other, and 1 if it says nothing of it.
"""

from functools import reduce
from itertools import product

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vrnet.variational.masks import Weight

SMALLEST_ENTROPY = 1e-6
"""In nats: images of less are constant."""


def shares(I: Float[Tensor, "b 1 *s"], bins: int) -> list[tuple[Integer[Tensor, "b n"], Float[Tensor, "b n"]]]:
    """(bin, share) of every voxel in the two bins whose centres are nearest: 0, 1/(bins − 1), … 1."""
    place = I.flatten(1).clamp(0, 1) * (bins - 1)
    below = place.detach().long().clamp(max=bins - 2)
    fraction = place - below
    return [(below, 1 - fraction), (below + 1, fraction)]


def mean(y: Float[Tensor, "b 1 *s"], weight: Weight = None) -> Float[Tensor, " b"]:
    """Σ wy / Σ w of each image; 0 where nothing counts."""
    if weight is None:
        return y.flatten(1).mean(1)
    return (weight * y).flatten(1).sum(1) / weight.flatten(1).sum(1).clamp(min=torch.finfo(y.dtype).tiny)


def joint_histogram(
    a: Float[Tensor, "b 1 *s"], b: Float[Tensor, "b 1 *s"], bins: int, weight: Weight = None
) -> Float[Tensor, "b bins bins"]:
    """How many voxels of each pair of images fall in each pair of bins of equal width, each counted by its weight."""
    rows, columns = ((I.flatten(1) * bins).long().clamp(0, bins - 1) for I in (a, b))
    counts = torch.zeros(len(a), bins * bins, dtype=torch.float64, device=a.device)
    each = (torch.ones_like(a) if weight is None else weight).flatten(1).to(counts)
    return counts.scatter_add_(1, rows * bins + columns, each).view(-1, bins, bins)


def smooth_joint_histogram(
    a: Float[Tensor, "b 1 *s"], b: Float[Tensor, "b 1 *s"], bins: int
) -> Float[Tensor, "b bins bins"]:
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


def normalised_mutual_information(
    counts: Float[Tensor, "b m n"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """(H(a) + H(b)) / H(a, b), and H(a, b), of a joint histogram; constant images say all of each other."""
    joint = entropy(counts).clamp(min=SMALLEST_ENTROPY)
    nmi = (entropy(counts.sum(2)) + entropy(counts.sum(1))) / joint
    return torch.where(joint > SMALLEST_ENTROPY, nmi, torch.full_like(nmi, 2.0)), joint


def conditional_curve(
    y: Float[Tensor, "b 1 *s"], x: Float[Tensor, "b 1 *s"], bins: int, weight: Weight = None
) -> Float[Tensor, "b bins"]:
    """E[y | x] at the centres of the bins of x.

    Each bin starts with one voxel of the mean of y, so that rare values of x do not decide by themselves."""
    values = y.flatten(1)
    counts, sums = (torch.zeros(len(y), bins, dtype=torch.float64, device=y.device) for _ in range(2))
    for index, share in shares(x, bins):  # in double precision: single cannot count ten million voxels
        part = share if weight is None else share * weight.flatten(1)
        counts = counts.scatter_add(1, index, part.double())
        sums = sums.scatter_add(1, index, (part * values).double())
    return ((sums + mean(y, weight)[:, None]) / (counts + 1)).to(y)


def apply_curve(curve: Float[Tensor, "b bins"], x: Float[Tensor, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    """A function of x that is linear between the centres of its bins."""
    parts = shares(x, curve.shape[1])
    return reduce(torch.add, (share * curve.gather(1, index) for index, share in parts)).view(x.shape)


def conditional_mean(
    y: Float[Tensor, "b 1 *s"], x: Float[Tensor, "b 1 *s"], bins: int, weight: Weight = None
) -> Float[Tensor, "b 1 *s"]:
    """E[y | x] at every voxel."""
    return apply_curve(conditional_curve(y, x, bins, weight), x)


def spread(value: Float[Tensor, " b"], I: Float[Tensor, "b 1 *s"]) -> Float[Tensor, "b *s"]:
    """A number per image, at each of its voxels."""
    return value.view(-1, *[1] * (I.dim() - 2)).expand(len(I), *I.shape[2:])
