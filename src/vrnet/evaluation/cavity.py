"""Muscle where the tracked cavity should hold blood: where too little motion was found, the outline of the cavity stays
behind in the muscle that comes in."""

import numpy as np
from jaxtyping import Bool, Integer, Shaped
from numpy import ndarray

from vrnet.evaluation.wall import HeartLabels

BRIGHT_PERCENTILE = 90
"""Of the cavity: blood, whatever part of it the papillary muscles fill."""
LEAST_VOXELS = 20
"""Of the wall, and of the cavity, in a slice: fewer do not tell how bright they are."""


def muscle_in_cavity(
    frames: Shaped[ndarray, "t *s"],
    labels: Integer[ndarray, "t *s"],
    heart: HeartLabels,
    reference: int,
    across: int | None = None,
) -> float | None:
    """How much more of the cavity looks like muscle than in the reference, in the frame where that is most; None where
    wall and cavity are not both labelled.

    The papillary muscles look so too, and fill more of a smaller cavity: it is not 0 of a perfect motion. `across` is
    the axis of s across which slices lie: each has its own brightness, and counts by the size of its cavity."""
    images, maps = (slices_first(array, across) for array in (frames, labels))
    wall, cavity = maps == heart.wall, maps == heart.lv
    shown = [enough(wall[reference, k]) and enough(cavity[reference, k]) for k in range(maps.shape[1])]
    if not any(shown):
        return None
    images, wall, cavity = (np.asarray(array)[:, shown] for array in (images, wall, cavity))
    if np.median(images[reference][cavity[reference]]) < np.median(images[reference][wall[reference]]):
        images = -images.astype(float)  # dark blood
    places = np.ndindex(images.shape[:2])
    parts = np.reshape([part_like_muscle(images[at], wall[at], cavity[at]) for at in places], images.shape[:2])
    sizes = cavity.reshape(*parts.shape, -1).sum(2) * np.isfinite(parts)
    rises = (np.nan_to_num(parts - parts[reference]) * sizes).sum(1) / np.maximum(sizes.sum(1), 1)
    return float(rises.max())


def slices_first(array: Shaped[ndarray, "t *s"], across: int | None) -> Shaped[ndarray, "t k *p"]:
    """Frames, slices, and what is within them; without an axis across slices, one slice is all."""
    return array[:, None] if across is None else np.moveaxis(array, 1 + across, 1)


def enough(mask: Bool[ndarray, "*p"]) -> bool:
    return int(mask.sum()) >= LEAST_VOXELS


def part_like_muscle(image: Shaped[ndarray, "*p"], wall: Bool[ndarray, "*p"], cavity: Bool[ndarray, "*p"]) -> float:
    """The part of the cavity that is darker than half-way from the wall to blood; NaN where too little is labelled."""
    if not (enough(wall) and enough(cavity)):
        return np.nan
    inside = image[cavity]
    half_way = (np.median(image[wall]) + np.percentile(inside, BRIGHT_PERCENTILE)) / 2
    return float((inside < half_way).mean())
