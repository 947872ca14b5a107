"""The columns of a table: what was measured, whether it differs, how long it took, and what was published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.files import Row, columns_of
from vrnet.methods.method import Method
from vrnet.paper.budget import SHAPES, SPACINGS, Budget
from vrnet.paper.runtime import seconds
from vrnet.paper.sheet import Cell
from vrnet.paper.study import Study
from vrnet.paper.values import Published, Value

NAMES = {
    "folding_percent": "J<0 %",
    "folding_strict_percent": "strict %",
    "jacobian_gradient": "|∇J|",
    "end_point_error_mm": "EPE mm",
}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
RANKED, LESS_IS_MORE = ("dice", "hd", "end"), ("hd", "end")
PRINTED = ("dice_mean", "hd_mean", "folding_percent", "jacobian_gradient")
"""Of what was published, what a page has room for."""
Rows = Mapping[str, Sequence[Row]]
"""{method: a row a subject}"""


@dataclass(frozen=True)
class Column:
    """A title, and a cell a method."""

    title: str
    cells: Mapping[str, Cell]
    best: str | None = None
    """The method whose cell is bold."""
    is_aside: bool = False
    """Whether it is for the CSV file alone."""


def title_of(kind: str) -> str:
    """A measure as readers call it: Dice LV, HD Avg, J<0 %."""
    group, _, part = kind.partition("_")
    return NAMES.get(kind) or f"{ {'dice': 'Dice', 'hd': 'HD'}[group] } {'Avg' if part == 'mean' else part}"


def kinds_of(rows: Rows) -> tuple[str, ...]:
    """All that was measured of any method, but for who it was and how long it took."""
    return tuple(
        kind for kind in columns_of([found[0] for found in rows.values()]) if kind not in ("subject", "seconds")
    )


def measures(rows: Rows, kinds: Sequence[str]) -> list[Column]:
    """Mean and standard deviation over subjects, the best in bold."""
    found = []
    for kind in kinds:
        cells = {method: Value.of([row[kind] for row in some], kind) for method, some in rows.items()}
        found.append(Column(title_of(kind), cells, best_of(cells, kind)))
    return found


def best_of(cells: Mapping[str, Value], kind: str) -> str | None:
    """The method of the best value, of a measure that has one."""
    if not kind.startswith(RANKED):
        return None
    means = [value.mean for value in cells.values()]
    if np.isnan(means).all():
        return None
    return list(cells)[np.nanargmin(means) if kind.startswith(LESS_IS_MORE) else np.nanargmax(means)]


def significance(rows: Rows) -> list[Column]:
    """p of Wilcoxon's signed-rank test over subjects, in Dice and HD, between each method and that of highest Dice."""
    best = max(rows, key=lambda method: np.nanmean([row["dice_mean"] for row in rows[method]]))
    return [
        Column(title, {method: p_value(some, rows[best], kind) for method, some in rows.items() if method != best})
        for title, kind in (("p Dice", "dice_mean"), ("p HD", "hd_mean"))
    ]


def p_value(some: Sequence[Row], others: Sequence[Row], kind: str) -> str | None:
    """Two-sided, over the subjects that have both values; None where no two differ."""
    from scipy.stats import wilcoxon

    by_subject = {row["subject"]: row[kind] for row in others}
    differences = [row[kind] - by_subject[row["subject"]] for row in some]
    differ = [x for x in differences if x != 0 and not np.isnan(x)]
    return f"{wilcoxon(differ).pvalue:.1g}" if differ else None


def times(study: Study, methods: Mapping[str, Method]) -> list[Column]:
    """Seconds a pair on the CPU and on a GPU."""
    moving = {name: method for name, method in methods.items() if name != "identity"}
    return [
        Column(
            f"s {label}",
            {name: time(study.out, study.budget, method, study.d, device) for name, method in moving.items()},
        )
        for device, label in DEVICES.items()
    ]


def time(out: Path, budget: Budget, method: Method, d: int, device: str) -> str | None:
    """Seconds a pair, in words."""
    took = seconds(out, method, *timing_size(budget, d), device, budget.timing)
    return None if took is None else f"{took:.3g}"


def timing_size(budget: Budget, d: int) -> tuple[tuple[int, ...], float]:
    """The images that are timed: of the paper's size, or of the budget's phantoms."""
    if budget.phantoms is None:
        return SHAPES[d], SPACINGS[d]
    small = budget.phantoms(d)
    return small.shape, small.spacing


def beside(known: Mapping[str, Published], kinds: Sequence[str]) -> list[Column]:
    """What was published of the same measures, by data set; which one is told where there are several."""
    found = []
    for data, numbers in known.items():
        label = "published" if len(known) == 1 else f"published on {data}"
        for kind in kinds:
            cells = {method: row[kind] for method, row in numbers.items() if kind in row}
            if cells:
                found.append(Column(f"{title_of(kind)}, {label}", cells, is_aside=kind not in PRINTED))
    return found
