"""A tracked cine to look at: one page that opens from disk, on which the heart beats; a film, its curves, a card."""

from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from io import BytesIO
from math import ceil, isfinite, sqrt
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy import ndarray
from PIL import Image, ImageChops, ImageDraw, ImageFont

from vrnet.cardiac.cine import CLOSURE, CineResult
from vrnet.cardiac.strain import (
    GLOBAL,
    MEASURES,
    NO_SEGMENTS,
    STRAIN_RATE,
    TITLES,
    TWIST,
    Measure,
    Peak,
    Strain,
    StrainMap,
    strain_map,
)
from vrnet.cardiac.volumes import VOLUME_DEFINITION, Volumes, open_wall_text
from vrnet.cardiac.wall import HeartLabels
from vrnet.errors import Progress, in_runs, numbered
from vrnet.files import write_bytes
from vrnet.methods.names import kind_of
from vrnet.provenance import versions
from vrnet.report import CURVES, GIF, REPORT, drawing
from vrnet.report.drawing import GRID, STRAIN_MAP, WINDOW_PERCENTILES, Picture, quantise, window_of
from vrnet.report.figures import card, save
from vrnet.report.page import span_with_margin
from vrnet.report.pair import View, average_blocks, choose_slices, edge_letters, turn_array, viewing_order
from vrnet.verdict.cine import smallest_cavity, verdict_as_json, where_to_look
from vrnet.vocabulary import LEVELS, SEGMENTS

# What is shown of a tracked cine, oriented as radiologists view it and cut to the part around the heart.

MAX_SLICES = 24
MAX_PIXELS = 12e6  # of all frames and slices together: a page of them stays below 15 MB
BOX_MARGIN = 0.4  # around the labels, as a part of their size: what else moves near the heart is seen too


@dataclass(frozen=True, eq=False)
class Film:
    """What is shown of a tracked cine: (t, w, h, n), across the picture, down it, and by slice. The point at x in the
    reference is at x + u(x) in frame t, u being motion[t], within slices alone."""

    result: CineResult
    frames: Shaped[ndarray, "t w h n"]  # in the intensities of the file
    motion: Float[ndarray, "t 2 w h n"]  # in voxels
    labels: Integer[ndarray, "w h n"]  # those of the reference; 0 where none were given
    spacing: tuple[float, float]  # of voxels within slices, in mm
    numbers: list[int]  # of the slices in the cine, from 0
    depth: int  # how many slices the cine has
    frame_labels: Integer[ndarray, "t w h n"] | None = None  # where these are not those of the reference, moved

    @classmethod
    def of(cls, result: CineResult) -> "Film":
        """The slices to show, oriented, and cut to the part around the labels where there are any."""
        grid, given = result.cine.grid, result.reference_labels
        order, signs = viewing_order(grid) if len(grid.shape) == 3 else ((0, 1), (1, 1))
        depth = 1 if len(order) == 2 else grid.shape[order[2]]
        numbers = choose_slices(depth, MAX_SLICES)

        def shown(array: Any) -> Any:
            return array[..., None] if len(order) == 2 else turn_array(array, order, signs)[..., numbers]

        fields = result.kept.fields[:, list(order)] * np.reshape(signs, (-1, *[1] * len(order)))
        frames, motion = shown(result.cine.frames), shown(fields)[:, :2]
        labels = shown(np.zeros(grid.shape, np.uint8) if given is None else given.array)
        is_mixed = result.labels is not None and (result.is_seen_alike or bool(result.corrections))
        maps = shown(result.labels) if is_mixed else None
        box = [slice(None), slice(None)]
        if labels.any():
            box = [slice(*span_with_margin(labels.any(axis=(other, 2)), BOX_MARGIN)) for other in (1, 0)]
        spacing = grid.spacing[order[0]], grid.spacing[order[1]]
        maps = None if maps is None else maps[:, *box]
        return cls(result, frames[:, *box], motion[:, :, *box], labels[*box], spacing, numbers, depth, maps)

    @property
    def heart(self) -> HeartLabels:
        return self.result.heart or HeartLabels()

    @cached_property
    def strain(self) -> StrainMap | None:
        """Green strain at the voxels of the wall; None without labels, or where no slice shows a ring of wall."""
        fields = np.concatenate([self.motion, np.zeros_like(self.motion[:, :1])], 1)
        return strain_map(fields, self.labels, (*self.spacing, 1.0), across=2, heart=self.heart)

    @cached_property
    def structures(self) -> dict[int, tuple[str, str]]:
        """{label: (name, colour)} of the labels that are shown; a part of the heart has one colour in all films."""
        found, parts = drawing.find_labels([self.labels]), (self.heart.rv, self.heart.wall, self.heart.lv)
        names = dict(zip(parts, ("right ventricle", "wall", "cavity"), strict=True)) | dict(self.result.label_names)
        order = [*parts, *(label for label in found if label not in parts)]
        colours = dict(zip(order, drawing.label_colours(list(range(len(order)))).values(), strict=True))
        return {label: (names.get(label, f"label {label}"), colours[label]) for label in found}

    @property
    def main(self) -> int:
        """The place of the slice that is shown first: in the middle of those with strain, or with labels, or of all."""
        if self.strain is not None:
            shown = np.unique(self.strain.index[2])
        elif self.labels.any():
            shown = np.flatnonzero(self.labels.any((0, 1)))
        else:
            shown = np.arange(len(self.numbers))
        return int(shown[len(shown) // 2])


# The numbers of a tracked cine, as a page prints them, each with its definition.

ABSENT = "–"
HEADLINES = {
    "green_circumferential": "Peak circumferential strain (Green)", "wall_thickness": "Peak thickening of the wall",
}  # fmt: skip
SYMBOLS = {  # what a page has in place of the plain letters of files
    "1/2 ": "½ ", "F'F - I": "FᵀF − I", "grad u": "∇u",
    "L - L0": "L − L₀", "/L0": "/L₀", "T - T0": "T − T₀", "/T0": "/T₀",
}  # fmt: skip
FOLDS = "voxels of all frames where any of the determinants between a voxel and its neighbours is 0 or less"


def headline(result: CineResult) -> list[tuple[str, str, str]]:
    """What one wants to know first: a name, its value, and a detail, as when it was reached."""
    rows = []
    if (volumes := result.volumes) is not None:
        (name, fraction), *others = volumes.ejection_fractions_percent.items()
        beside = [f"{other} {in_percent(percent)}" for other, percent in others]
        if volumes.open_slices and name == "LV":
            beside.insert(0, f"without {numbered('slice', volumes.open_slices)}")
        for estimate, fractions in result.ejection_fractions_percent.items():
            if estimate != "measured" and name in fractions:
                beside.append(f"{in_percent(fractions[name])} {estimate}")
        if name in result.expected_fractions_percent:
            low, high = result.expected_fractions_percent[name]
            beside.insert(0, f"experts' outlines: {low:.0f} to {high:.0f} % expected")
        rows.append((f"Ejection fraction, {name}", in_percent(fraction), ", ".join(beside)))
    for name, title in HEADLINES.items():
        if result.strain is not None and (peak := result.strain.peak(name)):
            rows.append((title, in_percent(peak.percent), when(peak, len(result.cine))))
    return [*rows, ("Closure error, the larger", f"{max(result.closure_mm.values()):.2f} mm", "")]


def peak_table(strain: Strain) -> dict[str, Any]:
    """Peaks of every measure, global and by level, and which slices they are of."""
    regions = (GLOBAL, *LEVELS)
    rows = []
    for m in MEASURES:
        peaks = [strain.peak(m.name, region) for region in regions]
        values = (f"{peak.percent:.1f}".replace("-", "−") if peak else ABSENT for peak in peaks)
        rows.append((m.title, *values, when(peaks[0])))
    reasons: dict[str, list[int]] = {}
    for left in strain.left_out:
        reasons.setdefault(left.reason, []).append(left.slice)
    notes = [f"Measured in {numbered('slice', strain.slices)}."]
    if strain.doubt_about_levels:
        notes.append(f"{strain.doubt_about_levels}.")
    for reason, slices in reasons.items():
        are = "is" if len(slices) == 1 else "are"
        notes.append(f"{numbered('slice', slices).capitalize()} {are} left out: {reason}.")
    if not strain.insertions:
        notes.append(f"Segments are {NO_SEGMENTS}.")
    return {"title": "Peak strain, %", "columns": (*regions, "global peak at"), "rows": rows, "notes": notes}


def volume_table(volumes: Volumes) -> dict[str, Any]:
    """Largest and smallest volume and ejection fraction of each ventricle that is labelled, and the mass."""
    rows, notes = [], []
    for name, curve, fraction in (
        ("Left ventricle", volumes.lv_ml, volumes.lv_ejection_fraction_percent),
        ("Right ventricle", volumes.rv_ml, volumes.rv_ejection_fraction_percent),
    ):
        if curve.any():
            rows.append((name, f"{curve.max():.1f} ml", f"{curve.min():.1f} ml", in_percent(fraction)))
    if isfinite(volumes.mass_g):
        notes.append(f"Mass of the wall of the left ventricle in the reference: {volumes.mass_g:.1f} g.")
    if volumes.open_slices:
        text = open_wall_text(volumes.open_slices)
        notes.append(f"{text[0].upper()}{text[1:]}.")
    columns = ("largest", "smallest", "ejection fraction")
    return {"title": "Volumes", "columns": columns, "rows": rows, "notes": notes}


def look_at(film: Film) -> dict[str, Any] | None:
    """Where the verdict leads to, in words and in numbers: where it is worst; of a good cine the frame where outlines
    are least sure. None where no frame is known. `place` is that of the slice among those that are shown."""
    worst = where_to_look(film.result.evidence)
    if worst is not None and worst.frame is not None:
        place, text = None, frame_text(worst.frame)
        if worst.slice is not None:
            place = int(np.abs(np.array(film.numbers) - worst.slice).argmin())
            text = f"slice {film.numbers[place] + 1}, {text}"
        return {"before": "Look at", "text": text, "frame": worst.frame, "place": place}
    smallest = smallest_cavity(film.result)
    if smallest is None or film.result.verdict.level != "good":
        return None
    before = "Outlines are least sure where the cavity is smallest: look at"
    return {"before": before, "text": frame_text(smallest), "frame": smallest, "place": None}


def what_was_run(result: CineResult) -> dict[str, str]:
    """What was run and by which code: {heading: text}."""
    cine, grid, repaired = result.cine, result.cine.grid, [k + 1 for k in result.repaired]
    size, spacing = " x ".join(map(str, grid.shape)), " x ".join(f"{h:.4g}" for h in grid.spacing)
    slices = "each by itself" if result.slice_axis is not None else "together"
    about = {
        "cine": cine.name,
        "frames": f"{len(cine)} of {size} voxels of {spacing} mm",
        "reference": frame_text(result.frame, len(cine)),
        "in files": "frames are counted from 0, as in Python: frame 1 here is frame 0 there, or frame_00",
        "outlines by": result.outlines_by,
        "labels": None if result.given_labels is None else result.given_labels[1].name,
        "method": result.method, "configuration": kind_of(result.method),
        "turns found by": result.turned_by, "refined by": result.refined_by,
        "slices": slices if len(grid.shape) == 3 else None,
        "folds": f"repaired in {len(repaired)} of {len(cine)} frames: {in_runs(repaired)}" if repaired else None,
        "device": result.device, "seconds of tracking": f"{result.seconds:.1f}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items() if version),
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }  # fmt: skip
    return {heading: text for heading, text in about.items() if text is not None}


def in_symbols(definition: str) -> str:
    """A definition as a page prints it: files have it in plain letters, with measures by the names of columns."""
    for plain, drawn in (SYMBOLS | TITLES).items():
        definition = definition.replace(plain, drawn)
    return definition


def in_percent(value: float, digits: int = 1) -> str:
    """A percentage, with a true minus, which is as wide as a plus; a dash for what cannot be measured."""
    return f"{value:.{digits}f} %".replace("-", "−") if isfinite(value) else ABSENT


def when(peak: Peak | None, frames: int | None = None) -> str:
    """The frame of a peak, of how many, and its time where that is known."""
    time = "" if peak is None or peak.time_ms is None else f", {peak.time_ms:.0f} ms"
    return ABSENT if peak is None else frame_text(peak.frame, frames) + time


def frame_text(k: int, frames: int | None = None) -> str:
    """Frame k of an array as people count it, from 1 as slices: frame 10 of 30."""
    return f"frame {k + 1}" + ("" if frames is None else f" of {frames}")


# Points of tissue in one slice, and where they are in every frame: y_t = x + u_t(x).
#
# They make the lines of a grid, the outlines of labels, and the corners of the voxels of the wall: all that a film
# draws. Coordinates are in pixels, pixel i from i to i + 1.

GRID_LINES = 28  # along the longer side of a picture
OUTLINE_POINTS = 96  # of each outline of labels that are drawn in every frame
OUTLINE_SMOOTHING = 1.5, 0.8  # in pixels, of the Gaussians that take the steps of voxels from an outline
ALONG_OUTLINE = 4.0  # in points, of the Gaussian that smooths the motion of an outline


@dataclass(frozen=True)
class MaterialPoints:
    """The points of a slice in every frame, and what they make."""

    moved: Float[ndarray, "t 2 m"]
    grid: tuple[int, int]  # lines across and down, whose crossings are the first points, one line down after the other
    outlines: list[tuple[int, int, int]]  # closed lines: (label, its first point, how many points it has)
    corners: Integer[ndarray, "n 4"]  # of the voxels of the wall, in the order of the strain map


def material_points(film: Film, k: int) -> MaterialPoints:
    """The points of the k-th slice, moved by x + u_t(x), u between the middles of pixels by linear interpolation."""
    from scipy.ndimage import gaussian_filter1d, map_coordinates

    sides = film.frames.shape[1:3]
    step = max(1, round(max(sides) / GRID_LINES))
    lines = [np.arange(step // 2, n, step) + 0.5 for n in sides]  # through the middles of pixels
    still = [np.stack(np.meshgrid(*lines, indexing="ij")).reshape(2, -1)]
    outlines, count, drawn = [], still[0].shape[1], []
    flat, parts = film.labels[..., k], (film.heart.rv, film.heart.wall, film.heart.lv)
    for label in np.unique(flat[flat != 0]).tolist():
        if film.frame_labels is not None and label in parts:
            for masks in regions(film.frame_labels[..., k], label, film.heart):
                drawn.append((count, np.stack(follow_outline(masks))))
                still.append(drawn[-1][1][0])
                outlines.append((label, count, OUTLINE_POINTS))
                count += OUTLINE_POINTS
            continue
        for line in (line for mask in regions(flat, label, film.heart) for line in contours(mask)):
            still.append(line)
            outlines.append((label, count, line.shape[1]))
            count += line.shape[1]
    squares, corners = np.empty((2, 0)), np.empty((0, 4), int)
    if film.strain is not None:  # the corners of the wall's voxels, each once, and in the order around each
        voxels = film.strain.index[:2, film.strain.index[2] == k].T
        around = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        unique, which = np.unique((voxels[:, None] + around).reshape(-1, 2), axis=0, return_inverse=True)
        squares, corners = unique.T.astype(float), which.reshape(-1, 4)
    points, motion = np.concatenate([*still, squares], 1), film.motion[..., k]
    moved = [[map_coordinates(u, points - 0.5, order=1, mode="nearest") for u in frame] for frame in motion]
    shift = np.array(moved)
    for _, first, n in outlines:
        here = shift[:, :, first : first + n]
        shift[:, :, first : first + n] = gaussian_filter1d(here, ALONG_OUTLINE, mode="wrap")
    found = points + shift
    for first, redrawn in drawn:
        found[:, :, first : first + OUTLINE_POINTS] = redrawn
    return MaterialPoints(found, (len(lines[0]), len(lines[1])), outlines, corners + count)


def contours(mask: Bool[ndarray, "w h"]) -> list[Float[ndarray, "2 m"]]:
    """The closed lines around a mask, smooth as muscle is, or, of what would vanish so, nearly as its voxels are."""
    from contourpy import contour_generator
    from scipy.ndimage import gaussian_filter

    for sigma in OUTLINE_SMOOTHING:
        smooth = gaussian_filter(np.pad(mask, 2).astype(np.float32), sigma)
        if lines := contour_generator(z=smooth.T).lines(0.5):
            return [np.asarray(line)[:-1].T - 1.5 for line in lines]  # its end is its start
    return []


def regions(labels: Integer[ndarray, "*t w h"], label: int, heart: HeartLabels) -> list[Bool[ndarray, "*t w h"]]:
    """What is inside the outlines of a label: of the wall, all within its outer and within its inner one."""
    if label != heart.wall or heart.lv is None:
        return [labels == label]
    return [mask for mask in ((labels == label) | (labels == heart.lv), labels == heart.lv) if mask.any()]


def follow_outline(masks: Bool[ndarray, "t w h"]) -> list[Float[ndarray, "2 m"]]:
    """The longest line around a mask in every frame, as equally many points; of none, one place of the last."""
    found = [np.full((2, OUTLINE_POINTS), np.argwhere(masks.any(0)).mean(0)[:, None] + 0.5 if masks.any() else 0.0)]
    for mask in masks:
        if lines := contours(mask):
            line = max(lines, key=lambda each: each.shape[1])
            closed = np.column_stack([line, line[:, 0]])
            along = np.append(0, np.linalg.norm(np.diff(closed), axis=0).cumsum())
            at = np.linspace(0, along[-1], OUTLINE_POINTS, endpoint=False)
            found.append(np.stack([np.interp(at, along, each) for each in closed]))
        else:
            found.append(np.repeat(found[-1].mean(1, keepdims=True), OUTLINE_POINTS, 1))
    return found[1:]


# What the scripts of a cine's page read: slices in 8-bit sheets of frames, points of tissue, strain, and curves.

STRAIN_RANGE = (-100.0, 155.0)  # of the strain at voxels, in percent, in steps of one percent
COLOUR_LIMITS = {"circumferential": 30.0, "radial": 120.0}  # the strain, in percent, that has full colour, either way
ASSUMED_CYCLE_MS = 1000.0  # how long a cycle takes to be played whose times are not known


def cine_data(film: Film) -> dict[str, Any]:
    """What the page holds of a film: arrays in base 64, and strain of the voxels of the wall."""
    result = film.result
    frames, width, height, _ = film.frames.shape
    side = ceil(sqrt(film.frames.size / MAX_PIXELS))  # of the block of voxels that makes one shown pixel
    times, volumes, strain = result.cine.times_ms, result.volumes, result.strain
    curves = {} if volumes is None else {"LV": volumes.lv_ml, "RV": volumes.rv_ml, "wall": volumes.wall_ml}
    cycle = ASSUMED_CYCLE_MS
    if times is not None:  # to where the frame after the last would be
        cycle = (times[-1] - times[0]) * frames / (frames - 1)
    sheets, points, window = [], [], window_of([film.frames], WINDOW_PERCENTILES)
    for k in range(len(film.numbers)):
        stack = np.moveaxis(film.frames[..., k], 0, -1).astype(np.float32)
        means = average_blocks(stack, (side, side))  # one picture per slice, with all of its frames
        sheets.append(drawing.encode_sheet(quantise(means, *window), "JPEG"))
        here, percent = material_points(film, k), None
        if film.strain is not None and len(here.corners):
            is_here = film.strain.index[2] == k
            maps = {name: getattr(film.strain, name)[:, is_here] for name in COLOUR_LIMITS}
            percent = {name: in_base64(quantise(map_, *STRAIN_RANGE), "u1") for name, map_ in maps.items()}
        scaled = (here.moved / max(width, height) + 0.5) * (65535 / 2)
        points.append({
            "count": here.moved.shape[2], "moved": in_base64(np.rint(scaled).clip(0, 65535), "<u2"),
            "grid": here.grid, "outlines": here.outlines, "corners": in_base64(here.corners, "<u4"),
            "strain": percent,
        })  # fmt: skip
    return {
        "tiles": {"width": -(-width // side), "height": -(-height // side), "columns": drawing.sheet_columns(frames)},
        "block": side, "size": [width, height], "spacing": film.spacing,
        "frames": frames, "reference": result.frame, "times": times, "cycle": cycle,
        "slices": [k + 1 for k in film.numbers], "depth": film.depth, "start": film.main,
        "edges": edge_letters(result.cine.grid),
        "labels": [{"value": k, "name": name, "colour": colour} for k, (name, colour) in film.structures.items()],
        "wall": film.heart.wall,
        "range": [-max(width, height) / 2, 1.5 * max(width, height)],
        "strainRange": STRAIN_RANGE, "limits": COLOUR_LIMITS,
        "sheets": sheets, "points": points,
        "strain": None if strain is None else all_curves(strain),
        "volumes": None if volumes is None else {name: ml.round(2).tolist() for name, ml in curves.items() if ml.any()},
        "segments": [
            {"region": f"segment {s.number}", "number": s.number, "name": s.name, "level": s.level}
            for s in (SEGMENTS if strain is not None and strain.insertions is not None else ())
        ],
    }  # fmt: skip


def strain_curves(strain: Strain, measure: Measure) -> dict[str, Any]:
    """What a measure is, its curve in every region that some slice shows, and the frames of their peaks."""
    peaks = {region: peak.frame for region in strain.regions if (peak := strain.peak(measure.name, region))}
    return {
        "title": measure.title,
        "unit": "%",
        "definition": in_symbols(measure.definition),
        "direction": "circumferential" if measure.falls else "radial",  # that of COLOUR_LIMITS that it goes with
        "regions": {region: strain.curve(measure.name, region).round(2).tolist() for region in peaks},
        "peaks": peaks,
    }


def all_curves(strain: Strain) -> dict[str, Any]:
    """Those of every measure, of twist, and of the strain rate of every region, if they are known."""
    found = {"twist": ("Twist", "°", TWIST, {} if strain.twist_deg is None else {GLOBAL: strain.twist_deg})}
    rates = {name: rate for name in strain.regions if (rate := strain.strain_rate(name)) is not None}
    found["strain_rate"] = ("Circumferential strain rate", "%/s", STRAIN_RATE, rates)
    return {m.name: strain_curves(strain, m) for m in MEASURES} | {
        name: {
            "title": title, "unit": unit, "definition": definition, "direction": "circumferential",
            "regions": {region: curve.round(2).tolist() for region, curve in curves.items()},
            "peaks": {region: int(np.abs(curve).argmax()) for region, curve in curves.items()},
        }
        for name, (title, unit, definition, curves) in found.items() if curves
    }  # fmt: skip


def in_base64(array: Any, kind: str) -> str:
    return b64encode(array.astype(kind).tobytes()).decode()


def write_page(film: Film, path: Path) -> Path:
    """Write the page of a tracked cine, and return its path."""
    result, run = film.result, what_was_run(film.result)
    measures = {} if result.strain is None else {m.title: in_symbols(m.definition) for m in MEASURES}
    of_volumes = {} if result.volumes is None else {"volumes": VOLUME_DEFINITION}
    tables = [] if result.strain is None else [peak_table(result.strain)]
    tables += [] if result.volumes is None else [volume_table(result.volumes)]
    quality = [(f"Closure error, {way}", f"{length:.2f} mm") for way, length in result.closure_mm.items()]
    quality.append(("Folded voxels, strict", in_percent(result.folding_strict_percent, 3)))
    text = drawing.render_template(
        "cine.html",
        method=result.method,
        configuration=run.get("configuration", ""),
        name=Path(result.cine.name).name,
        verdict=verdict_as_json(result),
        look_at=look_at(film),
        no_strain=result.no_strain,
        doubt=result.cine.doubt,
        headline=headline(result),
        tables=[*tables, {"title": "Quality", "columns": (), "rows": quality, "notes": ()}],
        definitions={**measures, **of_volumes, "closure error": CLOSURE, "folded voxels": FOLDS},
        run=run,
        colours={"strain": drawing.colour_stops(STRAIN_MAP), "grid": GRID},
        data=cine_data(film),
    )
    write_bytes(text.encode(errors="replace"), path)
    return path


# A tracked cine in pictures: its curves, a film for slides, and what notebooks show.

ROW_INCHES, CURVE_INCHES = 3.6, 4.6
CURVE_COLOURS = {GLOBAL: "#1f5fd0", "basal": "#b4560f", "mid": "#187a49", "apical": "#8240b8"}
LEVEL_LINES = dict(zip(LEVELS, ("-", "--", ":"), strict=True))
VOLUME_COLOURS = {"LV": "#d3222b", "RV": "#0f7ea3", "wall": "#9a6b00"}
PLOTTED = {"green_circumferential": "circumferential strain (Green), %", "green_radial": "radial strain (Green), %"}
FILM_SIDE_PIXELS = 440  # the longer side of each of the two pictures of a film
OVERSAMPLING = 2  # how many times larger pictures are drawn, so that lines are smooth once they are reduced
WALL_OPACITY = 0.6  # more than on the page: the picture beside it shows the wall without colour
STRIP_PIXELS, FONT_PIXELS, LEAST_EMS = 30, 15, 46  # of the strip below: height, letters, how many its words need
COLOURS, GREYS = 256, 96  # as many as GIF has; so many are greys that even tissue has neither blotches nor tints
TINT = 12  # how far apart red, green and blue are in a colour; what is below is a grey
DEFAULT_FRAME_MS = 40


def write_report(result: CineResult, place: Path, progress: Progress | None = None) -> Path:
    """Write the page alone, at a path that ends in .html; in a folder, the page and the pictures. Returns the page."""
    tell, film = progress or (lambda done: None), Film.of(result)
    if place.suffix == ".html":
        return write_page(film, place)
    write_page(film, place / REPORT)
    tell(1 / 3)
    if result.volumes is not None:
        save(curves_figure(result, Path(result.cine.name).name), place / CURVES)
    tell(2 / 3)
    write_film(film, place / GIF)
    return place / REPORT


def curves_figure(result: CineResult, title: str) -> Figure:
    """Curves of strain, where it was measured, and of volumes; the segments' peaks, where they are known."""
    strain = result.strain
    has_segments = strain is not None and strain.insertions is not None
    columns = (len(PLOTTED) if strain is not None else 0) + 1 + has_segments
    figure = Picture(figsize=(CURVE_INCHES * columns, 4.2), layout="constrained")
    figure.suptitle(title, parse_math=False)
    plot_curves([figure.add_subplot(1, columns, 1 + i) for i in range(columns - has_segments)], result)
    if strain is None or not has_segments:
        return figure

    # the peak circumferential strain of each segment, the anterior wall on top, the septum on the left
    ax: Any = figure.add_subplot(1, columns, columns, projection="polar")
    limit = COLOUR_LIMITS["circumferential"]
    for segment in SEGMENTS:
        peak = strain.peak("green_circumferential", f"segment {segment.number}")
        width, turn = 2 * np.radians(segment.half_width_deg), segment.number - 1 - 6 * segment.level
        angle, inner = np.pi / 2 + turn * width, 2.5 - segment.level
        colour = mpl.colormaps[STRAIN_MAP](0.5 + peak.percent / (2 * limit)) if peak else "#dddddd"
        ax.bar(angle, 1, width, inner, color=colour, edgecolor="white")
        is_dark = peak is not None and abs(peak.percent) > 0.75 * limit
        said = f"{peak.percent:.0f}".replace("-", "−") if peak else "–"
        ax.text(angle, inner + 0.5, said, ha="center", va="center", fontsize=9, color="white" if is_dark else "black")
    for k, (side, turn) in enumerate({"lateral": -90, "anterior": 0, "septum": 90, "inferior": 0}.items()):
        ax.text(k * np.pi / 2, 3.75, side, ha="center", va="center", fontsize=9, color="#5a6473", rotation=turn)
    ax.set_title("peak circumferential strain, %", fontsize=10)
    ax.set_axis_off()
    return figure


def tracking_figure(result: CineResult) -> Figure:
    """The reference and the frame farthest from it, with contours and strain, or the grid; below, the curves."""
    film, frames = Film.of(result), len(result.cine)
    points = material_points(film, film.main)
    curves = (len(PLOTTED) if result.strain is not None else 0) + (result.volumes is not None)
    rows = 2 if curves else 1
    figure = Picture(figsize=(CURVE_INCHES * max(curves, 3), ROW_INCHES * rows), layout="constrained")
    figure.suptitle(f"{Path(result.cine.name).name}, {result.method}", parse_math=False, fontsize=11)
    upper, *lower = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for ax, t in zip(upper.subplots(1, 2), (result.frame, shown_frame(result)), strict=True):
        ax.imshow(film_picture(film, points, t))
        ax.set_title(frame_text(t, frames) + (" (reference)" if t == result.frame else ""), fontsize=10)
        ax.set_axis_off()
    if lower:
        plot_curves(lower[0].subplots(1, curves, squeeze=False)[0].tolist(), result)
    return figure


def plot_curves(axes: list[Axes], result: CineResult) -> None:
    """Strain, where it was measured, and volumes over the cycle: in ms, or by the number of the frame from 1."""
    known, strain, volumes = result.cine.times_ms, result.strain, result.volumes
    times = np.arange(1.0, len(result.cine) + 1) if known is None else np.array(known)
    for ax, (measure, title) in zip(axes, PLOTTED.items() if strain is not None else (), strict=False):
        assert strain is not None
        # global, with its peak marked, is wide and pale, so that the levels are seen over it where they agree
        peak, colour = strain.peak(measure), CURVE_COLOURS[GLOBAL]
        label = f"global, peak {peak.percent:.1f} %".replace("-", "−") if peak else GLOBAL
        ax.plot(times, strain.curve(measure), color=colour, linewidth=6, alpha=0.35, label=label, solid_capstyle="butt")
        if peak:
            ax.plot(times[peak.frame], peak.percent, "o", color=colour)
        for region in LEVELS:
            if np.isfinite(curve := strain.curve(measure, region)).any():
                ax.plot(times, curve, LEVEL_LINES[region], color=CURVE_COLOURS[region], linewidth=1.5, label=region)
        ax.axhline(0, color="#999999", linewidth=0.8)
        ax.set_title(title, fontsize=10)
        ax.legend(fontsize=8)
    if volumes is not None:
        for name, curve in (("LV", volumes.lv_ml), ("RV", volumes.rv_ml), ("wall", volumes.wall_ml)):
            if curve.any():
                width = 2.6 if name == "LV" else 1.3
                axes[-1].plot(times, curve, color=VOLUME_COLOURS[name], linewidth=width, label=name)
        axes[-1].set_ylim(bottom=0)
        axes[-1].set_title("volume, ml", fontsize=10)
        axes[-1].legend(fontsize=8)
    for ax in axes:
        ax.set_xlabel("frame" if known is None else "ms")


def write_film(film: Film, path: Path) -> None:
    """Write the middle slice over the cycle as a GIF: with contours, and beside it with strain, or else the grid."""
    points, times, file, pictures = material_points(film, film.main), film.result.cine.times_ms, BytesIO(), []
    for t in range(len(film.frames)):
        picture = film_picture(film, points, t)
        # greys, and the colours that stand best for all that is not grey
        pixels = np.asarray(picture)
        is_coloured = np.ptp(pixels, axis=2) > TINT
        is_coloured[0, 0] = True  # there is one at least
        chosen = Image.fromarray(pixels[is_coloured][None]).quantize(COLOURS - GREYS, Image.Quantize.MAXCOVERAGE)
        palette, greys = Image.new("P", (1, 1)), np.linspace(0, 255, GREYS).astype(np.uint8).repeat(3)
        palette.putpalette([*greys.tolist(), *(chosen.getpalette() or [])])
        pictures.append(picture.quantize(palette=palette, dither=Image.Dither.NONE))
    duration = DEFAULT_FRAME_MS
    if times is not None:  # as long as it lasted; GIF counts in 10 ms, and browsers show none for less than 20
        duration = max(20, 10 * round((times[-1] - times[0]) / (len(times) - 1) / 10))
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
    write_bytes(file.getvalue(), path)


def film_picture(film: Film, points: MaterialPoints, t: int) -> Image.Image:
    """Two pictures of a frame of the main slice, side by side, and a strip below them."""
    low, high = window_of([film.frames[..., film.main]], WINDOW_PERCENTILES)
    still = quantise(film.frames[t, ..., film.main], low, high)
    sides = np.array(still.shape) * film.spacing  # pixels are square
    size = np.maximum(1, np.rint(sides * (FILM_SIDE_PIXELS / sides.max()))).astype(int) * OVERSAMPLING
    grey, scale = Image.fromarray(np.ascontiguousarray(still.T)).convert("RGB"), size / still.shape
    left = grey.resize((int(size[0]), int(size[1])), Image.Resampling.BICUBIC)
    right, moved = left.copy(), points.moved[t].T * scale
    if film.strain is None:
        pen, (across, down) = ImageDraw.Draw(right), points.grid
        nodes = moved[: across * down].reshape(across, down, 2)
        for line in (*nodes, *nodes.swapaxes(0, 1)):
            pen.line([*map(tuple, line)], fill=GRID, width=OVERSAMPLING)
    else:  # the circumferential strain of the wall as colour, half seen through, within its outlines
        percent = film.strain.circumferential[t, film.strain.index[2] == film.main]
        shades = mpl.colormaps[STRAIN_MAP](0.5 + percent / (2 * COLOUR_LIMITS["circumferential"]), bytes=True)
        covered, mask = right.copy(), Image.new("1", right.size)
        pen = ImageDraw.Draw(covered)
        for corners, shade in zip(points.corners, shades, strict=True):
            colour = tuple(map(int, shade[:3]))
            pen.polygon([*map(tuple, moved[corners])], fill=colour, outline=colour, width=2 * OVERSAMPLING)
        for label, first, length in points.outlines:
            if label == film.heart.wall:  # inside the outer line, and not inside the inner one
                inside = Image.new("1", mask.size)
                ImageDraw.Draw(inside).polygon([*map(tuple, moved[first : first + length])], fill=1)
                mask = ImageChops.logical_xor(mask, inside)
        right.paste(Image.blend(right, covered, WALL_OPACITY), mask=mask)
    for pen in (ImageDraw.Draw(left), ImageDraw.Draw(right)):
        for label, first, length in points.outlines:
            closed = [*map(tuple, moved[first : first + length]), tuple(moved[first])]
            pen.line(closed, fill=film.structures[label][1], width=2 * OVERSAMPLING, joint="curve")
    gap = 4 * OVERSAMPLING
    both = Image.new("RGB", (2 * left.width + gap, left.height + STRIP_PIXELS * OVERSAMPLING))
    both.paste(left, (0, 0))
    both.paste(right, (left.width + gap, 0))
    draw_strip(both, film, t)
    return both.reduce(OVERSAMPLING)


def draw_strip(picture: Image.Image, film: Film, t: int) -> None:
    """Along the bottom: the frame, its time where that is known, and on the right what the colours mean."""
    em = round(min(FONT_PIXELS * OVERSAMPLING, picture.width / LEAST_EMS))
    font = ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", em)
    pen, y = ImageDraw.Draw(picture), picture.height - STRIP_PIXELS * OVERSAMPLING // 2
    times = film.result.cine.times_ms
    time = "" if times is None else f" · {times[t]:.0f} ms"
    pen.text((em // 2, y), frame_text(t, len(film.frames)) + time, "white", font, anchor="lm")
    if film.strain is None:
        return
    limit = COLOUR_LIMITS["circumferential"]
    shades = mpl.colormaps[STRAIN_MAP](np.linspace(0, 1, 8 * em), bytes=True)[None, :, :3].repeat(em // 2, 0)
    right = picture.width - 4 * em
    left = right - 8 * em
    picture.paste(Image.fromarray(shades), (left, y - em // 4))
    pen.text((left - em // 2, y), f"circumferential strain  −{limit:.0f} %", "white", font, anchor="rm")
    pen.text((right + em // 2, y), f"{limit:.0f} %", "white", font, anchor="lm")


def shown_frame(result: CineResult) -> int:
    """The frame that a picture shows beside the reference: where the labels show the cavity of the left ventricle, that
    of its smallest volume; where they do not, or where the reference is that frame, the one that has moved farthest."""
    if (smallest := smallest_cavity(result)) is not None:
        return smallest
    spacing = np.reshape(result.cine.grid.spacing, (-1, *[1] * len(result.cine.grid.shape)))
    return int(np.argmax([float(np.square(field * spacing).mean()) for field in result.fields]))


def shown_pair(result: CineResult) -> View:
    """The reference, the frame that is shown beside it, and that frame brought back: what a thumbnail shows."""
    cine, k, reference = result.cine, shown_frame(result), result.reference_labels
    return View(
        fixed=cine.frames[result.frame].astype(np.float32),
        moving=cine.frames[k].astype(np.float32),
        warped=result.warped(k).array,
        field=result.fields[k],
        grid=cine.grid,
        fixed_labels=None if reference is None else reference.array,
    )


def tracking_card(result: CineResult) -> str:
    """The frame beside the reference, and the numbers that the page has on top."""
    film, t, file, frames = Film.of(result), shown_frame(result), BytesIO(), len(result.cine)
    film_picture(film, material_points(film, film.main), t).save(file, "PNG")
    facts = {name: f"{value} ({detail})" if detail else value for name, value, detail in headline(result)}
    title = f"{frames} frames of {Path(result.cine.name).name}, tracked by {result.method}"
    caption = f"{frame_text(t, frames).capitalize()}, as it has moved from frame {result.frame + 1}."
    return card(title, facts, file.getvalue(), caption, result.verdict)
