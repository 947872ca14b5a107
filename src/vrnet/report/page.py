"""The report of a registration: one page that opens from disk, with everything it shows inside it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from math import isfinite
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from numpy import ndarray

from vrnet.data.labels import label_text
from vrnet.evaluation.metrics import dice_by_slice, normalised_cross_correlation
from vrnet.files import check_file, write_bytes
from vrnet.images.grid import Grid
from vrnet.images.resample import coverage
from vrnet.provenance import versions
from vrnet.registration.pair import PairResult
from vrnet.report import drawing, measures, viewer3d
from vrnet.report.drawing import quantise
from vrnet.report.measures import NO_VALUE, number
from vrnet.report.pair import STILL_VOXELS, PageSlices, View, orient_for_viewing, turn_grid, viewing_order, world_axes

# What the scripts of a page read: the pair in 8-bit sheets, and what their values mean.

AXIS_ENDS = ("RL", "AP", "IS")
"""What lies at the two ends of each axis of LPS."""
BOX_MARGIN = 0.25
"""The margin around the structures when they are zoomed to, as a part of their size."""


def page_data(slices: PageSlices, edges: Mapping[str, str], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the page holds of a pair; `edges` are the letters of its grid before it was oriented for viewing, `names`
    what its labels are called. A volume that is shown in planes holds every voxel; else there are sheets of slices, in
    8 bits: images over their windows, motion by its root, labels by their rank."""
    largest = [float(np.abs(u).max()) or 1.0 for u in slices.motion]
    width, height, n = slices.motion[0].shape
    is_volume = viewer3d.is_volume(slices.pair)
    sheets: dict[str, UInt8[ndarray, "w h n"]] = {}
    if not is_volume:
        sheets = {name: quantise(image, *slices.windows[name]) for name, image in slices.images.items()}
        # 128 + 127 √(u/largest), signed: where motion is small its steps are finest, and straight grids stay straight
        roots = [np.sign(u) * np.sqrt(np.abs(u) / m) for u, m in zip(slices.motion, largest, strict=True)]
        sheets |= {f"u{i}": quantise(root, -128 / 127, 1.0) for i, root in enumerate(roots)}
        sheets |= {name: drawing.rank_labels(map_, [*slices.colours]) for name, map_ in slices.labels.items()}
        sheets |= {} if slices.mask is None else {"mask": slices.mask}
        sheets |= {"det": quantise(slices.det, *viewer3d.DETERMINANTS), "folded": slices.folded}
    is_labelled = np.zeros((width, height), bool)
    for map_ in slices.labels.values():
        is_labelled |= (map_ != 0).any(2)
    box = None  # left, top, width and height, in shown pixels, of the part that holds every structure
    if is_labelled.any():
        (left, right), (top, bottom) = (span_with_margin(is_labelled.any(axis=other)) for other in (1, 0))
        box = left, top, right - left, bottom - top
    return {
        "tiles": {"width": width, "height": height, "columns": drawing.sheet_columns(n)},
        "spacing": slices.spacing,
        "unit": slices.pair.unit,
        "factors": slices.factors,
        "windows": slices.windows,
        "largest": largest,
        "scale": slices.rim_mm,
        "slices": [k + 1 for k in slices.numbers],
        "depth": slices.pair.depth,
        "start": slices.start,
        "edges": dict(edges),
        "labels": [
            {"value": value, "name": label_text(value, names or {}), "colour": colour}
            for value, colour in slices.colours.items()
        ],
        "box": box,
        "sheets": {name: drawing.encode_sheet(array) for name, array in sheets.items()},
        "volume": viewer3d.volume_data(slices) if is_volume else None,
    }


def edge_letters(grid: Grid) -> dict[str, str]:
    """The letters of what lies left, right, above and below in the pictures of a volume, by the grid of its file.

    None for an image, and none where the header does not say how it lies."""
    if len(grid.shape) == 2 or not grid.is_placed:
        return {}
    shown = turn_grid(grid, *viewing_order(grid))
    ends = [AXIS_ENDS[axis][:: 1 if shown.axes[axis, i] >= 0 else -1] for i, axis in enumerate(world_axes(shown)[:2])]
    return dict(zip(("left", "right", "top", "bottom"), "".join(ends), strict=True))


def span_with_margin(is_inside: Any, part: float = BOX_MARGIN) -> tuple[int, int]:
    """From the first true value to past the last one, widened on both sides by this part of it."""
    places = np.flatnonzero(is_inside)
    first, last = int(places[0]), int(places[-1]) + 1
    margin = round(part * (last - first))
    return max(first - margin, 0), min(last + margin, len(is_inside))


# The slices of a page one by one: overlap of the structures, likeness, folds and motion, and which slice is worst.

LEAST_PART = 0.05
"""Slices with fewer labelled voxels, as a part of the slice that has most, are not ranked: tips overlap by chance."""
MAX_STRUCTURES = 8
"""Structures that have a row of their own; of more, only the mean is shown."""


@dataclass(frozen=True)
class Cell:
    """A value as text, as a part of the height of a row, and to sort by; a dash and nothing where there is none."""

    text: str
    part: float | None
    value: float | None
    is_one_sided: bool = False
    """Whether there is none since only one of the two masks shows the structure in the slice."""


@dataclass(frozen=True)
class Measure:
    """One measure of every slice."""

    name: str
    cells: list[Cell]
    colour: str = ""
    """That of its bars; none for the page's own."""
    in_strip: bool = True
    """Whether it is drawn, too, not only listed."""


@dataclass(frozen=True)
class SliceTable:
    """What is known of each slice that a page shows, in its order."""

    measures: list[Measure]
    worst: int | None
    """The place of the slice that most needs a look."""
    why: str
    """By what it is the worst."""
    has_one_sided: bool = False
    """Whether somewhere only one of the two masks shows a structure."""


@dataclass(frozen=True)
class Overlap:
    """The Dice of each label (rows) in each slice (columns); NaN where it is in one mask alone, or in none."""

    dice: Float[ndarray, "l n"]
    only_fixed: Bool[ndarray, "l n"]
    only_moving: Bool[ndarray, "l n"]
    is_ranked: Bool[ndarray, " n"]
    """Whether both masks show enough of a slice to call it better or worse than another."""

    @property
    def means(self) -> Float[ndarray, " n"]:
        """The mean in each slice over the labels that both masks show there; NaN where there are none."""
        is_known = ~np.isnan(self.dice)
        with np.errstate(invalid="ignore"):
            return np.where(is_known, self.dice, 0.0).sum(0) / is_known.sum(0)

    def cells(self, row: int) -> list[Cell]:
        """What a table says of a label in each slice. If only one mask shows it, the table says which: an overlap of 0
        would blame the registration for where a mask ends."""
        told = zip(cells(self.dice[row], 1.0), self.only_fixed[row], self.only_moving[row], strict=True)
        return [Cell(f"only in {'fixed' if a else 'moving'}", None, None, True) if a or b else c for c, a, b in told]


def slice_table(slices: PageSlices, names: Mapping[str, str]) -> SliceTable | None:
    """The measures of each slice; None for one slice alone. `names` are what the labels are called."""
    if len(slices.numbers) < 2:
        return None
    pair = slices.pair
    field = np.stack([slices.take(u) for u in pair.field]) * np.reshape(pair.grid.spacing, (3, 1, 1, 1))
    motion, folded = np.linalg.norm(field, axis=0).mean((0, 1)), slices.folded_percent
    inside = np.ones(pair.fixed.shape, bool) if pair.mask is None else pair.mask
    stacks = (np.moveaxis(slices.take(array), -1, 0) for array in (pair.fixed, pair.warped, inside))
    alike = np.array([
        normalised_cross_correlation(a[where], b[where]) if where.any() else np.nan
        for a, b, where in zip(*stacks, strict=True)
    ])  # fmt: skip

    rows: list[Measure] = []
    before, after = slice_overlap(slices, "moving"), slice_overlap(slices, "warped")
    if after is not None:
        if len(after.dice) <= MAX_STRUCTURES:
            labels = enumerate(slices.colours.items())
            rows += [Measure(f"Dice {label_text(k, names)}", after.cells(row), colour) for row, (k, colour) in labels]
        rows += [Measure("Dice, mean", cells(after.means, 1.0))] if len(after.dice) > 1 else []
        if before is not None:
            rows.append(Measure("Dice, mean, before", cells(before.means, 1.0), in_strip=False))
    correlation = "Correlation" if pair.mask is None else "Correlation in mask"
    rows += [
        Measure(correlation, cells(alike, 1.0), in_strip=not rows),
        Measure("Folded, strict (%)", cells(folded, max(folded.max(), 1.0)), drawing.FOLD),
        Measure(f"Mean motion ({pair.unit})", cells(motion, motion.max())),
    ]
    has_one_sided = after is not None and bool((after.only_fixed | after.only_moving).any())
    unranked = "a tip of the structures" + ("" if pair.mask is None else ", or nothing of the mask,")
    return SliceTable(rows, *find_worst(after, folded, alike, unranked), has_one_sided)


def slice_overlap(slices: PageSlices, role: str) -> Overlap | None:
    """How the labels of fixed, and those of moving or warped, overlap in each slice; None without labels.

    Where slices moved each within itself, a label that moving has and the motion lost has a Dice, of 0: it is not in
    fixed alone. Slices that show nothing of the mask are not ranked."""
    pair, labels = slices.pair, [*slices.colours]
    taken = {name: slices.take(map_) for name, map_ in pair.label_maps.items()}
    fixed, moving, other = (taken.get(f"{name}_labels") for name in ("fixed", "moving", role))
    if fixed is None or moving is None or other is None or not labels:
        return None
    in_fixed, in_moving, in_other = (
        np.stack([(map_ == k).any((0, 1)) for k in labels]) for map_ in (fixed, moving, other)
    )
    is_within = np.abs(pair.field[2]).max() < STILL_VOXELS
    only_fixed, only_other = in_fixed & ~(in_other | in_moving if is_within else in_other), in_other & ~in_fixed
    dice = np.where(only_fixed | only_other, np.nan, dice_by_slice(fixed, other, labels, 2))
    counts = np.stack([(map_ != 0).sum((0, 1)) for map_ in (fixed, other)])
    is_ranked = (counts >= np.maximum(LEAST_PART * counts.max(1, keepdims=True), 1)).all(0)
    if pair.mask is not None:
        is_ranked &= slices.take(pair.mask).any((0, 1))
    return Overlap(dice, only_fixed, only_other, is_ranked)


def cells(values: Float[ndarray, " n"], highest: float) -> list[Cell]:
    """Values as text and as parts of the highest."""
    return [
        Cell(NO_VALUE, None, None)
        if np.isnan(value)
        else Cell(number(value), round(min(1.0, max(0.0, value / (highest or 1.0))), 3), round(value, 6))
        for value in values.tolist()
    ]


def find_worst(
    overlap: Overlap | None, folded: Float[ndarray, " n"], alike: Float[ndarray, " n"], unranked: str
) -> tuple[int | None, str]:
    """Where the structures that both masks show overlap least; without any, where most is folded, or else images are
    least alike. `unranked` says what slices show that are not ranked by their structures."""
    means = np.full(len(folded), np.nan) if overlap is None else overlap.means
    ranked = means if overlap is None else np.where(overlap.is_ranked, means, np.nan)
    if not np.isnan(means).all():
        k = int(np.nanargmin(means if np.isnan(ranked).all() else ranked))
        left_out = f"; slices that show {unranked} are not ranked" if np.nanmin(means) < means[k] else ""
        return k, f"lowest mean Dice, {number(means[k])}{left_out}"
    if folded.any():
        return int(np.argmax(folded)), f"most folded, {number(folded.max())} %"
    if np.isnan(alike).all():
        return None, ""
    return int(np.nanargmin(alike)), f"lowest correlation of fixed and warped, {number(float(np.nanmin(alike)))}"


CURVE_WIDTH, CURVE_HEIGHT = 320, 150
"""Size of the plot of energies, in the units of page.html."""
FULL_COVERAGE_PERCENT = 99.0
"""Below it, the reader is told which part of fixed moving covers."""


def write_report(path: Path, result: PairResult, metrics: Mapping[str, Any] | None = None) -> Path:
    """Write the page of a registered pair; returns where. `metrics` are what metrics.json holds, in whose verdict a
    command says what to try in its own options; without them, those of the result."""
    check_file(path, (".html",))
    text = render_page(View.of(result), metrics or result.metrics(), result.energies.tolist(), describe_run(result))
    write_bytes(text.encode(errors="replace"), path)
    return path


def describe_run(result: PairResult) -> dict[str, str]:
    """What was run and by which code, for the page: {heading: text}."""
    said = {role.replace("_", " "): image.name for role, image in result.images.items()}
    said |= {"transform": result.method} if result.is_from_file else {"method": result.method, **result.details}
    if len(result.grid.shape) == 3 and not result.is_from_file:
        said["slices"] = "each by itself" if result.slice_axis is not None else "together"
    if result.naming:
        said["structures"] = result.naming
    if result.affine is not None:
        said["affine start"] = result.affine.kind
    if result.options.match_intensities:
        said["intensities"] = "moving matched to the histogram of fixed, here and in the differences"
    elif result.remap is not None:
        said["intensities"] = f"moving as bright as fixed, here and in the differences: {result.remap}"
    covered = 100 * coverage(result.moving.grid, result.grid, result.affine).mean()
    if covered < FULL_COVERAGE_PERCENT and not result.is_from_file:
        said["overlap"] = f"moving covers {covered:.0f} % of fixed; elsewhere nothing was registered"
    if result.repair is not None:
        said["folds"] = f"repaired: {result.repair}"
    if result.device is not None:
        said["device"] = result.device
    said["versions"] = ", ".join(f"{name} {v}" for name, v in {**versions(), "numpy": np.__version__}.items() if v)
    return said | {"date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")}


def render_page(view: View, metrics: Mapping[str, Any], energies: Sequence[float], run: Mapping[str, str]) -> str:
    """The page as text. `run` says what was run, in order, and by its entries "fixed" and "moving" which files;
    `energies` may be empty."""
    slices, names = PageSlices(orient_for_viewing(view)), metrics.get("label_names") or {}
    data = page_data(slices, edge_letters(view.grid), names)
    return drawing.render_template(
        "page.html",
        method=metrics.get("method", run.get("method", "")),
        files={role: PurePath(run.get(role, role)).name for role in ("fixed", "moving")},
        verdict=metrics.get("verdict"),
        headline=measures.headline(metrics, view.unit),
        repair=measures.repair_note(metrics),
        is_opposite=measures.is_contrast_opposite(metrics),
        had_many_folds=measures.had_many_folds(metrics),
        summary=measures.summary(metrics, view.unit),
        blocks=measures.by_structure(metrics, view.unit),
        curve=energy_curve([float(energy) for energy in energies if isfinite(energy)]),
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
        niivue=viewer3d.viewer_script() if data["volume"] else "",
        is_aligned=view.is_aligned,
        swatches={str(label["value"]): label["colour"] for label in data["labels"]},
    )


def energy_curve(energies: list[float]) -> dict[str, Any] | None:
    """Energies from left to right, the largest on top, as points of a plot, and the least of them so far, with the
    labels of the first and the least; None for fewer than two."""
    if len(energies) < 2:
        return None
    low, high = min(energies), max(energies)
    across, down = CURVE_WIDTH / (len(energies) - 1), CURVE_HEIGHT / ((high - low) or 1.0)

    def place(values: Iterable[float]) -> list[tuple[float, float]]:
        return [(round(i * across, 1), round((high - value) * down, 1)) for i, value in enumerate(values)]

    return {
        "points": place(energies),
        "least_so_far": place(accumulate(energies, min)),
        "first": f"{energies[0]:.4g}",
        "least": f"{low:.4g}",
        "steps": len(energies) - 1,
    }
