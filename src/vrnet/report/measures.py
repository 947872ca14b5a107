"""The measures of metrics.json as rows for readers: values before the registration, and after it."""

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from vrnet.data.labels import label_text
from vrnet.verdict.rules import MANY_FOLDS_PERCENT, MAX_OPPOSITE_CORRELATION

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
MORE_IS_BETTER = ("dice", "dice_mean_over_slices", "ncc")
LESS_IS_BETTER = (
    "hausdorff_mm", "hausdorff95_mm", "surface_hausdorff_mm", "mean_surface_distance_mm", "end_point_error_mm",
    "target_registration_error_mm", "mae",
)  # fmt: skip
NO_VALUE = "–"
FOLDED = ("folding_strict_percent", "folding_percent")
WHOLE_VOLUME = "Dice, whole volume"  # what "dice" is called beside the mean over slices
NO_MEASURES = (  # entries of metrics.json that are none
    "seconds", "provenance", "repair", "brightness", "verdict", "files", "parameters", "options", "masks",
    "mask_paths", "label_names", "notes", "heart",
)  # fmt: skip


class Row(NamedTuple):
    """The values of a measure, or of a structure within one, as text."""

    name: str
    before: str
    after: str
    warning: str = ""  # what is wrong with the value after, in a word
    label: str = ""  # the number of a structure


def number(value: Any) -> str:
    """A value to three digits, at most three after the point; a dash for what could not be measured."""
    if not is_number(value) or not isfinite(value):
        return NO_VALUE
    size = abs(value)
    if 0 < size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.{3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0}f}"


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def title(key: str, metrics: Mapping[str, Any] | None = None, unit: str = "mm") -> str:
    """The name of a measure, told from others of the same metrics; where NAMES lacks it, its key in words."""
    if key == "dice" and metrics and "dice_mean_over_slices" in metrics:
        return WHOLE_VOLUME
    where = where_compared(metrics) if key in ("mae", "ncc") and metrics else ""
    words = key.replace("_mm", " (mm)").replace("_percent", " (%)").replace("_", " ")
    return NAMES.get(key, words[:1].upper() + words[1:]).replace("(mm)", f"({unit})") + where


def where_compared(metrics: Mapping[str, Any]) -> str:
    """ ", inside the mask", or masks, as the end of a title; nothing where all of the images was compared."""
    count = sum(name is not None for name in (metrics.get("masks") or {}).values())
    return f", inside the mask{'' if count == 1 else 's'}" if count else ""


def summary(metrics: Mapping[str, Any], unit: str = "mm") -> list[Row]:
    """One row per measure, in the order of NAMES. The unit is that of lengths: voxels where no spacing is known."""
    ranks = {key: rank for rank, key in enumerate(NAMES)}
    return [
        Row(title(key, metrics, unit), number(before), number(after), warn(key, before, after))
        for key, (before, after) in sorted(values(metrics).items(), key=lambda item: ranks.get(item[0], len(ranks)))
    ]


def values(metrics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each measure before and after, the mean over structures where it has them; None before for those of the field."""
    found: dict[str, tuple[Any, Any]] = {}
    for key, value in metrics.items():
        if key in NO_MEASURES:
            continue
        if is_number(value):
            found[key] = None, value
        elif is_before_after(value):
            before, after = (
                part.get("mean") if isinstance(part, Mapping) else part for part in (value["before"], value["after"])
            )
            found[key] = before, after
        elif isinstance(value, Mapping):  # a group of numbers, some in pairs x_before and x_after
            for name in value:
                stem = name.removesuffix("_after")
                has_after = name.endswith("_before") and f"{name.removesuffix('_before')}_after" in value
                if not has_after and not isinstance(value[name], str):
                    found[stem] = value.get(f"{stem}_before"), value[name]
    return found


def is_before_after(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() >= {"before", "after"}


def by_structure(metrics: Mapping[str, Any]) -> dict[str, list[Row]]:
    """{key: rows} of the measures that are taken of each structure, in the order of NAMES; a row per structure."""
    names, found = metrics.get("label_names") or {}, {}
    for key in (*NAMES, *(key for key in metrics if key not in NAMES)):
        value = metrics.get(key, {})
        if is_before_after(value) and all(isinstance(value[when], Mapping) for when in ("before", "after")):
            pairs = {k: (value["before"].get(k), after) for k, after in value["after"].items() if k != "mean"}
            found[key] = [
                Row(label_text(k, names), number(before), number(after), warn(key, before, after), k)
                for k, (before, after) in pairs.items()
            ]
    return found


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
        *((key, NAMES[key].removesuffix(" (%)"), " %") for key in FOLDED),
        ("seconds", "Time", " s"),
    ]
    known = values(metrics) | {"seconds": (None, metrics.get("seconds"))}
    heart = metrics.get("heart", {})
    by, warning = ("network", "unsure") if heart.get("level") == "look" else (heart.get("source"), "")
    fractions = [
        Row(f"{name}, by {by}", NO_VALUE, told, warning) for name, told in heart_fractions(heart).items() if told
    ]
    rows = [
        Row(name, number(before), number(after) + unit, warn(key, before, after))
        for key, name, unit in shown
        for before, after in [known.get(key, (None, None))]
        if number(after) != NO_VALUE
    ]
    return rows + fractions


class HeartTable(NamedTuple):
    """The heart of metrics.json for readers; without rows, where a network failed."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]  # a part of the heart, its size in fixed and in moving, and what follows from these
    remarks: list[str]


def heart_table(heart: Mapping[str, Any]) -> HeartTable:
    """By whom the numbers are, whether they may be used as they are, the numbers, and what they leave out."""
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
    return HeartTable(f"Heart, by {by}{levels.get(heart.get('level', ''), '')}", ("", *columns, ""), rows, remarks)


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
        return "too many" if is_number(after) and after > MANY_FOLDS_PERCENT else ""
    if key not in (*MORE_IS_BETTER, *LESS_IS_BETTER) or NO_VALUE in (number(before), number(after)):
        return ""
    gain = float(number(after)) - float(number(before))
    return "worse" if (gain if key in MORE_IS_BETTER else -gain) < 0 else ""
