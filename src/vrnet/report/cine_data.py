"""What the scripts of a cine's page read: slices in 8-bit sheets of frames, points of tissue, strain, and curves."""

from base64 import b64encode
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.aha import SEGMENTS
from vrnet.evaluation.strain import MEASURES, Measure, Strain
from vrnet.evaluation.volumes import Volumes
from vrnet.report.cine_numbers import in_symbols
from vrnet.report.colours import GRID, STRAIN_MAP, colour_stops
from vrnet.report.film import Film, FilmSlices
from vrnet.report.greys import window_of
from vrnet.report.material_points import MaterialPoints, material_points
from vrnet.report.sheets import encode_sheet, quantise, sheet_columns
from vrnet.report.slices import block_sizes, reduce_blocks

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
