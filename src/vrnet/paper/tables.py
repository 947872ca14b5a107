"""The paper's tables, made of results: what was measured here beside what was published."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy import ndarray

from vrnet.errors import BadInput, counted, shape_text, warn_of_input
from vrnet.files import Row, columns_of, csv_text, exists, read_rows, write_bytes
from vrnet.methods.method import Method, Trainable
from vrnet.methods.names import without_average
from vrnet.paper import specs
from vrnet.paper.results import Entry, Results, Study, choose_alphas, file_name, has_choice, tried_by_all
from vrnet.paper.specs import BUDGETS, TIMED_PHANTOMS, Budget, TableSpec, Value, published_values

# A table as it is printed, in Markdown, and as CSV.

Cell = str | Value | None
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
ROW_LABELS = {"identity": "unregistered"}


@dataclass(frozen=True)
class Column:
    """A title, and the cell of each method that has one."""

    title: str
    cells: Mapping[str, Cell]
    best: str | None = None  # the method whose cell is bold
    is_csv_only: bool = False  # whether it is in the CSV file alone: a page has no room for it


@dataclass(frozen=True)
class Table:
    """One row per method; notes say what the numbers depend on."""

    title: str
    methods: Sequence[str]
    columns: Sequence[Column]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[list[str]]:
        """The cells that are printed, line by line with the header first."""
        printed = [column for column in self.columns if not column.is_csv_only]
        lines = [["method", *(column.title for column in printed)]]
        for method in self.methods:
            cells = ("–" if cell is None else str(cell) for cell in (column.cells.get(method) for column in printed))
            bold = (
                f"**{cell}**" if method == column.best else cell for cell, column in zip(cells, printed, strict=True)
            )
            lines.append([ROW_LABELS.get(method, method), *bold])
        return lines

    def markdown(self) -> str:
        head, *rows = self.lines()
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"**{self.title}**\n\n{table}\n\n" + "".join(f"{note}\n" for note in self.notes)

    def comma_separated(self) -> str:
        """All columns as CSV, to six digits; standard deviations have columns of their own."""
        columns: list[list[str | None]] = [["method", *(ROW_LABELS.get(method, method) for method in self.methods)]]
        for column in self.columns:
            cells = [column.cells.get(method) for method in self.methods]
            columns.append([column.title, *(f"{cell.mean:.6g}" if isinstance(cell, Value) else cell for cell in cells)])
            stds = [cell.std if isinstance(cell, Value) else None for cell in cells]
            if any(std is not None for std in stds):
                columns.append([f"{column.title} std", *(None if std is None else f"{std:.6g}" for std in stds)])
        return csv_text(zip(*columns, strict=True))

    def write(self, folder: Path, name: str) -> list[Path]:
        texts = {".md": self.markdown(), ".csv": self.comma_separated()}
        for suffix, text in texts.items():
            write_bytes(text.encode(), folder / f"{name}{suffix}")
        return [folder / f"{name}{suffix}" for suffix in texts]


# Whether methods differ on the same subjects, and by how much: intervals, equivalence, p-values.

K = TypeVar("K")
DRAWS = 10_000
MARGINS = {"dice": 0.005, "hd": 0.3}
"""By the first word of a measure: methods are equivalent if they differ by less, in Dice or in mm."""


class Estimate(NamedTuple):
    """A mean over subjects, or the mean of a paired difference."""

    mean: float
    low: float  # the 95 % interval begins here, and ends at `high`
    high: float
    inner_low: float  # the 90 % interval begins here, and ends at `inner_high`
    inner_high: float

    def is_within(self, margin: float) -> bool:
        """Whether two one-sided tests at 5 % find less than the margin, on both sides."""
        return -margin < self.inner_low and self.inner_high < margin


Units = tuple[tuple[str, ...], ...]  # the people that each row depends on


def units_of(data: str, subjects: Sequence[str]) -> Units:
    """Patients whose images are the same are one; each hippocampus is registered with the next one."""
    if data == "hippocampus":
        return tuple(zip(subjects, [*subjects[1:], subjects[0]], strict=True))
    same = specs.REPEATED_SUBJECTS.get(data, {})
    return tuple((same.get(subject, subject),) for subject in subjects)


@lru_cache(maxsize=8)
def draw_weights(units: Units) -> ndarray:
    """(draws, rows): people are drawn with replacement, and a row of two counts as the product of how often each was
    drawn, which makes intervals somewhat too wide, never too narrow."""
    people = sorted({person for unit in units for person in unit})
    counts = np.random.default_rng(0).multinomial(len(people), np.full(len(people), 1 / len(people)), size=DRAWS)
    weights = np.ones((DRAWS, len(units)))
    for place in zip(*units, strict=True):
        weights *= counts[:, [people.index(person) for person in place]]
    return weights[weights.sum(1) > 0]


def estimate_mean(x: ndarray, units: Units) -> Estimate:
    """The mean over rows, with intervals of the percentile bootstrap over people; NaN counts as no row."""
    present = ~np.isnan(x)
    weights = draw_weights(tuple(unit for unit, is_there in zip(units, present, strict=True) if is_there))
    means = (weights @ x[present]) / weights.sum(1)
    low, inner_low, inner_high, high = np.quantile(means, (0.025, 0.05, 0.95, 0.975)).tolist()
    return Estimate(float(x[present].mean()), low, high, inner_low, inner_high)


def p_value(x: ndarray, units: Units) -> float:
    """Wilcoxon's two-sided signed-rank test of paired differences, one row per unit; 1 where all are zero. Rounded, so
    that what differs in the last digit of a float is a tie."""
    from scipy.stats import wilcoxon

    first = [units.index(unit) == k for k, unit in enumerate(units)]
    x = np.round(x[first], 9)
    x = x[(x != 0) & ~np.isnan(x)]
    return float(wilcoxon(x).pvalue) if len(x) else 1.0


def holm(p: Mapping[K, float]) -> dict[K, float]:
    """Holm's correction of several p: the k-th smallest of n times n - k + 1, and none below one before it."""
    ranked = sorted(p, key=lambda name: p[name])
    scaled = np.array([p[name] * (len(ranked) - k) for k, name in enumerate(ranked)])
    corrected = dict(zip(ranked, np.maximum.accumulate(scaled).clip(max=1.0).tolist(), strict=True))
    return {name: corrected[name] for name in p}


# The columns of a table: measures, their significance, and what was published.

TITLES = {
    "folding_percent": "J<0 %",
    "folding_strict_percent": "strict %",
    "jacobian_gradient": "|∇J|",
    "end_point_error_mm": "EPE mm",
}
LOWER_IS_BETTER = ("hd", "end")
"""How the measures begin whose lowest value is bold; of Dice it is the highest, and of others none."""
PUBLISHED_ON_PAGES = ("dice_mean", "hd_mean", "folding_percent")
"""The published measures that a page has room for; the CSV file has all that are measured alike."""
PUBLISHED_OTHERWISE = "jacobian_gradient"
"""The paper's |∇J| is the magnitude of the gradient, ours the mean of its components' sizes."""
RowsByMethod = Mapping[str, Sequence[Row]]


def measure_title(measure: str) -> str:
    """A measure as readers call it: Dice LV, HD Avg, J<0 %."""
    group, _, part = measure.partition("_")
    return TITLES.get(measure) or f"{ {'dice': 'Dice', 'hd': 'HD'}[group] } {'Avg' if part == 'mean' else part}"


def measure_columns(rows: RowsByMethod, measures: Sequence[str]) -> list[Column]:
    """Mean and standard deviation over subjects, the best in bold."""
    columns = []
    for measure in measures:
        cells, decimals = {}, specs.DECIMALS.get(measure.split("_")[0], 3)
        for name, group in rows.items():
            present = [row[measure] for row in group if not np.isnan(row[measure])] or [np.nan]
            cells[name] = Value(float(np.mean(present)), float(np.std(present)), decimals)
        means, best = {name: value.mean for name, value in cells.items() if not np.isnan(value.mean)}, None
        if means and measure.startswith(("dice", *LOWER_IS_BETTER)):
            best = (min if measure.startswith(LOWER_IS_BETTER) else max)(means, key=means.__getitem__)
        columns.append(Column(measure_title(measure), cells, best))
    return columns


def difference_columns(rows: RowsByMethod, reference: str, data: str) -> list[Column]:
    """In Dice and HD, each method minus the reference with its 95 % interval, "=" where both are equivalent; and p of
    Wilcoxon's two-sided signed-rank test, corrected for how many are tested. None where the reference is no row."""
    columns = []
    for title, measure in (("Dice", "dice_mean"), ("HD", "hd_mean")) if reference in rows else ():
        theirs = {row["subject"]: row[measure] for row in rows[reference]}
        units, cells, p = units_of(data, list(theirs)), dict[str, Cell](), dict[str, float]()
        for method, ours in rows.items():
            x = np.array([row[measure] - theirs[row["subject"]] for row in ours])
            if method != reference and not np.isnan(x).all():
                found, p[method] = estimate_mean(x, units), p_value(x, units)
                mean, low, high = (signed(value, specs.DECIMALS[title.lower()]) for value in found[:3])
                mark = " =" if found.is_within(MARGINS[title.lower()]) else ""
                cells[method] = f"{mean} [{low}, {high}]{mark}"
        columns += [
            Column(f"Δ {title}", cells),
            Column(f"p {title}", {method: f"{one:.1g}" for method, one in holm(p).items()}),
        ]
    return columns


def signed(x: float, decimals: int) -> str:
    """+.010, -.56: with its sign, and without a zero before the point."""
    return re.sub(r"^([+-])0\.", r"\1.", f"{x:+.{decimals}f}")


# A table of results: one row per method, the mean over its seeds.

Entries = dict[str, list[Entry]]  # {row of the table: one entry per seed}


def build_table(
    name: str, study: Study, seeds: int = 1, alphas: Sequence[float] = (), measured_only: bool = False
) -> Table:
    """A table, from the results that are there and those measured now, or only from those that are there. All learned
    methods have equally many seeds; who has more is told.

    α of each method is chosen from `alphas`; without such, from those that all methods were trained with before."""
    spec, results, left_out = specs.TABLES[name], study.results, list[str]()
    alphas = alphas or tried_by_all(results, spec.methods)
    chosen = choose_alphas(study, spec.methods, alphas) if alphas else {}
    entries = {method: results.seeds(method, chosen.get(method), seeds) for method in spec.methods}
    if measured_only:
        left_out = [method for method, group in entries.items() if not all(map(results.has, group))]
        if len(left_out) == len(entries):
            raise BadInput(f"nothing of this table is measured in {results.out}: leave out `measured_only`")
        entries = {method: group for method, group in entries.items() if method not in left_out}
    fewest = min((len(group) for group in entries.values() if group[0].training), default=1)
    if more := {method: len(group) for method, group in entries.items() if len(group) > fewest}:
        warn_of_input(
            f"the table is of {counted(fewest, 'seed')}, which all its networks have; of {', '.join(more)} there are "
            f"up to {max(more.values())}. `seeds={max(more.values())}` trains the others, too"
        )
    entries = {method: group[:fewest] for method, group in entries.items()}
    study.complete(list(chain.from_iterable(entries.values())))
    notes = table_notes(spec, results, entries)
    if chosen and len(alphas) > 1:
        by_alpha = {alpha: [method for method in chosen if chosen[method] == alpha] for alpha in alphas}
        methods = "; ".join(f"{alpha:g} for {', '.join(group)}" for alpha, group in by_alpha.items() if group)
        where = f' with the budget "{results.budget.alphas_of.name}"' if results.budget.alphas_of else ""
        tried = ", ".join(f"{alpha:g}" for alpha in alphas)
        notes.append(f"α was chosen for each method on the validation subjects{where}, from {tried}: {methods}.")
        for method, (first, *_) in entries.items():
            if first.training is not None and not has_choice(first):
                notes.append(f"{method} has an α of its own, {first.training.alpha:g}.")
    if results.budget.beside:
        label, budget = results.budget.beside
        notes.append(f'{label}: budget "{budget.name}", one seed.')
    if left_out:
        notes.append(f'Not measured yet, budget "{results.budget.name}": {", ".join(left_out)}.')
    title = spec.title if study.data == spec.data else f"{spec.title}: measured on {study.data}, not on {spec.data}"
    return Table(title, list(entries), build_columns(name, results, entries), notes)


def build_columns(name: str, results: Results, entries: Entries) -> list[Column]:
    """Measures; their significance where all are shown; seconds per pair; what another budget has, or was published."""
    spec, rows = specs.TABLES[name], {method: results.mean_rows(group) for method, group in entries.items()}
    measured = columns_of([subjects[0] for subjects in rows.values()])
    measures = spec.measures or [column for column in measured if column not in ("subject", "seconds")]
    columns = measure_columns(rows, measures)
    if spec.measures is None:
        columns += difference_columns(rows, spec.reference, results.data)
        sizes = {method: results.run(group[0]).config.get("parameters", 0) for method, group in entries.items()}
        columns.append(Column("M params", {method: f"{size / 1e6:.3g}" for method, size in sizes.items() if size}))
    if spec.has_times:
        timed = {n: group[0].method for n, group in entries.items() if n != "identity" and not group[0].is_averaged}
        for device, label in DEVICES.items():
            seconds = {n: seconds_per_pair(results.out, results.budget, m, results.d, device) for n, m in timed.items()}
            columns.append(Column(f"s {label}", seconds))
    if results.budget.beside:
        label, budget = results.budget.beside
        other = replace(results, budget=budget)
        learned = [other.entry(name, first.training.alpha) for name, (first, *_) in entries.items() if first.training]
        rows = {str(entry.method): other.rows(entry) for entry in learned if other.has(entry)}
        columns += [
            replace(column, title=f"{column.title}, {label}") for column in measure_columns(rows, specs.OVERLAP)
        ]
    for data in filter(None, (spec.data, spec.also_published)):
        published = published_values(data if name == spec.data else f"{name}_{data}")
        label = f"published on {data}" if spec.also_published else "published"
        for measure in (measure for measure in measures if measure != PUBLISHED_OTHERWISE):
            if cells := {method: row[measure] for method, row in published.items() if measure in row}:
                title = f"{measure_title(measure)}, {label}"
                columns.append(Column(title, cells, is_csv_only=measure not in PUBLISHED_ON_PAGES))
    return columns


def table_notes(spec: TableSpec, results: Results, entries: Entries) -> list[str]:
    """Everything that the numbers depend on."""
    every = list(chain.from_iterable(entries.values()))
    configs = [results.run(entry).config for entry in every]
    machines = sorted({f"{config['hardware']} (torch {config['versions']['torch']})" for config in configs})
    lines = [f"{len(results.rows(every[0]))} test subjects of {results.data}; mean (standard deviation over subjects)."]
    if settings := [entry.training for entry in every if entry.training]:
        learned, first = [group for group in entries.values() if group[0].training], settings[0]
        alphas = ", ".join(f"{alpha:g}" for alpha in sorted({one.alpha for one in settings}))
        widths = {cast(Trainable, group[0].method).width for group in learned}
        width = " or ".join("the paper's" if width is None else str(width) for width in sorted(widths, key=str))
        seeds = sorted({len(group) for group in learned})
        lines.append(
            f'Learned methods, budget "{results.budget.name}": {first.steps} steps of {counted(first.batch, "pair")}, '
            f"rate {first.rate:g}, α {alphas}, width {width}, "
            f"{' or '.join(map(str, seeds))} seed{'s' if seeds != [1] else ''} (mean over seeds)"
            f"{'; labels in training' if any(training.uses_labels for training in settings) else ''}."
        )
        if first.similarity or first.smoothness or first.consistency:  # the loss is not the methods' own
            similarity, smoothness = first.similarity or "the method's own", first.smoothness or "its own smoothness"
            both_ways = f" + {first.consistency:g} inverse consistency" if first.consistency else ""
            lines.append(f"Loss: {similarity} + α {smoothness}{both_ways}.")
    lines += parameter_notes({name: [entry.method for entry in group] for name, group in entries.items()})
    vrnets = sorted({str(config["versions"]["vrnet"]) for config in configs})
    lines.append(f"Computed on {'; '.join(machines)}; vrnet {', '.join(vrnets)}.")
    if spec.measures is None:
        if spec.reference in entries:
            lines += [
                f"Δ: difference from {spec.reference} with its 95 % interval, by paired bootstrap over subjects; =: "
                f"the two are equivalent, within {MARGINS['dice']:g} Dice or {MARGINS['hd']:g} mm (90 % interval).",
                "p: two-sided Wilcoxon signed-rank test of that difference, with Holm's correction for the column.",
            ]
            if results.data == "hippocampus":
                lines.append("Each subject is in two pairs: the intervals take that into account, p does not.")
        lines += [
            f"{name} has the images of {other}: intervals take both as one, and p leaves {name} out."
            for name, other in specs.REPEATED_SUBJECTS.get(results.data, {}).items()
            if name in configs[0]["subjects"]
        ]
    return lines


def parameter_notes(methods: dict[str, list[Method]]) -> list[str]:
    """The full names of the iterative methods that have other parameters than the tuned ones, where there are any."""
    found = {name: dict.fromkeys(str(m) for m in group if not m.is_trainable) for name, group in methods.items()}
    changed = [full for name, names in found.items() for full in names if full != without_average(name)]
    return [f"Parameters other than the tuned ones: {', '.join(changed)}."] if changed else []


# Seconds per pair, one pair at a time: OUT/runtime/DEVICE.csv, which benchmarks/runtime.py writes.


def seconds_per_pair(out: Path, budget: Budget, method: Method, d: int, device: str) -> str | None:
    key = file_name(method), shape_text((budget.phantoms or TIMED_PHANTOMS)[d].shape)
    known = [row["seconds"] for row in read_times(out, device) if (row["method"], row["shape"]) == key]
    return f"{known[0]:.3g}" if known else None


def read_times(out: Path, device: str) -> list[Row]:
    path = out / "runtime" / f"{device}.csv"
    rows = read_rows(path, "one row per method and shape") if exists(path) else []
    try:
        return [row | {"seconds": float(row["seconds"]), "hardware": row["hardware"]} for row in rows]
    except (KeyError, ValueError) as error:
        raise BadInput(f"{path} is not as benchmarks/runtime.py writes it: remove it, and measure again") from error


def timed_methods(budget: Budget) -> dict[str, dict[int, Method]]:
    """{name: {dimension: method}}: networks are as wide as the paper's; on phantoms of a budget, as wide as it says."""
    widths = budget if budget.phantoms else BUDGETS["paper"]
    return {
        name: {d: widths.method(name, d) for d in (2, 3) if (name, d) not in specs.UNTIMED}
        for name in specs.TIMED_METHODS
    }


def build_runtime_table(out: Path, budget: Budget) -> Table:
    """Seconds per pair of every method, in 2D and 3D, on the CPU and on a GPU, beside the published ones."""
    methods, published = timed_methods(budget), published_values("runtime")
    places = [(d, device) for d in (2, 3) for device in DEVICES]
    ours = {
        (d, device): {
            name: seconds_per_pair(out, budget, by_d[d], d, device) for name, by_d in methods.items() if d in by_d
        }
        for d, device in places
    }
    theirs = {(d, device): {name: published[name].get(f"{d}D_{device}") for name in methods} for d, device in places}
    columns = [
        Column(f"{d}D {DEVICES[device]}{said}", cells[d, device])
        for said, cells in (("", ours), (", published", theirs))
        for d, device in places
    ]
    shapes = [shape_text(images.shape) for images in (budget.phantoms or TIMED_PHANTOMS).values()]
    rows = [row for device in DEVICES for row in read_times(out, device) if row["shape"] in shapes]
    if not rows:
        raise BadInput(f"nothing is timed in {out}: run benchmarks/runtime.py, which writes runtime/cpu.csv there")
    notes = [
        f"One pair at a time: {' and '.join(shapes)}.",
        *parameter_notes({name: list(by_d.values()) for name, by_d in methods.items()}),
        f"Timed on {'; '.join(sorted({row['hardware'] for row in rows}))}.",
    ]
    return Table("Seconds a pair", list(methods), columns, notes)


OTHER_TABLES: dict[str, Callable[[Path, Budget], Table]] = {"runtime": build_runtime_table}
"""Tables that are of no data set, and have no TableSpec."""
