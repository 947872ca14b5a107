"""The report of a tracked cine: one page that opens from disk, on which the heart beats."""

from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import ceil, isfinite, sqrt
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Float, Integer, Shaped
from numpy import ndarray

from vrnet.cardiac.cine import CLOSURE, CineResult
from vrnet.cardiac.strain import GLOBAL, MEASURES, NO_SEGMENTS, TITLES, Measure, Peak, Strain, StrainMap, strain_map
from vrnet.cardiac.volumes import VOLUME_DEFINITION, Volumes, open_wall_text
from vrnet.cardiac.wall import HeartLabels
from vrnet.errors import in_runs, numbered
from vrnet.files import write_bytes
from vrnet.methods.names import kind_of
from vrnet.provenance import versions
from vrnet.report import drawing
from vrnet.report.page import span_with_margin
from vrnet.report.pair import average_blocks, choose_slices, edge_letters, turn_array, viewing_order
from vrnet.verdict.cine import verdict_as_json, where_to_look
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
    labels: Integer[ndarray, "w h n"] | None  # those of the reference
    spacing: tuple[float, float]  # of voxels within slices, in mm
    numbers: list[int]  # of the slices in the cine, from 0
    depth: int  # how many slices the cine has

    @classmethod
    def of(cls, result: CineResult) -> "Film":
        """The slices to show, oriented, and cut to the part around the labels where there are any."""
        grid, given = result.cine.grid, result.reference_labels
        order, signs = viewing_order(grid) if len(grid.shape) == 3 else ((0, 1), (1, 1))
        depth = 1 if len(order) == 2 else grid.shape[order[2]]
        numbers = choose_slices(depth, MAX_SLICES)

        def shown(array: Any) -> Any:
            return array[..., None] if len(order) == 2 else turn_array(array, order, signs)[..., numbers]

        fields = result.fields[:, list(order)] * np.reshape(signs, (-1, *[1] * len(order)))
        frames, motion = shown(result.cine.frames), shown(fields)[:, :2]
        labels = None if given is None else shown(given.array)
        box = (slice(None), slice(None))
        if labels is not None and labels.any():
            across, down = (span_with_margin(labels.any(axis=(other, 2)), BOX_MARGIN) for other in (1, 0))
            box = slice(*across), slice(*down)
        labels = None if labels is None else labels[box]
        spacing = grid.spacing[order[0]], grid.spacing[order[1]]
        return cls(result, frames[:, *box], motion[:, :, *box], labels, spacing, numbers, depth)

    @property
    def heart(self) -> HeartLabels:
        return self.result.heart or HeartLabels()

    @cached_property
    def strain(self) -> StrainMap | None:
        """Green strain at the voxels of the wall; None without labels, or where no slice shows a ring of wall."""
        if self.labels is None:
            return None
        fields = np.concatenate([self.motion, np.zeros_like(self.motion[:, :1])], 1)
        return strain_map(fields, self.labels, (*self.spacing, 1.0), across=2, heart=self.heart)

    @cached_property
    def structures(self) -> dict[int, tuple[str, str]]:
        """{label: (name, colour)} of the labels that are shown; a part of the heart has one colour in all films."""
        if self.labels is None:
            return {}
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
        elif self.labels is not None and self.labels.any():
            shown = np.flatnonzero(self.labels.any((0, 1)))
        else:
            shown = np.arange(len(self.numbers))
        return int(shown[len(shown) // 2])


# The numbers of a tracked cine, as a page prints them, each with its definition.

ABSENT = "–"
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
        rows.append((f"Ejection fraction, {name}", in_percent(fraction), ", ".join(beside)))
    for name, title in (("green_circumferential", "circumferential"), ("green_radial", "radial")):
        if result.strain is not None and (peak := result.strain.peak(name)):
            rows.append((f"Peak {title} strain (Green)", in_percent(peak.percent), when(peak, len(result.cine))))
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


def smallest_cavity(result: CineResult) -> int | None:
    """The frame at which the LV is smallest; None if some frame shows none, or if that is the reference."""
    if result.volumes is None or not result.volumes.lv_ml.all():
        return None
    smallest = int(result.volumes.lv_ml.argmin())
    return None if smallest == result.frame else smallest


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
        "labels": None if result.reference_labels is None else result.reference_labels.name,
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
OUTLINE_SMOOTHING = 0.8  # in pixels, of the Gaussian that takes the steps of voxels from an outline


@dataclass(frozen=True)
class MaterialPoints:
    """The points of a slice in every frame, and what they make."""

    moved: Float[ndarray, "t 2 m"]
    grid: tuple[int, int]  # lines across and down, whose crossings are the first points, one line down after the other
    outlines: list[tuple[int, int, int]]  # closed lines: (label, its first point, how many points it has)
    corners: Integer[ndarray, "n 4"]  # of the voxels of the wall, in the order of the strain map


def material_points(film: Film, k: int) -> MaterialPoints:
    """The points of the k-th slice, moved by x + u_t(x), u between the middles of pixels by linear interpolation."""
    from contourpy import contour_generator
    from scipy.ndimage import gaussian_filter, map_coordinates

    sides = film.frames.shape[1:3]
    step = max(1, round(max(sides) / GRID_LINES))
    lines = [np.arange(step // 2, n, step) + 0.5 for n in sides]  # through the middles of pixels
    still = [np.stack(np.meshgrid(*lines, indexing="ij")).reshape(2, -1)]
    outlines, count = [], still[0].shape[1]
    flat = np.zeros(sides, int) if film.labels is None else film.labels[..., k]
    for label in np.unique(flat[flat != 0]).tolist():
        smooth = gaussian_filter(np.pad(flat == label, 2).astype(np.float32), OUTLINE_SMOOTHING)
        for line in contour_generator(z=smooth.T).lines(0.5):
            still.append(np.asarray(line)[:-1].T - 1.5)  # the last point is the first again
            outlines.append((label, count, len(line) - 1))
            count += len(line) - 1
    squares, corners = np.empty((2, 0)), np.empty((0, 4), int)
    if film.strain is not None:  # the corners of the wall's voxels, each once, and in the order around each
        voxels = film.strain.index[:2, film.strain.index[2] == k].T
        around = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        unique, which = np.unique((voxels[:, None] + around).reshape(-1, 2), axis=0, return_inverse=True)
        squares, corners = unique.T.astype(float), which.reshape(-1, 4)
    points, motion = np.concatenate([*still, squares], 1), film.motion[..., k]
    moved = [[map_coordinates(u, points - 0.5, order=1, mode="nearest") for u in frame] for frame in motion]
    return MaterialPoints(points + np.array(moved), (len(lines[0]), len(lines[1])), outlines, corners + count)


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
    sheets, points, window = [], [], drawing.window_of([film.frames], drawing.WINDOW_PERCENTILES)
    for k in range(len(film.numbers)):
        stack = np.moveaxis(film.frames[..., k], 0, -1).astype(np.float32)
        means = average_blocks(stack, (side, side))  # one picture per slice, with all of its frames
        sheets.append(drawing.encode_sheet(drawing.quantise(means, *window), "JPEG"))
        here, percent = material_points(film, k), None
        if film.strain is not None and len(here.corners):
            is_here = film.strain.index[2] == k
            maps = {name: getattr(film.strain, name)[:, is_here] for name in COLOUR_LIMITS}
            percent = {name: in_base64(drawing.quantise(map_, *STRAIN_RANGE), "u1") for name, map_ in maps.items()}
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
        "strain": None if strain is None else {m.name: strain_curves(strain, m) for m in MEASURES},
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
        "definition": in_symbols(measure.definition),
        "direction": "circumferential" if measure.falls else "radial",  # that of COLOUR_LIMITS that it goes with
        "regions": {region: strain.curve(measure.name, region).round(2).tolist() for region in peaks},
        "peaks": peaks,
    }


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
        name=PurePath(result.cine.name).name,
        verdict=verdict_as_json(result),
        look_at=look_at(film),
        no_strain=result.no_strain,
        doubt=result.cine.doubt,
        headline=headline(result),
        tables=[*tables, {"title": "Quality", "columns": (), "rows": quality, "notes": ()}],
        definitions={**measures, **of_volumes, "closure error": CLOSURE, "folded voxels": FOLDS},
        run=run,
        colours={"strain": drawing.colour_stops(drawing.STRAIN_MAP), "grid": drawing.GRID},
        data=cine_data(film),
    )
    write_bytes(text.encode(errors="replace"), path)
    return path
