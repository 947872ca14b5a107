"""V = Σ A_k h over the slices of a stack: volumes of the ventricles, with the distance h of slices (Simpson's rule)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan, prod
from typing import Any

import numpy as np
from jaxtyping import Float, Integer, Shaped
from numpy import ndarray

from vrnet.cardiac.strain import Strain
from vrnet.cardiac.wall import HeartLabels
from vrnet.errors import numbered

MYOCARDIUM_G_PER_ML = 1.05
VOLUME_DEFINITION = (
    "voxels of the labels brought to each frame, times their volume (Simpson's rule); ejection "
    "fraction: 100 (largest - smallest) / largest volume of the cycle; mass: 1.05 g per ml of the reference's wall"
)


@dataclass(frozen=True)
class Volumes:
    """Volumes at every frame, in ml; a single slice counts as 1 mm thick. Structures without a label have 0."""

    lv_ml: Float[ndarray, " t"]
    rv_ml: Float[ndarray, " t"]
    wall_ml: Float[ndarray, " t"]
    reference: int
    open_slices: tuple[int, ...] = ()
    """Those whose wall does not close, and that have no cavity to count."""

    @property
    def lv_ejection_fraction_percent(self) -> float:
        """100 (largest − smallest) / largest volume of the LV over the cycle; NaN without an LV."""
        return ejection_fraction_percent(self.lv_ml)

    @property
    def rv_ejection_fraction_percent(self) -> float:
        return ejection_fraction_percent(self.rv_ml)

    @property
    def ejection_fractions_percent(self) -> dict[str, float]:
        """{ventricle: ejection fraction} of those that are labelled; of the LV, NaN, where none is."""
        found = {"LV": self.lv_ejection_fraction_percent, "RV": self.rv_ejection_fraction_percent}
        return {name: value for name, value in found.items() if isfinite(value)} or {"LV": nan}

    @property
    def mass_g(self) -> float:
        """Mass of the LV's wall in the reference frame, whose labels were given: 1.05 g per ml; NaN without a wall."""
        return float(MYOCARDIUM_G_PER_ML * known_ml(self.wall_ml)[self.reference])

    def as_json(self) -> dict[str, Any]:
        """Ejection fractions, volumes and mass, with what they mean; of what is not labelled, NaN."""
        lv = known_ml(self.lv_ml)
        return {
            "definition": VOLUME_DEFINITION,
            "lv_ejection_fraction_percent": self.lv_ejection_fraction_percent,
            "rv_ejection_fraction_percent": self.rv_ejection_fraction_percent,
            "lv_largest_ml": lv.max(),
            "lv_smallest_ml": lv.min(),
            "mass_g": self.mass_g,
            "slices_whose_wall_is_open": self.open_slices,
        }


def open_wall_text(slices: Iterable[int]) -> str:
    said = "the wall does not close: volumes and the ejection fraction lack the cavity there"
    return f"in {numbered('slice', slices)} {said}"


def known_ml(volume: Float[ndarray, " t"]) -> Float[ndarray, " t"]:
    """The volume of a structure; NaN where no frame has a label of it, since nothing was measured then."""
    return volume if volume.any() else np.full_like(volume, np.nan, dtype=float)


def ejection_fraction_percent(volume: Float[ndarray, " t"]) -> float:
    return float(100 * (1 - volume.min() / volume.max())) if volume.max() > 0 else np.nan


def volumes(
    labels: Integer[ndarray, "t *s"],
    spacing: tuple[float, ...],
    reference: int = 0,
    heart: HeartLabels | None = None,
    open_slices: tuple[int, ...] = (),
) -> Volumes:
    """Volumes of the label map of every frame; the spacing, in mm, is that between slices too."""
    heart, axes = heart or HeartLabels(), tuple(range(1, labels.ndim))
    voxel_ml = prod(spacing) / 1000
    lv, rv, wall = ((labels == value).sum(axes) * voxel_ml for value in (heart.lv, heart.rv, heart.wall))
    return Volumes(lv, rv, wall, reference, open_slices)


# Muscle where the tracked cavity should hold blood: where too little motion was found, the outline of the cavity stays
# behind in the muscle that comes in.

BRIGHT_PERCENTILE = 90  # of the cavity: blood, whatever part of it the papillary muscles fill
LEAST_VOXELS = 20  # of the wall, and of the cavity, in a slice: fewer do not tell how bright they are


@dataclass(frozen=True)
class CavityMuscle:
    """How much more of the cavity than in the reference is no brighter than half-way from wall to blood, as a part of
    it: not 0 of a perfect motion, since papillary muscles look so too, and fill more of a smaller cavity."""

    slices: tuple[int, ...]  # those, counted as in the array, whose wall and cavity are large enough in the reference
    by_slice: Float[ndarray, "k t"]  # NaN where a cavity has become too small to tell
    voxels: Float[ndarray, "k t"]  # of each cavity that is large enough

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
    """The muscle in the cavity of a tracked cine; slices across an axis of s have their own brightness."""
    images, maps = (slices_first(array, across) for array in (frames, labels))
    image, known = images[reference], maps[reference]
    sizes = np.minimum(*((known == part).reshape(len(known), -1).sum(1) for part in (heart.wall, heart.lv)))
    shown = np.flatnonzero(sizes >= LEAST_VOXELS).tolist()
    if not shown:
        return None
    is_dark = np.median(image[known == heart.lv]) < np.median(image[known == heart.wall])
    like, voxels = np.zeros((2, len(shown), len(images)))
    for t, (image, map_) in enumerate(zip((-1.0 if is_dark else 1.0) * images.astype(float), maps, strict=True)):
        for row, k in enumerate(shown):
            wall, cavity = (image[k][map_[k] == label] for label in (heart.wall, heart.lv))
            if min(len(wall), len(cavity)) >= LEAST_VOXELS:
                half_way = (np.median(wall) + np.percentile(cavity, BRIGHT_PERCENTILE)) / 2
                like[row, t], voxels[row, t] = (cavity <= half_way).mean(), len(cavity)
    return CavityMuscle(tuple(shown), np.where(voxels > 0, like - like[:, [reference]], np.nan), voxels)


def slices_first(array: Shaped[ndarray, "t *s"], across: int | None) -> Shaped[ndarray, "t k *p"]:
    """Frames, slices, and what is within them; without an axis across slices, one slice is all."""
    return array[:, None] if across is None else np.moveaxis(array, 1 + across, 1)


@dataclass(frozen=True)
class SliceCurves:
    """Curves of every slice, k, whose wall or cavity the reference shows, as in slices.csv; NaN is not measured."""

    slices: tuple[int, ...]  # counted as in the array
    cavity_mm2: Float[ndarray, "k t"]
    wall_mm2: Float[ndarray, "k t"]
    green_circumferential_percent: Float[ndarray, "k t"]
    green_radial_percent: Float[ndarray, "k t"]
    muscle_in_cavity_percent: Float[ndarray, "k t"]  # of the cavity: see `CavityMuscle`
    rotation_deg: Float[ndarray, "k t"]


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
    wall, cavity = (voxel_mm2 * (maps == part).sum((2, 3)).T.astype(float) for part in (heart.wall, heart.lv))
    shown, missing = np.flatnonzero((wall + cavity)[:, reference]), np.full(wall.shape[1], np.nan)
    for area in (wall, cavity):
        if not area.any():  # it is not labelled
            area[:] = np.nan

    def placed(known: Mapping[int, Float[ndarray, " t"]]) -> Float[ndarray, "k t"]:
        return np.array([known.get(int(k), missing) for k in shown]).reshape(len(shown), len(missing))

    around, away = (
        placed(dict(zip(strain.slices, strain.by_slice[:, number], strict=True)) if strain else {})
        for number in (0, 1)  # Green's, circumferential and radial
    )
    turned = placed(dict(zip(strain.slices, strain.rotation_deg, strict=True)) if strain else {})
    like_muscle = dict(zip(muscle.slices, muscle.by_slice, strict=True)) if muscle else {}
    return SliceCurves(
        tuple(shown.tolist()), cavity[shown], wall[shown], around, away, 100 * placed(like_muscle), turned
    )
