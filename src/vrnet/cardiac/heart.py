"""EF = 100 (V_ED − V_ES) / V_ED of a pair of images, as two phases of one heart; the larger LV is end-diastole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, Literal

import numpy as np

from vrnet.cardiac.anatomy import Level, Segmentation, segment
from vrnet.cardiac.labels import heart_of, named_parts, open_slices
from vrnet.cardiac.volumes import MYOCARDIUM_G_PER_ML, open_wall_text, volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import LabelNames, in_planes, label_in_cavity
from vrnet.errors import numbered
from vrnet.images.image import Image
from vrnet.registration.pair import PairResult

PHASES = "fixed", "moving"
LEVELS: tuple[Level, ...] = ("good", "look", "failed")


@dataclass(frozen=True, repr=False, eq=False)
class Heart:
    """The ventricles in both images of a pair, by the labels of each on its own grid."""

    source: Literal["given labels", "network"]
    sizes: Mapping[str, tuple[float, float]]
    """Of LV, RV and wall in fixed and moving, in ml; of one slice, in cm²; NaN of what has no label."""
    is_flat: bool
    """Whether one slice is all there is: that has areas, and no ejection fraction or mass."""
    notes: tuple[str, ...] = ()
    """What the numbers leave out."""
    level: Level | None = None
    """Of a network: good; look: check the outlines first; failed: there are no numbers."""
    reasons: tuple[str, ...] = ()
    outlines: tuple[Segmentation, ...] = ()
    """What the network found in fixed and moving."""

    def __repr__(self) -> str:
        return f"Heart(by {self.source}, {self.fractions_percent})"

    @property
    def end_diastole(self) -> int:
        """0 if it is fixed, 1 if it is moving."""
        known = next((pair for pair in self.sizes.values() if not isnan(pair[0])), (nan, nan))
        return int(known[1] > known[0])

    @property
    def fractions_percent(self) -> dict[str, float]:
        """{ventricle: 100 (ED − ES) / ED}, of volumes the ejection fraction, of areas the fractional area change."""
        ed = self.end_diastole
        pairs = {name: self.sizes[name] for name in ("LV", "RV")}
        return {name: 100 * (1 - pair[1 - ed] / pair[ed]) if all(pair) else nan for name, pair in pairs.items()}

    @property
    def mass_g(self) -> float:
        """Of the LV's wall at end-diastole, 1.05 g per ml; NaN of one slice."""
        return nan if self.is_flat else MYOCARDIUM_G_PER_ML * self.sizes["wall"][self.end_diastole]

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
    maps = result.fixed_labels, result.moving_labels
    if maps[0] is not None and maps[1] is not None:
        meaning = read_meaning((maps[0], maps[1]), result.label_names)
        return meaning and measure_heart((maps[0], maps[1]), meaning)
    images = result.fixed, result.moving
    if any(len(image.grid.shape) == 3 and image.grid.stacked_across is None for image in images):
        return None
    found = tuple(segment(image, device=result.options.device) for image in images)
    level = max((each.level for each in found), key=LEVELS.index)
    reasons = tuple(f"{name}: {why}" for name, each in zip(PHASES, found, strict=True) for why in each.reasons)
    if level == "failed":
        return Heart("network", {}, False, (), level, reasons, found)
    maps = tuple(image.with_array(each.labels) for image, each in zip(images, found, strict=True))
    notes = [
        f"no labels in {numbered('slice', each.unsure)} of {name}, of which the network is unsure"
        for name, each in zip(PHASES, found, strict=True)
        if each.unsure
    ]
    return measure_heart(maps, HeartLabels(), notes, "network", level=level, reasons=reasons, outlines=found)


def read_meaning(maps: Sequence[Image], names: LabelNames) -> HeartLabels | None:
    """Which labels are the parts of a heart: those that are called so; else as in ACDC, if nothing but 1, 2 and 3 is
    there, and 2 goes round 3. None if they are of something else."""
    there = [{*np.unique(labels.array).tolist()} for labels in maps]
    if names:
        parts = {part for part, label in named_parts(names) if all(label in labels for labels in there)}
        return heart_of(names) if "lv" in parts else None
    is_like_acdc = all({0, 2, 3} <= labels <= {0, 1, 2, 3} for labels in there)
    return HeartLabels() if is_like_acdc and label_in_cavity(maps, 2, (1, 3)) == 3 else None


def measure_heart(
    maps: Sequence[Image], meaning: HeartLabels, notes: Sequence[str] = (),
    source: Literal["given labels", "network"] = "given labels", **how: Any,
) -> Heart:  # fmt: skip
    """Sizes by two label maps, and what they leave out."""
    is_flat = all(len(labels.grid.shape) == 2 or 1 in labels.grid.shape for labels in maps)
    sizes, said, in_slices = [], [*notes], []
    for name, labels in zip(PHASES, maps, strict=True):
        across = labels.grid.across if len(labels.grid.shape) == 3 else None
        edges = [1.0 if is_flat and axis == across else h for axis, h in enumerate(labels.grid.spacing)]
        found = volumes(labels.array[None], tuple(edges), heart=meaning)
        ml = float(found.lv_ml[0]), float(found.rv_ml[0]), float(found.wall_ml[0])
        sizes.append([10 * size if is_flat else size for size in ml])
        shows_lv = (in_planes(labels.array, labels) == meaning.lv).any((1, 2))
        in_slices.append(f"{shows_lv.sum()} of {len(shows_lv)} in {name}")
        if reaches_border(labels.array != 0, is_flat):
            said.append(f"labels reach the border of {name}: what lies beyond is not counted")
        if open_walls := open_slices(labels, meaning):
            said.append(f"{name}: {open_wall_text(open_walls)}")
    if not is_flat:
        said.insert(0, f"volumes are of the slices that are labelled, of the LV {' and '.join(in_slices)}")
    parts = dict(zip(("LV", "RV", "wall"), zip(*sizes, strict=True), strict=True))
    known = {name: pair if any(pair) else (nan, nan) for name, pair in parts.items()}
    return Heart(source, known, is_flat, tuple(said), **how)


def reaches_border(mask: Any, is_flat: bool) -> bool:
    return any(mask.take([0, -1], axis).any() for axis, n in enumerate(mask.shape) if n > 1)
