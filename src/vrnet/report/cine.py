"""The report of a tracked cine: one page that opens from disk, on which the heart beats."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, isfinite, sqrt
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from numpy import ndarray

from vrnet.cardiac.strain import GLOBAL, MEASURES, NO_SEGMENTS, TITLES, Measure, Peak, Strain, StrainMap, strain_map
from vrnet.cardiac.volumes import Volumes, open_wall_text
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import LabelNames
from vrnet.errors import numbered
from vrnet.files import write_bytes
from vrnet.images.grid import Grid
from vrnet.report.drawing import (
    GRID,
    STRAIN_MAP,
    colour_stops,
    encode_sheet,
    find_labels,
    label_colours,
    quantise,
    render_template,
    sheet_columns,
    window_of,
)
from vrnet.report.page import edge_letters, span_with_margin
from vrnet.report.pair import block_sizes, choose_slices, reduce_blocks, turn_array, turn_grid, viewing_order
from vrnet.verdict.cine import Extreme
from vrnet.vocabulary import LEVELS, SEGMENTS

# A tracked cine, oriented as radiologists view it and cut to the part around the heart.

MAX_SLICES = 24
MAX_PIXELS = 12e6
"""Of all frames and slices together: a page of them stays below 15 MB."""
BOX_MARGIN = 0.4
"""Around the labels, as a part of their size: what else moves near the heart is seen too."""


@dataclass(frozen=True, eq=False)
class Film:
    """A tracked cine, ready to be shown: frames in the intensities of the file, fields in voxels.

    The point at x in the reference is at x + u(x) in frame t, u being fields[t]. The labels are those of the reference;
    `heart` says what they mean."""

    frames: Shaped[ndarray, "t *s"]
    fields: Float[ndarray, "t d *s"]
    grid: Grid
    reference: int = 0
    times_ms: tuple[float, ...] | None = None
    labels: Integer[ndarray, "*s"] | None = None
    heart: HeartLabels | None = None
    strain: Strain | None = None
    volumes: Volumes | None = None
    label_names: LabelNames = field(default_factory=dict)
    """What labels are called; parts of the heart that it lacks have names of their own."""
    no_strain: str | None = None
    """Why there is no strain, though there are labels."""
    doubt: str = ""
    """Why it may be no cine."""

    def __len__(self) -> int:
        """How many frames it has."""
        return len(self.frames)

    @cached_property
    def slices(self) -> "FilmSlices":
        """What is shown of it."""
        return slice_film(self)


@dataclass(frozen=True, eq=False)
class FilmSlices:
    """What is shown of a film: (t, w, h, n), across the picture, down it, and by slice; motion within slices alone."""

    frames: Shaped[ndarray, "t w h n"]
    motion: Float[ndarray, "t 2 w h n"]
    """In voxels."""
    labels: Integer[ndarray, "w h n"] | None
    heart: HeartLabels
    spacing: tuple[float, float]
    """Of voxels within slices, in mm."""
    numbers: list[int]
    """Of the slices in the cine, from 0."""
    depth: int
    """How many slices the cine has."""
    edges: Mapping[str, str]
    """The letters of what lies at each edge of a picture."""
    label_names: LabelNames = field(default_factory=dict)

    @cached_property
    def strain(self) -> StrainMap | None:
        """Green strain at the voxels of the wall; None without labels, or where no slice shows a ring of wall."""
        if self.labels is None:
            return None
        still = np.zeros_like(self.motion[:, :1])
        fields = np.concatenate([self.motion, still], 1)
        return strain_map(fields, self.labels, (*self.spacing, 1.0), across=2, heart=self.heart)

    @cached_property
    def structures(self) -> dict[int, tuple[str, str]]:
        """{label: (name, colour)} of the labels that are shown; a part of the heart has one colour in all films."""
        if self.labels is None:
            return {}
        found, parts = find_labels([self.labels]), (self.heart.rv, self.heart.wall, self.heart.lv)
        names = dict(zip(parts, ("right ventricle", "wall", "cavity"), strict=True)) | dict(self.label_names)
        order = [*parts, *(label for label in found if label not in parts)]
        colours = dict(zip(order, label_colours(list(range(len(order)))).values(), strict=True))
        return {label: (names.get(label, f"label {label}"), colours[label]) for label in found}

    @property
    def main(self) -> int:
        """The place of the slice that is shown first: in the middle of those with strain, or with labels, or of all."""
        if self.strain is not None:
            shown = np.unique(self.strain.index[2])
        elif self.labels is not None and self.labels.any():
            shown = np.flatnonzero(self.labels.any((0, 1)))
        else:
            shown = np.arange(len(self.numbers))
        return int(shown[len(shown) // 2])

    @property
    def block(self) -> int:
        """How many voxels across and down make one shown pixel, so that there are no more than MAX_PIXELS."""
        return ceil(sqrt(self.frames.size / MAX_PIXELS))


def slice_film(film: Film) -> FilmSlices:
    """The slices to show, oriented, and cut to the part around the labels where there are any."""
    whole = orient_film(film)
    numbers = choose_slices(whole.grid.shape[2] if len(whole.grid.shape) == 3 else 1, MAX_SLICES)
    frames, motion = (take(array, whole.grid, numbers) for array in (whole.frames, whole.fields[:, :2]))
    labels = None if whole.labels is None else take(whole.labels, whole.grid, numbers)
    box = (slice(None), slice(None)) if labels is None or not labels.any() else box_around_labels(labels)
    return FilmSlices(
        frames=frames[:, *box],
        motion=motion[:, :, *box],
        labels=None if labels is None else labels[box],
        heart=film.heart or HeartLabels(),
        spacing=(whole.grid.spacing[0], whole.grid.spacing[1]),
        numbers=numbers,
        depth=1 if len(whole.grid.shape) == 2 else whole.grid.shape[2],
        edges=edge_letters(film.grid),
        label_names=film.label_names,
    )


def orient_film(film: Film) -> Film:
    """The film as radiologists view it: `orient_for_viewing` of each frame."""
    if len(film.grid.shape) == 2:
        return film
    order, signs = viewing_order(film.grid)
    fields = turn_array(film.fields, order, signs)[:, list(order)] * np.reshape(signs, (3, 1, 1, 1))
    return replace(
        film,
        frames=turn_array(film.frames, order, signs),
        fields=fields,
        grid=turn_grid(film.grid, order, signs),
        labels=None if film.labels is None else turn_array(film.labels, order, signs),
    )


def take(array: Any, grid: Grid, numbers: list[int]) -> Any:
    """These slices along the last axis; a 2D image is one slice."""
    return array[..., None] if len(grid.shape) == 2 else array[..., numbers]


def box_around_labels(labels: Integer[ndarray, "w h n"]) -> tuple[slice, slice]:
    """The part of slices that holds every label, with a margin."""
    across, down = (span_with_margin(labels.any(axis=(other, 2)), BOX_MARGIN) for other in (1, 0))
    return slice(*across), slice(*down)


# The numbers of a tracked cine, as a page prints them, each with its definition.

ABSENT = "–"
SYMBOLS = {
    "1/2 ": "½ ", "F'F - I": "FᵀF − I", "grad u": "∇u",
    "L - L0": "L − L₀", "/L0": "/L₀", "T - T0": "T − T₀", "/T0": "/T₀",
}  # fmt: skip
"""What a page has in place of the plain letters of files."""


@dataclass(frozen=True)
class Tracked:
    """How well a cine was tracked, and what the numbers mean that are not in a film."""

    closure_mm: Mapping[str, float]
    """How far the forward and the backward chain are from where they began."""
    folding_strict_percent: float
    definitions: Mapping[str, str]
    verdict: Mapping[str, Any] | None = None
    """As summary.json holds it."""
    worst: Extreme | None = None
    """Where what is wrong is worst; None of a good cine, and of what is wrong in no frame of its own (closure)."""


@dataclass(frozen=True)
class Number:
    """A number in the header: what it is, its value, and when it was reached."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts, the first of each its heading."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def headline(film: Film, tracked: Tracked) -> list[Number]:
    """What one wants to know first."""
    rows = []
    if film.volumes is not None:
        rows.append(ejection_fraction(film.volumes))
    for name, title in (("green_circumferential", "circumferential"), ("green_radial", "radial")):
        if film.strain is not None and (peak := film.strain.peak(name)):
            rows.append(Number(f"Peak {title} strain (Green)", in_percent(peak.percent), when(peak, len(film))))
    rows.append(Number("Closure error, the larger", f"{max(tracked.closure_mm.values()):.2f} mm"))
    return rows


def ejection_fraction(volumes: Volumes) -> Number:
    """That of the LV, beside it that of the RV; of the one that is labelled."""
    (name, fraction), *others = volumes.ejection_fractions_percent.items()
    without = [f"without {numbered('slice', volumes.open_slices)}"] if volumes.open_slices and name == "LV" else []
    beside = [f"{other} {in_percent(percent)}" for other, percent in others]
    return Number(f"Ejection fraction, {name}", in_percent(fraction), ", ".join([*without, *beside]))


def tables(film: Film, tracked: Tracked) -> list[Table]:
    """What there is of strain, volumes and quality."""
    found = [] if film.strain is None else [peak_table(film.strain)]
    found += [] if film.volumes is None else [volume_table(film.volumes)]
    closure = [(f"Closure error, {way}", f"{length:.2f} mm") for way, length in tracked.closure_mm.items()]
    folds = ("Folded voxels, strict", in_percent(tracked.folding_strict_percent, 3))
    return [*found, Table("Quality", (), [*closure, folds])]


def peak_table(strain: Strain) -> Table:
    """Peaks of every measure, global and by level, and which slices they are of."""
    regions = (GLOBAL, *LEVELS)
    rows = []
    for m in MEASURES:
        peaks = [strain.peak(m.name, region) for region in regions]
        values = (with_minus(f"{peak.percent:.1f}") if peak else ABSENT for peak in peaks)
        rows.append((m.title, *values, when(peaks[0])))
    reasons = dict.fromkeys(left.reason for left in strain.left_out)
    left_out = [f"{slices_of(reason, strain)} left out: {reason}." for reason in reasons]
    notes = (
        f"Measured in {numbered('slice', strain.slices)}.",
        *([f"{doubt}."] if (doubt := strain.doubt_about_levels) else []),
        *left_out,
        *([] if strain.insertions else [f"Segments are {NO_SEGMENTS}."]),
    )
    return Table("Peak strain, %", (*regions, "global peak at"), rows, notes)


def slices_of(reason: str, strain: Strain) -> str:
    """The slices that are left out for this reason, as the subject of a sentence."""
    slices = [left.slice for left in strain.left_out if left.reason == reason]
    return f"{numbered('slice', slices).capitalize()} {'is' if len(slices) == 1 else 'are'}"


def volume_table(volumes: Volumes) -> Table:
    """Largest and smallest volume and ejection fraction of each ventricle that is labelled, and the mass."""
    rows: list[tuple[str, ...]] = []
    for name, curve, fraction in (
        ("Left ventricle", volumes.lv_ml, volumes.lv_ejection_fraction_percent),
        ("Right ventricle", volumes.rv_ml, volumes.rv_ejection_fraction_percent),
    ):
        if curve.any():
            rows.append((name, f"{curve.max():.1f} ml", f"{curve.min():.1f} ml", in_percent(fraction)))
    notes = []
    if isfinite(volumes.mass_g):
        notes.append(f"Mass of the wall of the left ventricle in the reference: {volumes.mass_g:.1f} g.")
    if volumes.open_slices:
        text = open_wall_text(volumes.open_slices)
        notes.append(f"{text[0].upper()}{text[1:]}.")
    return Table("Volumes", ("largest", "smallest", "ejection fraction"), rows, tuple(notes))


def smallest_cavity(film: Film) -> int | None:
    """The frame at which the LV is smallest, where outlines are least sure; None where it is not labelled in some
    frame, or where that is the reference, whose outlines were given."""
    if film.volumes is None or not film.volumes.lv_ml.all():
        return None
    smallest = int(film.volumes.lv_ml.argmin())
    return None if smallest == film.reference else smallest


@dataclass(frozen=True)
class LookAt:
    """Where the verdict leads to, in words and in numbers."""

    before: str
    text: str
    frame: int
    place: int | None = None
    """Of the slice among those that are shown; None where it is no slice of its own."""


def look_at(film: Film, tracked: Tracked) -> LookAt | None:
    """The slice and the frame of what is worst; of a good cine the frame where outlines are least sure. None where what
    is wrong has no frame."""
    if (worst := tracked.worst) is not None and worst.frame is not None:
        frame, number, shown = frame_text(worst.frame), worst.slice, film.slices.numbers
        if number is None:
            return LookAt("Look at", frame, worst.frame)
        place = int(np.abs(np.array(shown) - number).argmin())
        return LookAt("Look at", f"slice {shown[place] + 1}, {frame}", worst.frame, place)
    smallest = smallest_cavity(film)
    if smallest is None or tracked.verdict is None or tracked.verdict["level"] != "good":
        return None
    said = "Outlines are least sure where the cavity is smallest: look at"
    return LookAt(said, frame_text(smallest), smallest)


def definitions(film: Film, tracked: Tracked) -> dict[str, str]:
    """What the numbers mean."""
    measures = {} if film.strain is None else {m.title: in_symbols(m.definition) for m in MEASURES}
    return {**measures, **tracked.definitions}


def in_symbols(definition: str) -> str:
    """A definition as a page prints it: files have it in plain letters, with measures by the names of columns."""
    for plain, drawn in (SYMBOLS | TITLES).items():
        definition = definition.replace(plain, drawn)
    return definition


def in_percent(value: float, digits: int = 1) -> str:
    """A percentage, with a true minus; a dash for what cannot be measured."""
    return with_minus(f"{value:.{digits}f} %") if isfinite(value) else ABSENT


def with_minus(number: str) -> str:
    """A number with a true minus, which is as wide as a plus."""
    return number.replace("-", "−")


def when(peak: Peak | None, frames: int | None = None) -> str:
    """The frame of a peak, of how many, and its time where that is known."""
    if peak is None:
        return ABSENT
    return frame_text(peak.frame, frames) + ("" if peak.time_ms is None else f", {peak.time_ms:.0f} ms")


def frame_text(k: int, frames: int | None = None) -> str:
    """Frame k of an array as people count it, from 1 as slices: frame 10 of 30."""
    return f"frame {k + 1}" + ("" if frames is None else f" of {frames}")


# Points of tissue in one slice, and where they are in every frame: y_t = x + u_t(x).
#
# They make the lines of a grid, the outlines of labels, and the corners of the voxels of the wall: all that a film draws.
# Coordinates are in pixels, pixel i from i to i + 1.

GRID_LINES = 28
"""Along the longer side of a picture."""
OUTLINE_SMOOTHING = 0.8
"""In pixels, of the Gaussian that takes the steps of voxels from an outline."""


class Outline(NamedTuple):
    """A closed line around a label: which points it goes through."""

    label: int
    first: int
    length: int


@dataclass(frozen=True)
class MaterialPoints:
    """The points of a slice in every frame, and what they make."""

    moved: Float[ndarray, "t 2 m"]
    grid: tuple[int, int]
    """Lines across and down; their crossings are the first points, those of one line down after the other."""
    outlines: list[Outline]
    corners: Integer[ndarray, "n 4"]
    """Of the voxels of the wall, in the order of the strain map."""


def material_points(slices: FilmSlices, k: int) -> MaterialPoints:
    """The points of the k-th slice."""
    lines = grid_lines(slices.frames.shape[1:3])
    still = [np.stack(np.meshgrid(*lines, indexing="ij")).reshape(2, -1)]
    outlines, count = [], still[0].shape[1]
    for label, line in trace_labels(slices.labels, k):
        outlines.append(Outline(label, count, line.shape[1]))
        still.append(line)
        count += line.shape[1]
    squares, corners = voxel_corners(slices, k)
    moved = move_points(np.concatenate([*still, squares], 1), slices.motion[..., k])
    return MaterialPoints(moved, (len(lines[0]), len(lines[1])), outlines, corners + count)


def grid_lines(shape: tuple[int, ...]) -> list[Float[ndarray, " n"]]:
    """Where the lines of a grid cross each axis: through the middles of pixels."""
    step = max(1, round(max(shape) / GRID_LINES))
    return [np.arange(step // 2, n, step) + 0.5 for n in shape]


def trace_labels(labels: Integer[ndarray, "w h n"] | None, k: int) -> list[tuple[int, Float[ndarray, "2 m"]]]:
    """The outlines of every label in a slice."""
    if labels is None:
        return []
    values = np.unique(labels[..., k][labels[..., k] != 0]).tolist()
    return [(value, line) for value in values for line in trace_outlines(labels[..., k] == value)]


def trace_outlines(mask: Bool[ndarray, "w h"]) -> list[Float[ndarray, "2 m"]]:
    """The closed lines around a mask, without the steps of its voxels."""
    from contourpy import contour_generator
    from scipy.ndimage import gaussian_filter

    smooth = gaussian_filter(np.pad(mask, 2).astype(np.float32), OUTLINE_SMOOTHING)
    lines = contour_generator(z=smooth.T).lines(0.5)
    return [np.asarray(line)[:-1].T - 1.5 for line in lines]  # the last point is the first again


def voxel_corners(slices: FilmSlices, k: int) -> tuple[Float[ndarray, "2 m"], Integer[ndarray, "n 4"]]:
    """The corners of the wall's voxels, each once, and which four are those of a voxel, in the order around it."""
    if slices.strain is None:
        return np.empty((2, 0)), np.empty((0, 4), int)
    across, down, at = slices.strain.index
    voxels = np.stack([across, down], 1)[at == k]
    around = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    unique, which = np.unique((voxels[:, None] + around).reshape(-1, 2), axis=0, return_inverse=True)
    return unique.T.astype(float), which.reshape(-1, 4)


def move_points(points: Float[ndarray, "2 m"], motion: Float[ndarray, "t 2 w h"]) -> Float[ndarray, "t 2 m"]:
    """x + u_t(x), u between the middles of pixels by linear interpolation."""
    from scipy.ndimage import map_coordinates

    moved = [[map_coordinates(u, points - 0.5, order=1, mode="nearest") for u in frame] for frame in motion]
    return points + np.array(moved)


# What the scripts of a cine's page read: slices in 8-bit sheets of frames, points of tissue, strain, and curves.

WINDOW_PERCENTILES = (0.5, 99.5)
"""The percentiles of the intensities of all frames that are black and white."""
STRAIN_RANGE = (-100.0, 155.0)
"""Of the strain at voxels, in percent, in steps of one percent."""
COLOUR_LIMITS = {"circumferential": 30.0, "radial": 120.0}
"""The strain, in percent, that has full colour, either way."""
ASSUMED_CYCLE_MS = 1000.0
"""How long a cycle takes to be played whose times are not known."""


def cine_data(film: Film) -> dict[str, Any]:
    """What the page holds of a film."""
    slices = film.slices
    _, width, height, _ = slices.frames.shape
    side = slices.block
    return {
        "tiles": {"width": -(-width // side), "height": -(-height // side), "columns": sheet_columns(len(film))},
        "block": side,
        "size": [width, height],
        "spacing": slices.spacing,
        "frames": len(film),
        "reference": film.reference,
        "times": film.times_ms,
        "cycle": cycle_ms(film.times_ms) or ASSUMED_CYCLE_MS,
        "slices": [k + 1 for k in slices.numbers],
        "depth": slices.depth,
        "start": slices.main,
        "edges": dict(slices.edges),
        "labels": [
            {"value": value, "name": name, "colour": colour} for value, (name, colour) in slices.structures.items()
        ],
        "wall": slices.heart.wall,
        "range": [-max(width, height) / 2, 1.5 * max(width, height)],
        "strainRange": STRAIN_RANGE,
        "limits": COLOUR_LIMITS,
        "sheets": grey_sheets(slices),
        "points": [slice_points(slices, k) for k in range(len(slices.numbers))],
        "strain": strain_curves(film.strain),
        "volumes": volume_curves(film.volumes),
        "segments": segment_list(film.strain),
    }


def cine_colours() -> dict[str, Any]:
    """The colours that the scripts of the page paint with."""
    return {"strain": colour_stops(STRAIN_MAP), "grid": GRID}


def cycle_ms(times_ms: tuple[float, ...] | None) -> float | None:
    """How long the cycle lasts: to where the frame after the last would be."""
    return None if times_ms is None else (times_ms[-1] - times_ms[0]) * len(times_ms) / (len(times_ms) - 1)


def grey_sheets(slices: FilmSlices) -> list[str]:
    """One picture per slice, with all of its frames."""
    low, high = window_of([slices.frames], WINDOW_PERCENTILES)
    factors = (slices.block, slices.block)
    found = []
    for k in range(len(slices.numbers)):
        film = np.moveaxis(slices.frames[..., k], 0, -1).astype(np.float32)
        means = reduce_blocks(np.add, film, factors) / block_sizes(film.shape[:2], factors)
        found.append(encode_sheet(quantise(means, low, high), "JPEG"))
    return found


def slice_points(slices: FilmSlices, k: int) -> dict[str, Any]:
    """The points of a slice in every frame, what they make, and the strain of the wall's voxels; arrays in base 64."""
    points = material_points(slices, k)
    size = max(slices.frames.shape[1:3])
    scaled = (points.moved / size + 0.5) * (65535 / 2)
    return {
        "count": points.moved.shape[2],
        "moved": in_base64(np.rint(scaled).clip(0, 65535), "<u2"),
        "grid": points.grid,
        "outlines": points.outlines,
        "corners": in_base64(points.corners, "<u4"),
        "strain": voxel_strain(slices, k, points),
    }


def voxel_strain(slices: FilmSlices, k: int, points: MaterialPoints) -> dict[str, str] | None:
    """The strain of the wall's voxels in a slice, frame by frame; None where it has no ring of wall."""
    if slices.strain is None or not len(points.corners):
        return None
    here = slices.strain.index[2] == k
    maps = {name: getattr(slices.strain, name)[:, here] for name in COLOUR_LIMITS}
    return {name: in_base64(quantise(percent, *STRAIN_RANGE), "u1") for name, percent in maps.items()}


def in_base64(array: Any, kind: str) -> str:
    """The bytes of an array, as text."""
    return b64encode(np.ascontiguousarray(array.astype(kind)).tobytes()).decode()


def strain_curves(strain: Strain | None) -> dict[str, Any] | None:
    """{measure: {region: percent by frame}}, of the regions that some slice shows, with their peaks."""
    if strain is None:
        return None
    return {
        m.name: {
            "title": m.title,
            "definition": in_symbols(m.definition),
            "direction": direction(m),
            **measured_curves(strain, m.name),
        }
        for m in MEASURES
    }


def direction(measure: Measure) -> str:
    """The strain of COLOUR_LIMITS that a measure goes with: a beat shortens the wall around the ventricle alone."""
    return "circumferential" if measure.falls else "radial"


def measured_curves(strain: Strain, measure: str) -> dict[str, Any]:
    """The curve of each region by one measure, and the frame of its peak."""
    peaks = {region: peak.frame for region in strain.regions if (peak := strain.peak(measure, region))}
    return {"regions": {region: brief(strain.curve(measure, region)) for region in peaks}, "peaks": peaks}


def volume_curves(volumes: Volumes | None) -> dict[str, list[float]] | None:
    """ml by frame of the structures that are labelled."""
    if volumes is None:
        return None
    curves = {"LV": volumes.lv_ml, "RV": volumes.rv_ml, "wall": volumes.wall_ml}
    return {name: brief(curve) for name, curve in curves.items() if curve.any()}


def brief(curve: Float[ndarray, " t"]) -> list[float]:
    """The numbers of a curve, with as many digits as a plot can show."""
    return [round(float(value), 2) for value in curve]


def segment_list(strain: Strain | None) -> list[dict[str, Any]]:
    """The 16 segments where it is known where they are; otherwise none."""
    if strain is None or strain.insertions is None:
        return []
    return [{"region": f"segment {s.number}", "number": s.number, "name": s.name, "level": s.level} for s in SEGMENTS]


def write_cine_page(path: Path, film: Film, tracked: Tracked, run: Mapping[str, str]) -> None:
    """Write the page; `run` says what was run, in order, by its entries "cine" and "method" on which file and how."""
    text = render_template(
        "cine.html",
        method=run.get("method", ""),
        configuration=run.get("configuration", ""),
        name=PurePath(run.get("cine", "cine")).name,
        verdict=tracked.verdict,
        look_at=look_at(film, tracked),
        no_strain=film.no_strain,
        doubt=film.doubt,
        headline=headline(film, tracked),
        tables=tables(film, tracked),
        definitions=definitions(film, tracked),
        run=run,
        colours=cine_colours(),
        data=cine_data(film),
    )
    write_bytes(text.encode(errors="replace"), path)
