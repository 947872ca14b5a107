"""The paper's tables, as data: which methods on which images, beside what was published."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

from vrnet.files import atomic_write
from vrnet.methods.learned import PAPER
from vrnet.methods.method import Trainable
from vrnet.paper.budget import Budget
from vrnet.paper.columns import DEVICES, Column, beside, kinds_of, measures, significance, time, times, timing_size
from vrnet.paper.runtime import machines
from vrnet.paper.sheet import Sheet
from vrnet.paper.study import Entry, Study
from vrnet.paper.values import Published, published
from vrnet.progress import Stage

ITERATIVE = ("FFD", "TV-L1", "Demons", "SyN")
IN_3D = ("R-L2-2x1", "R-L1-2x1", "U-L2-2x1", "U-L1-2x1", "C-L1-2x1")
ON_ACDC = ("R-L1-3x2", "R-L2-6x1", "C-L2-3x1", "C-L2-6x1")
FIVE = ("VoxelMorph", "2xRC-Net", "R-L1-2x1", "U-L1-2x1", "C-L1-2x1")
CASCADES = tuple(f"{n}xRC-Net" for n in range(2, 8))
OVERLAP = ("dice_mean", "hd_mean", "folding_percent")
LABELS = {"identity": "unregistered"}


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
    "phantom3d": Table("Methods on volumes whose motion is known", "phantom3d", ("identity", "TV-L1", *FIVE)),
}
NETWORKS = ("Siamese", "VoxelMorph", "2xRC-Net", "3xRC-Net", "7xRC-Net", "R-L2-1x1", "R-L2-2x1", "R-L2-6x1")
RUNTIME = (*ITERATIVE, *NETWORKS)


def entries(table: Table, study: Study, seeds: int = 1) -> dict[str, list[Entry]]:
    """What each row of a table is made of: of every learned method as many seeds as all of them have."""
    found = {name: study.seeds(name, least=seeds) for name in table.methods}
    fewest = min((len(some) for some in found.values() if some[0].training), default=1)
    return {name: some[:fewest] for name, some in found.items()}


def sheet(name: str, study: Study, seeds: int = 1) -> Sheet:
    """A table, from what is there and what is measured now."""
    table = TABLES[name]
    wanted = entries(table, study, seeds)
    study.complete(list(chain.from_iterable(wanted.values())))
    columns = columns_for(name, study, wanted)
    return Sheet(
        title(table, study),
        ["method", *(column.title for column in columns)],
        [[LABELS.get(method, method), *(column.cells.get(method) for column in columns)] for method in wanted],
        notes(table, study, wanted),
        {(list(wanted).index(column.best), k) for k, column in enumerate(columns, start=1) if column.best},
        {k for k, column in enumerate(columns, start=1) if column.is_aside},
    )


def columns_for(name: str, study: Study, wanted: dict[str, list[Entry]]) -> list[Column]:
    """What is measured; of all measures, what differs; times; what was published."""
    table, rows = TABLES[name], {method: study.mean_rows(found) for method, found in wanted.items()}
    kinds = table.columns or kinds_of(rows)
    found = measures(rows, kinds)
    if table.columns is None:
        found += significance(rows)
    if table.has_times:
        found += times(study, {method: entries[0].method for method, entries in wanted.items()})
    known = {data: numbers_of(name, data) for data in (table.data, table.also) if data}
    return found + beside(known, kinds)


def numbers_of(name: str, data: str) -> Published:
    """What the paper printed in its table of that name, on that data."""
    return published(name if name == data else f"{name}_{data}")


def title(table: Table, study: Study) -> str:
    """What the table shows, and on what: phantoms are called phantoms."""
    if study.data == table.data:
        return table.title
    return f"{table.title}: measured on {study.data}, not on {table.data}"


def notes(table: Table, study: Study, wanted: dict[str, list[Entry]]) -> list[str]:
    """All that the numbers depend on."""
    every = list(chain.from_iterable(wanted.values()))
    configs = [study.config(entry) for entry in every]
    machines = sorted({f"{config['hardware']} (torch {config['versions']['torch']})" for config in configs})
    lines = [f"{len(study.rows(every[0]))} test subjects of {study.data}; mean (standard deviation over subjects)."]
    lines += trained(study, wanted)
    lines.append(f"Computed on {'; '.join(machines)}; vrnet {configs[0]['versions']['vrnet']}.")
    if table.columns is None:
        lines.append("p: two-sided Wilcoxon signed-rank test over subjects, against the row of highest Dice.")
    return lines


def trained(study: Study, wanted: dict[str, list[Entry]]) -> list[str]:
    """How the learned methods were trained, where there are any."""
    settings = [entry.training for found in wanted.values() for entry in found if entry.training]
    if not settings:
        return []
    how, alphas = settings[0], sorted({x.alpha for x in settings})
    counts = sorted({len(found) for found in wanted.values() if found[0].training})
    return [
        f'Learned methods, budget "{study.budget.name}": {how.steps} steps of {how.batch} pairs, rate {how.rate:g}, '
        f"α {', '.join(f'{alpha:g}' for alpha in alphas)}, width {width(wanted)}, "
        f"{' or '.join(map(str, counts))} seed{'s' if counts != [1] else ''} (mean over seeds)."
    ]


def width(wanted: dict[str, list[Entry]]) -> str:
    """Of the networks, where they have one in common."""
    learned = [cast(Trainable, e.method) for group in wanted.values() for e in group if e.method.is_trainable]
    found = {method.width for method in learned}
    return " or ".join("the paper's" if w is None else str(w) for w in sorted(found, key=str))


def runtime_sheet(out: Path, budget: Budget, widths: Budget, stage: Stage) -> Sheet:
    """Seconds a pair of every method, in 2D and 3D, on the CPU and on a GPU, beside the published."""
    places = [(d, device) for d in (2, 3) for device in DEVICES]
    known, tick, rows = published("runtime"), stage("timing"), []
    for number, name in enumerate(RUNTIME):
        tick(number / len(RUNTIME))
        ours = [
            time(out, budget, widths.method(name, d), d, device) if is_timed(name, d) else None for d, device in places
        ]
        rows.append([name, *ours, *(known[name].get(f"{d}D_{device}") for d, device in places)])
    header = [f"{d}D {DEVICES[device]}" for d, device in places]
    shapes = [timing_size(budget, d)[0] for d in (2, 3)]
    return Sheet(
        "Seconds a pair",
        ["method", *header, *(f"{name}, published" for name in header)],
        rows,
        [f"One pair at a time: {' and '.join('x'.join(map(str, shape)) for shape in shapes)}.",
         f"Timed on {'; '.join(machines(out, shapes))}."],
    )  # fmt: skip


def is_timed(name: str, d: int) -> bool:
    """Deep cascades of volumes are left out, as in the paper: they need the memory of many."""
    return d == 2 or name not in ("7xRC-Net", "R-L2-6x1", "Siamese")


def write(made: Sheet, folder: Path, name: str) -> list[Path]:
    """NAME.md, NAME.csv and NAME.tex."""
    written = []
    for suffix, text in ((".md", made.markdown()), (".csv", made.comma_separated()), (".tex", made.latex())):
        with atomic_write(folder / f"{name}{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
        written.append(folder / f"{name}{suffix}")
    return written
