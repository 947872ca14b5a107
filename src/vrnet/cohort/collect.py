"""What came out of a cohort: one row per subject, in the order of the list, and what they come to."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vrnet.cohort.outliers import add_suspicion
from vrnet.cohort.records import CohortFolder, Recipe
from vrnet.cohort.state import State, Survey
from vrnet.cohort.table import CohortTable
from vrnet.files import Row, columns_of

TABLE, SUMMARY = "cohort.csv", "summary.json"
FIRST, LAST = (
    ("subject", "status", "verdict", "suspicion", "suspicion_by", "outlier"),
    ("seconds", "machine", "reason", "notes"),
)
"""Columns that every table has, at its beginning and at its end."""
IMAGES = (".nii.gz", ".tfm")
"""How the names of files end that a registration is: other ones tell how long it took, or how it is shown."""
VERSION_DIGITS = 8
MAX_REASONS = 20
"""Of failures, the most frequent first, in summary.json."""


class Result(NamedTuple):
    """What the page of a cohort needs to know of a subject beside its row."""

    version: str = ""
    """Another text for other images that came out, however they are shown; empty where nothing did."""
    has_page: bool = True
    """Whether it comes with a page of its own."""


class Collection(NamedTuple):
    """What came of the subjects of a list, in its order."""

    columns: list[str]
    rows: list[Row]
    results: list[Result]


def collect_rows(folder: CohortFolder, table: CohortTable, recipe: Recipe, page: str = "") -> Collection:
    """The columns of the table, and a row per subject: its status, what the list says of it, and what was measured.

    `page` is the name of the page that a subject may have; {subject} stands for its name."""
    survey, rows, results = Survey(folder, recipe), [], []
    for one in table.subjects:
        given, state = zip(table.carried, one.carried, strict=True), survey.state(one)
        rows.append({**dict(given), **status_row(one.name, state)})
        results.append(result_of(state, page.replace("{subject}", one.name)))
    columns = ordered(columns_of(rows), table.carried)
    add_suspicion(rows, [name for name in columns if name not in (*FIRST, *LAST, *table.carried)])
    return Collection(columns, rows, results)


def result_of(state: State, page: str) -> Result:
    """What the record of a subject says of its files."""
    if state.kind != "done":
        return Result("", has_page=False)
    files = state.record["files"]
    digests = [str(file.get("sha256")) for name, file in files.items() if name.endswith(IMAGES)]
    version = hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()[:VERSION_DIGITS]
    return Result(version, page in files)


def status_row(name: str, state: State) -> Row:
    """What the folder says of a subject: its status, and what was measured if it is done."""
    row: Row = {"subject": name, "status": state.kind}
    if state.kind == "done":
        return row | state.record["row"] | {"seconds": state.record["seconds"]}
    if state.kind == "failed":
        row |= {name: state.record[name] for name in ("seconds", "machine") if name in state.record}
    return row | ({"reason": state.why} if state.why else {})


def ordered(columns: Sequence[str], carried: Sequence[str]) -> list[str]:
    """The columns of a table: ours at both ends, what was measured and what the list says between them."""
    middle = [name for name in columns if name not in (*FIRST, *LAST, *carried)]
    return [*FIRST, *middle, *carried, *LAST]


def summarise_rows(rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    """What summary.json holds: counts, and of each measured column its mean, spread and percentiles."""
    statuses, verdicts = (Counter(row[name] for row in rows if name in row) for name in ("status", "verdict"))
    reasons = Counter(row.get("reason", "") for row in rows if row["status"] == "failed")
    return {
        "subjects": len(rows),
        "done": statuses["done"],
        "failed": statuses["failed"],
        "left": len(rows) - statuses["done"] - statuses["failed"],
        "verdicts": dict(verdicts),
        "failures": dict(reasons.most_common(MAX_REASONS)),
        "metrics": {name: describe(values) for name, values in numbers(rows).items()},
        "recipe": dict(recipe),
    }


def numbers(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The numbers of each column that has some, of subjects that are done."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["status"] == "done":
            for name, value in row.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "suspicion":
                    found.setdefault(name, []).append(float(value))
    return found


def describe(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, and percentiles."""
    low, median, high = np.percentile(values, (5, 50, 95))
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "percentile_5": float(low),
        "median": float(median),
        "percentile_95": float(high),
    }
