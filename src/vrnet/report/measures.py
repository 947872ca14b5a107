"""The measures of metrics.json as rows for readers: values before the registration, and after it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

from vrnet.evaluation.label_names import label_text
from vrnet.registration.folds import small_percent

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
NO_VALUE = "–"
WHOLE_VOLUME = "Dice, whole volume"
"""What "dice" is called beside the mean over slices."""
NO_MEASURES = ("seconds", "provenance", "repair", "verdict", "masks", "label_names")
"""Of metrics.json."""


@dataclass(frozen=True)
class Row:
    """The values of a measure, or of a structure within one, as text."""

    name: str
    before: str
    after: str
    is_worse: bool = False
    """Whether the value after is worse than the one before, where that is known."""
    label: str = ""
    """Of a structure, its number."""


@dataclass(frozen=True)
class Block:
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
    words = key.replace("_mm", " (mm)").replace("_percent", " (%)").replace("_", " ")
    return NAMES.get(key, words[:1].upper() + words[1:]).replace("(mm)", f"({unit})")


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def is_before_after(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() >= {"before", "after"}


def summary(metrics: Mapping[str, Any], unit: str = "mm") -> list[Row]:
    """One row per measure, the mean over structures where it has them; measures of the field have no value before.

    The unit is that of lengths: of arrays without a spacing they are in voxels."""
    measured = {key: value for key, value in metrics.items() if key not in NO_MEASURES}
    rows = [row for key, value in measured.items() for row in rows_of(key, value, metrics, unit)]
    order = [WHOLE_VOLUME, *(title(key, unit=unit) for key in NAMES)]
    return sorted(rows, key=lambda row: order.index(row.name) if row.name in order else len(order))


def rows_of(key: str, value: Any, metrics: Mapping[str, Any], unit: str) -> Iterator[Row]:
    """The rows of a number, of {"before", "after"}, or of a group of numbers, some in pairs x_before and x_after."""
    if is_number(value):
        yield Row(title(key, metrics, unit), NO_VALUE, number(value))
    elif is_before_after(value):
        before, after = before_after(value)
        yield Row(title(key, metrics, unit), number(before), number(after))
    elif isinstance(value, Mapping):
        for name in value:
            stem = name.removesuffix("_after")
            has_after = name.endswith("_before") and f"{name.removesuffix('_before')}_after" in value
            if not has_after and not isinstance(value[name], str):
                yield Row(title(stem, unit=unit), number(value.get(f"{stem}_before")), number(value[name]))


def before_after(value: Any) -> tuple[Any, Any]:
    """The values of a measure before and after, the mean over structures where it has them."""
    parts = (value["before"], value["after"]) if is_before_after(value) else (None, None)
    before, after = (part.get("mean") if isinstance(part, Mapping) else part for part in parts)
    return before, after


def in_pair(stem: str, group: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """The values x_before and x_after of a group; None where it lacks them."""
    return (group or {}).get(f"{stem}_before"), (group or {}).get(f"{stem}_after")


def by_structure(metrics: Mapping[str, Any], unit: str = "mm") -> list[Block]:
    """The measures that are taken of each structure, one row per structure."""
    pairs = {key: (value["before"], value["after"]) for key, value in metrics.items() if is_before_after(value)}
    structured = {key: pair for key, pair in pairs.items() if all(isinstance(part, Mapping) for part in pair)}
    names = metrics.get("label_names") or {}
    order = [*NAMES]
    keys = sorted(structured, key=lambda key: order.index(key) if key in order else len(order))
    return [Block(title(key, metrics, unit), list(structure_rows(*structured[key], names))) for key in keys]


def structure_rows(before: Mapping[str, Any], after: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Row]:
    """One row per structure of {label: value} before and after; the mean is none of them."""
    for label in after:
        if label != "mean":
            yield Row(label_text(label, names), number(before.get(label)), number(after[label]), label=label)


def headline(metrics: Mapping[str, Any], unit: str = "mm") -> list[Row]:
    """The few measures that say how good a registration is, with their units."""
    where = ", inside the masks" if metrics.get("masks") else ""
    whole = title("dice", metrics).removeprefix("Dice")
    found: list[tuple[str, str, Any, Any, int]] = [
        (f"Mean Dice{whole}", "", *before_after(metrics.get("dice")), 1),
        ("Mean Dice, mean over slices", "", *before_after(metrics.get("dice_mean_over_slices")), 1),
        ("Mean Hausdorff, contours", f" {unit}", *before_after(metrics.get("hausdorff_mm")), -1),
        (f"Mean |difference|{where}", "", *in_pair("mae", metrics.get("similarity")), -1),
        ("From the true motion", f" {unit}", *in_pair("end_point_error_mm", metrics.get("known_motion")), -1),
        ("Folded, strict count", " %", None, metrics.get("folding_strict_percent"), 0),
        ("Folded, central differences", " %", None, metrics.get("folding_percent"), 0),
        ("Time", " s", None, metrics.get("seconds"), 0),
    ]
    return [
        Row(name, number(before), number(after) + unit, is_worse(before, after, better))
        for name, unit, before, after, better in found
        if number(after) != NO_VALUE
    ]


def repair_note(metrics: Mapping[str, Any]) -> str:
    """What was changed to free the field of folds, in a short sentence; nothing where nothing was.

    Of a repair metrics.json has lengths in mm, and in voxels alone where no spacing is known."""
    repair = metrics.get("repair")
    if not repair:
        return ""
    unit = "voxels" if repair["max_move_mm"] is None else "mm"
    folded = f"Folds repaired: {small_percent(repair['folded_percent'])} of the voxels were folded"
    cause = folded if repair["folded_percent"] else "Nothing folded, but some voxels were squeezed nearly flat"
    mean, most = (repair[f"{which}_move_{unit}"] for which in ("mean", "max"))
    moved = f"{small_percent(repair['changed_percent'])} were moved to mend that"
    return f"{cause}; {moved}, by {mean:.2g} {unit} on average and {most:.2g} {unit} at most."


def is_worse(before: Any, after: Any, better: int) -> bool:
    """Whether a value became worse by what can be read off it; more is better for `better` = 1, less for -1."""
    if not better or NO_VALUE in (number(before), number(after)):
        return False
    return better * (float(number(after)) - float(number(before))) < 0
