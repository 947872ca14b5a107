"""What can be compared of two images beside their intensities, so that another contrast does not matter.

Lengths are in shortest edges of a voxel, as everywhere in this folder: h are the edges.
"""

from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields.calculus import RelativeSpacing, repeat_border


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


def locally_normalised(
    I: Float[Tensor, "b c *s"], radius: float, epsilon: float, h: RelativeSpacing
) -> Float[Tensor, "b c *s"]:
    """(I − μ) / √(σ² + ε²), with the mean μ and the variance σ² over the box of that radius about each voxel."""
    radii = in_voxels(radius, h)
    mean = local_mean(I, radii)
    variance = (local_mean(I.square(), radii) - mean.square()).clamp(min=0)
    return (I - mean) * (variance + epsilon**2).rsqrt()


def self_similarity(
    I: Float[Tensor, "b 1 *s"], distance: float, radius: float, h: RelativeSpacing
) -> Float[Tensor, "b k *s"]:
    """MIND-SSC: exp(−(D − min D)/V) of each pair of neighbours at right angles: k = 4 pairs in 2D, 12 in 3D.

    D is the mean squared difference of the patches about the two neighbours, each `distance` from the voxel along an
    axis, and V the mean of D − min D over the pairs, within 1/1000 and 1000 of its mean over the image. (M. Heinrich et
    al., MICCAI 2013.)"""
    neighbours = []
    for axis, n in enumerate(in_voxels(distance, h), start=2):
        places = torch.arange(I.shape[axis], device=I.device)
        for step in (-max(1, n), max(1, n)):  # I(x + step), border repeated
            neighbours.append(I.index_select(axis, (places + step).clamp(0, I.shape[axis] - 1)))
    at_right_angles = [(a, b) for a, b in combinations(range(len(neighbours)), 2) if a // 2 != b // 2]
    patches = in_voxels(radius, h)
    D = torch.cat([local_mean((neighbours[a] - neighbours[b]).square(), patches) for a, b in at_right_angles], dim=1)
    D = D - D.amin(1, keepdim=True)
    V = D.mean(1, keepdim=True)
    middle = V.flatten(1).mean(1).view(-1, *[1] * (I.dim() - 1))
    V = torch.maximum(torch.minimum(V, 1e3 * middle), 1e-3 * middle)
    return torch.exp(-D / (V + torch.finfo(I.dtype).tiny))
