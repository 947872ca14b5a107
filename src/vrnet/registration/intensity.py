"""I0 ≈ gain · I1 + offset: one image is the other in brighter or darker, as scanners and file formats may have it. A
line is only used where it is far from what both phases of a scan show. It is the reduced major axis of the voxels that
both images have, found anew with a weight 1 / (1 + (r/s)²) for each of them, r being its distance from the line: what
moved, and an artefact, has little weight. In a small mask most of what is seen may have moved: there, a line that does
not bring the ranges of the images closer is none. Of whole images, a range may be that of an artefact."""

from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.images.image import Mask
from vrnet.registration.masks import PairMasks

MAX_FACTOR = 1e30  # intensities are float32
MAX_VOXELS = 50_000  # in larger images every n-th voxel is looked at
ITERATIONS = 15
SCALE = 1.5  # s, in medians of r
LEAST_SCALE = 1e-3  # s at least, as a part of the range of fixed: most voxels may lie on the line exactly
LEAST_CORRELATION = 0.25  # below it, the images as they lie do not say which intensities belong together
CLOSE_TO_LINE = 0.95  # the weighted correlation from which images count as two of one scan
MAX_CHANGE, MAX_CHANGE_OF_OTHERS = 0.13, 0.46
"""A line is not used if it changes either end of the range of moving by less than this part of the wider range: for
images close to their line, and for others. Of 476 real slices, 99 % show at most 0.1; tight boxes up to 0.41."""

Values = TypeVar("Values", ndarray, Tensor)


@dataclass(frozen=True)
class Remap:
    """How the intensities of moving are brought to those of fixed."""

    gain: float
    offset: float

    def __post_init__(self) -> None:
        if not (0 < self.gain < MAX_FACTOR and abs(self.offset) < MAX_FACTOR):
            raise BadInput(f"{self.gain:g} and {self.offset:g} are no gain and offset of intensities")

    def match(self, image: Values) -> Values:
        return image * self.gain + self.offset

    def __str__(self) -> str:
        return f"{self.gain:.3g} times what they are, {'less' if self.offset < 0 else 'plus'} {abs(self.offset):.3g}"


def find_remap(I0: Float[Tensor, "*s"], I1: Float[Tensor, "*s"], inside: PairMasks[Tensor]) -> Remap | None:
    """What makes moving as bright as fixed, both on one grid; None where they are so, as far as can be told."""
    fixed, moving = values_inside(I0, I1, inside.fixed, inside.moving)
    if not len(fixed) or not np.ptp(fixed) or not np.ptp(moving):
        return None
    if np.corrcoef(fixed, moving)[0, 1] < LEAST_CORRELATION:
        return None
    gain, offset, correlation = fit_line(moving, fixed)
    limit = MAX_CHANGE if correlation > CLOSE_TO_LINE else MAX_CHANGE_OF_OTHERS
    ends = np.percentile(moving, (1, 99))
    if np.abs(gain * ends + offset - ends).max() / max(width(fixed), width(moving)) <= limit:
        return None
    if not inside.is_everywhere:  # whether the line brings the two ranges closer
        fixed, moving = (values_inside(I0, I1, mask)[k] for k, mask in enumerate(inside.of_each))
        target, ends = (np.percentile(values, (1, 99)) for values in (fixed, moving))
        if np.abs(gain * ends + offset - target).max() >= np.abs(ends - target).max():
            return None
    return Remap(gain, offset)


def values_inside(I0: Float[Tensor, "*s"], I1: Float[Tensor, "*s"], *masks: Mask) -> list[Float[ndarray, " n"]]:
    """The intensities of both images inside all of these masks, but where both have their least; of many, some."""
    everywhere = torch.ones_like(I0, dtype=torch.bool)
    inside = reduce(torch.logical_and, (mask.to(I0.device) for mask in masks if mask is not None), everywhere)
    if inside.any():
        inside = inside & ((I0 > I0[inside].min()) | (I1 > I1[inside].min()))
    places = inside.flatten().nonzero()[:, 0]
    places = places[:: -(-len(places) // MAX_VOXELS) or 1]
    return [I.flatten()[places].detach().double().cpu().numpy() for I in (I0, I1)]


def fit_line(x: Float[ndarray, " n"], y: Float[ndarray, " n"]) -> tuple[float, float, float]:
    """(gain, offset, weighted correlation) of y ≈ gain · x + offset, by the reduced major axis, sd(y) / sd(x)."""
    (low, middle, high), (bottom, centre, top) = (np.percentile(values, (10, 50, 90)) for values in (x, y))
    gain = (top - bottom) / (high - low) if high > low and top > bottom else y.std() / x.std()
    offset, correlation, least = centre - gain * middle, 0.0, LEAST_SCALE * width(y)
    for _ in range(ITERATIONS):
        r = np.abs(y - gain * x - offset)
        weight = 1 / (1 + (r / max(SCALE * np.median(r), least)) ** 2)
        mean_x, mean_y = (np.average(values, weights=weight) for values in (x, y))
        dx, dy = x - mean_x, y - mean_y
        xx, yy, xy = (np.average(a * b, weights=weight) for a, b in ((dx, dx), (dy, dy), (dx, dy)))
        if not xx or not yy:
            break
        gain = float(np.sqrt(yy / xx))
        offset, correlation = float(mean_y - gain * mean_x), float(xy / np.sqrt(xx * yy))
    return gain, offset, correlation


def width(values: Float[ndarray, " n"]) -> float:
    """The 1st to the 99th percentile; of a few bright voxels on an even ground, all of it."""
    low, high = np.percentile(values, (1, 99))
    return float(high - low) or float(np.ptp(values))
