"""What came out of a cohort: one row per subject of the list, which to look at first, and what all come to."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vrnet.cohort.results import CohortFolder, Recipe, Survey
from vrnet.cohort.table import CohortTable
from vrnet.files import Row, columns_of

TABLE, SUMMARY = "cohort.csv", "summary.json"
FIRST = "subject", "status", "verdict", "suspicion", "suspicion_by", "outlier"
LAST = "seconds", "machine", "reason", "notes"  # columns that every table has, at its beginning and at its end
IMAGES = (".nii.gz", ".tfm")  # how the names of files end that a registration is; others show or time it


class Result(NamedTuple):
    """What the page of a cohort needs to know of a subject beside its row."""

    version: str = ""  # another text for other images that came out, however they are shown; empty if there are none
    has_page: bool = True


def collect_rows(
    folder: CohortFolder, table: CohortTable, recipe: Recipe, page: str = ""
) -> tuple[list[str], list[str], list[Row], list[Result]]:
    """The columns of the table; those of them that are the list's, NAME_given where a column of ours is called NAME;
    one row per subject: its status, what the list says of it, and what was measured; and the result of each.

    `page` is the name of the page that a subject may have; {subject} stands for its name."""
    survey, results = Survey(folder, recipe), []
    rows: list[Row] = []
    for one in table.subjects:
        kind, why, record = survey.state(one)
        row: Row = {"subject": one.name, "status": kind}
        result = Result(has_page=False)
        if kind == "done":
            row |= {**record.row, "seconds": record.seconds}
            images = [file["sha256"] for name, file in record.files.items() if name.endswith(IMAGES)]
            version = hashlib.sha256("".join(sorted(images)).encode()).hexdigest()[:8]
            result = Result(version, page.replace("{subject}", one.name) in record.files)
        elif kind == "failed":
            row |= {"seconds": record.seconds, "machine": record.machine}
        rows.append(row | ({"reason": why} if why else {}))
        results.append(result)
    measured = [name for name in columns_of(rows) if name not in (*FIRST, *LAST)]
    carried = [f"{name}_given" if name in (*FIRST, *LAST, *measured) else name for name in table.carried]
    for row, one in zip(rows, table.subjects, strict=True):
        row |= zip(carried, one.carried, strict=True)
    add_suspicion(rows, measured)
    return [*FIRST, *measured, *carried, *LAST], carried, rows, results


# Which subjects to look at first: those that failed, then by verdict, then those unlike the rest of the cohort.
#
# Unlike the rest: the largest robust z-score, |x − median| / (1.4826 MAD), of any measure. Of one that has a worse
# side, only what lies on that side counts: nobody need look at the best result first.

MIN_SUBJECTS, MIN_NAMED = 4, 20
"""With fewer subjects there are no z-scores; with fewer than the second, they rank, but no measure is named."""
OUTLIER_FROM = 3.5  # a z-score from which the measure is named (Iglewicz and Hoaglin)
TOLD_FROM = 2.0  # a z-score from which the measure is told that ranks a subject, of however few
WORSE_BELOW = ("dice", "ncc")
WORSE_ABOVE = ("hausdorff", "surface", "folding", "jacobian", "closure", "frames_repaired", "end_point_error")
"""How the measures begin that are worse the lower, and the higher, they are; others are unusual on either side."""


def add_suspicion(rows: Sequence[Row], measures: Sequence[str]) -> None:
    """Give rows their suspicion, and the measure most unlike the rest's: suspicion_by; if far out, outlier too."""
    measures = [name for name in measures if not name.startswith("mae")]  # in units of the images, which differ
    most, which = np.zeros(len(rows)), np.full(len(rows), -1)
    for k, name in enumerate(measures):
        z = robust_z([row.get(name) for row in rows])
        if name.startswith((*WORSE_BELOW, *WORSE_ABOVE)):
            z = (-z if name.startswith(WORSE_BELOW) else z).clip(min=0)
        which[np.abs(z) > most] = k
        most = np.maximum(most, np.abs(z))
    for row, score, k in zip(rows, most.tolist(), which.tolist(), strict=True):
        if row["status"] in ("done", "failed"):  # these and verdicts count more than a z-score, which is 99 at most
            of_verdict = {"failed": 200.0, "look": 100.0}.get(str(row.get("verdict")), 0.0)
            row["suspicion"] = round(score + (300.0 if row["status"] == "failed" else 0.0) + of_verdict, 2)
        if score >= TOLD_FROM:
            row["suspicion_by"] = measures[k]
        if score >= OUTLIER_FROM and len(rows) >= MIN_NAMED:
            row["outlier"] = measures[k]


def robust_z(values: Sequence[object]) -> np.ndarray:
    """(x − median) / (1.4826 MAD) of each value; 0 where there is no number, or too few differ."""
    x = np.array([v if isinstance(v, (int, float)) else np.nan for v in values], dtype=float)
    known = x[np.isfinite(x)]
    if len(known) < MIN_SUBJECTS:
        return np.zeros(len(x))
    median = np.median(known)
    away = np.abs(known - median)
    # The standard deviation of a normal distribution, in units of the median, and of the mean, absolute deviation. The
    # latter is for a measure that most subjects have alike, such as folds.
    spread = 1.4826 * np.median(away) or 1.2533 * away.mean()
    if spread <= 0:
        return np.zeros(len(x))
    return np.nan_to_num((x - median) / spread).clip(-99, 99)


def summarise_rows(rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    """What summary.json holds: counts, and of each measured column of those done its mean, spread and percentiles."""
    statuses, verdicts = (Counter(row[name] for row in rows if name in row) for name in ("status", "verdict"))
    reasons = Counter(row.get("reason", "") for row in rows if row["status"] == "failed")
    done = [row for row in rows if row["status"] == "done"]
    metrics = {}
    for name in columns_of(done):
        found = [float(row[name]) for row in done if isinstance(row.get(name), (int, float))]
        if found and name != "suspicion":
            low, median, high = np.percentile(found, (5, 50, 95)).tolist()
            metrics[name] = {"mean": float(np.mean(found)), "std": float(np.std(found))}
            metrics[name] |= {"percentile_5": low, "median": median, "percentile_95": high}
    left = len(rows) - statuses["done"] - statuses["failed"]
    counts = {"subjects": len(rows), "done": statuses["done"], "failed": statuses["failed"], "left": left}
    outcomes = {"verdicts": dict(verdicts), "failures": dict(reasons.most_common(20))}
    return {**counts, **outcomes, "metrics": metrics, "recipe": dict(recipe)}
