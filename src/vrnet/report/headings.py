"""What the columns of a cohort's table are called on its page: in words, with units. The table keeps their names."""

from collections.abc import Mapping
from types import MappingProxyType

from vrnet.evaluation.label_names import label_text

NO_NAMES: Mapping[str, str] = MappingProxyType({})
BEFORE_AND_AFTER = {
    "ncc": ("Correlation", ""),
    "mae": ("Mean difference", ""),
    "dice": ("Dice", ""),
    "hausdorff_mm": ("Hausdorff distance", "mm"),
    "surface_mm": ("Surface distance", "mm"),
}
"""Of columns that are there twice, NAME_before and NAME_after: words and unit."""
ALONE = {
    "subject": ("Subject", ""),
    "status": ("Status", ""),
    "verdict": ("Verdict", ""),
    "suspicion": ("Suspicion", ""),
    "suspicion_by": ("Farthest out in", ""),
    "outlier": ("Unlike the others in", ""),
    "folding_percent": ("Folded voxels", "%"),
    "folding_strict_percent": ("Folded voxels, strict count", "%"),
    "jacobian_gradient": ("Roughness |∇J|", ""),
    "lv_ejection_fraction_percent": ("LV ejection fraction", "%"),
    "rv_ejection_fraction_percent": ("RV ejection fraction", "%"),
    "lv_largest_ml": ("LV volume, largest", "ml"),
    "lv_smallest_ml": ("LV volume, smallest", "ml"),
    "mass_g": ("LV mass", "g"),
    "peak_green_circumferential_percent": ("Peak circumferential strain", "%"),
    "peak_green_radial_percent": ("Peak radial strain", "%"),
    "peak_green_circumferential_middle_percent": ("Peak circumferential strain, mid-wall", "%"),
    "peak_green_radial_middle_percent": ("Peak radial strain, mid-wall", "%"),
    "peak_endocardial_length_percent": ("Peak change of length, endocardium", "%"),
    "peak_midwall_length_percent": ("Peak change of length, mid-wall", "%"),
    "peak_epicardial_length_percent": ("Peak change of length, epicardium", "%"),
    "peak_wall_thickness_percent": ("Peak change of wall thickness", "%"),
    "closure_forward_mm": ("Closure error, forward", "mm"),
    "closure_backward_mm": ("Closure error, backward", "mm"),
    "frames": ("Frames", ""),
    "frames_repaired": ("Frames with repaired folds", ""),
    "method": ("Method", ""),
    "device": ("Device", ""),
    "seconds": ("Time", "s"),
    "machine": ("Machine", ""),
    "reason": ("Reason", ""),
    "notes": ("Notes", ""),
}


def heading(column: str, label_names: Mapping[str, str] = NO_NAMES) -> str:
    """A column in words, its unit in brackets: Surface distance after (mm). Any other as `own_heading` has it."""
    if column in ALONE:
        return with_unit(*ALONE[column])
    name, _, when = column.rpartition("_")
    if when in ("before", "after") and name in BEFORE_AND_AFTER:
        words, unit = BEFORE_AND_AFTER[name]
        return with_unit(f"{words} {when}", unit)
    if column.startswith("dice_"):
        label = column.removeprefix("dice_")
        return f"Dice of {label_text(label, label_names)} after"
    return own_heading(column)


def own_heading(column: str) -> str:
    """A column of the user's list, with a capital as ours have: group is Group, and weight_kg is Weight_kg."""
    return column[:1].upper() + column[1:]


def with_unit(words: str, unit: str) -> str:
    return f"{words} ({unit})" if unit else words
