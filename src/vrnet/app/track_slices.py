"""slices.csv: one row per slice and frame of a tracked cine."""

from pathlib import Path

from vrnet.evaluation.slice_curves import SliceCurves
from vrnet.evaluation.strain import MEASURES
from vrnet.files import Row, write_rows

OF_STRAIN = {m.name: m.definition for m in MEASURES}
DIGITS = 3
COLUMNS = {
    "cavity_mm2": ("cavity_mm2", "area of the cavity of the LV in the labels of this frame"),
    "wall_mm2": ("wall_mm2", "area of the wall of the LV in the labels of this frame"),
    "green_circumferential_percent": (
        "circumferential_percent",
        f"{OF_STRAIN['green_circumferential']} in this slice; empty where that is no closed ring",
    ),
    "green_radial_percent": (
        "radial_percent",
        f"{OF_STRAIN['green_radial']} in this slice; empty where that is no closed ring",
    ),
    "muscle_in_cavity_percent": (
        "muscle_percent",
        "how much more of the cavity looks like muscle than in the reference, in percent of the cavity: is no brighter "
        "than half-way from the median of the wall to the 90th percentile of the cavity (no darker, where blood is "
        "dark)",
    ),
}
"""{column: (its curve in SliceCurves, its definition)}"""


def write_slices(curves: SliceCurves, times_ms: tuple[float, ...] | None, path: Path) -> None:
    """Write the curves of all slices; comments above the header define the columns."""
    comments = ["slice, frame: counted from 0", *(f"{name}: {said}" for name, (_, said) in COLUMNS.items())]
    write_rows(slice_rows(curves, times_ms), path, comments)


def slice_rows(curves: SliceCurves, times_ms: tuple[float, ...] | None) -> list[Row]:
    """One row per slice and frame."""
    columns = {name: getattr(curves, curve).round(DIGITS) + 0.0 for name, (curve, _) in COLUMNS.items()}
    return [
        {"slice": number, "frame": t, "time_ms": times_ms[t] if times_ms else None}
        | {name: values[k, t] for name, values in columns.items()}
        for k, number in enumerate(curves.slices)
        for t in range(curves.wall_mm2.shape[1])
    ]
