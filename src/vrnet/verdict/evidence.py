"""What a registered pair tells about its registration, in numbers: the grounds of a verdict."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf

import numpy as np
import torch
from jaxtyping import Bool, Float, Real, Shaped
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from vrnet.evaluation.metrics import normalised_cross_correlation
from vrnet.evaluation.pair import WorstStructure
from vrnet.fields.calculus import determinant, jacobian, scale, squared_norm
from vrnet.images.grid import Affine, Grid, fit_affine
from vrnet.registration.masks import inpaint
from vrnet.registration.pair import PairResult
from vrnet.verdict.placement import (
    MATCHED,
    NOISE,
    CoarseImage,
    LocalCorrelation,
    Range,
    best_of_shifts,
    compare_placements,
    gain,
    intensity_range,
    mutual_information,
    window_radius,
)

# Images averaged over blocks of voxels, so that the evidence on a brain takes a fraction of a second.

MAX_VOXELS = 150_000
"""Larger images are averaged over blocks first."""
POOL = {2: functional.avg_pool2d, 3: functional.avg_pool3d}
CONTEXT = 8
"""Shortest edges of a voxel that are kept about what is compared: windows and shifts reach no farther."""
Box = tuple[slice, ...]


def box_about(compared: Bool[ndarray, "*s"], spacing: tuple[float, ...]) -> Box:
    """The smallest box that holds what is compared, and its CONTEXT."""
    ends = ((int(places.min()), int(places.max()) + 1) for places in np.nonzero(compared))
    context = (ceil(CONTEXT * min(spacing) / h) for h in spacing)
    return tuple(slice(max(start - n, 0), stop + n) for (start, stop), n in zip(ends, context, strict=True))


def block_sides(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Sides, in voxels, of the blocks to average so that at most MAX_VOXELS are left, as near to cubes as can be."""
    shape_, side = np.array(shape), min(spacing)
    sides = np.ones(len(shape), int)
    while np.prod(-(-shape_ // sides)) > MAX_VOXELS:
        side *= 1.1
        sides = np.clip(np.round(side / np.array(spacing)).astype(int), 1, shape_)
    return tuple(sides.tolist())


def as_blocks(image: Shaped[ndarray, "c *s"], sides: tuple[int, ...]) -> Float[Tensor, "1 c *t"]:
    """Means over blocks, as a batch of one; the blocks at the end may be smaller."""
    whole = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))[None]
    if max(sides) == 1:
        return whole
    return POOL[len(sides)](whole, sides, ceil_mode=True, count_include_pad=False)


def filled_from(
    image: Float[ndarray, "*s"], compared: Bool[ndarray, "*s"] | None, spacing: tuple[float, ...]
) -> Float[ndarray, "*s"]:
    """The image where it is compared; elsewhere it goes on smoothly, so that windows and blocks show nothing else."""
    if compared is None:
        return image
    values, known = (torch.from_numpy(np.ascontiguousarray(part)) for part in (image, compared))
    return inpaint(values, known, spacing).numpy()


def most_of(part: Float[Tensor, "1 1 *t"]) -> Bool[Tensor, "1 1 *t"]:
    """The blocks of which more than half is compared; where there are none, as in a thin mask, those with any."""
    return part > 0.5 if (part > 0.5).any() else part > 0


# How much of fixed moving has, as it lay and through a field: by blocks of voxels, whose middles are looked at.

Inside = Callable[[Float[ndarray, "n d"]], Bool[ndarray, " n"]]
"""Says which points, in voxels of fixed, lie within moving."""


def in_shape(shape: tuple[int, ...]) -> Inside:
    """Whether points, in voxels, lie in an array of this shape."""
    return lambda index: np.asarray(((index > -0.5) & (index < np.array(shape) - 0.5)).all(1))


def covered(u: Float[Tensor, "1 d *t"], sides: tuple[int, ...], inside: Inside) -> tuple[Tensor, Tensor]:
    """Which blocks moving has, as it lay and through the field, which is in voxels."""
    place = block_centres(u.shape[2:], sides)
    return within_moving(place, inside), within_moving(place + u, inside)


def within_moving(points: Float[Tensor, "1 d *t"], inside: Inside) -> Bool[Tensor, "1 1 *t"]:
    """Which of the points, in voxels of fixed, moving has."""
    found = inside(points[0].flatten(1).T.double().numpy())
    return torch.from_numpy(found).view(1, 1, *points.shape[2:])


def block_centres(shape: tuple[int, ...], sides: tuple[int, ...]) -> Float[Tensor, "1 d *t"]:
    """Where the middles of the blocks are, in voxels."""
    axes = [(torch.arange(n, dtype=torch.float32) + 0.5) * side - 0.5 for n, side in zip(shape, sides, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]


def overlap_of(before: Tensor, after: Tensor) -> dict[str, float]:
    """How much of fixed moving has after the registration, and how much less than before."""
    parts = before.float().mean().item(), after.float().mean().item()
    return {"coverage": parts[1], "outside": max(parts[0] - parts[1], 0.0)}


REACH = 3
"""Voxels by which parts of the result are moved, to see whether they would fit better there."""
REST = 0.9
"""The part of an image that is not its brightest."""
LEAST_BEND = 1e-3
"""The stretch, and the motion beyond the nearest affine map, below which a field counts as affine."""
LEAST_DETERMINANT = 0.05
"""What a fold counts as, in the mean of log det."""


@dataclass(frozen=True)
class Evidence:
    """Measures of a registered pair on the grid of fixed. Parts are from 0 to 1."""

    local_before: float
    """Mean squared local correlation, weighted by the structure in fixed: contrast does not matter."""
    local_after: float
    information_before: float
    """Normalised mutual information."""
    information_after: float
    correlation_before: float
    """Correlation over the whole image: negative where the contrast is opposite."""
    unmatched: float
    """Part of the structure in fixed whose local correlation with warped is below one half."""
    blank: float
    """Part of the structure in fixed where warped shows none at all."""
    shift_gain: float
    """How much the local correlation would grow if every place were moved by up to three voxels."""
    range_ratio: float
    """The range of intensities (1st to 99th percentile) of the image with the wider one, over that of the other."""
    glare: float
    """How many times as far above the rest as in the other image the brightest tenth reaches: an artefact, if many."""
    offset: float
    """How far the middles of both ranges are apart, in units of the wider range."""
    stretch: float
    """Standard deviation of log det(I + ∇u): at 0.7, a typical place doubles or halves."""
    motion: float
    """The 99th percentile of |u|, less the affine map nearest to u, as a part of the longest side of the image."""
    coverage: float
    """Part of fixed whose partner lies within moving."""
    outside: float
    """Part of fixed that the motion carries out of moving."""
    folds_percent: float
    """Voxels with a fold, strictly."""
    coarse_found: float
    """Correlation of the coarse images, without its sign, through the affine map nearest to the field."""
    coarse_turned: float
    """The same if the whole of moving were turned and moved in the best way that was tried."""
    coarse_mirrored: float
    """The same if it were mirrored, too."""
    dice_before: float | None = None
    """Mean over the structures, where labels are given."""
    dice_after: float | None = None
    distance_before: float | None = None
    """Between the surfaces of the structures, in mm: mean over them, where labels are given."""
    distance_after: float | None = None
    fall: WorstStructure | None = None
    """The structure whose Dice fell most, or rose least, where labels are given."""
    voxels: float = inf
    """Those of fixed inside the masks, or all of them; of large images, blocks of voxels."""
    block_voxels: int = 1
    """How many voxels such a block has."""

    @property
    def compared(self) -> str:
        """What was compared, in words."""
        many, of = "" if self.voxels == 1 else "s", self.block_voxels
        return f"{self.voxels:.0f} " + (f"voxel{many}" if of == 1 else f"block{many} of {of} voxels")

    @property
    def gain(self) -> float:
        """The part of the missing local correlation that the registration found."""
        return (self.local_after - self.local_before) / max(1 - self.local_before, 1e-6)

    @property
    def is_affine(self) -> bool:
        """Whether the field is that of an affine map, but for what rounding adds."""
        return max(self.stretch, self.motion) < LEAST_BEND

    @property
    def placement_gain(self) -> float:
        """How much more alike the coarse images would be if the whole of moving lay otherwise, by Fisher's z."""
        return gain(max(self.coarse_turned, self.coarse_mirrored), self.coarse_found)


def gather(
    fixed: Real[ndarray, "*s"],
    moving: Real[ndarray, "*s"],
    warped: Real[ndarray, "*s"],
    field: Float[ndarray, "d *s"],
    spacing: tuple[float, ...],
    folds_percent: float,
    inside: Inside | None = None,
    compared: Bool[ndarray, "*s"] | None = None,
    dice: tuple[float, float] | None = None,
    distance: tuple[float, float] | None = None,
    started: Real[ndarray, "*s"] | None = None,
) -> Evidence:
    """The evidence of a pair on the grid of fixed, with moving as it was placed there before; field in voxels.

    Images are compared where `inside` has moving, or the grid of fixed; and where they are to be `compared`: what they
    show elsewhere has no influence. `dice` and `distance` are means over structures. `started` is
    moving as the affine start places it."""
    has, images = inside or in_shape(fixed.shape), [fixed, moving, warped, moving if started is None else started]
    whole = Blocks.of(images, field, spacing, has, compared)
    near = whole
    if compared is not None and max(whole.sides) > 1:
        box = box_about(compared, spacing)
        cut, first = [image[box] for image in images], np.array([part.start for part in box])
        near = Blocks.of(cut, field[(slice(None), *box)], spacing, lambda index: has(index + first), compared[box])
    placed = compare_placements(
        CoarseImage(whole.scaled[0], whole.chosen), CoarseImage(whole.scaled[3], whole.before), whole.u, whole.spacing
    )
    return Evidence(
        **near.likeness(),
        **near.intensities(),
        **overlap_of(whole.before, whole.after),
        **deformation(whole.u),
        **{f"coarse_{name}": value for name, value in asdict(placed).items()},
        fall=None,
        **(before_and_after("dice", dice) | before_and_after("distance", distance)),
        folds_percent=folds_percent,
        voxels=float(near.chosen.sum()),
        block_voxels=int(np.prod(near.sides)),
    )


@dataclass(frozen=True, eq=False)
class Blocks:
    """A registered pair, or what is compared of it and the box about that, by the means over blocks of voxels."""

    scaled: list[Float[Tensor, "1 1 *t"]]
    """Fixed, moving, warped, and moving as it started: each from 0 to 1 over its range."""
    ranges: tuple[Range, Range]
    """Of fixed and of moving, in their own intensities."""
    u: Float[Tensor, "1 d *t"]
    """In blocks."""
    before: Bool[Tensor, "1 1 *t"]
    """Where moving has the blocks of fixed, as it lay, and through the field."""
    after: Bool[Tensor, "1 1 *t"]
    chosen: Bool[Tensor, "1 1 *t"]
    """Where images are to be compared."""
    sides: tuple[int, ...]
    """Of a block, in voxels."""
    spacing: tuple[float, ...]
    """Of the blocks."""

    @classmethod
    def of(
        cls,
        images: Sequence[Real[ndarray, "*s"]],
        field: Float[ndarray, "d *s"],
        spacing: tuple[float, ...],
        inside: Inside,
        compared: Bool[ndarray, "*s"] | None,
    ) -> "Blocks":
        """The blocks of the images in the order of `scaled`, and of a field in voxels."""
        fixed, *others = images
        sides = block_sides(fixed.shape, spacing)
        whole, seen = (Range.of(part, compared) for part in ((fixed,), others))
        given = whole.apply(fixed), *map(seen.apply, others)
        I0, *rest = (as_blocks(filled_from(image, compared, spacing)[None], sides) for image in given)
        u = as_blocks(field, sides)
        before, after = covered(u, sides, inside)
        chosen = torch.ones_like(before) if compared is None else most_of(as_blocks(compared[None], sides))
        ranges = intensity_range(I0[chosen]), range_of_moving(rest[0][chosen], rest[1][chosen])
        return cls(
            scaled=[ranges[0].scale(I0), *map(ranges[1].scale, rest)],
            ranges=(ranges[0].within(whole), ranges[1].within(seen)),
            u=scale(u, tuple(1 / side for side in sides)),
            before=before,
            after=after,
            chosen=chosen,
            sides=sides,
            spacing=tuple(h * side for h, side in zip(spacing, sides, strict=True)),
        )

    def likeness(self) -> dict[str, float]:
        """How alike the images are where they are compared."""
        seen = self.before & self.chosen, self.after & self.chosen
        F, M, W, _ = self.scaled
        return likeness(F, M, W, *seen, window_radius(self.spacing))

    def intensities(self) -> dict[str, float]:
        """How far apart their intensities are there."""
        F, M, *_ = (image[self.chosen] for image in self.scaled)
        return {**intensities(*self.ranges), "glare": glare(F, M)}


def before_and_after(name: str, values: tuple[float, float] | None) -> dict[str, float]:
    """The two values under their names, if there are any."""
    return {} if values is None else {f"{name}_before": values[0], f"{name}_after": values[1]}


def likeness(
    F: Tensor, M: Tensor, W: Tensor, has_before: Tensor, has_after: Tensor, radius: tuple[int, ...]
) -> dict[str, float]:
    """How alike fixed (F) is to moving (M) and to warped (W), all in [0, 1]; what is unmatched; what shifts would gain.

    Each place of fixed, where moving has it, weighs as much as it shows structure: by the deviation of its window."""
    measure = LocalCorrelation(tuple(F.shape[2:]), radius)
    a, before, after = (measure.windows(image) for image in (F, M, W))
    structure = a.variance.sqrt() * (a.variance > NOISE)
    r2 = measure.squared(a, after)
    return {
        "local_before": mean_over(measure.squared(a, before), structure * has_before),
        "local_after": mean_over(r2, structure * has_after),
        "unmatched": mean_over(r2 < MATCHED, structure * has_after),
        "blank": mean_over(after.variance < NOISE, structure * has_after),
        "shift_gain": mean_over(best_of_shifts(measure, a, after, REACH) - r2, structure * has_after),
        "information_before": mutual_information(F, M, has_before),
        "information_after": mutual_information(F, W, has_after),
        "correlation_before": correlation(F[has_before], M[has_before]),
    }


def mean_over(values: Shaped[Tensor, "..."], weight: Float[Tensor, "..."]) -> float:
    """The weighted mean; 0 where nothing weighs."""
    return float((values * weight).double().sum() / weight.double().sum().clamp(min=1e-12))


def correlation(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    """The correlation of two lists of intensities; 0 if either is constant or empty."""
    found = normalised_cross_correlation(a.numpy(), b.numpy()) if len(a) else np.nan
    return 0.0 if np.isnan(found) else found


def range_of_moving(moving: Float[Tensor, " n"], warped: Float[Tensor, " n"]) -> Range:
    """The range of moving as it lay before; of warped, where headers put moving so that hardly any of it is seen."""
    before, after = intensity_range(moving), intensity_range(warped)
    return after if after.width > 2 * before.width else before


def intensities(fixed: Range, moving: Range) -> dict[str, float]:
    """How far apart the ranges of intensities of two images are: infinitely, where one of them is constant."""
    narrow, wide = sorted((fixed, moving), key=lambda each: each.width)
    ratio = inf if narrow.low == narrow.high and wide.low < wide.high else wide.width / narrow.width
    return {"range_ratio": ratio, "offset": abs(fixed.middle - moving.middle) / wide.width}


def glare(fixed: Float[Tensor, " n"], moving: Float[Tensor, " n"]) -> float:
    """The ratio, 1 or more, of the parts of their ranges that the images fill without their brightest tenths.

    1 where one shows little but an even ground: nothing is known then."""
    rest = [float(np.quantile(values.numpy(), REST)) for values in (fixed, moving)]
    return max(rest) / min(rest) if min(rest) > 0 else 1.0


def deformation(u: Float[Tensor, "1 d *s"]) -> dict[str, float]:
    """How much a field in voxels stretches, and how far it moves beyond what an affine map would."""
    det = determinant(jacobian(u)).clamp(min=LEAST_DETERMINANT)
    length = squared_norm(u - nearest_affine(u)).numpy()
    return {
        "stretch": float(det.log().std(correction=0)),
        "motion": float(np.quantile(length, 0.99)) ** 0.5 / max(u.shape[2:]),
    }


def nearest_affine(u: Float[Tensor, "1 d *s"]) -> Float[Tensor, "1 d *s"]:
    """The field A x + b, in voxels, nearest to u in the least-squares sense."""
    grid = Grid.plain(tuple(u.shape[2:]), (1.0,) * u.shape[1])
    places = np.indices(grid.shape).reshape(u.shape[1], -1).T.astype(np.float64)
    moved = fit_affine(u[0].double().numpy(), grid).points(places) - places
    return torch.from_numpy(moved.T.reshape(u.shape)).float()


def evidence_of(
    result: PairResult,
    dice: tuple[float, float] | None = None,
    distance: tuple[float, float] | None = None,
    fall: WorstStructure | None = None,
) -> Evidence:
    """The grounds of the verdict of a registered pair, by what the field does beyond an affine start; where there are
    labels, with the means over the structures of Dice and surface distance, before and after, and the structure whose
    Dice fell most."""
    found = gather(
        result.fixed.array,
        result.placed,
        result.seen_warped,
        result.deformation,
        result.grid.spacing,
        result.regularity["folding_strict_percent"],
        inside(result.moving.grid, result.grid, result.affine),
        result.compared,
        dice,
        distance,
        result.started,
    )
    return replace(found, fall=fall)


def inside(own: Grid, grid: Grid, affine: Affine | None = None) -> Inside:
    """Says which points, in voxels of a grid, lie, or are taken by an affine map, within an image of its own grid."""
    place = affine.points if affine else (lambda points: points)
    return lambda index: in_shape(own.shape)(own.index(place(grid.points(index))))
