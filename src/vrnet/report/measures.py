"""The measures of metrics.json as rows for readers: values before the registration, and after it."""

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from vrnet.data.labels import label_text
from vrnet.verdict.rules import MANY_FOLDS_PERCENT, MAX_OPPOSITE_CORRELATION


class Measure(NamedTuple):
    """What a measure is called; whether more of it is better (1), or less (-1); where metrics.json has it, as
    KEY_before and KEY_after, if not by itself."""

    name: str
    better: int = 0
    group: str = ""


MEASURES = {
    "dice": Measure("Dice", 1),
    "dice_mean_over_slices": Measure("Dice, mean over slices", 1),
    "hausdorff_mm": Measure("Hausdorff distance, contours (mm)", -1),
    "hausdorff95_mm": Measure("Hausdorff distance, 95 % (mm)", -1),
    "surface_hausdorff_mm": Measure("Hausdorff distance, surfaces (mm)", -1),
    "mean_surface_distance_mm": Measure("Mean surface distance (mm)", -1),
    "end_point_error_mm": Measure("Distance from the true motion (mm)", -1, "known_motion"),
    "target_registration_error_mm": Measure("Target registration error (mm)", -1),
    "mae": Measure("Mean absolute difference", -1, "similarity"),
    "ncc": Measure("Normalised cross-correlation", 1, "similarity"),
    "rotation_deg": Measure("Affine start, rotation (°)", 0, "affine"),
    "translation_mm": Measure("Affine start, shift of the centre (mm)", 0, "affine"),
    "scale": Measure("Affine start, scale", 0, "affine"),
    "folding_percent": Measure("Folded, central differences (%)"),
    "folding_strict_percent": Measure("Folded, strict count (%)"),
    "jacobian_gradient": Measure("Mean |∇ det|"),
}
HAUSDORFF_LEGEND = (
    "Hausdorff distances: how far apart the two outlines of a structure lie at most; mean over structures. "
    "Contours: outer outlines in each slice, mean over slices. Surfaces: all edges, in 3D where images are. "
    "95 %: of surfaces, without the farthest 5 %."
)
NO_VALUE = "–"
FOLDED = ("folding_strict_percent", "folding_percent")
WHOLE_VOLUME = "Dice, whole volume"  # what "dice" is called beside the mean over slices


class Row(NamedTuple):
    """The values of a measure, or of a structure within one, as text."""

    name: str
    before: str
    after: str
    warning: str = ""  # what is wrong with the value after, in a word
    label: str = ""  # the number of a structure


def number(value: Any) -> str:
    """A value to three digits, at most three after the point; a dash for what could not be measured."""
    if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value):
        return NO_VALUE
    size = abs(float(value))
    if 0 < size < 1e-3:
        return f"{value:.2g}"
    return f"{float(value):.{3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0}f}"


def title(key: str, metrics: Mapping[str, Any] | None = None, unit: str = "mm") -> str:
    """The name of a measure, told from others of the same metrics."""
    if key == "dice" and metrics and "dice_mean_over_slices" in metrics:
        return WHOLE_VOLUME
    where = where_compared(metrics) if key in ("mae", "ncc") and metrics else ""
    return MEASURES[key].name.replace("(mm)", f"({unit})") + where


def where_compared(metrics: Mapping[str, Any]) -> str:
    """ ", inside the mask", or masks, as the end of a title; nothing where all of the images was compared."""
    count = sum(name is not None for name in (metrics.get("masks") or {}).values())
    return f", inside the mask{'' if count == 1 else 's'}" if count else ""


def summary(metrics: Mapping[str, Any], unit: str = "mm") -> list[Row]:
    """One row per measure. The unit is that of lengths: voxels where no spacing is known."""
    return [
        Row(title(key, metrics, unit), number(before), number(after), warn(key, before, after))
        for key, (before, after) in values(metrics).items()
    ]


def values(metrics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each measure before and after, the mean over structures where it has them; None before for those of the field."""
    found: dict[str, tuple[Any, Any]] = {}
    for key, (_, _, group) in MEASURES.items():
        part = metrics.get(group) or {} if group else metrics
        value = part.get(f"{key}_after", part.get(key))
        if isinstance(value, Mapping):
            pair = [value["before"], value["after"]]
            before, after = (one.get("mean") if isinstance(one, Mapping) else one for one in pair)
            found[key] = before, after
        elif key in part or f"{key}_after" in part:
            found[key] = part.get(f"{key}_before"), value
    return found


def by_structure(metrics: Mapping[str, Any]) -> dict[str, list[Row]]:
    """{key: rows} of the measures that are taken of each structure; a row per structure."""
    names = metrics.get("label_names") or {}
    return {
        key: [
            Row(label_text(k, names), number(before.get(k)), number(value), warn(key, before.get(k), value), k)
            for k, value in after.items()
            if k != "mean"
        ]
        for key in MEASURES
        if isinstance(metrics.get(key), Mapping) and isinstance(after := metrics[key]["after"], Mapping)
        for before in [metrics[key]["before"]]
    }


def headline(metrics: Mapping[str, Any], unit: str = "mm", compares_structure: bool = False) -> list[Row]:
    """The few measures that say how good a registration is, with their units. A difference of intensities tells that
    where the method compares them; for opposite contrasts neither it nor the correlation does."""
    where, whole = where_compared(metrics), title("dice", metrics).removeprefix("Dice")
    likeness = ("ncc", f"Correlation{where}") if compares_structure else ("mae", f"Mean |difference|{where}")
    shown = [
        ("dice", f"Mean Dice{whole}", ""),
        ("dice_mean_over_slices", "Mean Dice, mean over slices", ""),
        ("hausdorff_mm", "Mean Hausdorff, contours", f" {unit}"),
        *([] if is_contrast_opposite(metrics) else [(*likeness, "")]),
        ("end_point_error_mm", "From the true motion", f" {unit}"),
        *((key, MEASURES[key].name.removesuffix(" (%)"), " %") for key in FOLDED),
        ("seconds", "Time", " s"),
    ]
    known = values(metrics) | {"seconds": (None, metrics.get("seconds"))}
    heart = metrics.get("heart", {})
    by, warning = ("network", "unsure") if heart.get("level") == "look" else (heart.get("source"), "")
    rows = [
        Row(name, number(before), number(after) + unit, warn(key, before, after))
        for key, name, unit in shown
        for before, after in [known.get(key, (None, None))]
        if number(after) != NO_VALUE
    ]
    fractions = heart_fractions(heart).items()
    return rows + [Row(f"{name}, by {by}", NO_VALUE, told, warning) for name, told in fractions if told]


def heart_table(heart: Mapping[str, Any]) -> dict[str, Any]:
    """The heart of metrics.json for readers: the title says by whom the numbers are, and whether they may be used as
    they are; a row has a part of the heart, its size in fixed and in moving, and what follows from these, and there is
    none where a network failed; remarks say what is left out."""
    levels = {"look": ", unsure: check the outlines first", "failed": ", failed: no volumes"}
    by = "the network" if heart["source"] == "network" else "the given labels"
    columns = (f"{role}, {'ED' if heart.get('end_diastole') == role else 'ES'}" for role in ("fixed", "moving"))
    key, unit = ("cm2", "cm²") if "lv_cm2" in heart else ("ml", "ml")
    results = heart_fractions(heart)
    if results:
        results["Wall"] = f"mass {number(heart['mass_g'])} g" if "mass_g" in heart else ""
    sizes = {name: [number(size) for size in heart[f"{name.lower()}_{key}"].values()] for name in results}
    rows = [
        (name, *(f"{size} {unit}" for size in sizes[name]), result)
        for name, result in results.items()
        if NO_VALUE not in sizes[name]
    ]
    remarks = [f"{remark[:1].upper()}{remark[1:]}" for key in ("reasons", "notes") for remark in heart.get(key, [])]
    title = f"Heart, by {by}{levels.get(heart.get('level', ''), '')}"
    return {"title": title, "columns": ("", *columns, ""), "rows": rows, "remarks": remarks}


def heart_fractions(heart: Mapping[str, Any]) -> dict[str, str]:
    """{ventricle: its ejection fraction}, in words; of one slice, the fractional area change."""
    kinds = {"ef_percent": "EF", "area_change_percent": "area change"}
    return {
        name: "" if number(value) == NO_VALUE else f"{kind} {value:.0f} %"
        for key, kind in kinds.items()
        for name, value in heart.get(key, {}).items()
    }


def is_contrast_opposite(metrics: Mapping[str, Any]) -> bool:
    """Whether what is bright in one image is dark in the other, so that neither a blend nor a difference shows much."""
    found = metrics.get("similarity", {})
    return any((found.get(f"ncc_{when}") or 0.0) < -MAX_OPPOSITE_CORRELATION for when in ("before", "after"))


def warn(key: str, before: Any, after: Any) -> str:
    """What is wrong with a measure, in a word: worse, by what can be read off it, or many folds; nothing otherwise."""
    if key in FOLDED:
        return "too many" if number(after) != NO_VALUE and after > MANY_FOLDS_PERCENT else ""
    if key not in MEASURES or NO_VALUE in (number(before), number(after)):
        return ""
    return "worse" if MEASURES[key].better * (float(number(after)) - float(number(before))) < 0 else ""
