"""The page of a pair: one file that opens from disk, with everything it shows inside it."""

import gzip
from base64 import b64encode, b85encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from itertools import count
from math import isfinite, prod
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from numpy import ndarray

from vrnet.data.labels import label_text
from vrnet.evaluation.metrics import dice_by_slice, normalised_cross_correlation
from vrnet.fields.folds import Repair
from vrnet.files import check_file, write_bytes
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.resample import FULL_COVERAGE_PERCENT, coverage
from vrnet.provenance import versions
from vrnet.registration.pair import PairResult
from vrnet.report import drawing, measures
from vrnet.report.drawing import quantise, rank_labels
from vrnet.report.measures import number
from vrnet.report.pair import MAX_SIDE_PIXELS, STILL_VOXELS, PageSlices, View, edge_letters, orient_for_viewing
from vrnet.verdict.rules import MANY_FOLDS_PERCENT

# What the scripts of a page read: the pair in 8-bit sheets, and what their values mean.

BOX_MARGIN = 0.25  # around the structures when they are zoomed to, as a part of their size


def page_data(slices: PageSlices, edges: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """What the page holds of a pair; `edges` are the letters of its grid before it was oriented for viewing. A volume
    in planes holds every voxel; else there are sheets of slices, in 8 bits: images over their windows, motion by its
    root, labels by their rank."""
    largest = [float(np.abs(u).max()) or 1.0 for u in slices.motion]
    width, height, n = slices.motion[0].shape
    pair, in_planes = slices.pair, is_volume(slices.pair)
    sheets: dict[str, UInt8[ndarray, "w h n"]] = {}
    if not in_planes:
        sheets = {name: quantise(image, *slices.windows[name]) for name, image in slices.images.items()}
        # 128 + 127 √(u/largest), signed: where motion is small its steps are finest, and straight grids stay straight
        roots = [np.sign(u) * np.sqrt(np.abs(u) / m) for u, m in zip(slices.motion, largest, strict=True)]
        sheets |= {f"u{i}": quantise(root, -128 / 127, 1.0) for i, root in enumerate(roots)}
        sheets |= {name: rank_labels(map_, [*slices.colours]) for name, map_ in slices.labels.items()}
        sheets |= {} if pair.mask is None else {"mask": slices.sample(pair.mask.astype(np.uint8))}
        det = slices.average(slices.deformed.det)
        sheets |= {"det": quantise(det, *DETERMINANTS), "folded": slices.folded}
    box, nowhere = None, np.zeros((width, height), bool)
    is_labelled = np.any([nowhere, *((map_ != 0).any(2) for map_ in slices.labels.values())], axis=0)
    if is_labelled.any():
        (left, right), (top, bottom) = (span_with_margin(is_labelled.any(axis=other)) for other in (1, 0))
        box = left, top, right - left, bottom - top  # in shown pixels, of the part that holds every structure
    named = slices.colours.items()
    return {
        "tiles": {"width": width, "height": height, "columns": drawing.sheet_columns(n)},
        "spacing": [h * f for h, f in zip(pair.grid.spacing, (*slices.factors, 1), strict=False)],
        "unit": pair.unit, "factors": slices.factors, "windows": slices.windows,
        "largest": largest, "scale": slices.rim_mm,
        "slices": [k + 1 for k in slices.numbers], "depth": pair.depth, "start": slices.start,
        "edges": dict(edges),
        "labels": [{"value": k, "name": label_text(k, names), "colour": colour} for k, colour in named],
        "box": box,
        "sheets": {name: drawing.encode_sheet(array) for name, array in sheets.items()},
        "volume": volume_data(slices) if in_planes else None,
    }  # fmt: skip


def span_with_margin(is_inside: Any, part: float = BOX_MARGIN) -> tuple[int, int]:
    """From the first true value to past the last one, widened on both sides by this part of it."""
    places = np.flatnonzero(is_inside)
    first, last = int(places[0]), int(places[-1]) + 1
    margin = round(part * (last - first))
    return max(first - margin, 0), min(last + margin, len(is_inside))


# What the three planes of a page show of a volume: every voxel in 8 bits, and the motion on a coarser grid.
#
# Bytes lie as in a NIfTI file, first axis fastest, compressed by gzip and written in base 85. Where they vary smoothly,
# each is stored less its neighbours, b(x, y) − b(x − 1, y) − b(x, y − 1) + b(x − 1, y − 1) modulo 256.

MIN_SIDE_VOXELS, MAX_VOXELS = 16, 2**24  # thinner volumes are looked at slice by slice; few browsers open larger ones
MAX_MOTION_VOXELS, MAX_MOTION_BYTES = 2**20, 1_200_000  # of motion and determinants: if more, every n-th voxel alone
NIIVUE = files("vrnet.report") / "web" / "vendor" / "niivue.umd.js"  # the script that draws planes
GREY_STEPS, MAX_GREY_BYTES = (1, 2, 4, 8), 3_300_000  # between greys, of 255, so that three images take so many bytes
DETERMINANTS = (-1.0, -1 + 255 / 64)  # their range, in steps of 1/64
FOREGROUND_PART = 0.1  # brighter than this part of the greys is no background


def is_volume(pair: View) -> bool:
    """Whether a pair is shown in three planes: no image, no stack of slices, and not too thin or too large."""
    shape = pair.fixed.shape
    if not pair.grid.is_volume:
        return False
    return min(shape) >= MIN_SIDE_VOXELS and max(shape) <= MAX_SIDE_PIXELS and prod(shape) <= MAX_VOXELS


def volume_data(slices: PageSlices) -> dict[str, Any]:
    """What the planes of a page hold of a volume, in the greys and colours of its slices."""
    pair, windows = slices.pair, slices.windows
    grid, shape = pair.grid, pair.grid.shape
    lengths = np.linalg.norm(np.einsum("ij,j...->i...", grid.to_world.astype(np.float32), pair.field), axis=0)
    low, high = windows["fixed"]
    is_seen = pair.fixed > low + FOREGROUND_PART * (high - low)
    farthest = np.argmax(np.where(is_seen, lengths, -1.0) if is_seen.any() else lengths)
    peak = tuple(int(i) for i in np.unravel_index(farthest, shape))
    det, folded = slices.deformed
    factor, largest, motion = compress_motion(pair.field, det)
    motion_shape = det[::factor, ::factor, ::factor].shape
    coarse = Grid(motion_shape, tuple(factor * h for h in grid.spacing), grid.origin, grid.direction)
    maps = {name: rank_labels(labels, [*slices.colours]) for name, labels in pair.label_maps.items()}
    maps |= {} if pair.mask is None else {"mask": pair.mask.astype(np.uint8)}
    maps["folded"] = folded.astype(np.uint8)
    start, box = pair.mask, np.ones(shape, bool)
    if pair.fixed_labels is not None and pair.fixed_labels.any():
        start, box = pair.inside_mask(pair.fixed_labels) != 0, pair.fixed_labels != 0
    places = np.nonzero(box)

    # as many greys as MAX_GREY_BYTES allows, by what every eighth slice takes; black and white stay as they are
    images = {name: quantise(image, *windows[name]) for name, image in pair.images.items()}
    for step in GREY_STEPS:
        rounded = {name: (np.rint(image / np.float32(step)) * step).clip(0, 255) for name, image in images.items()}
        greys = {name: image.astype(np.uint8) for name, image in rounded.items()}
        if 8 * sum(len(compress_smooth(image[..., ::8])) for image in greys.values()) <= MAX_GREY_BYTES:
            break
    smooth = {name: compress_smooth(image) for name, image in greys.items()} | motion
    return {
        "shape": shape, "header": nifti_header(grid),
        "to_lps": np.column_stack([grid.to_world, grid.origin]).tolist(),
        "motion_factor": factor, "motion_shape": motion_shape, "motion_header": nifti_header(coarse),
        "largest": largest, "longest_mm": float(np.percentile(lengths, 99.9)) or 1.0,
        "extent": [shape[axis] * grid.spacing[axis] for axis in grid.order],  # left-right, back-front, foot-head
        # the middle of the structures of fixed, inside the mask; without any, of the mask, or the volume
        "start": [n // 2 for n in shape] if start is None else [int(np.median(at)) for at in np.nonzero(start)],
        "box": ([int(at.min()) for at in places], [int(at.max()) for at in places]),
        "peak": peak,  # the voxel that moves farthest, of those that are no background in fixed
        "peak_mm": float(lengths[peak]),
        "smooth": {name: write_text(data) for name, data in smooth.items()},
        "maps": {name: write_text(gzip.compress(map_.tobytes("F"), 6, mtime=0)) for name, map_ in maps.items()},
    }  # fmt: skip


def compress_motion(
    field: Float[ndarray, "3 x y z"], det: Float[ndarray, "x y z"]
) -> tuple[int, list[float], dict[str, bytes]]:
    """Motion and determinants at every n-th voxel, for the least n that MAX_MOTION_VOXELS and MAX_MOTION_BYTES allow:
    n, the largest motion along each axis, in voxels, and the compressed arrays."""
    for factor in count(1):
        every = (slice(None, None, factor),) * 3
        motion, sparse_det = field[:, *every], det[every]
        if sparse_det.size > MAX_MOTION_VOXELS:
            continue
        largest = [float(np.abs(u).max()) or 1.0 for u in motion]
        scaled = enumerate(zip(motion, largest, strict=True))
        sampled = {f"u{i}": quantise(u, -128 / 127 * m, m) for i, (u, m) in scaled}
        sampled["det"] = quantise(sparse_det, *DETERMINANTS)
        found = {name: compress_smooth(array) for name, array in sampled.items()}
        if sum(map(len, found.values())) <= MAX_MOTION_BYTES or factor >= min(det.shape):
            break
    return factor, largest, found


def compress_smooth(array: UInt8[ndarray, "x y z"]) -> bytes:
    """The bytes of a volume less their neighbours, compressed."""
    across = np.diff(array, axis=0, prepend=np.uint8(0))
    return gzip.compress(np.diff(across, axis=1, prepend=np.uint8(0)).tobytes("F"), 9, mtime=0)


def write_text(data: bytes) -> str:
    """Bytes in base 85, without the characters that HTML gives a meaning to."""
    return b85encode(data).translate(bytes.maketrans(b"&<>", b",.:")).decode()


def nifti_header(grid: Grid) -> str:
    """The header of a NIfTI file of bytes on this grid: 352 bytes, in base64."""
    return b64encode(Image(np.zeros(grid.shape, np.uint8), grid).to_nibabel().to_bytes()[:352]).decode()


LEAST_PART = 0.05  # of the labelled voxels of the slice that has most: with fewer, as at tips, overlap is chance
MAX_STRUCTURES = 8  # that have a row of their own; of more, only the mean is shown


def slice_table(slices: PageSlices, names: Mapping[str, str]) -> dict[str, Any] | None:
    """The measures of each slice that a page shows, which slice is worst and why; None for one slice alone. Worst is
    where structures that both masks show overlap least; else where most is folded, or images are least alike."""
    if len(slices.numbers) < 2:
        return None
    pair = slices.pair
    field = np.stack([slices.take(u) for u in pair.field]) * np.reshape(pair.grid.spacing, (3, 1, 1, 1))
    motion = np.linalg.norm(field, axis=0).mean((0, 1))
    folded = 100 * slices.take(slices.deformed.folded).mean((0, 1))
    inside = np.ones(pair.fixed.shape, bool) if pair.mask is None else pair.mask
    stacks = (np.moveaxis(slices.take(array), -1, 0) for array in (pair.fixed, pair.warped, inside))
    alike = np.array([
        normalised_cross_correlation(a[where], b[where]) if where.any() else np.nan
        for a, b, where in zip(*stacks, strict=True)
    ])  # fmt: skip

    rows, means, is_ranked = [], np.full(len(slices.numbers), np.nan), np.zeros(len(slices.numbers), bool)
    if len(pair.label_maps) == 3 and slices.colours:
        _, before, _ = slice_overlap(slices, "moving")
        overlaps, means, is_ranked = slice_overlap(slices, "warped")
        if len(overlaps) <= MAX_STRUCTURES:
            for (k, colour), dice in zip(slices.colours.items(), overlaps, strict=True):
                rows.append(measure(f"Dice {label_text(k, names)}", dice, colour=colour))
        if len(overlaps) > 1:
            rows.append(measure("Dice, mean", means))
        rows.append(measure("Dice, mean, before", before, in_strip=False))
    correlation = "Correlation" if pair.mask is None else "Correlation in mask"
    rows += [
        measure(correlation, alike, in_strip=not rows),
        measure("Folded, strict (%)", folded, max(folded.max(), 1.0), drawing.FOLD),
        measure(f"Mean motion ({pair.unit})", motion, motion.max()),
    ]

    worst, why = None, ""
    if not np.isnan(means).all():
        ranked = np.where(is_ranked, means, np.nan)
        worst = int(np.nanargmin(means if np.isnan(ranked).all() else ranked))
        why = f"lowest mean Dice, {number(means[worst])}"
        if np.nanmin(means) < means[worst]:
            or_outside = "" if pair.mask is None else ", or nothing of the mask,"
            why += f"; slices that show a tip of the structures{or_outside} are not ranked"
    elif folded.any():
        worst, why = int(np.argmax(folded)), f"most folded, {number(folded.max())} %"
    elif not np.isnan(alike).all():
        worst, least = int(np.nanargmin(alike)), float(np.nanmin(alike))
        why = f"lowest correlation of fixed and warped, {number(least)}"
    return {"measures": rows, "worst": worst, "why": why}


def measure(
    name: str, values: Float[ndarray, " n"], highest: float = 1.0, colour: str = "", in_strip: bool = True
) -> dict[str, Any]:
    """A measure of every slice, as text, as a part of the highest value, and to sort by."""
    cells: list[dict[str, Any]] = [{"text": number(None), "part": None, "value": None} for _ in values]
    for k in np.flatnonzero(~np.isnan(values)):
        x = float(values[k])
        part = round(min(1.0, max(0.0, x / (highest or 1.0))), 3)
        cells[k] = {"text": number(x), "part": part, "value": round(x, 6)}
    return {"name": name, "cells": cells, "colour": colour, "in_strip": in_strip}


def slice_overlap(
    slices: PageSlices, role: str
) -> tuple[Float[ndarray, "l n"], Float[ndarray, " n"], Bool[ndarray, " n"]]:
    """How the labels of fixed, and those of moving or warped, overlap in each slice: the Dice of each label, NaN where
    it is in one map alone or in none; the mean over labels that both maps show; and whether both show enough to call
    the slice better than another. If slices moved only within themselves, a label that the motion lost counts as 0."""
    pair, labels = slices.pair, [*slices.colours]
    fixed, moving, other = (slices.take(pair.label_maps[f"{name}_labels"]) for name in ("fixed", "moving", role))
    in_fixed, in_moving, in_other = (
        np.stack([(map_ == k).any((0, 1)) for k in labels]) for map_ in (fixed, moving, other)
    )
    is_within = np.abs(pair.field[2]).max() < STILL_VOXELS
    # an overlap of 0 where one map alone shows a label would blame the registration for where a map ends
    is_one_sided = in_fixed != (in_other | (in_moving & in_fixed) if is_within else in_other)
    dice = np.where(is_one_sided, np.nan, dice_by_slice(fixed, other, labels, 2))
    with np.errstate(invalid="ignore"):
        means = np.nansum(dice, 0) / np.isfinite(dice).sum(0)
    counts = np.stack([(map_ != 0).sum((0, 1)) for map_ in (fixed, other)])
    is_ranked = (counts >= np.maximum(LEAST_PART * counts.max(1, keepdims=True), 1)).all(0)
    if pair.mask is not None:
        is_ranked &= slices.take(pair.mask).any((0, 1))
    return dice, means, is_ranked


def write_report(path: Path, result: PairResult, metrics: Mapping[str, Any] | None = None) -> Path:
    """Write the page of a registered pair; returns where. `metrics` is the content of metrics.json, if there is one."""
    check_file(path, (".html",))
    from vrnet.report.segmentation import outlines_figure

    metrics = result.with_heart(metrics or result.metrics())
    found = result.heart.outlines if "heart" in metrics and result.heart else ()
    pictures = (drawing.data_address(outlines_figure(each, 0).png(110)) for each in found)
    outlines = dict(zip(("fixed", "moving"), pictures, strict=False))
    text = render_page(View.of(result), metrics, result.energies.tolist(), run_facts(result), outlines)
    write_bytes(text.encode(errors="replace"), path)
    return path


def run_facts(result: PairResult) -> dict[str, str]:
    """What was run, and how, as the table of a page: which files, which method, and what was done to them."""
    run = {role.replace("_", " "): image.name for role, image in result.images.items()}
    run |= {"transform": result.method} if result.is_from_file else {"method": result.method, **result.details}
    if len(result.grid.shape) == 3 and not result.is_from_file:
        run["slices"] = "each by itself" if result.slice_axis is not None else "together"
    if result.channels != "none":
        kinds = {"labels": "labels of both, whose overlap is no test"}
        run["matched too"] = kinds.get(result.channels, "probabilities of structures")
    if result.naming:
        run["structures"] = result.naming
    if result.affine is not None:
        run["affine start"] = result.affine.kind
    if result.options.match_intensities:
        run["intensities"] = "moving matched to the histogram of fixed, here and in the differences"
    elif result.remap is not None:
        run["intensities"] = f"moving as bright as fixed, here and in the differences: {result.remap}"
    covered = 100 * coverage(result.moving.grid, result.grid, result.affine).mean()
    if covered < FULL_COVERAGE_PERCENT and not result.is_from_file:
        run["overlap"] = f"moving covers {covered:.0f} % of fixed; elsewhere nothing was registered"
    if result.repair is not None:
        run["folds"] = f"repaired: {result.repair}"
    if result.device is not None:
        run["device"] = result.device
    run["versions"] = ", ".join(f"{name} {v}" for name, v in {**versions(), "numpy": np.__version__}.items() if v)
    run["date"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return run


def render_page(
    view: View, metrics: Mapping[str, Any], energies: Sequence[float], run: Mapping[str, str],
    outlines: Mapping[str, str] = MappingProxyType({}),
) -> str:  # fmt: skip
    """The page as text; `run` is what `run_facts` gives, `outlines` are pictures of what a network found."""
    slices, names = PageSlices(orient_for_viewing(view)), metrics.get("label_names") or {}
    data = page_data(slices, edge_letters(view.grid), names)
    repair = Repair(**metrics["repair"]) if metrics.get("repair") else None
    return drawing.render_template(
        "page.html",
        method=metrics.get("method", ""),
        files={role: PurePath(run.get(role, role)).name for role in ("fixed", "moving")},
        verdict=metrics.get("verdict"),
        headline=measures.headline(metrics, view.unit, view.compares_structure),
        repair="" if repair is None or repair.is_slight else f"Repaired: {repair}.",
        is_opposite=measures.is_contrast_opposite(metrics),
        had_many_folds=repair is not None and repair.folded_percent > MANY_FOLDS_PERCENT,
        summary=measures.summary(metrics, view.unit),
        notes=metrics.get("notes", []),
        heart=measures.heart_table(metrics["heart"]) if "heart" in metrics else None,
        outlines=outlines,
        blocks={measures.title(key, metrics, view.unit): rows for key, rows in measures.by_structure(metrics).items()},
        energies=[float(energy) for energy in energies if isfinite(energy)],
        configuration=run.get("configuration", ""),
        run=run,
        strip=slice_table(slices, names),
        colours={
            "difference": drawing.colour_stops(drawing.DIFFERENCE_MAP),
            "jacobian": drawing.colour_stops(drawing.JACOBIAN_MAP),
            "range": drawing.JACOBIAN_RANGE,
            "fold": drawing.FOLD,
            "grid": drawing.GRID,
            "mask": drawing.MASK,
        },
        data=data,
        niivue=write_text(gzip.compress(NIIVUE.read_bytes(), 9, mtime=0)) if data["volume"] else "",
        is_aligned=view.is_aligned,
        swatches={str(label["value"]): label["colour"] for label in data["labels"]},
    )
