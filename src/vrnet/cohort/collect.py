"""What came out of a cohort: one row per subject, in the order of the list, and what they come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vrnet.cohort.outliers import add_suspicion
from vrnet.cohort.records import CohortFolder, Recipe, has_stamps
from vrnet.cohort.stamps import stamps
from vrnet.cohort.table import CohortTable, Subject
from vrnet.files import Row, columns_of

TABLE, SUMMARY = "cohort.csv", "summary.json"
FIRST, LAST = ("subject", "status", "verdict", "suspicion", "outlier"), ("seconds", "machine", "reason", "notes")
"""Columns that every table has, at its beginning and at its end."""
MAX_REASONS = 20
"""Of failures, the most frequent first, in summary.json."""


def collect_rows(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> tuple[list[str], list[Row]]:
    """The columns of the table, and a row per subject: its status, what the list says of it, and what was measured.

    A column of the list that has the name of one of ours becomes NAME_given."""
    results, failures = folder.names_of_results(), folder.names_of_failures()
    rows = []
    for one in table.subjects:
        record = folder.done(one.name) if one.name in results else {}
        failure = folder.failure(one.name) if one.name in failures else {}
        rows.append(status_row(one, record, failure, recipe) | carried_cells(table, one))
    columns = ordered(columns_of(rows))
    add_suspicion(rows, [name for name in columns if name not in (*FIRST, *LAST, *table.carried)])
    return columns, rows


def status_row(subject: Subject, record: Mapping[str, Any], failure: Mapping[str, Any], recipe: Recipe) -> Row:
    """What the folder says of a subject: done, failed or left. A result whose inputs changed, and that could not be
    made again, is an old one: its subject failed."""
    is_old = failure.get("recipe") == recipe and not has_stamps(record, stamps(subject))
    if record.get("recipe") == recipe and not is_old:
        return {"subject": subject.name, "status": "done", **record["row"], "seconds": record["seconds"]}
    if failure.get("recipe") == recipe:
        kept = {name: failure[name] for name in ("reason", "seconds", "machine")}
        return {"subject": subject.name, "status": "failed", **kept}
    return {"subject": subject.name, "status": "left"}


def carried_cells(table: CohortTable, subject: Subject) -> Row:
    """The cells of the list's further columns."""
    names = (f"{name}_given" if name in (*FIRST, *LAST) else name for name in table.carried)
    return dict(zip(names, subject.carried, strict=True))


def ordered(columns: Sequence[str]) -> list[str]:
    """The columns of a table, ours at both ends."""
    return [*FIRST, *(name for name in columns if name not in (*FIRST, *LAST)), *LAST]


def summarise_rows(rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    """What summary.json holds: counts, and of each measured column its mean, spread and percentiles."""
    statuses, verdicts = (Counter(row[name] for row in rows if name in row) for name in ("status", "verdict"))
    reasons = Counter(row["reason"] for row in rows if row["status"] == "failed")
    return {
        "subjects": len(rows),
        **{status: statuses[status] for status in ("done", "failed", "left")},
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
