"""The paper's tables, as data: which methods on which images, beside what was published."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from vrnet.evaluation.cohort import Row, columns_of
from vrnet.images.files import written_whole
from vrnet.methods.learned import PAPER, Learned
from vrnet.paper.budget import SHAPES, SPACINGS, Budget
from vrnet.paper.runtime import seconds
from vrnet.paper.sheet import Cell, Sheet
from vrnet.paper.study import Entry, Study
from vrnet.paper.values import Published, Value, published
from vrnet.workflow import Stage

ITERATIVE = ("FFD", "TV-L1", "Demons", "SyN")
IN_3D = ("R-L2-2x1", "R-L1-2x1", "U-L2-2x1", "U-L1-2x1", "C-L1-2x1")
ON_ACDC = ("R-L1-3x2", "R-L2-6x1", "C-L2-3x1", "C-L2-6x1")
FIVE = ("VoxelMorph", "2xRC-Net", "R-L1-2x1", "U-L1-2x1", "C-L1-2x1")
CASCADES = tuple(f"{n}xRC-Net" for n in range(2, 8))
OVERLAP = ("dice_mean", "hd_mean", "folding_percent")
NAMES = {
    "folding_percent": "J<0 %",
    "folding_strict_percent": "strict %",
    "jacobian_gradient": "|∇J|",
    "end_point_error_mm": "EPE mm",
}
LABELS = {"identity": "unregistered"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
LESS_IS_MORE = ("hd", "end")


@dataclass(frozen=True)
class Table:
    """Methods by rows, measures by columns."""

    title: str
    data: str
    """What it is measured on."""
    methods: tuple[str, ...]
    instead: str | None = None
    """Phantoms that stand for the data where a reader has none."""
    columns: tuple[str, ...] | None = None
    """All that is measured if not given."""
    has_times: bool = False
    also: str | None = None
    """Another data set whose published numbers are shown too."""


TABLES = {
    "ablation": Table("Configurations of VR-Net", "acdc", tuple(map(str, PAPER)), columns=OVERLAP, also="ukbb"),
    "initialisation": Table(
        "What VR-Net starts from",
        "acdc",
        ("R-L2-6x1", "R-L2-6x1-noise", "R-L2-6x1-zeros"),
        columns=OVERLAP,
        also="ukbb",
    ),
    "acdc": Table(
        "Methods on ACDC",
        "acdc",
        ("identity", *ITERATIVE, "Siamese", "VoxelMorph", "VoxelMorph-w32", *CASCADES, *ON_ACDC),
        has_times=True,
    ),
    "ukbb": Table(
        "Methods on UK Biobank",
        "ukbb",
        ("identity", "FFD", "TV-L1", "Siamese", "VoxelMorph", *CASCADES, "R-L2-6x1", "C-L2-3x1"),
        instead="phantom",
    ),
    "cmr3d": Table(
        "Methods on 3D cardiac MR",
        "cmr3d",
        ("identity", *ITERATIVE, "VoxelMorph", "2xRC-Net", "3xRC-Net", *IN_3D),
        instead="phantom3d",
    ),
    "hippocampus": Table(
        "Methods between subjects: hippocampi",
        "hippocampus",
        ("identity", *ITERATIVE, *FIVE),
    ),
    "phantom3d": Table("Methods on volumes whose motion is known", "phantom3d", ("identity", *ITERATIVE, *FIVE)),
}
NETWORKS = ("Siamese", "VoxelMorph", "2xRC-Net", "3xRC-Net", "7xRC-Net", "R-L2-1x1", "R-L2-2x1", "R-L2-6x1")
RUNTIME = (*ITERATIVE, *NETWORKS)


def entries(table: Table, study: Study, seeds: int = 1) -> dict[str, list[Entry]]:
    """What each row of a table is made of."""
    return {name: study.seeds(name, least=seeds) for name in table.methods}


def sheet(name: str, study: Study, seeds: int = 1) -> Sheet:
    """A table, from what is there and what is measured now."""
    table = TABLES[name]
    wanted = entries(table, study, seeds)
    study.complete(list(chain.from_iterable(wanted.values())))
    rows = {method: study.mean_rows(found) for method, found in wanted.items()}
    columns = table.columns or tuple(
        c for c in columns_of([found[0] for found in rows.values()]) if c not in ("subject", "seconds")
    )
    values = {method: [Value.of([row[c] for row in found], c) for c in columns] for method, found in rows.items()}
    others = [(data, numbers_of(name, data)) for data in (table.data, table.also) if data]
    shown = [(data, known, [c for c in columns if any(c in row for row in known.values())]) for data, known in others]
    header = ["method", *map(title_of, columns)]
    lines: list[list[Cell]] = [[LABELS.get(method, method), *values[method]] for method in rows]
    if table.columns is None:
        header += ["p Dice", "p HD"]
        lines = [[*line, *p] for line, p in zip(lines, significance(rows), strict=True)]
    if table.has_times:
        header += [f"s {device}" for device in DEVICES.values()]
        lines = [[*line, *times(study, wanted[method][0])] for line, method in zip(lines, rows, strict=True)]
    for data, known, kept in shown:
        header += [f"{title_of(c)}, published{'' if len(shown) == 1 else f' on {data}'}" for c in kept]
        lines = [
            [*line, *(known.get(method, {}).get(c) for c in kept)] for line, method in zip(lines, rows, strict=True)
        ]
    best = {(best_of(values, c, k), 1 + k) for k, c in enumerate(columns) if c.split("_")[0] in ("dice", "hd", "end")}
    return Sheet(title(table, study), header, lines, notes(table, study, wanted), best)


def numbers_of(name: str, data: str) -> Published:
    """What the paper printed in its table of that name, on that data."""
    return published(name if name == data else f"{name}_{data}")


def title(table: Table, study: Study) -> str:
    """What the table shows, and on what: phantoms are called phantoms."""
    if study.data == table.data:
        return table.title
    return f"{table.title}: measured on {study.data}, not on {table.data}"


def title_of(column: str) -> str:
    """A column as readers call it: Dice LV, HD Avg, J<0 %."""
    kind, _, part = column.partition("_")
    return NAMES.get(column) or f"{ {'dice': 'Dice', 'hd': 'HD'}[kind] } {'Avg' if part == 'mean' else part}"


def best_of(values: dict[str, list[Value]], column: str, k: int) -> int:
    """The row of the best value in a column."""
    means = [row[k].mean for row in values.values()]
    return int(np.nanargmin(means) if column.startswith(LESS_IS_MORE) else np.nanargmax(means))


def significance(rows: dict[str, list[Row]]) -> list[list[Cell]]:
    """p of Wilcoxon's signed-rank test over subjects, in Dice and HD, between each row and that of highest Dice."""
    from scipy.stats import wilcoxon

    best = max(rows, key=lambda method: np.nanmean([row["dice_mean"] for row in rows[method]]))
    found: list[list[Cell]] = []
    for method in rows:
        cells: list[Cell] = []
        for column in ("dice_mean", "hd_mean"):
            pairs = [(a[column], b[column]) for a, b in zip(rows[method], rows[best], strict=True)]
            differ = [a - b for a, b in pairs if not np.isnan(a - b) and a != b]
            cells.append(None if method == best or not differ else f"{wilcoxon(differ).pvalue:.1g}")
        found.append(cells)
    return found


def times(study: Study, entry: Entry) -> list[Cell]:
    """Seconds a pair on the CPU and on a GPU."""
    if str(entry.method) == "identity":
        return [None, None]
    shape, spacing = timing_size(study.budget, study.d)
    found = [seconds(study.out, entry.method, shape, spacing, device) for device in DEVICES]
    return [None if took is None else f"{took:.3g}" for took in found]


def timing_size(budget: Budget, d: int) -> tuple[tuple[int, ...], float]:
    """The images that are timed: of the paper's size, or of the budget's phantoms."""
    if budget.phantoms is None:
        return SHAPES[d], SPACINGS[d]
    small = budget.phantoms(d)
    return small.shape, small.spacing


def notes(table: Table, study: Study, wanted: dict[str, list[Entry]]) -> list[str]:
    """All that the numbers depend on."""
    configs = [study.config(entry) for found in wanted.values() for entry in found]
    subjects = len(study.rows(next(iter(wanted.values()))[0]))
    lines = [f"{subjects} test subjects of {study.data}; mean (standard deviation over subjects)."]
    trained = [config for config in configs if "training" in config]
    if trained:
        how = trained[0]["training"]
        alphas = sorted({f"{config['training']['alpha']:g}" for config in trained})
        counts = sorted({len(found) for found in wanted.values() if found[0].training})
        lines.append(
            f'Learned methods, budget "{study.budget.name}": {how["steps"]} steps of {how["batch"]} pairs, rate '
            f"{how['rate']:g}, α {', '.join(alphas)}, width {width(wanted)}, "
            f"{' or '.join(map(str, counts))} seed{'s' if counts != [1] else ''} (mean over seeds)."
        )
    machines = sorted({f"{config['hardware']} (torch {config['versions']['torch']})" for config in configs})
    lines.append(f"Computed on {'; '.join(machines)}; vrnet {configs[0]['versions']['vrnet']}.")
    if table.columns is None:
        lines.append("p: two-sided Wilcoxon signed-rank test over subjects, against the row of highest Dice.")
    return lines


def width(wanted: dict[str, list[Entry]]) -> str:
    """Of the networks, where they have one in common."""
    found = {e.method.width for group in wanted.values() for e in group if isinstance(e.method, Learned)}
    return " or ".join("the paper's" if w is None else str(w) for w in sorted(found, key=str))


def runtime_sheet(out: Path, budget: Budget, widths: Budget, stage: Stage) -> Sheet:
    """Seconds a pair of every method, in 2D and 3D, on the CPU and on a GPU, beside the published."""
    known, rows, tick = published("runtime"), [], stage("timing")
    places = [(d, device) for d in (2, 3) for device in DEVICES]
    for number, name in enumerate(RUNTIME):
        tick(number / len(RUNTIME))
        cells: list[Cell] = [name]
        for d, device in places:
            shape, spacing = timing_size(budget, d)
            method = widths.method(name, d)
            took = seconds(out, method, shape, spacing, device) if in_paper_or_fast(name, d) else None
            cells.append(None if took is None else f"{took:.3g}")
        rows.append([*cells, *(known.get(name, {}).get(f"{d}D_{device}") for d, device in places)])
    header = [f"{d}D {DEVICES[device]}" for d, device in places]
    return Sheet(
        "Seconds a pair",
        ["method", *header, *(f"{name}, published" for name in header)],
        rows,
        [f"One pair at a time: {' and '.join('x'.join(map(str, timing_size(budget, d)[0])) for d in (2, 3))}."],
    )


def in_paper_or_fast(name: str, d: int) -> bool:
    """Deep cascades of volumes are left out, as in the paper: they need the memory of many."""
    return d == 2 or name not in ("7xRC-Net", "R-L2-6x1", "Siamese")


def write(made: Sheet, folder: Path, name: str) -> list[Path]:
    """NAME.md, NAME.csv and NAME.tex."""
    written = []
    for suffix, text in ((".md", made.markdown()), (".csv", made.comma_separated()), (".tex", made.latex())):
        with written_whole(folder / f"{name}{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
        written.append(folder / f"{name}{suffix}")
    return written
