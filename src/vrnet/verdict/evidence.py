"""What a registered pair tells about its registration, in numbers: the grounds of a verdict.

Images are compared by means over blocks of voxels, so that the evidence on a brain takes a fraction of a second; where
only a small part of them is compared, by the voxels of a box about that part."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp, inf, nan
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Real, Shaped
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from vrnet.errors import numbered
from vrnet.evaluation.metrics import normalised_cross_correlation
from vrnet.evaluation.pair import WorstStructure
from vrnet.fields.calculus import determinant, jacobian, scale, squared_norm
from vrnet.registration.masks import inpaint
from vrnet.registration.pair import PairResult
from vrnet.verdict import placement
from vrnet.verdict.placement import MATCHED, NOISE, CoarseImage, Range, Windows, intensity_range, squared_correlation

MAX_RANGE_RATIO, MAX_OFFSET = 2.0, 0.5  # ranges of intensities beyond these limits are far apart


@dataclass(frozen=True)
class Evidence:
    """Measures of a registered pair on the grid of fixed. Parts are from 0 to 1; of structures, NaN without labels."""

    local_before: float  # mean squared local correlation, weighted by the structure in fixed: contrast does not matter
    local_after: float
    information_before: float  # normalised mutual information
    information_after: float
    correlation_before: float  # correlation over the whole image: negative where the contrast is opposite
    unmatched: float  # part of the structure in fixed whose local correlation with warped is below one half
    blank: float  # part of the structure in fixed where warped shows none at all
    shift_gain: float  # how much the local correlation would grow if every place were moved by up to three voxels
    range_ratio: float  # the wider range of intensities (1st to 99th percentile) over the other
    glare: float  # how many times as far above the rest as in the other image the brightest tenth reaches
    offset: float  # how far the middles of both ranges are apart, in units of the wider range
    stretch: float  # standard deviation of log det(I + ∇u): at 0.7, a typical place doubles or halves
    motion: float  # 99th percentile of |u| less the nearest affine map, as a part of the longest side: blocks, not mm
    coverage: float  # part of fixed whose partner lies within moving
    outside: float  # part of fixed that the motion carries out of moving
    folds_percent: float  # voxels with a fold, strictly
    coarse_found: float  # |correlation| of the coarse images, through the affine map nearest to the field
    coarse_turned: float  # the same if the whole of moving were turned and moved in the best way that was tried
    coarse_mirrored: float  # the same if it were mirrored, too
    dice_before: float = nan  # mean over the structures
    dice_after: float = nan
    distance_before: float = nan  # between the surfaces of the structures, in mm: mean over them
    distance_after: float = nan
    fall: WorstStructure | None = None  # the structure whose Dice fell most, or rose least, where labels are given
    voxels: float = inf  # those of fixed inside the masks, or all of them; of large images, blocks of voxels
    block_voxels: int = 1  # how many voxels such a block has
    lags: tuple[float, ...] = ()  # of the slices of a stack, as `slice_lags` has them

    @property
    def local_after_shifts(self) -> float:
        """The local correlation if every place were moved by up to three voxels."""
        return self.local_after + self.shift_gain

    @property
    def typical_stretch(self) -> float:
        """The factor by which a typical place grows or shrinks."""
        return exp(self.stretch)

    @property
    def placement_gain(self) -> float:
        """How much more alike the coarse images would be if the whole of moving lay otherwise, by Fisher's z."""
        return placement.gain(max(self.coarse_turned, self.coarse_mirrored), self.coarse_found)

    @property
    def compared(self) -> str:
        """What was compared, in words."""
        many, of = "" if self.voxels == 1 else "s", self.block_voxels
        return f"{self.voxels:.0f} " + (f"voxel{many}" if of == 1 else f"block{many} of {of} voxels")

    @property
    def lagging(self) -> str:
        """The slices that lag behind, counted from 1."""
        return numbered("slice", [k for k, lag in enumerate(self.lags) if lag > MAX_LAG]).capitalize()

    @property
    def ranges_apart(self) -> str:
        """What is beyond its limit, in words: the ratio of the ranges, the distance of their middles, or both."""
        times = f"one range is {self.range_ratio:,.1f} times the other" if self.range_ratio < inf else "one is constant"
        middles = f"their middles are {self.offset:.1f} ranges apart"
        return ", ".join([times] * (self.range_ratio > MAX_RANGE_RATIO) + [middles] * (self.offset > MAX_OFFSET))


def evidence_of(
    result: PairResult, structures: Mapping[str, Any] = MappingProxyType({}), by_slice: bool = True
) -> Evidence:
    """The grounds of the verdict of a registered pair, by what the field does beyond an affine start.
    Images are compared where moving has values, and inside the masks: what they show elsewhere has no influence."""
    whole = Blocks.of(result)
    near = whole
    if result.compared is not None and max(whole.sides) > 1:
        h = result.grid.spacing  # the smallest box that holds what is compared, and its context
        reach = (ceil(CONTEXT * min(h) / edge) for edge in h)
        places = zip(np.nonzero(result.compared), reach, strict=True)
        near = Blocks.of(result, tuple(slice(max(int(at.min()) - n, 0), int(at.max()) + 1 + n) for at, n in places))
    images = CoarseImage(whole.fixed, whole.chosen), CoarseImage(whole.started, whole.before)
    found, turned, mirrored = placement.compare_placements(*images, whole.u, whole.spacing)
    covered_before, covered = whole.before.float().mean().item(), whole.after.float().mean().item()
    det = determinant(jacobian(whole.u)).clamp(min=LEAST_DETERMINANT)
    length = squared_norm(whole.u - placement.nearest_affine(whole.u[0])[None]).numpy()

    # how alike the images are, each place weighted by the structure that its window shows in fixed
    F, M, W = near.fixed, near.moving, near.warped
    has_before, has_after = near.before & near.chosen, near.after & near.chosen
    across = placement.far_apart_axes(near.spacing)  # where slices are far apart, no window reaches from one to another
    radius = tuple(0 if far else placement.RADIUS[across.count(False)] for far in across)
    a, before, after = (Windows.of(image, radius) for image in (F, M, W))
    structure = a.variance.sqrt() * (a.variance > NOISE)
    r2, inside = squared_correlation(a, after), [image[has_before].numpy() for image in (F, M)]
    correlation = normalised_cross_correlation(*inside) if len(inside[0]) else nan  # nan of a constant image

    narrow, wide = sorted(near.ranges, key=lambda each: each.width)
    is_constant = narrow.low == narrow.high and wide.low < wide.high
    rest = [float(np.quantile(image[near.chosen].numpy(), REST)) for image in (F, M)]
    return Evidence(
        local_before=mean_over(squared_correlation(a, before), structure * has_before),
        local_after=mean_over(r2, structure * has_after),
        information_before=placement.mutual_information(F, M, has_before),
        information_after=placement.mutual_information(F, W, has_after),
        correlation_before=0.0 if np.isnan(correlation) else correlation,
        unmatched=mean_over(r2 < MATCHED, structure * has_after),
        blank=mean_over(after.variance < NOISE, structure * has_after),
        shift_gain=mean_over(placement.best_of_shifts(a, after, REACH) - r2, structure * has_after),
        range_ratio=inf if is_constant else wide.width / narrow.width,
        glare=max(rest) / min(rest) if min(rest) > 0 else 1.0,  # an even ground tells nothing
        offset=abs(near.ranges[0].middle - near.ranges[1].middle) / wide.width,
        stretch=float(det.log().std(correction=0)),
        motion=float(np.quantile(length, 0.99)) ** 0.5 / max(whole.u.shape[2:]),
        coverage=covered,
        outside=max(covered_before - covered, 0.0),
        folds_percent=result.regularity["folding_strict_percent"],
        coarse_found=found,
        coarse_turned=turned,
        coarse_mirrored=mirrored,
        **structures,
        voxels=float(near.chosen.sum()),
        block_voxels=int(np.prod(near.sides)),
        lags=slice_lags(result) if by_slice else (),
    )


GAIN_WEIGHT, MAX_LAG = 0.05, 0.013
"""How much a slice's gain counts beside what shifts would add; and the lag that few good slices have."""


def slice_lags(result: PairResult) -> tuple[float, ...]:
    """How far each slice of a stack lags behind those beside it: s − s' + (g' − g) / 20.

    s is by how much its local correlation would grow if every place were moved by up to three voxels, g which part of
    the missing correlation was found; s' and g' are the means of its neighbours. A slice without structure has 0."""
    far = placement.far_apart_axes(result.grid.spacing)
    if len(far) != 3 or far.count(True) != 1:
        return ()  # no stack of slices that lie far apart
    axis = 1 + far.index(True)
    blocks = Blocks.of(result, whole=axis - 1)

    def each(values: Tensor) -> Tensor:
        return values[0].movedim(axis, 0)  # (1, 1, *s) -> (slice, 1, *within)

    F, M, W = (
        Windows.of(each(image), (placement.RADIUS[2],) * 2) for image in (blocks.fixed, blocks.moving, blocks.warped)
    )
    structure = F.variance.sqrt() * (F.variance > NOISE) * each(blocks.chosen)
    r2 = squared_correlation(F, W)
    weight = structure * each(blocks.after)

    def means(values: Tensor, weight: Tensor) -> Float[ndarray, " z"]:
        return ((values * weight).double().sum((1, 2, 3)) / weight.double().sum((1, 2, 3))).numpy()

    before, after = means(squared_correlation(F, M), structure * each(blocks.before)), means(r2, weight)
    shifts, gain = means(placement.best_of_shifts(F, W, REACH) - r2, weight), (after - before) / (1 - before).clip(0.05)
    score = shifts - GAIN_WEIGHT * gain
    beside = np.pad(score, 1, constant_values=nan)
    near = np.stack([beside[:-2], beside[2:]])
    with np.errstate(invalid="ignore"):  # where neither is there
        lags = score - np.nan_to_num(near).sum(0) / np.isfinite(near).sum(0)
    return tuple(np.nan_to_num(lags, nan=0.0).tolist())


POOL = {2: functional.avg_pool2d, 3: functional.avg_pool3d}
MAX_VOXELS = 150_000  # larger images are averaged over blocks first
CONTEXT = 8  # shortest edges of a voxel that are kept about what is compared: windows and shifts reach no farther
REACH = 3  # voxels by which parts of the result are moved, to see whether they would fit better there
REST = 0.9  # the part of an image that is not its brightest
LEAST_DETERMINANT = 0.05  # what a fold counts as, in the mean of log det
Box = tuple[slice, ...]
Image = Float[Tensor, "1 1 *t"]
Where = Bool[Tensor, "1 1 *t"]


def block_sides(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Sides, in voxels, of the blocks to average so that at most MAX_VOXELS are left, as near to cubes as can be."""
    shape_, side = np.array(shape), min(spacing)
    sides = np.ones(len(shape), int)
    while np.prod(-(-shape_ // sides)) > MAX_VOXELS:
        side *= 1.1
        sides = np.clip(np.round(side / np.array(spacing)).astype(int), 1, shape_)
    return tuple(sides.tolist())


def as_blocks(image: Shaped[ndarray, "c *s"], sides: tuple[int, ...]) -> Float[Tensor, "1 c *t"]:
    """Means over blocks, as a batch of one, in double precision; the blocks at the end may be smaller."""
    whole = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float64))[None]
    if max(sides) == 1:
        return whole
    return POOL[len(sides)](whole, sides, ceil_mode=True, count_include_pad=False)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A registered pair, or a box of it, by the means over blocks of voxels."""

    fixed: Image  # from 0 to 1 over its range, as the others, which have one range together
    moving: Image
    warped: Image
    started: Image  # moving as the affine start places it
    ranges: tuple[Range, Range]  # of fixed and of moving
    u: Float[Tensor, "1 d *t"]  # in blocks
    before: Where  # where moving has the blocks of fixed: as it lay, or through the affine start
    after: Where  # through the whole transform
    chosen: Where  # where images are to be compared
    sides: tuple[int, ...]  # of a block, in voxels
    spacing: tuple[float, ...]  # of the blocks

    @classmethod
    def of(cls, result: PairResult, box: Box = (), whole: int | None = None) -> "Blocks":
        """Of all slices across the axis `whole`, if it is given, the blocks are those of one."""
        spacing = result.grid.spacing
        compared = None if result.compared is None else result.compared[box]
        shape = result.fixed.array[box].shape
        sides = block_sides(tuple(1 if axis == whole else n for axis, n in enumerate(shape)), spacing)

        def means(image: Real[ndarray, "*s"]) -> Image:
            """Of an image that goes on smoothly beyond what is compared, so that nothing else has an influence."""
            values = image[box]
            if compared is not None:
                inside = torch.from_numpy(np.ascontiguousarray(compared))
                values = inpaint(torch.from_numpy(values.astype(np.float64)), inside, spacing).numpy()
            return as_blocks(values[None], sides)

        I0, I1, I1w = means(result.fixed.array), means(result.placed), means(result.matched_warped)
        start = I1 if result.started is None else means(result.started)
        chosen = torch.ones_like(I0, dtype=torch.bool)
        if compared is not None:
            part = as_blocks(compared[None], sides)
            chosen = part > 0.5 if (part > 0.5).any() else part > 0  # a thin mask has most of no block
        ranges = intensity_range(I0[chosen]), range_of_moving(I1[chosen], I1w[chosen])
        u = as_blocks(result.deformation[(slice(None), *box)], sides)
        first = [part.start for part in box] or [0] * len(sides)
        ends = zip(I0.shape[2:], sides, first, strict=True)
        middles = [(torch.arange(n) + 0.5) * side - 0.5 + at for n, side, at in ends]  # of the blocks, in voxels
        x = torch.stack(torch.meshgrid(*middles, indexing="ij"))[None]
        return cls(
            fixed=ranges[0].scale(I0),
            moving=ranges[1].scale(I1),
            warped=ranges[1].scale(I1w),
            started=ranges[1].scale(start),
            ranges=ranges,
            u=scale(u, tuple(1 / side for side in sides)).float(),
            before=within_moving(result, x),
            after=within_moving(result, x + u),
            chosen=chosen,
            sides=sides,
            spacing=tuple(h * side for h, side in zip(spacing, sides, strict=True)),
        )


def range_of_moving(moving: Float[Tensor, " n"], warped: Float[Tensor, " n"]) -> Range:
    """The range of moving as it lay before; of warped, where headers put moving so that hardly any of it is seen."""
    before, after = intensity_range(moving), intensity_range(warped)
    return after if after.width > 2 * before.width else before


def within_moving(result: PairResult, points: Float[Tensor, "1 d *t"]) -> Where:
    """Which of the points, in voxels of fixed, moving has, through the affine start. The whole way is an affine map."""
    d = points.shape[1]
    places = result.grid.points(np.concatenate([np.zeros((1, d)), np.eye(d)]))
    ends = result.moving.grid.index(places if result.affine is None else result.affine.points(places))
    first, *along = torch.from_numpy(ends).view(d + 1, d, *[1] * d)
    x = first + sum(points[:, [axis]].double() * (end - first) for axis, end in enumerate(along))
    size = torch.tensor(result.moving.grid.shape).view(first.shape)
    return ((x > -0.5) & (x < size - 0.5)).all(1, keepdim=True)


def mean_over(values: Shaped[Tensor, "..."], weight: Float[Tensor, "..."]) -> float:
    """The weighted mean; 0 where nothing weighs."""
    return float((values * weight).double().sum() / weight.double().sum().clamp(min=1e-12))
