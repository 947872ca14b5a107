"""How alike two images are, whatever their contrast and whatever was minimised.

Images are tensors (1, 1, *s), scaled to [0, 1]. A window is given by its radius along each axis, in voxels."""

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Real
from numpy import ndarray
from torch import Tensor

from vrnet.images.grid import STACK_SPACING_RATIO
from vrnet.images.intensity import PERCENTILES
from vrnet.variational.histogram import entropy

Image = Float[Tensor, "1 1 *s"]
RADIUS = {1: 4, 2: 4, 3: 2}
"""Of the windows that are compared, in voxels, by the number of axes that they have."""
BINS = 32
NOISE = 1e-3
"""Variance, of intensities in [0, 1], below which a window shows noise rather than structure."""
LEAST_WIDTH = float(np.finfo(np.float32).tiny)
"""Of a range: nothing is divided by zero."""
MATCHED = 0.25
"""Squared local correlation from which a place of fixed counts as found: a correlation of one half."""


class Range(NamedTuple):
    """The ends of the intensities of an image: the 1st and the 99th percentile, or all of it."""

    low: float
    high: float

    @classmethod
    def of(cls, images: Iterable[Real[ndarray, "*s"]], where: Bool[ndarray, "*s"] | None = None) -> "Range":
        """All that images show, everywhere or at some places."""
        shown = [image if where is None else image[where] for image in images]
        return cls(min(float(values.min()) for values in shown), max(float(values.max()) for values in shown))

    @property
    def width(self) -> float:
        return max(self.high - self.low, LEAST_WIDTH)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def scale(self, image: Image) -> Image:
        """Map the range to [0, 1], and clip."""
        return ((image - self.low) / self.width).clamp(0, 1)

    def apply(self, image: Real[ndarray, "*s"]) -> Float[ndarray, "*s"]:
        """Map the range to [0, 1] in double precision, so that single holds it whatever its offset and its unit."""
        return ((image.astype(np.float64) - self.low) / self.width).astype(np.float32)

    def undo(self, image: Float[ndarray, "*s"]) -> Float[ndarray, "*s"]:
        """What `apply` mapped to [0, 1], as it was, in double precision."""
        return self.low + self.width * image.astype(np.float64)

    def within(self, whole: "Range") -> "Range":
        """The range, given in [0, 1], in the intensities that another one maps there."""
        return Range(*(whole.low + end * whole.width for end in self))


def intensity_range(values: Float[Tensor, "..."]) -> Range:
    """The range of intensities; of a few bright voxels on an even ground, all of it."""
    low, high = (float(p) for p in np.percentile(values.numpy(), PERCENTILES))
    return Range(low, high) if high > low else Range(float(values.min()), float(values.max()))


def window_sum(image: Image, radius: tuple[int, ...]) -> Image:
    """The sum over the window around each voxel, cut at the border."""
    for axis, r in enumerate(radius, start=2):
        total, n = image.clone(), image.shape[axis]
        for k in range(1, min(r, n - 1) + 1):
            total.narrow(axis, 0, n - k).add_(image.narrow(axis, k, n - k))
            total.narrow(axis, k, n - k).add_(image.narrow(axis, 0, n - k))
        image = total
    return image


class Windows(NamedTuple):
    """An image with the mean and the variance of the window around each voxel."""

    image: Image
    mean: Image
    variance: Image


class LocalCorrelation:
    """cov² / (var var) of two images in the window around each voxel: 1 where one is a linear map of the other."""

    def __init__(self, shape: tuple[int, ...], radius: tuple[int, ...]) -> None:
        self.radius, self.count = radius, window_sum(torch.ones(1, 1, *shape), radius)

    def mean(self, image: Image) -> Image:
        """The mean over the window around each voxel."""
        return window_sum(image, self.radius).div_(self.count)

    def windows(self, image: Image) -> Windows:
        """An image with the moments of its windows."""
        mean = self.mean(image)
        return Windows(image, mean, self.mean(image.square()).sub_(mean.square()).clamp_(min=0))

    def squared(self, a: Windows, b: Windows) -> Image:
        """The squared correlation at each voxel; near 0 where a window shows noise alone."""
        covariance = self.mean(a.image * b.image).sub_(a.mean * b.mean)
        return covariance.square_().div_((a.variance + NOISE) * (b.variance + NOISE))


def shifted(windows: Windows, axis: int, by: int) -> Windows:
    """An image, with its moments, moved by whole voxels along an axis; what leaves comes in on the other side."""
    return Windows(*(part.roll(by, axis) for part in windows))


def best_of_shifts(measure: LocalCorrelation, a: Windows, b: Windows, reach: int) -> Image:
    """The greatest squared correlation of a with b moved by up to `reach` voxels along one axis of the window.

    Near the border, where the other side would come in, it is that of no shift."""
    best = measure.squared(a, b)
    axes = [(2 + axis, r) for axis, r in enumerate(measure.radius) if r > 0]
    for (axis, r), by in product(axes, [k for k in range(-reach, reach + 1) if k]):
        n, margin = best.shape[axis], r + reach
        if n > 2 * margin:
            inner = best.narrow(axis, margin, n - 2 * margin)
            tried = measure.squared(a, shifted(b, axis, by)).narrow(axis, margin, n - 2 * margin)
            torch.maximum(inner, tried, out=inner)
    return best


def mutual_information(a: Image, b: Image, where: Bool[Tensor, "1 1 *s"]) -> float:
    """I(a; b) / √(H(a) H(b)) of a joint histogram: 0 for independent images, 1 where each tells the other.

    The bias of a histogram of few voxels is taken off (Miller and Madow)."""
    if not where.any():
        return 0.0
    x, y = ((image[where] * (BINS - 1e-3)).long() for image in (a, b))
    counts = torch.bincount(x * BINS + y, minlength=BINS**2).view(BINS, BINS).double()
    joint, first, second = counts, counts.sum(1), counts.sum(0)
    filled = [int((part > 0).sum()) for part in (joint, first, second)]
    h_joint, h_first, h_second = (float(entropy(part[None])) for part in (joint, first, second))
    bias = (filled[0] - filled[1] - filled[2] + 1) / (2 * float(counts.sum()))
    product_ = h_first * h_second
    return max((h_first + h_second - h_joint - bias) / product_**0.5, 0.0) if product_ > 0 else 0.0


def window_radius(spacing: tuple[float, ...]) -> tuple[int, ...]:
    """The radius of a window along each axis, in voxels: none across slices that are far apart."""
    inside = [h < STACK_SPACING_RATIO * min(spacing) for h in spacing]
    return tuple(RADIUS[sum(inside)] if within else 0 for within in inside)
