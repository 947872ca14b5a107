"""The paper's tables, made of results: what was measured here beside what was published."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import cast

from vrnet.errors import BadInput, warn_of_input
from vrnet.methods.method import Method, Trainable
from vrnet.methods.names import without_average
from vrnet.paper.alphas import choose_alphas, has_choice, tried_by_all
from vrnet.paper.budget import Budget
from vrnet.paper.columns import (
    DEVICES,
    Column,
    find_measures,
    measure_columns,
    published_columns,
    significance_columns,
    size_column,
    time_cell,
    time_columns,
    timed_images,
)
from vrnet.paper.other_budgets import measured_rows, tell_of_whole_budgets
from vrnet.paper.results import Entry, Results
from vrnet.paper.runtime import in_singular, timing_hardware
from vrnet.paper.specs import REPEATED_SUBJECTS, TABLES, TIMED_METHODS, TableSpec, is_timed
from vrnet.paper.study import Study
from vrnet.paper.table import Table
from vrnet.paper.values import published_values
from vrnet.progress import Stage
from vrnet.training.settings import Training
from vrnet.wording import counted

ROW_LABELS = {"identity": "unregistered"}
Entries = dict[str, list[Entry]]
"""{row of the table: one entry per seed}"""


def build_table(
    name: str, study: Study, seeds: int = 1, alphas: Sequence[float] = (), measured_only: bool = False
) -> Table:
    """A table, from the results that are there and those measured now, or only from those that are there.

    α of each method is chosen from `alphas`; without such, from those that all methods were trained with before."""
    spec, results, left_out = TABLES[name], study.results, list[str]()
    alphas = alphas or tried_by_all(results, spec.methods)
    chosen = choose_alphas(study, spec.methods, alphas) if alphas else {}
    tell_of_whole_budgets(study, spec.methods, chosen, seeds)
    if measured_only:
        spec, left_out = leave_out_unmeasured(spec, results, seeds, chosen)
    entries = choose_entries(spec, results, seeds, chosen)
    study.complete(list(chain.from_iterable(entries.values())))
    columns = build_columns(name, results, entries)
    notes = table_notes(spec, results, entries) + alpha_notes(chosen, alphas, results.budget, own_alphas(entries))
    return Table(
        table_title(spec, study.data),
        ["method", *(column.title for column in columns)],
        [[ROW_LABELS.get(method, method), *(column.cells.get(method) for column in columns)] for method in entries],
        notes + unmeasured_notes(results, left_out),
        {(list(entries).index(column.best), k) for k, column in enumerate(columns, start=1) if column.best},
        {k for k, column in enumerate(columns, start=1) if column.is_csv_only},
    )


def leave_out_unmeasured(
    spec: TableSpec, results: Results, seeds: int, alphas: Mapping[str, float]
) -> tuple[TableSpec, list[str]]:
    """A table of the rows that are measured with so many seeds, and the others; BadInput where there is none."""
    kept = measured_rows(results, spec.methods, alphas, seeds)
    if not kept:
        raise BadInput(f"nothing of this table is measured in {results.out}: leave out `measured_only`")
    return replace(spec, methods=tuple(kept)), [name for name in spec.methods if name not in kept]


def choose_entries(spec: TableSpec, results: Results, seeds: int, alphas: Mapping[str, float]) -> Entries:
    """What each row of a table is made of: all learned methods have equally many seeds. Who has more is told."""
    entries = {name: results.seeds(name, alphas.get(name), at_least=seeds) for name in spec.methods}
    fewest = min((len(group) for group in entries.values() if group[0].training), default=1)
    if more := {name: len(group) for name, group in entries.items() if len(group) > fewest}:
        warn_of_input(
            f"the table is of {counted(fewest, 'seed')}, which all its networks have; of {', '.join(more)} there are "
            f"up to {max(more.values())}. `seeds={max(more.values())}` trains the others, too"
        )
    return {name: group[:fewest] for name, group in entries.items()}


def build_columns(name: str, results: Results, entries: Entries) -> list[Column]:
    """Measures; their significance where all are shown; times; what was published."""
    spec, rows = TABLES[name], {method: results.mean_rows(group) for method, group in entries.items()}
    measures = spec.measures or find_measures(rows)
    columns = measure_columns(rows, measures)
    if spec.measures is None:
        columns += significance_columns(rows, REPEATED_SUBJECTS.get(results.data, ()))
        columns.append(
            size_column({method: results.config(group[0]).get("parameters", 0) for method, group in entries.items()})
        )
    if spec.has_times:
        once = {method: group[0].method for method, group in entries.items() if not group[0].is_averaged}
        columns += time_columns(results, once)
    published = {
        data: published_values(data if name == spec.data else f"{name}_{data}")
        for data in (spec.data, spec.also_published)
        if data
    }
    return columns + published_columns(published, measures)


def table_title(spec: TableSpec, data: str) -> str:
    """What the table shows; one that is measured on other data than its own, such as phantoms, says so."""
    return spec.title if data == spec.data else f"{spec.title}: measured on {data}, not on {spec.data}"


def table_notes(spec: TableSpec, results: Results, entries: Entries) -> list[str]:
    """Everything that the numbers depend on."""
    every = list(chain.from_iterable(entries.values()))
    configs = [results.config(entry) for entry in every]
    machines = sorted(
        {f"{in_singular(config['hardware'])} (torch {config['versions']['torch']})" for config in configs}
    )
    lines = [f"{len(results.rows(every[0]))} test subjects of {results.data}; mean (standard deviation over subjects)."]
    lines += training_notes(results, entries)
    lines += parameter_notes({name: [entry.method for entry in group] for name, group in entries.items()})
    versions = sorted({str(config["versions"]["vrnet"]) for config in configs})
    lines.append(f"Computed on {'; '.join(machines)}; vrnet {', '.join(versions)}.")
    if spec.measures is None:
        test = "two-sided Wilcoxon signed-rank test over subjects, with Holm's correction"
        lines.append(f"p: {test}, against the row of highest Dice.")
        lines += [
            f"{name}, whose images are those of another subject, counts in means but not in p."
            for name in REPEATED_SUBJECTS.get(results.data, ())
            if name in configs[0]["subjects"]
        ]
    return lines


def training_notes(results: Results, entries: Entries) -> list[str]:
    """How the learned methods were trained, where there are any."""
    learned = [group for group in entries.values() if group[0].training]
    settings = [entry.training for group in learned for entry in group if entry.training]
    if not settings:
        return []
    first, alphas = settings[0], sorted({training.alpha for training in settings})
    seeds, labels = sorted({len(group) for group in learned}), any(training.uses_labels for training in settings)
    return [
        f'Learned methods, budget "{results.budget.name}": {first.steps} steps of {counted(first.batch, "pair")}, '
        f"rate {first.rate:g}, α {', '.join(f'{alpha:g}' for alpha in alphas)}, width {network_widths(learned)}, "
        f"{' or '.join(map(str, seeds))} seed{'s' if seeds != [1] else ''} (mean over seeds)"
        f"{'; labels in training' if labels else ''}.",
        *loss_notes(first),
    ]


def loss_notes(training: Training) -> list[str]:
    """The loss, where it is not the methods' own."""
    if training.similarity is None and training.smoothness is None and not training.consistency:
        return []
    similarity, smoothness = training.similarity or "the method's own", training.smoothness or "its own smoothness"
    both_ways = f" + {training.consistency:g} inverse consistency" if training.consistency else ""
    return [f"Loss: {similarity} + α {smoothness}{both_ways}."]


def own_alphas(entries: Entries) -> dict[str, float]:
    """{method: its α}, of those that are trained with one of their own."""
    return {
        name: group[0].training.alpha
        for name, group in entries.items()
        if group[0].training is not None and not has_choice(group[0])
    }


def alpha_notes(
    chosen: Mapping[str, float], alphas: Sequence[float], budget: Budget, own: Mapping[str, float]
) -> list[str]:
    """Which α each method has, where it was chosen from several; who has one of its own is told apart."""
    if not chosen or len(alphas) == 1:
        return []
    methods = [f"{alpha:g} for {', '.join(name for name in chosen if chosen[name] == alpha)}" for alpha in alphas
               if alpha in chosen.values()]  # fmt: skip
    tried = ", ".join(f"{alpha:g}" for alpha in alphas)
    where = f' with the budget "{budget.alphas_of.name}"' if budget.alphas_of else ""
    return [f"α was chosen for each method on the validation subjects{where}, from {tried}: {'; '.join(methods)}."] + [
        f"{name} has an α of its own, {alpha:g}." for name, alpha in own.items()
    ]


def unmeasured_notes(results: Results, left_out: Sequence[str]) -> list[str]:
    """The rows that a table is without, where there are any."""
    return [f'Not measured yet, budget "{results.budget.name}": {", ".join(left_out)}.'] if left_out else []


def network_widths(learned: list[list[Entry]]) -> str:
    """The widths of the networks, in words."""
    widths = {cast(Trainable, entry.method).width for group in learned for entry in group}
    return " or ".join("the paper's" if width is None else str(width) for width in sorted(widths, key=str))


def parameter_notes(methods: dict[str, list[Method]]) -> list[str]:
    """The full names of the iterative methods that have other parameters than the tuned ones, where there are any."""
    found = {name: dict.fromkeys(str(m) for m in group if not m.is_trainable) for name, group in methods.items()}
    changed = [full for name, names in found.items() for full in names if full != without_average(name)]
    return [f"Parameters other than the tuned ones: {', '.join(changed)}."] if changed else []


def build_runtime_table(out: Path, budget: Budget, widths: Budget, stage: Stage) -> Table:
    """Seconds per pair of every method, in 2D and 3D, on the CPU and on a GPU, beside the published ones.

    Images and seconds spent are those of `budget`, networks are as wide as those of `widths`."""
    places = [(d, device) for d in (2, 3) for device in DEVICES]
    methods = {name: {d: widths.method(name, d) for d in (2, 3) if is_timed(name, d)} for name in TIMED_METHODS}
    published, tick, rows = published_values("runtime"), stage("timing"), []
    for number, (name, by_d) in enumerate(methods.items()):
        tick(number / len(methods))
        ours = [time_cell(out, budget, by_d[d], d, device) if d in by_d else None for d, device in places]
        rows.append([name, *ours, *(published[name].get(f"{d}D_{device}") for d, device in places)])
    header = [f"{d}D {DEVICES[device]}" for d, device in places]
    return Table(
        "Seconds a pair",
        ["method", *header, *(f"{name}, published" for name in header)],
        rows,
        runtime_notes(out, budget, {name: list(by_d.values()) for name, by_d in methods.items()}),
    )


def runtime_notes(out: Path, budget: Budget, methods: dict[str, list[Method]]) -> list[str]:
    """The images that were timed, and on what."""
    shapes = [timed_images(budget, d)[0] for d in (2, 3)]
    return [
        f"One pair at a time: {' and '.join('x'.join(map(str, shape)) for shape in shapes)}.",
        *parameter_notes(methods),
        f"Timed on {'; '.join(timing_hardware(out, shapes))}.",
    ]
