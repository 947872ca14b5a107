"""The numbers of a tracked cine, as a page prints them, each with its definition."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from vrnet.aha import LEVELS
from vrnet.evaluation.cine_evidence import Extreme
from vrnet.evaluation.strain import GLOBAL, MEASURES, NO_SEGMENTS, TITLES, Peak, Strain
from vrnet.evaluation.volumes import Volumes, open_wall_text
from vrnet.report.film import Film
from vrnet.wording import numbered

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
