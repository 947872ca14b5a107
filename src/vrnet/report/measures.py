"""The measures of metrics.json as rows for readers: values before the registration, and after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from vrnet.data.labels import label_text
from vrnet.errors import small_percent
from vrnet.fields.folds import Repair
from vrnet.verdict.rules import MANY_FOLDS_PERCENT

NAMES = {
    "dice": "Dice",
    "dice_mean_over_slices": "Dice, mean over slices",
    "hausdorff_mm": "Hausdorff distance, contours (mm)",
    "hausdorff95_mm": "Hausdorff distance, 95 % (mm)",
    "surface_hausdorff_mm": "Hausdorff distance, surfaces (mm)",
    "mean_surface_distance_mm": "Mean surface distance (mm)",
    "end_point_error_mm": "Distance from the true motion (mm)",
    "target_registration_error_mm": "Target registration error (mm)",
    "mae": "Mean absolute difference",
    "ncc": "Normalised cross-correlation",
    "rotation_deg": "Affine start, rotation (°)",
    "translation_mm": "Affine start, shift of the centre (mm)",
    "scale": "Affine start, scale",
    "folding_percent": "Folded, central differences (%)",
    "folding_strict_percent": "Folded, strict count (%)",
    "jacobian_gradient": "Mean |∇ det|",
}
HAUSDORFF_LEGEND = (
    "Hausdorff distances: how far apart the two outlines of a structure lie at most; mean over structures. "
    "Contours: outer outlines in each slice, mean over slices. Surfaces: all edges, in 3D where images are. "
    "95 %: of surfaces, without the farthest 5 %."
)
BETTER = {
    **dict.fromkeys(("dice", "dice_mean_over_slices", "ncc"), 1),
    **dict.fromkeys(("hausdorff_mm", "hausdorff95_mm", "surface_hausdorff_mm", "mean_surface_distance_mm", "mae"), -1),
    **dict.fromkeys(("end_point_error_mm", "target_registration_error_mm"), -1),
}
"""Whether more of a measure is better, 1, or less is, -1; of others neither is known."""
NO_VALUE = "–"
FOLDED = ("folding_strict_percent", "folding_percent")
WHOLE_VOLUME = "Dice, whole volume"
"""What "dice" is called beside the mean over slices."""
NO_MEASURES = (
    "seconds", "provenance", "repair", "brightness", "verdict", "files", "parameters", "options", "masks",
    "mask_paths", "label_names",
)  # fmt: skip
"""Entries of metrics.json that are no measures."""


@dataclass(frozen=True)
class Row:
    """The values of a measure, or of a structure within one, as text."""

    name: str
    before: str
    after: str
    warning: str = ""
    """What is wrong with the value after, in a word: it is worse than the one before, or many voxels fold."""
    label: str = ""
    """The number of a structure."""


class Block(NamedTuple):
    """A measure with one row per structure."""

    name: str
    rows: list[Row]


def number(value: Any) -> str:
    """A value to three digits, at most three after the point; a dash for what could not be measured."""
    if not is_number(value) or not isfinite(value):
        return NO_VALUE
    size = abs(value)
    if 0 < size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.{3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0}f}"


def title(key: str, metrics: Mapping[str, Any] | None = None, unit: str = "mm") -> str:
    """The name of a measure, told from others of the same metrics; where NAMES lacks it, its key in words."""
    if key == "dice" and metrics and "dice_mean_over_slices" in metrics:
        return WHOLE_VOLUME
    where = where_compared(metrics) if key in ("mae", "ncc") and metrics else ""
    words = key.replace("_mm", " (mm)").replace("_percent", " (%)").replace("_", " ")
    return NAMES.get(key, words[:1].upper() + words[1:]).replace("(mm)", f"({unit})") + where


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def is_before_after(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() >= {"before", "after"}


def summary(metrics: Mapping[str, Any], unit: str = "mm") -> list[Row]:
    """One row per measure, the mean over structures where it has them; measures of the field have no value before.

    The unit is that of lengths: of arrays without a spacing they are in voxels."""
    values: dict[str, tuple[Any, Any]] = {}
    for key, value in metrics.items():
        if key in NO_MEASURES:
            continue
        if is_number(value):
            values[key] = None, value
        elif is_before_after(value):
            values[key] = before_after(value)
        elif isinstance(value, Mapping):  # a group of numbers, some in pairs x_before and x_after
            for name in value:
                stem = name.removesuffix("_after")
                has_after = name.endswith("_before") and f"{name.removesuffix('_before')}_after" in value
                if not has_after and not isinstance(value[name], str):
                    values[stem] = value.get(f"{stem}_before"), value[name]
    return [
        Row(title(key, metrics, unit), number(before), number(after), warn(key, before, after))
        for key, (before, after) in sorted(values.items(), key=place)
    ]


def place(item: tuple[str, Any]) -> int:
    """Where a measure stands in a table: those of NAMES in its order, others after them."""
    return [*NAMES].index(item[0]) if item[0] in NAMES else len(NAMES)


def before_after(value: Any) -> tuple[Any, Any]:
    """The values of a measure before and after, the mean over structures where it has them."""
    parts = (value["before"], value["after"]) if is_before_after(value) else (None, None)
    before, after = (part.get("mean") if isinstance(part, Mapping) else part for part in parts)
    return before, after


def by_structure(metrics: Mapping[str, Any], unit: str = "mm") -> list[Block]:
    """The measures that are taken of each structure, one row per structure."""
    names, found = metrics.get("label_names") or {}, []
    for key, value in sorted(metrics.items(), key=place):
        if not (is_before_after(value) and all(isinstance(value[when], Mapping) for when in ("before", "after"))):
            continue
        labels = [(k, value["before"].get(k), after) for k, after in value["after"].items() if k != "mean"]
        rows = [
            Row(label_text(k, names), number(before), number(after), warn(key, before, after), k)
            for k, before, after in labels
        ]
        found.append(Block(title(key, metrics, unit), rows))
    return found


def where_compared(metrics: Mapping[str, Any]) -> str:
    """ ", inside the mask", or masks, as the end of a title; nothing where all of the images was compared."""
    count = sum(name is not None for name in (metrics.get("masks") or {}).values())
    return f", inside the mask{'' if count == 1 else 's'}" if count else ""


def headline(metrics: Mapping[str, Any], unit: str = "mm") -> list[Row]:
    """The few measures that say how good a registration is, with their units.

    A difference of intensities tells that where the method compares them. For opposite contrasts neither it nor the
    correlation does."""
    from vrnet.verdict.advice import compares_structure

    where, whole = where_compared(metrics), title("dice", metrics).removeprefix("Dice")
    is_structure = compares_structure(str(metrics.get("method", "")))
    likeness = ("ncc", f"Correlation{where}") if is_structure else ("mae", f"Mean |difference|{where}")

    def in_pair(stem: str, group: str) -> tuple[Any, Any]:
        """The values x_before and x_after of a group; None where it lacks them."""
        values = metrics.get(group) or {}
        return values.get(f"{stem}_before"), values.get(f"{stem}_after")

    found: list[tuple[str, str, str, Any, Any]] = [
        ("dice", f"Mean Dice{whole}", "", *before_after(metrics.get("dice"))),
        ("dice", "Mean Dice, mean over slices", "", *before_after(metrics.get("dice_mean_over_slices"))),
        ("hausdorff_mm", "Mean Hausdorff, contours", f" {unit}", *before_after(metrics.get("hausdorff_mm"))),
        *([] if is_contrast_opposite(metrics) else [(*likeness, "", *in_pair(likeness[0], "similarity"))]),
        ("end_point_error_mm", "From the true motion", f" {unit}", *in_pair("end_point_error_mm", "known_motion")),
        *((key, NAMES[key].removesuffix(" (%)"), " %", None, metrics.get(key)) for key in FOLDED),
        ("seconds", "Time", " s", None, metrics.get("seconds")),
    ]
    return [
        Row(name, number(before), number(after) + unit, warn(key, before, after))
        for key, name, unit, before, after in found
        if number(after) != NO_VALUE
    ]


def repair_note(metrics: Mapping[str, Any]) -> str:
    """What was changed to free the field of folds, in a short sentence; nothing where next to nothing was."""
    repair = Repair(**metrics["repair"]) if metrics.get("repair") else None
    if repair is None or repair.is_slight:
        return ""
    cause = "Nothing folded, but some voxels were squeezed nearly flat"
    if repair.folded_percent:
        folds = "Many folds" if had_many_folds(metrics) else "Folds"
        cause = f"{folds} repaired: {small_percent(repair.folded_percent)} of the voxels were folded"
    mean, most, unit = repair.moves
    moved = f"{small_percent(repair.changed_percent)} were moved to mend that"
    lost = f", and {small_percent(repair.drawn_percent)} lost much of their motion" if repair.drawn_percent else ""
    return f"{cause}; {moved}, by {mean:.2g} {unit} on average and {most:.2g} {unit} at most{lost}."


def is_contrast_opposite(metrics: Mapping[str, Any]) -> bool:
    """Whether what is bright in one image is dark in the other, so that neither a blend nor a difference shows much."""
    found = metrics.get("similarity", {})
    return any((found.get(f"ncc_{when}") or 0.0) < -0.2 for when in ("before", "after"))  # as in the verdict


def had_many_folds(metrics: Mapping[str, Any]) -> bool:
    """Whether so much of the field was folded, before it was repaired, that it would have been a failure."""
    return bool(metrics.get("repair")) and metrics["repair"]["folded_percent"] > MANY_FOLDS_PERCENT


def warn(key: str, before: Any, after: Any) -> str:
    """What is wrong with a measure, in a word: worse, by what can be read off it, or many folds; nothing otherwise."""
    if key in FOLDED:
        return "too many" if is_number(after) and after > MANY_FOLDS_PERCENT else ""
    if key not in BETTER or NO_VALUE in (number(before), number(after)):
        return ""
    return "worse" if BETTER[key] * (float(number(after)) - float(number(before))) < 0 else ""
