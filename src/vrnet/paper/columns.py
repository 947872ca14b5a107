"""The columns of a table: measures, their significance, seconds per pair, and what was published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.files import Row, columns_of
from vrnet.methods.method import Method
from vrnet.paper.budget import TIMED_SHAPES, TIMED_SPACINGS_MM, Budget
from vrnet.paper.results import Results
from vrnet.paper.runtime import seconds_per_pair
from vrnet.paper.table import Cell
from vrnet.paper.values import PublishedValues, Value

TITLES = {
    "folding_percent": "J<0 %",
    "folding_strict_percent": "strict %",
    "jacobian_gradient": "|∇J|",
    "end_point_error_mm": "EPE mm",
}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
LOWER_IS_BETTER = ("hd", "end")
HAS_A_BEST = ("dice", *LOWER_IS_BETTER)
"""How the measures begin whose best value is bold."""
PUBLISHED_ON_PAGES = ("dice_mean", "hd_mean", "folding_percent", "jacobian_gradient")
"""The published measures that a page has room for; the CSV file has all."""
RowsByMethod = Mapping[str, Sequence[Row]]
"""{method: one row per subject}"""


@dataclass(frozen=True)
class Column:
    """A title, and the cell of each method that has one."""

    title: str
    cells: Mapping[str, Cell]
    best: str | None = None
    """The method whose cell is bold."""
    is_csv_only: bool = False


def measure_title(measure: str) -> str:
    """A measure as readers call it: Dice LV, HD Avg, J<0 %."""
    group, _, part = measure.partition("_")
    return TITLES.get(measure) or f"{ {'dice': 'Dice', 'hd': 'HD'}[group] } {'Avg' if part == 'mean' else part}"


def find_measures(rows: RowsByMethod) -> tuple[str, ...]:
    """Everything that was measured of any method; neither the subject's name nor the seconds are a measure."""
    columns = columns_of([subjects[0] for subjects in rows.values()])
    return tuple(column for column in columns if column not in ("subject", "seconds"))


def measure_columns(rows: RowsByMethod, measures: Sequence[str]) -> list[Column]:
    """Mean and standard deviation over subjects, the best in bold."""
    columns = []
    for measure in measures:
        cells = {
            method: Value.over_subjects([row[measure] for row in subjects], measure)
            for method, subjects in rows.items()
        }
        columns.append(Column(measure_title(measure), cells, find_best(cells, measure)))
    return columns


def find_best(cells: Mapping[str, Value], measure: str) -> str | None:
    """The method with the best mean, of a measure that has a best."""
    if not measure.startswith(HAS_A_BEST):
        return None
    means = [value.mean for value in cells.values()]
    if np.isnan(means).all():
        return None
    return list(cells)[np.nanargmin(means) if measure.startswith(LOWER_IS_BETTER) else np.nanargmax(means)]


def significance_columns(rows: RowsByMethod, repeated: Sequence[str] = ()) -> list[Column]:
    """p of Wilcoxon's signed-rank test, in Dice and HD, of each method against the one of highest Dice, corrected for
    how many methods are tested. Subjects whose images are those of another one are left out."""
    best = max(rows, key=lambda method: np.nanmean([row["dice_mean"] for row in rows[method]]))
    others = {method: subjects for method, subjects in rows.items() if method != best}
    columns = []
    for title, measure in (("p Dice", "dice_mean"), ("p HD", "hd_mean")):
        found = {method: p_value(subjects, rows[best], measure, repeated) for method, subjects in others.items()}
        corrected = holm({method: p for method, p in found.items() if p is not None})
        columns.append(Column(title, {method: f"{p:.1g}" for method, p in corrected.items()}))
    return columns


def p_value(ours: Sequence[Row], theirs: Sequence[Row], measure: str, repeated: Sequence[str] = ()) -> float | None:
    """Two-sided p over the subjects whose values differ; None if there are none."""
    from scipy.stats import wilcoxon

    by_subject = {row["subject"]: row[measure] for row in theirs}
    differences = [row[measure] - by_subject[row["subject"]] for row in ours if row["subject"] not in repeated]
    nonzero = [x for x in differences if x != 0 and not np.isnan(x)]
    return float(wilcoxon(nonzero).pvalue) if nonzero else None


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction of several p: the k-th smallest of n is multiplied by n - k + 1, and none is below one before
    it; in the order given."""
    ranked = sorted(p, key=lambda name: p[name])
    scaled = np.array([p[name] * (len(ranked) - k) for k, name in enumerate(ranked)])
    corrected = dict(zip(ranked, np.maximum.accumulate(scaled).clip(max=1.0).tolist(), strict=True))
    return {name: corrected[name] for name in p}


def size_column(parameters: Mapping[str, int]) -> Column:
    """How many parameters are learned, in millions; of methods that learn nothing, no cell."""
    return Column("M params", {method: f"{count / 1e6:.3g}" for method, count in parameters.items() if count})


def time_columns(results: Results, methods: Mapping[str, Method]) -> list[Column]:
    """Seconds per pair, on the CPU and on a GPU; no registration takes no time."""
    timed = {name: method for name, method in methods.items() if name != "identity"}
    return [
        Column(
            f"s {label}",
            {name: time_cell(results.out, results.budget, method, results.d, device) for name, method in timed.items()},
        )
        for device, label in DEVICES.items()
    ]


def time_cell(out: Path, budget: Budget, method: Method, d: int, device: str) -> str | None:
    """Seconds per pair, to three digits."""
    seconds = seconds_per_pair(out, method, *timed_images(budget, d), device, budget.timing_seconds)
    return None if seconds is None else f"{seconds:.3g}"


def timed_images(budget: Budget, d: int) -> tuple[tuple[int, ...], float]:
    """Shape and spacing in mm of the images that are timed: the paper's, or those of the budget's phantoms."""
    if budget.phantoms is None:
        return TIMED_SHAPES[d], TIMED_SPACINGS_MM[d]
    phantoms = budget.phantoms(d)
    return phantoms.shape, phantoms.spacing


def published_columns(published: Mapping[str, PublishedValues], measures: Sequence[str]) -> list[Column]:
    """What was published of these measures, by data set; titles name the data set where there are several."""
    columns = []
    for data, values in published.items():
        label = "published" if len(published) == 1 else f"published on {data}"
        for measure in measures:
            cells = {method: row[measure] for method, row in values.items() if measure in row}
            if cells:
                title = f"{measure_title(measure)}, {label}"
                columns.append(Column(title, cells, is_csv_only=measure not in PUBLISHED_ON_PAGES))
    return columns
