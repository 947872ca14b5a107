"""The page of a cohort: one file that opens from disk, with the table of all subjects inside it."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import floor, isfinite, log10
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from vrnet.cohort.results import Result
from vrnet.data.labels import label_text
from vrnet.files import Row, write_bytes
from vrnet.report.drawing import render_template
from vrnet.verdict.rules import WORDS

HEADINGS = json.loads((files("vrnet.report") / "web" / "headings.json").read_text(encoding="utf-8"))
"""What columns are called whose name alone does not say it; of NAME_before and NAME_after, the common part."""


def heading(column: str, label_names: Mapping[str, str] = MappingProxyType({})) -> str:
    """A column in words, its unit in brackets: Surface distance after (mm). Others, as the user's, get a capital."""
    name, _, when = column.rpartition("_")
    if when in ("before", "after") and name in HEADINGS:
        words, bracket, unit = HEADINGS[name].partition(" (")
        return f"{words} {when}{bracket}{unit}"
    if column.startswith("dice_"):
        return f"Dice of {label_text(column.removeprefix('dice_'), label_names)} after"
    return HEADINGS.get(column, column[:1].upper() + column[1:])


INDEX = "index.html"
ALWAYS = ("subject", "status", "verdict", "suspicion")  # columns that the script asks for
MAIN_MEASURES = (  # columns that tell most, the first of them first
    "dice_before", "dice_after", "hausdorff_mm_after", "lv_ejection_fraction_percent",
    "peak_green_circumferential_percent", "peak_green_radial_percent", "ncc_before", "ncc_after", "closure_forward_mm",
    "closure_backward_mm", "folding_strict_percent", "seconds",
)  # fmt: skip
MAX_GROUPS = 12  # values, at most, of a further column of the list that is taken for groups, which are compared


class Links(NamedTuple):
    """What the page leads to, relative to it; {subject} stands for the name of a subject."""

    results: str  # the folder that holds those of the subjects, in which the others are
    page: str  # what a click opens
    picture: str  # the thumbnail, shown while the mouse is over a row
    still: str = "fixed"  # what the first of the thumbnail's three images is called
    moved: str = "moving"  # what the second is called, which the third shows brought to the first
    numbers: str = "metrics.json"  # what a click opens where there is no page


def write_index(path: Path, data: Mapping[str, Any], summary: Mapping[str, Any], method: str = "") -> None:
    """Write the page of `index_data`; `method` is what ran, if not what the recipe of summary.json asks for."""
    text = render_template("cohort.html", summary=summary, data=data, method=method or summary["recipe"]["method"])
    write_bytes(text.encode(errors="replace"), path)


def index_data(
    columns: Sequence[str], rows: Sequence[Row], carried: Sequence[str], links: Links,
    label_names: Mapping[str, str] = MappingProxyType({}), results: Sequence[Result] = (),
) -> dict[str, Any]:  # fmt: skip
    """What the page's script reads: {column: values}, which is shorter than one record per row; no empty column.
    Columns and rows are those of cohort.csv, but with few digits; `carried` are the columns of the list; `results` are
    those of the rows, which all have pages if nothing is said."""
    values, decimals, told = {}, {}, set()
    for name in columns:
        column = [row.get(name) for row in rows]
        if any(value not in (None, "") for value in column):
            told.add(name)
        elif name not in ALWAYS:
            continue
        values[name] = [float(f"{value:.5g}") if isinstance(value, float) else value for value in column]
        # all numbers of a column have as many digits after the point, so that they stand below each other
        sizes = [abs(value) for value in values[name] if isinstance(value, (int, float)) and isfinite(value)]
        if sizes:
            typical = 0 if all(size == int(size) for size in sizes) else median(sizes) or max(sizes)
            decimals[name] = min(4, max(0, 2 - floor(log10(typical)))) if typical else 0  # three significant ones
    results = results or [Result()] * len(rows)
    groups = [name for name in carried if name in values and 1 < len(set(values[name])) <= MAX_GROUPS]
    level = "verdict" if "verdict" in told else "status"
    measures = [name for name in MAIN_MEASURES if name in values][:3]  # with the rest of a row, they fit a small screen
    titles = {name: name[:1].upper() + name[1:] for name in carried}
    shown_first = "subject", level, "suspicion", "suspicion_by", *measures, *groups[:1], "reason"
    return {
        "columns": list(values),
        "headings": {name: titles.get(name) or heading(name, label_names) for name in values},
        "values": values, "decimals": decimals, "groups": groups, "words": WORDS,
        "shown": [name for name in shown_first if name in values],
        "versions": [one.version for one in results], "has_page": [one.has_page for one in results],
        **links._asdict(),
    }  # fmt: skip
