"""The page of a cohort: one file that opens from disk, with the table of all subjects inside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vrnet.files import Row, write_bytes
from vrnet.report.headings import NO_NAMES, heading
from vrnet.report.template import render_template

INDEX = "index.html"
ALWAYS = ("subject", "status", "verdict", "suspicion")
"""Columns that the script asks for."""
SIGNIFICANT_DIGITS = 5
"""Of numbers on the page; cohort.csv has all."""
MAX_GROUPS = 12
"""A further column of the list with so many values at most is taken for groups, which are compared."""


class Links(NamedTuple):
    """What the page leads to, relative to it."""

    results: str
    """The folder that holds those of the subjects."""
    page: str
    """In the folder of a subject: what a click opens; {subject} stands for its name, here and below."""
    picture: str
    """In the folder of a subject: the thumbnail, shown while the mouse is over its row."""
    still: str = "fixed"
    """What the first of the thumbnail's three images is called."""
    moved: str = "moving"
    """What the second is called, which the third shows brought to the first."""


def write_index(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[Row],
    summary: Mapping[str, Any],
    carried: Sequence[str],
    links: Links,
    label_names: Mapping[str, str] = NO_NAMES,
) -> None:
    """Write the page. Columns, rows and summary are those of cohort.csv and summary.json; `carried` are the columns of
    the list; `label_names` are what structures are called."""
    data = index_data(columns, rows, carried, links, label_names)
    text = render_template("cohort.html", summary=summary, data=data)
    write_bytes(text.encode(errors="replace"), path)


def index_data(
    columns: Sequence[str],
    rows: Sequence[Row],
    carried: Sequence[str],
    links: Links,
    label_names: Mapping[str, str] = NO_NAMES,
) -> dict[str, Any]:
    """What the page's script reads: {column: values}, which is shorter than one record per row; no empty column."""
    found = {name: [brief(row.get(name)) for row in rows] for name in columns}
    values = {name: column for name, column in found.items() if name in ALWAYS or any(map(is_told, column))}
    groups = [name for name in carried if name in values and 1 < len(set(values[name])) <= MAX_GROUPS]
    headings = {name: name if name in carried else heading(name, label_names) for name in values}
    return {"columns": list(values), "headings": headings, "values": values, "groups": groups, **links._asdict()}


def is_told(value: Any) -> bool:
    """Whether a cell holds something."""
    return value is not None and value != ""


def brief(value: Any) -> Any:
    """A number with few digits; anything else as it is."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
