"""The measures of one registered pair, under the names that `metrics.json` gives them."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Real
from numpy import ndarray

from vrnet.data.labels import label_text
from vrnet.evaluation import metrics
from vrnet.evaluation.metrics import LabelMap, Mask
from vrnet.files import exists
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.provenance import provenance, versions
from vrnet.registration.images import mirror_field
from vrnet.registration.pair import PairResult

Values = Real[ndarray, "*s"]
Points = Float[ndarray, "n d"]


def measure_pair(result: PairResult) -> dict[str, Any]:
    """What metrics.json holds, but for the verdict: what was run, how good it is, and which files there are."""
    measures = run_measures(result) | {
        "shape": list(result.grid.shape),
        "spacing_mm": list(result.grid.spacing),
        "similarity": similarity(result.fixed.array, result.placed, result.matched_warped, result.has_values),
        **result.regularity,
    }
    if result.fixed_labels is not None and result.placed_labels is not None and result.warped_labels is not None:
        maps = result.fixed_labels.array, result.placed_labels.array, result.warped_labels.array
        measures |= overlap(*maps, result.grid.spacing, result.grid.across)
        if result.grid.stacked_across is not None:
            measures |= overlap_in_slices(*maps, result.grid.stacked_across)
        if result.label_names:
            names = result.label_names
            measures["label_names"] = {str(label): names[label] for label in labels_in(*maps[:2]) if label in names}
    if (len(result.label_maps) == 2 or result.channels == "anatomy") and result.heart:
        measures["heart"] = result.heart.as_json()
    if result.true_motion is not None:
        inside = None if result.fixed_labels is None else result.fixed_labels.array != 0
        measures["known_motion"] = motion_error(result.field, result.true_motion, result.grid.spacing, inside)
    if result.notes:
        measures["notes"] = list(result.notes)
    measures["files"] = {role: name_of(image) for role, image in result.images.items()}
    if result.compared is not None:
        masks = {"fixed": result.masks.fixed, "moving": result.masks.moving}
        measures["masks"] = {role: name_of(mask) for role, mask in masks.items()}
        paths = {role: mask and Path(mask.name).absolute() for role, mask in masks.items()}
        measures["mask_paths"] = {role: str(path) if path and exists(path) else None for role, path in paths.items()}
    return measures


def run_measures(result: PairResult) -> dict[str, Any]:
    """The part that says what was run; a transform from a file took no time here."""
    seen: dict[str, Any] = {
        "affine": result.affine.summary() if result.affine else None,
        "intensities_matched": result.is_matched,
        "channels": result.channels,
        "brightness": None if result.remap is None else asdict(result.remap),
    }
    if result.is_from_file:
        unknown = dict.fromkeys(("weights", "parameters", "options", "device", "seconds", "slice_by_slice", "repair"))
        return {"method": result.method, **unknown, **seen, "provenance": {**versions(), "device": None}}
    found = {
        name: getattr(result, name) for name in ("method", "weights", "parameters", "options", "device", "seconds")
    }
    found |= {"options": result.options.as_json(), "slice_by_slice": result.slice_axis is not None}
    found |= {"repair": None if result.repair is None else asdict(result.repair), **seen}
    return found | {"provenance": provenance(torch.device(result.device or "cpu"))}


def name_of(image: Image | None) -> str | None:
    return None if image is None else Path(image.name).name


def similarity(fixed: Values, moving: Values, warped: Values, seen: tuple[Mask, Mask]) -> dict[str, float]:
    """Mean absolute difference from fixed, and correlation with it, of the voxels seen, before and after."""
    pairs = {"before": (fixed[seen[0]], moving[seen[0]]), "after": (fixed[seen[1]], warped[seen[1]])}
    found = {f"mae_{when}": metrics.mean_absolute_error(*pair) for when, pair in pairs.items()}
    return found | {f"ncc_{when}": metrics.normalised_cross_correlation(*pair) for when, pair in pairs.items()}


def regularity(field: Float[ndarray, "d *s"], grid: Grid) -> dict[str, float]:
    """Folds and smoothness of a field in voxels; where nothing moves along an axis, as the field itself says, of the
    slices across it. It is turned as the world's axes run, as where folds are repaired: both count the same voxels."""
    ordered = grid.reordered(grid.order)
    field = mirror_field(field[list(grid.order)].transpose(0, *(1 + axis for axis in grid.order)), ordered.backward)
    grid, u, axes = ordered.flipped(ordered.backward), torch.from_numpy(field), range(len(field))
    if len(field) == 3:  # of several still axes, the one that slices lie across; files keep a tenth of 1e-3 mm
        still = [axis for axis in axes if np.abs(field[axis]).max() * grid.spacing[axis] < 1e-3]
        if still:
            across = grid.across if grid.across in still else still[0]
            return metrics.batch_regularity(u[[axis for axis in axes if axis != across]].movedim(1 + across, 0))
    return metrics.batch_regularity(u[None])


OVERLAPS = "dice", "hausdorff_mm", "surface_hausdorff_mm", "hausdorff95_mm", "mean_surface_distance_mm"
"""How well one structure's two masks agree; distances are NaN where either mask is empty. The second is the paper's,
between outer contours, mean over slices."""


def labels_in(*maps: LabelMap) -> list[int]:
    return sorted({label for map_ in maps for label in np.unique(map_).tolist()} - {0})


def overlap(
    fixed: LabelMap, moving: LabelMap, warped: LabelMap, spacing: tuple[float, ...], across: int | None = None
) -> dict[str, Any]:
    """{measure: {"before": {label: x, "mean": x}, "after": {...}}} of every label but 0 in fixed or moving, the mean
    over those that could be measured. Contours are compared in slices across the axis `across`."""
    labels = labels_in(fixed, moving)

    def measure(a: Mask, b: Mask) -> dict[str, float]:
        surfaces, contours = metrics.surface_distances(a, b, spacing), metrics.contour_hausdorff(a, b, spacing, across)
        found = metrics.dice(a, b), contours, surfaces.hausdorff, surfaces.hausdorff95, surfaces.mean
        return dict(zip(OVERLAPS, found, strict=True))

    maps = {"before": moving, "after": warped}
    found = {when: metrics.by_label(measure, fixed, map_, labels) for when, map_ in maps.items()}
    return {
        name: {when: with_mean({label: row[name] for label, row in rows.items()}) for when, rows in found.items()}
        for name in OVERLAPS
    }


class WorstStructure(NamedTuple):
    """The Dice of one structure before and after, and what it is called: label 1, if nobody named it."""

    name: str
    before: float
    after: float


def structure_evidence(measures: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Mean Dice and surface distance, and the structure that fared worst, of what `overlap` measured; none of a single
    structure, whose Dice is the mean. Names are as {"1": "RV"}."""
    dice, names = measures.get("dice", {"before": {}, "after": {}}), names or {}
    after = {label: value for label, value in dice["after"].items() if label != "mean" and not np.isnan(value)}
    falls = [WorstStructure(label_text(label, names), dice["before"][label], x) for label, x in after.items()]
    worst = max(falls, key=lambda fall: fall.before - fall.after) if len(falls) > 1 else None
    found: dict[str, Any] = {"fall": worst}
    for key, name in (("dice", "dice"), ("distance", "mean_surface_distance_mm")):
        found |= {f"{key}_{when}": of_labels["mean"] for when, of_labels in measures.get(name, {}).items()}
    return found


def overlap_in_slices(fixed: LabelMap, moving: LabelMap, warped: LabelMap, across: int) -> dict[str, Any]:
    """The Dice of `overlap` taken in each slice of a stack, mean over those that show the structure in either map."""
    labels = labels_in(fixed, moving)
    means = {}
    for when, other in (("before", moving), ("after", warped)):
        found = metrics.dice_by_slice(fixed, other, labels, across)
        rows = zip(labels, found, strict=True)
        means[when] = with_mean({str(label): metrics.nan_mean(row) for label, row in rows})
    return {"dice_mean_over_slices": means}


def motion_error(
    field: Float[ndarray, "d *s"], true: Float[ndarray, "d *s"], spacing: tuple[float, ...], inside: Mask | None = None
) -> dict[str, float]:
    """Mean |u − true u| in mm of the fields in voxels u = 0, before, and u = field, after; inside a mask, if given."""
    mm = np.reshape(spacing, (-1, *[1] * (field.ndim - 1)))
    lengths = {when: np.linalg.norm((u - true) * mm, axis=0) for when, u in (("before", 0 * true), ("after", field))}
    found = {when: length if inside is None else length[inside] for when, length in lengths.items()}
    return {f"end_point_error_mm_{when}": metrics.nan_mean(length.ravel()) for when, length in found.items()}


def target_registration_error(fixed: Points, moving: Points, mapped: Points) -> dict[str, float]:
    """Mean |x − y| before and |φ(x) − y| after, over landmarks x of fixed, which φ maps, and y of moving, in mm."""
    errors = {"before": fixed - moving, "after": mapped - moving}
    return {when: metrics.nan_mean(np.linalg.norm(error, axis=1)) for when, error in errors.items()}


def with_mean(values: dict[str, float]) -> dict[str, float]:
    """The values, and as "mean" the mean of those that are not NaN."""
    return values | {"mean": metrics.nan_mean(values.values())}
