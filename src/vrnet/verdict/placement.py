"""Whether moving would fit fixed better if the whole of it were turned, mirrored or moved.

A method that compares structure locally makes something like fixed out of anything, so that local measures afterwards
tell little. What they cannot hide is seen in coarse images: of a brain that lies upside down, the map x ↦ A x + b
nearest to the field found leaves the images less alike than turning moving round would."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import atanh, ceil, prod
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.nn import functional

from vrnet.images.grid import STACK_SPACING_RATIO
from vrnet.images.image import PERCENTILES
from vrnet.variational.contrast import entropy

# How alike two images are, whatever their contrast and whatever was minimised.
#
# Images are tensors (n, 1, *s), scaled to [0, 1]: one, or the slices of a stack, each by itself.

Image = Float[Tensor, "n 1 *s"]
Matrix = Float[ndarray, "d d"]
RADIUS = {1: 4, 2: 4, 3: 2}  # of the windows that are compared, in voxels, by the number of axes that they have
BINS = 32
NOISE = 1e-3  # variance, of intensities in [0, 1], below which a window shows noise rather than structure
MIN_RANGE_WIDTH = float(np.finfo(np.float32).tiny)  # nothing is divided by zero
MATCHED = 0.25  # squared local correlation from which a place of fixed counts as found: a correlation of one half


class Range(NamedTuple):
    """The ends of the intensities of an image."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return max(self.high - self.low, MIN_RANGE_WIDTH)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def scale(self, image: Image) -> Image:
        """Map the range to [0, 1], and clip."""
        return ((image - self.low) / self.width).clamp(0, 1).float()


def intensity_range(values: Float[Tensor, "..."]) -> Range:
    """The 1st and the 99th percentile; of a few bright voxels on an even ground, all of it."""
    low, high = (float(p) for p in np.percentile(values.numpy(), PERCENTILES))
    return Range(low, high) if high > low else Range(float(values.min()), float(values.max()))


def window_mean(image: Image, radius: tuple[int, ...]) -> Image:
    """The mean over the window around each voxel, cut at the border: along one axis after the other."""
    for axis, r in enumerate(radius, start=2):
        if r:
            total, n = image.clone(), image.shape[axis]
            for k in range(1, min(r, n - 1) + 1):
                total.narrow(axis, 0, n - k).add_(image.narrow(axis, k, n - k))
                total.narrow(axis, k, n - k).add_(image.narrow(axis, 0, n - k))
            x = torch.arange(n)
            count = (x + r).clamp(max=n - 1) - (x - r).clamp(min=0) + 1
            image = total.div_(count.view(-1, *[1] * (image.dim() - 1 - axis)))
    return image


class Windows(NamedTuple):
    """An image with the mean and the variance of the window around each voxel."""

    image: Image
    mean: Image
    variance: Image
    radius: tuple[int, ...]  # of the window, in voxels along each axis

    @classmethod
    def of(cls, image: Image, radius: tuple[int, ...]) -> "Windows":
        mean = window_mean(image, radius)
        variance = window_mean(image.square(), radius).sub_(mean.square()).clamp_(min=0)
        return cls(image, mean, variance, radius)


def squared_correlation(a: Windows, b: Windows) -> Image:
    """cov² / (var var) of two images in the window around each voxel; near 0 where a window shows noise alone."""
    covariance = window_mean(a.image * b.image, a.radius).sub_(a.mean * b.mean)
    return covariance.square_().div_((a.variance + NOISE) * (b.variance + NOISE))


def best_of_shifts(a: Windows, b: Windows, reach: int) -> Image:
    """The greatest squared correlation of a with b moved by up to `reach` voxels along one axis, inside the border."""
    best = squared_correlation(a, b)
    axes = [(2 + axis, r) for axis, r in enumerate(a.radius) if r > 0]
    for (axis, r), by in product(axes, [k for k in range(-reach, reach + 1) if k]):
        n, margin = best.shape[axis], r + reach
        if n > 2 * margin:
            inner = best.narrow(axis, margin, n - 2 * margin)
            image, mean, variance = (part.roll(by, axis) for part in b[:3])
            moved = Windows(image, mean, variance, b.radius)
            tried = squared_correlation(a, moved).narrow(axis, margin, n - 2 * margin)
            torch.maximum(inner, tried, out=inner)
    return best


def mutual_information(a: Image, b: Image, where: Bool[Tensor, "1 1 *s"]) -> float:
    """I(a; b) / √(H(a) H(b)) of a joint histogram, 0 to 1, without the bias of few voxels (Miller and Madow)."""
    if not where.any():
        return 0.0
    x, y = ((image[where] * (BINS - 1e-3)).long() for image in (a, b))
    joint = torch.bincount(x * BINS + y, minlength=BINS**2).view(BINS, BINS).double()
    counts = joint, joint.sum(1), joint.sum(0)
    h_joint, h_a, h_b = (float(entropy(part[None])) for part in counts)
    filled, filled_a, filled_b = (int((part > 0).sum()) for part in counts)
    bias = (filled - filled_a - filled_b + 1) / (2 * float(joint.sum()))
    return max((h_a + h_b - h_joint - bias) / (h_a * h_b) ** 0.5, 0.0) if h_a * h_b > 0 else 0.0


MAX_COARSE_VOXELS = 4_000  # of the coarse images: 16 voxels along the side of a cube
MIN_COARSE_VOXELS = 500  # of fixed that are compared: fewer, as inside a small mask, fit well somewhere by chance
TILT_DEGREES = 30.0  # angle of the rotations that are tried beside those by right angles
FINER_DEGREES = 12.0, 6.0  # turns that better the best rotation: two people rarely lie alike to ten degrees
MIN_PART_SEEN, MIN_VARIANCE_SEEN = 0.5, 0.4  # of fixed, and its variance, that moving has to cover wherever it is tried
MAX_CORRELATION = 0.99  # of coarse images: beyond it nothing is told apart


@dataclass(frozen=True)
class CoarseImage:
    """An image (1, 1, *t) with the places (1, 1, *t) that count, each 0 or 1."""

    values: Tensor
    has: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[2:])

    def at(self, points: Float[Tensor, "d *t"]) -> "CoarseImage":
        """The image at points in voxels; what lies beyond its border does not count."""
        last = column(torch.tensor(self.shape)) - 1
        place = (2 * points / last.clamp(min=1) - 1).flip(0).movedim(0, -1)[None]
        is_inside = ((points > -0.5) & (points < last + 0.5)).all(0)
        values = functional.grid_sample(self.values, place, padding_mode="border", align_corners=True)
        has = functional.grid_sample(self.has, place, padding_mode="border", align_corners=True) > 0.5
        return CoarseImage(values, (has & is_inside).float())


def compare_placements(
    fixed: CoarseImage, moving: CoarseImage, u: Float[Tensor, "1 d *t"], spacing: tuple[float, ...]
) -> tuple[float, float, float]:
    """|Correlation| of coarse images in [0, 1]: through the affine map nearest to a field in voxels, or as they lay, if
    that is more; the best if the whole of moving is moved, or turned and moved; and if it is mirrored too. The last two
    are 0 where too little is compared to tell."""
    shape = coarse_shape(fixed.shape, spacing)
    sides = torch.tensor([n / m for n, m in zip(fixed.shape, shape, strict=True)])
    h = column(torch.tensor(spacing) * sides)
    has = ((coarse(image.has.float(), shape) > 0.5).float() for image in (fixed, moving))  # most of a coarse voxel
    F, M = (CoarseImage(coarse(image.values, shape), part) for image, part in zip((fixed, moving), has, strict=True))
    x = torch.stack(torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in shape), indexing="ij"))
    structure = (Windows.of(F.values, (1,) * len(shape)).variance.sqrt() * F.has).flatten()
    motion = coarse(u, shape)[0] / column(sides)
    found = max(correlation(F, M), correlation(F, M.at(x + nearest_affine(motion, structure))))
    if F.has.sum() < MIN_COARSE_VOXELS:
        return found, 0.0, 0.0
    centre, shifts = (column(torch.tensor(shape)) - 1) / 2, Shifts(F)

    def alike(R: Matrix) -> float:
        turned = torch.einsum("ij,j...->i...", torch.from_numpy(R).float(), (x - centre) * h) / h + centre
        return shifts.best_correlation(M.at(turned))

    across = far_apart_axes(spacing)
    return found, best_turned(alike, across), best_turned(alike, across, mirror=True)


def best_turned(alike: Callable[[Matrix], float], across: tuple[bool, ...], mirror: bool = False) -> float:
    """How alike the images are by the best of `placements`, rotations or mirrors, turned on while that is better."""
    tried = [(alike(R), R) for R in placements(across) if (np.linalg.det(R) < 0) == mirror]
    best, R = max(tried, key=itemgetter(0))
    for degrees in FINER_DEGREES:
        while (better := max(((alike(S @ R), S @ R) for S in turns(degrees, across)), key=itemgetter(0)))[0] > best:
            best, R = better
    return best


def gain(best: float, found: float) -> float:
    """How much more alike, as the difference of Fisher's z, so that .90 to .95 is as much as .3 to .57."""
    return atanh(min(best, MAX_CORRELATION)) - atanh(min(found, MAX_CORRELATION))


def far_apart_axes(spacing: tuple[float, ...]) -> tuple[bool, ...]:
    """Which axes lead across slices that are far apart."""
    return tuple(bool(h >= STACK_SPACING_RATIO * min(spacing)) for h in spacing)


def coarse_shape(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """The shape of images of at most MAX_COARSE_VOXELS, as near to cubes as can be; slices of a stack stay apart."""
    across, side, found = far_apart_axes(spacing), min(spacing), shape
    while prod(found) > MAX_COARSE_VOXELS and any(n > 2 and not far for n, far in zip(found, across, strict=True)):
        side *= 1.05
        sizes = [max(ceil(n * h / side), 2) for n, h in zip(shape, spacing, strict=True)]
        found = tuple(n if far else min(n, size) for n, far, size in zip(shape, across, sizes, strict=True))
    return found


def coarse(image: Float[Tensor, "1 c *s"], shape: tuple[int, ...]) -> Float[Tensor, "1 c *t"]:
    """Means over the voxels of a coarser grid."""
    return functional.interpolate(image.float(), size=shape, mode="area")


def column(values: Tensor) -> Tensor:
    """(d) as (d, 1, …), beside points (d, *t)."""
    return values.view(-1, *[1] * len(values)).float()


def nearest_affine(u: Float[Tensor, "d *t"], weight: Float[Tensor, " n"] | None = None) -> Float[Tensor, "d *t"]:
    """The field A x + b nearest to u in the sense of least squares, weighted if a weight is given."""
    d, shape = len(u), u.shape[1:]
    axes = (torch.linspace(-1, 1, n, dtype=torch.float64) for n in shape)
    x = torch.stack([*torch.meshgrid(*axes, indexing="ij"), torch.ones(shape, dtype=torch.float64)]).flatten(1)
    w = torch.ones_like(x[0]) if weight is None else weight.double() + 1e-6
    slopes = torch.linalg.lstsq((x * w) @ x.T, (x * w) @ u.double().flatten(1).T, driver="gelsd").solution
    return (slopes.T @ x).view(d, *shape).float()


def correlation(a: CoarseImage, b: CoarseImage) -> float:
    """|r| of two images, where both count."""
    both = (a.has * b.has).bool()
    x, y = (image.values[both].double() for image in (a, b))
    if len(x) < 2:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y).abs() / (x.norm() * y.norm()).clamp(min=1e-9))


@cache
def placements(across: tuple[bool, ...]) -> tuple[Matrix, ...]:
    """Rotations to try, and mirrors: by right angles, and by TILT_DEGREES; slices that are far apart stay slices."""
    d = len(across)
    orders, signs = permutations(range(d)), [*product((1.0, -1.0), repeat=d)]
    right = [np.eye(d)[list(order)] * np.array(sign) for order in orders for sign in signs]
    axes = [np.array(v) for v in product((-1, 0, 1), repeat=3) if np.count_nonzero(v) in (1, 3)]
    tilts = [Rotation.from_rotvec(np.radians(TILT_DEGREES) * v / np.linalg.norm(v)).as_matrix() for v in axes]
    if d == 2:
        tilts = [R[:2, :2] for v, R in zip(axes, tilts, strict=True) if v[2] and not v[:2].any()]
    return tuple(R for R in (*right, *tilts) if all(abs(R[k, k]) > 1 - 1e-9 for k in range(d) if across[k]))


@cache
def turns(degrees: float, across: tuple[bool, ...]) -> tuple[Matrix, ...]:
    """Rotations by an angle, either way, about each axis about which slices that are far apart stay slices."""
    d = len(across)
    axes = [np.eye(3)[2]] if d == 2 else [np.eye(3)[k] for k in range(3) if not any(across) or across[k]]
    angles = np.radians((degrees, -degrees))
    return tuple(Rotation.from_rotvec(a * v).as_matrix()[:d, :d] for v in axes for a in angles)


class Shifts:
    """The correlation of fixed with an image that is moved by whole voxels, for every shift at once, by Fourier's."""

    def __init__(self, fixed: CoarseImage) -> None:
        self.size = [n + ceil(n / 2) for n in fixed.shape]  # of a shift by more than half a side, too little is seen
        self.axes = tuple(range(2, 2 + len(fixed.shape)))
        lags = [torch.arange(m) for m in self.size]
        near = [torch.minimum(k, m - k) <= n // 2 for k, m, n in zip(lags, self.size, fixed.shape, strict=True)]
        self.is_near = torch.stack(torch.meshgrid(*near, indexing="ij")).all(0)  # others meet what comes from behind
        F, self.count = fixed.values * fixed.has, float(fixed.has.sum())
        self.variance = float(F[fixed.has > 0].var(correction=0)) * self.count if self.count else 0.0
        self.parts = [self.spectrum(part).conj() for part in (F, F.square(), fixed.has)]

    def spectrum(self, image: Tensor) -> Tensor:
        return torch.fft.rfftn(image, s=self.size, dim=self.axes)

    def best_correlation(self, moving: CoarseImage) -> float:
        """The greatest |r| of any shift that leaves enough of fixed in sight."""
        M = moving.values * moving.has
        M, MM, has = (self.spectrum(part) for part in (M, M.square(), moving.has))
        F, FF, seen = self.parts
        products = seen * has, F * has, FF * has, seen * M, seen * MM, F * M
        # Σ1, ΣF, ΣF², ΣM, ΣM² and ΣFM over the places where both count, at every shift
        n, a, aa, b, bb, ab = (torch.fft.irfftn(part, s=self.size, dim=self.axes) for part in products)
        n = n.clamp(min=1)
        of_fixed, of_moving = (aa - a.square() / n).clamp(min=0), (bb - b.square() / n).clamp(min=0)
        is_seen = self.is_near & (n >= MIN_PART_SEEN * self.count) & (of_fixed >= MIN_VARIANCE_SEEN * self.variance)
        r = (ab - a * b / n).abs() / (of_fixed * of_moving).sqrt().clamp(min=1e-3 * max(self.variance, 1e-9))
        return float((r * is_seen).max())
