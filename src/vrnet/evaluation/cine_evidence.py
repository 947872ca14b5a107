"""What a tracked cine is judged by: its frames as pairs, its chains, and what the wall and the cavity do, as a whole
and in each slice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.aha import LEVELS
from vrnet.evaluation.cavity import CavityMuscle
from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.slice_curves import SliceCurves
from vrnet.evaluation.strain import Strain
from vrnet.evaluation.volumes import Volumes

LEAST_FRAMES = 15
"""Of fewer frames, hearts move unevenly from one to the next."""

MOVING_PART = 0.05
"""Slices that move less than this part of what the most mobile one does count as still: one that shows something else
for a while may seem to move ten times as far as the others."""


class Extreme(NamedTuple):
    """The most that something does over a cycle, and where that is; frames and slices are counted as in the array."""

    value: float = -inf
    """-inf where nothing is measured."""
    frame: int | None = None
    slice: int | None = None
    """None of what is not of one slice."""
    wall_level: str = ""
    """One of LEVELS, of what is measured by level of the wall."""


NOTHING = Extreme()


@dataclass(frozen=True)
class HeartExtremes:
    """The most that a heart does over a cycle, as parts of what it is in the reference; NOTHING without its labels."""

    unevenness: Extreme = NOTHING
    """See `unevenness`."""
    wall_change: Extreme = NOTHING
    """How much the wall changes its volume, or its area in a slice, either way."""
    muscle_in_cavity: Extreme = NOTHING
    """See `vrnet.evaluation.cavity.CavityMuscle`."""
    shortening: Extreme = NOTHING
    """How far the circumferential Green strain, the mean over the wall, falls."""
    thickening: Extreme = NOTHING
    """How far the radial Green strain, the mean over the wall, rises."""
    unmatched: Extreme = NOTHING
    """Of a slice alone, as the next: see `vrnet.evaluation.slice_likeness`. Of the whole, frames as pairs tell it."""
    stillness: Extreme = NOTHING
    """See `slice_stillness`."""


def extremes_of_whole(
    fields: Float[ndarray, "t d *s"],
    weight: Float[ndarray, "*s"],
    volumes: Volumes | None,
    strain: Strain | None,
    muscle: CavityMuscle | None,
) -> HeartExtremes:
    """Those of all slices together, of a motion under a weight and what was measured."""
    found = HeartExtremes(unevenness(fields, weight))
    if volumes is not None:
        found = replace(found, wall_change=largest(change(volumes.wall_ml, volumes.reference)))
    if muscle is not None:
        found = replace(found, muscle_in_cavity=largest(muscle.whole))
    if strain is not None:
        circumferential, radial = (strain.curve(name) / 100 for name in ("green_circumferential", "green_radial"))
        found = replace(found, shortening=largest(-circumferential), thickening=largest(radial))
    return found


def extremes_of_slices(
    fields: Float[ndarray, "t d *s"],
    weight: Float[ndarray, "*s"],
    axis: int,
    curves: SliceCurves | None,
    reference: int,
    unmatched: Mapping[int, Float[ndarray, " z"]],
) -> tuple[HeartExtremes, ...]:
    """Those of each slice across an axis that has weight; what {frame: unmatched part of each slice} tells is of all of
    them, the rest of those whose wall is a ring."""
    shown = np.flatnonzero(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1).any(1)).tolist()
    of_rings = {} if curves is None else extremes_of_rings(fields, weight, axis, curves, reference)
    return tuple(
        replace(
            of_rings.get(k, HeartExtremes()),
            unmatched=largest_of_frames({t: part[k] for t, part in unmatched.items()}, k),
        )
        for k in shown
    )


def extremes_of_rings(
    fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"], axis: int, curves: SliceCurves, reference: int
) -> dict[int, HeartExtremes]:
    """What the motion and the curves tell of each slice whose wall is a ring."""
    rows = {k: row for row, k in enumerate(curves.slices) if not np.isnan(curves.radial_percent[row, reference])}
    uneven, still = slice_unevenness(fields, weight, axis), slice_stillness(fields, weight, axis, [*rows])
    parts = (
        change(curves.wall_mm2, reference),
        curves.muscle_percent / 100,
        -curves.circumferential_percent / 100,
        curves.radial_percent / 100,
    )
    found = {k: HeartExtremes(uneven[k], *(largest(part[row], k) for part in parts)) for k, row in rows.items()}
    return {k: replace(each, stillness=still[k]) for k, each in found.items()}


@dataclass(frozen=True)
class SixthExtremes:
    """The most that any sixth of the wall at a level does over a cycle."""

    lengthening: Extreme
    """How much longer its middle becomes."""
    area_change: Extreme
    """How much its area changes, either way."""

    @classmethod
    def of(cls, strain: Strain) -> "SixthExtremes":
        """The extremes of what was measured."""
        middle, area = strain.sixths / 100
        return cls(largest_of_levels(middle), largest_of_levels(np.abs(area)))


def change(size: Float[ndarray, "*k t"], reference: int) -> Float[ndarray, "*k t"]:
    """By which part sizes change from the reference, either way; NaN where there is nothing in it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = np.abs(size / size[..., [reference]] - 1)
    return np.where(size[..., [reference]] > 0, parts, np.nan)


def largest(curve: Float[ndarray, " t"], of_slice: int | None = None) -> Extreme:
    """The largest value of a curve, and its frame; NaN was not measured."""
    if np.isnan(curve).all():
        return NOTHING
    t = int(np.nanargmax(curve))
    return Extreme(float(curve[t]), t, of_slice)


def largest_of_frames(values: Mapping[int, float], of_slice: int) -> Extreme:
    """The largest of {frame: value} in a slice."""
    t = max(values, key=lambda k: values[k], default=None)
    return NOTHING if t is None else Extreme(float(values[t]), t, of_slice)


def largest_of_levels(values: Float[ndarray, "level p t"]) -> Extreme:
    """The largest value, and its level; NaN is a level that no slice shows."""
    level, sixth, frame = map(int, np.unravel_index(int(np.nanargmax(values)), values.shape))
    return Extreme(float(values[level, sixth, frame]), frame, wall_level=LEVELS[level])


@dataclass(frozen=True)
class CineEvidence:
    """Measures of a tracked cine."""

    frames: tuple[tuple[int, Evidence], ...]
    """(number, evidence as of a pair: the reference, and this frame) of every frame but the reference."""
    closure_mm: float
    """The larger of both chains': see `vrnet.app.tracking.CLOSURE`."""
    whole: HeartExtremes = HeartExtremes()
    """Of all slices together."""
    slices: tuple[HeartExtremes, ...] = ()
    """Of each slice; none of a cine of one slice, nor of volumes, which move through theirs."""
    sixths: SixthExtremes | None = None
    """None where no strain is measured."""


def unevenness(fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"], least: float = 0.0) -> Extreme:
    """The largest |u_(t-1) − 2 u_t + u_(t+1)| round the cycle over the largest |u_t|: means under a weight.

    Of a motion a sin(2πt/n) it is 4 sin²(π/n), which is small where frames are many. A motion that is smaller than
    `least`, in voxels, is compared with that."""
    if len(fields) < LEAST_FRAMES:
        return Extreme(0.0)
    n, whole = len(fields), max(largest_motion(fields, weight), least)
    bends = [mean_length(fields[k - 1] - 2 * fields[k] + fields[(k + 1) % n], weight) for k in range(n)]
    return Extreme(max(bends) / whole if whole else 0.0, int(np.argmax(bends)))


def slice_unevenness(fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"], axis: int) -> dict[int, Extreme]:
    """The unevenness of each slice across an axis of s that has weight. One that hardly moves, as the apex, is compared
    with the motion of all."""
    whole = largest_motion(fields, weight)
    motions, weights = np.moveaxis(fields, 2 + axis, 0), np.moveaxis(weight, axis, 0)
    shown = [k for k in range(len(weights)) if weights[k].any()]
    return {k: unevenness(motions[k], weights[k], whole)._replace(slice=k) for k in shown}


def slice_stillness(
    fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"], axis: int, slices: list[int]
) -> dict[int, Extreme]:
    """1 − m_k / M of these slices across an axis of s: m_k is the largest motion of slice k over the frames, M the
    median of those that move, so that more than half of the slices may be still. The frame is that where they have
    moved farthest; nothing is found where none moves."""
    motions, weights = np.moveaxis(fields, 2 + axis, 0), np.moveaxis(weight, axis, 0)
    lengths = {k: np.array([mean_length(u, weights[k]) for u in motions[k]]) for k in slices}
    if not any(length.any() for length in lengths.values()):
        return dict.fromkeys(slices, NOTHING)
    most = max(length.max() for length in lengths.values())
    moving = np.stack([length for length in lengths.values() if length.max() >= MOVING_PART * most])
    typical, frame = float(np.median(moving.max(1))), int(np.median(moving, 0).argmax())
    return {k: Extreme(1 - float(length.max()) / typical, frame, k) for k, length in lengths.items()}


def largest_motion(fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"]) -> float:
    """The largest mean length of the motion over the frames."""
    return max(mean_length(u, weight) for u in fields)


def mean_length(u: Float[ndarray, "d *s"], weight: Float[ndarray, "*s"]) -> float:
    """The mean length of a motion under a weight."""
    return float((np.linalg.norm(u, axis=0) * weight).sum() / weight.sum())
