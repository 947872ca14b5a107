"""More pairs than there are: one random map and one change of brightness for both images of a pair, which may change
places; and pairs of one image and the same again, moved a little, or not at all.

Drawing and applying are apart, so that several devices can each apply their part of one draw. What was added later is
drawn last, and only where it is allowed: settings without it draw what they always did.
"""

from collections.abc import Sequence
from itertools import combinations
from math import radians
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor
from torch.nn import functional

from vrnet.fields.calculus import smooth
from vrnet.training.settings import MAX_SEED, Augmentation
from vrnet.variational.linearize import Images

ELASTIC_POINTS = 8  # control points along each axis of an elastic map: smooth over about a fifth of the image
BLUR_VOXELS = 1.5  # the standard deviation of the Gaussian of a blurred image
LEAST_CUT, LARGEST_CUT = 0.19, 0.47
"""What is left to each side of the middle of an image that is cut, as a part of its length."""


class RandomTransform(NamedTuple):
    """What was drawn for each pair of a batch; None of what is not allowed."""

    affine: Float[Tensor, "b d e"]
    """A and t: the new image at x is the old one at A x + t; x runs from -1 to 1 along each axis."""
    gamma: Float[Tensor, "b"]  # the exponent of intensities in [0, 1]
    swap: Bool[Tensor, "b"]
    contrast: Float[Tensor, "b"] | None = None  # what the distance of intensities from 1/2 is multiplied by
    brightness: Float[Tensor, "b"] | None = None
    noise: Float[Tensor, "b"] | None = None
    """The standard deviation of what is added to every voxel of either image by itself."""
    noise_seed: Int64[Tensor, "b"] | None = None
    elastic: Float[Tensor, "b d *k"] | None = None  # displacements of control points, added to A x + t, in voxels
    twin: Bool[Tensor, "b"] | None = None  # whether moving is made of fixed
    twin_motion: Float[Tensor, "b d *k"] | None = None
    """Displacements of control points of the moving image alone, in voxels; 0 where it is not made of fixed."""
    bias: Float[Tensor, "b 1 *k"] | None = None
    """The logarithm of what intensities are multiplied by, at control points."""
    blur: Float[Tensor, "b"] | None = None  # how far intensities go towards those of a blurred image
    cut: Float[Tensor, "b d"] | None = None
    """How far from the middle of the labels images are black, along each axis and as a part of its length."""

    def select(self, rows: slice, device: torch.device) -> "RandomTransform":
        """The part for some of the pairs, on a device; seeds stay on the CPU, where they are read."""
        parts = {name: tensor[rows] for name, tensor in self._asdict().items() if tensor is not None}
        return RandomTransform(**{name: t if name == "noise_seed" else t.to(device) for name, t in parts.items()})


def draw_transform(
    allowed: Augmentation, batch: int, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> RandomTransform:
    """A transform for each of `batch` pairs; angles are true in space whatever the spacing of voxels."""
    d = len(shape)
    rotation, chance = torch.eye(d).expand(batch, d, d), draw_uniform(batch, d * (d - 1) // 2)
    for k, (i, j) in enumerate(combinations(range(d), 2)):  # in each plane of two axes, one after the other
        angle = chance[:, k] * radians(allowed.tilt if k else allowed.rotation)
        plane = torch.eye(d).repeat(batch, 1, 1)
        plane[:, i, i] = plane[:, j, j] = angle.cos()
        plane[:, i, j], plane[:, j, i] = -angle.sin(), angle.sin()
        rotation = plane @ rotation
    size = (1 + allowed.scale * draw_uniform(batch, 1)) * torch.where(
        (draw_uniform(batch, d) < 0) & allowed.flip, -1.0, 1.0
    )
    extent = torch.tensor([h * (n - 1) for h, n in zip(spacing, shape, strict=True)])
    A = rotation * extent / extent[:, None] * size[:, None]
    t = allowed.translation * draw_uniform(batch, d)
    swap = draw_uniform(batch) < 2 * allowed.swap - 1
    gamma = (allowed.gamma * draw_uniform(batch)).exp()
    more = {}  # what is not allowed is not drawn
    if allowed.contrast:
        more["contrast"] = (allowed.contrast * draw_uniform(batch)).exp()
    if allowed.brightness:
        more["brightness"] = allowed.brightness * draw_uniform(batch)
    if allowed.noise:
        more["noise"] = allowed.noise * torch.rand(batch)
        more["noise_seed"] = torch.randint(MAX_SEED, (batch,))
    if allowed.elastic:
        more["elastic"] = allowed.elastic * draw_uniform(batch, d, *[ELASTIC_POINTS] * d)
    if allowed.twins:
        more["twin"] = torch.rand(batch) < allowed.twins
        largest = allowed.twin_motion * torch.rand(batch) * more["twin"]
        points = draw_uniform(batch, d, *[ELASTIC_POINTS] * d)
        more["twin_motion"] = largest.view(-1, *[1] * (d + 1)) * points
    if allowed.bias:
        more["bias"] = allowed.bias * draw_uniform(batch, 1, *[ELASTIC_POINTS] * d)
    if allowed.blur:
        more["blur"] = allowed.blur * torch.rand(batch)
    if allowed.cut:
        left = LEAST_CUT + (LARGEST_CUT - LEAST_CUT) * torch.rand(batch, d)
        more["cut"] = torch.where(torch.rand(batch, 1) < allowed.cut, left, torch.inf)
    return RandomTransform(torch.cat([A, t[..., None]], dim=2), gamma, swap, **more)


def draw_uniform(*size: int) -> Tensor:
    """Independent numbers, uniform from -1 to 1."""
    return 2 * torch.rand(*size) - 1


def augment(
    I0: Images, I1: Images, transform: RandomTransform, labels: Sequence[UInt8[Tensor, "b 1 *s"]] = ()
) -> tuple[Tensor, ...]:
    """What was drawn, applied to pairs of images, and to their labels where these are given, from the nearest voxel.

    Outside the images their border is repeated. Gamma, contrast and brightness change alike in both images of a pair;
    noise is another in each. Further channels of images are moved as the images are, and not changed otherwise."""
    sampled, c = sample_pair(I0, I1, transform, "bilinear"), I0.shape[1]
    pair = sampled[:, ::c]
    pair = pair.clamp(min=1e-6).pow(beside(transform.gamma, pair))
    if transform.bias is not None:
        pair = pair * spline(transform.bias, tuple(pair.shape[2:])).exp()
    if transform.blur is not None:
        pair = pair.lerp(smooth(pair, BLUR_VOXELS), beside(transform.blur, pair))
    if transform.contrast is not None:
        pair = 0.5 + beside(transform.contrast, pair) * (pair - 0.5)
    if transform.brightness is not None:
        pair = pair + beside(transform.brightness, pair)
    if transform.noise is not None and transform.noise_seed is not None:
        generator, drawn = torch.Generator(pair.device), []
        for seed in transform.noise_seed.tolist():  # each pair has its own: others of the batch do not matter
            drawn.append(torch.randn(pair.shape[1:], generator=generator.manual_seed(seed), device=pair.device))
        pair = pair + beside(transform.noise, pair) * torch.stack(drawn)
    parts = [part for k in (0, 1) for part in (pair[:, k : k + 1], sampled[:, k * c + 1 : (k + 1) * c])]
    pairs = [torch.cat(parts, dim=1)]
    if labels:
        fixed, moving = labels
        pairs.append(sample_pair(fixed.float(), moving.float(), transform, "nearest").to(fixed.dtype))
        if transform.cut is not None:
            box = box_about((pairs[1] > 0).any(1, keepdim=True), transform.cut)
            pairs = [two * box for two in pairs]
    swap = beside(transform.swap, pair)
    exchanged = ((two, torch.cat(two.chunk(2, dim=1)[::-1], dim=1)) for two in pairs)
    return tuple(part for two, other in exchanged for part in torch.where(swap, other, two).chunk(2, dim=1))


def box_about(mask: Bool[Tensor, "b 1 *s"], reach: Float[Tensor, "b d"]) -> Bool[Tensor, "b 1 *s"]:
    """Where no axis is further from the middle of a mask than it may, in parts of its length; all, of an empty mask."""
    inside = torch.ones_like(mask)
    for axis, n in enumerate(mask.shape[2:], start=2):
        x = torch.arange(n, device=mask.device).view(-1, *[1] * (mask.dim() - 1 - axis))
        middle = (mask * x).flatten(1).sum(1) / mask.flatten(1).sum(1)
        inside &= ~((x - beside(middle, mask)).abs() > n * beside(reach[:, axis - 2], mask))  # no NaN is further
    return inside


def sample_pair(I0: Images, I1: Images, transform: RandomTransform, mode: str) -> Float[Tensor, "b c2 *s"]:
    """Both images with all their channels, or labels, under the random maps."""

    def sample(I: Images, grid: Float[Tensor, "b *s d"]) -> Images:
        return functional.grid_sample(I, grid, mode=mode, padding_mode="border", align_corners=True)

    # Where the new pairs take their values: as torch wants it, from -1 to 1, axes backward.
    A, t = transform.affine[..., :-1].flip(1, 2), transform.affine[..., -1:].flip(1)
    grid = functional.affine_grid(torch.cat([A, t], dim=2), list(I0.shape), align_corners=True)
    if transform.elastic is not None:
        grid = grid + spline_grid(transform.elastic, tuple(I0.shape[2:]))
    if transform.twin is None or transform.twin_motion is None:
        return sample(torch.cat([I0, I1], dim=1), grid)
    I1 = torch.where(beside(transform.twin, I1), I0, I1)
    own = grid + spline_grid(transform.twin_motion, tuple(I0.shape[2:]))
    return torch.cat([sample(I0, grid), sample(I1, own)], dim=1)


def spline_grid(points: Float[Tensor, "b d *k"], shape: tuple[int, ...]) -> Float[Tensor, "b *s d"]:
    """What control points, moved by so many voxels, add to where new images take their values."""
    half = torch.tensor([(n - 1) / 2 for n in reversed(shape)], device=points.device)
    return spline(points, shape).movedim(1, -1).flip(-1) / half


def spline(points: Float[Tensor, "b c *k"], shape: tuple[int, ...]) -> Float[Tensor, "b c *s"]:
    """The cubic B-spline with these values at its control points, nowhere beyond the largest. They reach one beyond the
    grid at either end."""
    for axis, n in enumerate(shape, start=2):
        k = points.shape[axis]
        x = torch.linspace(0, k - 3, n, device=points.device)[:, None] + 1 - torch.arange(k, device=points.device)
        inner, outer = 2 / 3 - x.square() + x.abs() ** 3 / 2, (2 - x.abs()).clamp(min=0) ** 3 / 6
        basis = torch.where(x.abs() < 1, inner, outer)
        points = torch.matmul(points.transpose(axis, -1), basis.T).transpose(axis, -1)
    return points


def beside(values: Tensor, pair: Tensor) -> Tensor:
    """One number per pair, shaped so that it meets all voxels of the pair."""
    return values.view(-1, *[1] * (pair.dim() - 1))
