"""V = Σ A_k h over the slices of a stack: volumes of the ventricles, with the distance h of slices (Simpson's rule)."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, nan, prod

import numpy as np
from jaxtyping import Float, Integer
from numpy import ndarray

from vrnet.evaluation.wall import HeartLabels
from vrnet.wording import numbered

MYOCARDIUM_G_PER_ML = 1.05


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
        """100 (largest − smallest) / largest volume of the RV over the cycle; NaN without an RV."""
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


def open_wall_text(slices: Iterable[int]) -> str:
    """What is said of slices whose wall does not close."""
    said = "the wall does not close: volumes and the ejection fraction lack the cavity there"
    return f"in {numbered('slice', slices)} {said}"


def known_ml(volume: Float[ndarray, " t"]) -> Float[ndarray, " t"]:
    """The volume of a structure; NaN where no frame has a label of it, since nothing was measured then."""
    return volume if volume.any() else np.full_like(volume, np.nan, dtype=float)


def ejection_fraction_percent(volume: Float[ndarray, " t"]) -> float:
    """100 (largest − smallest) / largest volume; NaN if there is none."""
    return float(100 * (1 - volume.min() / volume.max())) if volume.max() > 0 else np.nan


def volumes(
    labels: Integer[ndarray, "t *s"],
    spacing: tuple[float, ...],
    reference: int = 0,
    heart: HeartLabels | None = None,
) -> Volumes:
    """Volumes of the label map of every frame; the spacing, in mm, is that between slices too."""
    heart = heart or HeartLabels()
    voxel_ml = prod(spacing) / 1000
    counts = (
        (labels == value).sum(tuple(range(1, labels.ndim))) * voxel_ml for value in (heart.lv, heart.rv, heart.wall)
    )
    lv, rv, wall = counts
    return Volumes(lv, rv, wall, reference)
