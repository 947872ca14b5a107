"""Muscle where the tracked cavity should hold blood: where too little motion was found, the outline of the cavity stays
behind in the muscle that comes in."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from numpy import ndarray

from vrnet.evaluation.wall import HeartLabels

BRIGHT_PERCENTILE = 90
"""Of the cavity: blood, whatever part of it the papillary muscles fill."""
LEAST_VOXELS = 20
"""Of the wall, and of the cavity, in a slice: fewer do not tell how bright they are."""


@dataclass(frozen=True)
class CavityMuscle:
    """How much more of the cavity looks like muscle than in the reference, as a part of it, in every slice and frame.

    The papillary muscles look so too, and fill more of a smaller cavity: it is not 0 of a perfect motion."""

    slices: tuple[int, ...]
    """Those, counted as in the array, whose wall and cavity are large enough in the reference."""
    by_slice: Float[ndarray, "k t"]
    """NaN where a cavity has become too small to tell."""
    voxels: Float[ndarray, "k t"]
    """Of each cavity that is large enough."""

    @property
    def whole(self) -> Float[ndarray, " t"]:
        """Of all slices together, each by the size of its cavity."""
        return np.nansum(self.by_slice * self.voxels, 0) / np.maximum(self.voxels.sum(0), 1)


def muscle_in_cavity(
    frames: Shaped[ndarray, "t *s"],
    labels: Integer[ndarray, "t *s"],
    heart: HeartLabels,
    reference: int,
    across: int | None = None,
) -> CavityMuscle | None:
    """The muscle in the cavity of a tracked cine; None where no slice has both wall and cavity.

    `across` is the axis of s across which slices lie: each has its own brightness."""
    images, maps = (slices_first(array, across) for array in (frames, labels))
    known = maps[reference]
    shown = [k for k in range(len(known)) if enough(known[k] == heart.wall) and enough(known[k] == heart.lv)]
    if not shown:
        return None
    sign = -1.0 if is_dark(images[reference], known, heart) else 1.0
    parts = np.array(
        [[like_muscle(image[k], map_[k], heart, sign) for image, map_ in zip(images, maps, strict=True)] for k in shown]
    )
    like, voxels = parts[..., 0], parts[..., 1]
    return CavityMuscle(tuple(shown), np.where(voxels > 0, like - like[:, [reference]], np.nan), voxels)


def slices_first(array: Shaped[ndarray, "t *s"], across: int | None) -> Shaped[ndarray, "t k *p"]:
    """Frames, slices, and what is within them; without an axis across slices, one slice is all."""
    return array[:, None] if across is None else np.moveaxis(array, 1 + across, 1)


def enough(mask: Bool[ndarray, "*p"]) -> bool:
    return int(mask.sum()) >= LEAST_VOXELS


def is_dark(image: Shaped[ndarray, "*s"], labels: Integer[ndarray, "*s"], heart: HeartLabels) -> bool:
    """Whether blood is darker than muscle."""
    return bool(np.median(image[labels == heart.lv]) < np.median(image[labels == heart.wall]))


def like_muscle(
    image: Shaped[ndarray, "*p"], labels: Integer[ndarray, "*p"], heart: HeartLabels, sign: float
) -> tuple[float, float]:
    """The part of a slice's cavity that is no brighter than half-way from the wall to blood, and the voxels of the
    cavity: none where too little is labelled to tell."""
    wall, cavity = (sign * image[labels == label].astype(float) for label in (heart.wall, heart.lv))
    if min(len(wall), len(cavity)) < LEAST_VOXELS:
        return 0.0, 0.0
    half_way = (np.median(wall) + np.percentile(cavity, BRIGHT_PERCENTILE)) / 2
    return float((cavity <= half_way).mean()), float(len(cavity))
