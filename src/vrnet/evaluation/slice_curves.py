"""What becomes of each slice of a tracked cine: the areas of cavity and wall, strain, and muscle in the cavity."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from jaxtyping import Float, Integer
from numpy import ndarray

from vrnet.evaluation.cavity import CavityMuscle, slices_first
from vrnet.evaluation.strain import Strain
from vrnet.evaluation.wall import HeartLabels


@dataclass(frozen=True)
class SliceCurves:
    """Curves over the frames of a cycle in every slice, k, whose wall or cavity the reference shows; NaN where nothing
    is measured."""

    slices: tuple[int, ...]
    """Counted as in the array."""
    cavity_mm2: Float[ndarray, "k t"]
    wall_mm2: Float[ndarray, "k t"]
    circumferential_percent: Float[ndarray, "k t"]
    """Green strain as the measure "green_circumferential" of the wall in this slice; radial strain likewise."""
    radial_percent: Float[ndarray, "k t"]
    muscle_percent: Float[ndarray, "k t"]
    """Of the cavity: see `vrnet.evaluation.cavity.CavityMuscle`."""


def slice_curves(
    labels: Integer[ndarray, "t *s"],
    spacing: tuple[float, ...],
    heart: HeartLabels,
    reference: int,
    across: int | None,
    strain: Strain | None,
    muscle: CavityMuscle | None,
) -> SliceCurves:
    """The curves of slices across an axis of s; without one, s is one slice. The spacing is in mm."""
    maps = slices_first(labels, across)
    voxel_mm2 = prod(h for axis, h in enumerate(spacing) if axis != across)
    wall, cavity = (area_mm2(maps, part, voxel_mm2) for part in (heart.wall, heart.lv))
    shown = np.flatnonzero(np.nan_to_num(wall)[:, reference] + np.nan_to_num(cavity)[:, reference])
    missing = np.full(wall.shape[1], np.nan)

    def placed(known: Mapping[int, Float[ndarray, " t"]]) -> Float[ndarray, "k t"]:
        return np.array([known.get(int(k), missing) for k in shown]).reshape(len(shown), len(missing))

    return SliceCurves(
        tuple(shown.tolist()),
        cavity[shown],
        wall[shown],
        circumferential_percent=placed({} if strain is None else strain.of_slices("green_circumferential")),
        radial_percent=placed({} if strain is None else strain.of_slices("green_radial")),
        muscle_percent=100 * placed({} if muscle is None else dict(zip(muscle.slices, muscle.by_slice, strict=True))),
    )


def area_mm2(maps: Integer[ndarray, "t k *p"], part: int | None, voxel_mm2: float) -> Float[ndarray, "k t"]:
    """The area of a part of the heart in every slice and frame; NaN of one that is not labelled."""
    found = voxel_mm2 * (maps == part).sum((2, 3)).T.astype(float)
    return found if found.any() else np.full_like(found, np.nan)
