"""EF = 100 (V_ED − V_ES) / V_ED of a pair of images, as two phases of one heart; the larger LV is end-diastole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vrnet.cardiac.labels import heart_of, named_parts, open_slices
from vrnet.cardiac.volumes import MYOCARDIUM_G_PER_ML, open_wall_text, volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import LabelNames, in_planes, label_in_cavity
from vrnet.errors import numbered
from vrnet.images.image import Image
from vrnet.registration.pair import PairResult

if TYPE_CHECKING:
    from vrnet.cardiac.anatomy import Level, Segmentation

PHASES = "fixed", "moving"
LEVELS: "tuple[Level, ...]" = ("good", "look", "failed")
MAX_SLICES_LOST = 1
"""If a network finds the LV in fewer slices of one phase, by more than these, the base may end in the wrong one."""


@dataclass(frozen=True, repr=False, eq=False)
class Heart:
    """The ventricles in both images of a pair, by the labels of each on its own grid."""

    source: Literal["given labels", "network"]
    sizes: Mapping[str, tuple[float, float]]
    """Of LV, RV and wall in fixed and moving, in ml; of one slice, in cm²; NaN of what has no label."""
    is_flat: bool
    """Whether one slice is all there is: that has areas, and no ejection fraction or mass."""
    lv_slices: tuple[int, int]
    """In how many slices of fixed and moving the LV is labelled."""
    notes: tuple[str, ...] = ()
    """What the numbers leave out."""
    level: "Level | None" = None
    """Of a network: good; look: check the outlines first; failed: there are no numbers."""
    reasons: tuple[str, ...] = ()
    outlines: "tuple[Segmentation, ...]" = ()
    """What the network found in fixed and moving."""

    def __repr__(self) -> str:
        told = "failed" if self.level == "failed" else self.fractions_percent
        return f"Heart(by {self.source}, {told})"

    @property
    def end_diastole(self) -> int:
        """0 if it is fixed, 1 if it is moving."""
        known = next((pair for pair in self.sizes.values() if not isnan(pair[0])), (nan, nan))
        return int(known[1] > known[0])

    @property
    def fractions_percent(self) -> dict[str, float]:
        """{ventricle: 100 (ED − ES) / ED}, of volumes the ejection fraction, of areas the fractional area change."""
        ed, pairs = self.end_diastole, {name: self.sizes.get(name, (nan, nan)) for name in ("LV", "RV")}
        return {name: 100 * (1 - pair[1 - ed] / pair[ed]) if all(pair) else nan for name, pair in pairs.items()}

    @property
    def mass_g(self) -> float:
        """Of the LV's wall at end-diastole, 1.05 g per ml; NaN of one slice."""
        return nan if self.is_flat else MYOCARDIUM_G_PER_ML * self.sizes.get("wall", (nan, nan))[self.end_diastole]

    def as_json(self) -> dict[str, Any]:
        """What metrics.json holds; of what has no label, NaN."""
        told: dict[str, Any] = {"source": self.source}
        if self.level is not None:
            told |= {"level": self.level, "reasons": list(self.reasons)}
        if self.level == "failed":
            return told
        unit = "cm2" if self.is_flat else "ml"
        told["end_diastole"] = PHASES[self.end_diastole]
        for name, pair in self.sizes.items():
            told[f"{name.lower()}_{unit}"] = dict(zip(PHASES, pair, strict=True))
        told["area_change_percent" if self.is_flat else "ef_percent"] = self.fractions_percent
        return told | ({} if self.is_flat else {"mass_g": self.mass_g}) | {"notes": list(self.notes)}


def find_heart(result: PairResult) -> Heart | None:
    """The heart in the images of a pair: by the labels of both, if they are those of a heart; of images without, by
    the network, slice by slice. None where labels or images are of another kind."""
    if result.unit != "mm":
        return None
    if result.fixed_labels is not None and result.moving_labels is not None:
        maps = result.fixed_labels, result.moving_labels
        meaning = read_meaning(maps, result.label_names)
        return None if meaning is None else measure_heart(maps, meaning)
    images = result.fixed, result.moving
    if any(image.grid.is_volume for image in images):
        return None
    from vrnet.cardiac.anatomy import segment

    found = tuple(segment(image, device=result.options.device) for image in images)
    heart = measure_heart([image.with_array(one.labels) for image, one in zip(images, found, strict=True)])
    level = max((one.level for one in found), key=LEVELS.index)
    reasons = [f"{name}: {why}" for name, one in zip(PHASES, found, strict=True) for why in one.reasons]
    first, second = heart.lv_slices
    if level != "failed" and abs(first - second) > MAX_SLICES_LOST:
        level = "look"
        reasons.append(f"The LV was found in {first} slices of fixed and {second} of moving: check its base and apex.")
    unsure = (
        f"no labels in {numbered('slice', one.unsure)} of {name}, of which the network is unsure"
        for name, one in zip(PHASES, found, strict=True)
        if one.unsure
    )
    notes = (*heart.notes, *unsure)
    return replace(heart, source="network", notes=notes, level=level, reasons=tuple(reasons), outlines=found)


def read_meaning(maps: Sequence[Image], names: LabelNames) -> HeartLabels | None:
    """Which labels are the parts of a heart: those that are called so; else as in ACDC, if nothing but 1, 2 and 3 is
    there, and 2 goes round 3. None if they are of something else."""
    there = [{*np.unique(labels.array).tolist()} for labels in maps]
    if names:
        parts = {part for part, label in named_parts(names) if all(label in labels for labels in there)}
        return heart_of(names) if "lv" in parts else None
    is_like_acdc = all({0, 2, 3} <= labels <= {0, 1, 2, 3} for labels in there)
    return HeartLabels() if is_like_acdc and label_in_cavity(maps, 2, (1, 3)) == 3 else None


def measure_heart(maps: Sequence[Image], meaning: HeartLabels | None = None) -> Heart:
    """Sizes by the label maps of two images, and what they leave out."""
    meaning = meaning or HeartLabels()
    is_flat = all(len(labels.grid.shape) == 2 or 1 in labels.grid.shape for labels in maps)
    sizes, slices, cut_off, notes = [], [], [], []
    for name, labels in zip(PHASES, maps, strict=True):
        across = labels.grid.across if len(labels.grid.shape) == 3 else None
        edges = [1.0 if is_flat and axis == across else h for axis, h in enumerate(labels.grid.spacing)]
        found = volumes(labels.array[None], tuple(edges), heart=meaning)
        ml = float(found.lv_ml[0]), float(found.rv_ml[0]), float(found.wall_ml[0])
        sizes.append([10 * size if is_flat else size for size in ml])
        slices.append((in_planes(labels.array, labels) == meaning.lv).any((1, 2)))
        if any(labels.array.take([0, -1], axis).any() for axis, n in enumerate(labels.grid.shape) if n > 1):
            cut_off.append(name)
        if open_walls := open_slices(labels, meaning):
            notes.append(f"{name}: {open_wall_text(open_walls)}")
    if cut_off:
        where = f"the first or last slice, or the border, of {' and '.join(cut_off)}"
        notes.insert(0, f"labels reach {where}: what lies beyond is not counted")
    if not is_flat:
        first, second = (f"{each.sum()} of {len(each)}" for each in slices)
        told = f"volumes are of the slices that are labelled, of the LV {first} in fixed and {second} in moving"
        notes.insert(0, told)
    parts = dict(zip(("LV", "RV", "wall"), zip(*sizes, strict=True), strict=True))
    known = {name: pair if any(pair) else (nan, nan) for name, pair in parts.items()}
    lv_slices = int(slices[0].sum()), int(slices[1].sum())
    return Heart("given labels", known, is_flat, lv_slices, tuple(notes))
