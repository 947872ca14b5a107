"""What a reader asks for: a table or a figure by its name. What is missing is measured, and files are written."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vrnet.cohort.executors import check_jobs
from vrnet.data.prepared import prepare_split
from vrnet.data.source import Source
from vrnet.data.store import PACK_SUFFIX
from vrnet.errors import BadInput
from vrnet.files import write_rows
from vrnet.paper.budget import BUDGETS, DIMENSIONS, Budget
from vrnet.paper.figures import FIGURES
from vrnet.paper.results import Results
from vrnet.paper.specs import TABLES
from vrnet.paper.study import PrepareSplit, Study
from vrnet.paper.table import Table
from vrnet.paper.tables import build_runtime_table, build_table
from vrnet.progress import Stage
from vrnet.report.figures import save
from vrnet.training.settings import check_weights
from vrnet.wording import did_you_mean

RUNTIME = "runtime"
MAX_RUNS = 1000
"""Seeds, and networks that are trained at once."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class PaperRequest:
    """Where images come from and results go, and what may be spent on them."""

    source: Source
    """Where images come from; `source.data` is empty where the table's own data set is meant."""
    out: Path
    budget: str = "short"
    device: str = "auto"
    at_once: int = 4
    """How many networks are trained at the same time."""
    seeds: int = 1
    """How often each learned method is trained, at least."""
    jobs: int = 1
    """How many subjects are measured at the same time."""
    alphas: tuple[float, ...] = ()
    """What α of each learned method of a table is chosen from, on validation subjects; the budget's, if empty."""
    measured_only: bool = False
    """Whether a table is of what is measured already, and names the other rows, instead of measuring them."""

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        if not 1 <= min(self.at_once, self.seeds) <= max(self.at_once, self.seeds) <= MAX_RUNS:
            raise BadInput(f"`seeds` and `at_once` are 1 at least, and {MAX_RUNS} at most")
        if self.alphas and self.measured_only:
            raise BadInput("α is chosen by training: leave out `alphas` or `measured_only`")
        for alpha in self.alphas:
            check_weights({"one of `alphas`": alpha})


def make_table(name: str, request: PaperRequest, stage: Stage, say: Say) -> tuple[Table, list[Path]]:
    """A table, and the files that it was written to."""
    check_name(name, "table")
    if name == RUNTIME:
        check_plain(request, "the table of times")
        budget = BUDGETS[request.budget]
        widths = budget if budget.phantoms else BUDGETS["paper"]
        table, file = build_runtime_table(request.out, budget, widths, stage), with_budget(name, budget)
    else:
        spec = TABLES[name]
        study = plan_study(request, spec.data, spec.fallback, stage, say)
        table = build_table(name, study, request.seeds, request.alphas, request.measured_only)
        file = file_stem(name, study.results, spec.data)
    return table, table.write(request.out / "tables", file)


def make_figure(name: str, request: PaperRequest, stage: Stage, say: Say) -> list[Path]:
    """Draw a figure, and write it beside the numbers that it was drawn from; return both files."""
    check_name(name, "figure")
    check_plain(request, f"the figure {name}")
    figure = FIGURES[name]
    given = request.source.data  # of any dimension: a figure can be drawn of either
    study = plan_study(request, given if given in DIMENSIONS else figure.data, None, stage, say)
    picture, numbers = figure.draw(study)
    stem = request.out / "figures" / file_stem(name, study.results, figure.data)
    paths = [stem.with_name(f"{stem.name}{suffix}") for suffix in (".png", ".csv")]
    save(picture, paths[0])
    write_rows(numbers, paths[1])
    return paths


def plan_study(request: PaperRequest, own: str, fallback: str | None, stage: Stage, say: Say) -> Study:
    """A study of the data set that is named; else of the table's own; where the reader has none, of the fallback."""
    budget = BUDGETS[request.budget]
    data, split = find_data(request.source, budget, own, fallback, stage, say)
    results = Results(request.out, data, budget)
    return Study(results, split, stage, say, request.device, request.at_once, request.source, request.jobs)


def find_data(
    source: Source, budget: Budget, own: str, fallback: str | None, stage: Stage, say: Say
) -> tuple[str, PrepareSplit]:
    """The name of the data set to be used, and what prepares its splits."""
    if budget.phantoms is not None:
        phantoms = budget.phantoms(DIMENSIONS[own])
        return phantoms.name, lambda split, purpose: prepare_split(phantoms, split, purpose, source.cache, say=say)
    if source.data.endswith(PACK_SUFFIX):
        name = source.split("test", "evaluation", stage, say).data
    else:
        name = source.data or (fallback if fallback and source.root is None else own)
    if DIMENSIONS.get(name) != DIMENSIONS[own]:
        known = ", ".join(name for name, d in DIMENSIONS.items() if d == DIMENSIONS[own])
        raise BadInput(f"this is not made of {name}: choose one of {known}, or a file that vrnet prepare made of one")
    named = source if source.data else replace(source, data=name)
    return name, lambda split, purpose: named.split(split, purpose, stage, say)


def file_stem(name: str, results: Results, own: str) -> str:
    """The name of a table's or figure's files: one of other data than its own says so."""
    return with_budget(name if results.data == own else f"{name}_{results.data}", results.budget)


def with_budget(stem: str, budget: Budget) -> str:
    """Files of another budget than "short" name it, so that they replace no others."""
    return stem if budget.name == "short" else f"{stem}_{budget.name}"


def known_names(kind: str) -> tuple[str, ...]:
    """Every table, or every figure, that can be asked for."""
    return (*TABLES, RUNTIME) if kind == "table" else tuple(FIGURES)


def check_name(name: str, kind: str) -> None:
    """BadInput if there is no such table or figure."""
    if name not in known_names(kind):
        other = "figure" if kind == "table" else "table"
        if name in known_names(other):
            raise BadInput(f"{name} is a {other}: ask for `vrnet paper {other} {name}`")
        meant = did_you_mean(name, known_names(kind)) or f"choose one of {', '.join(known_names(kind))}"
        raise BadInput(f'there is no {kind} "{name}": {meant}')


def check_plain(request: PaperRequest, what: str) -> None:
    """BadInput if α is to be chosen for what does not choose it, or rows left out of what is made whole."""
    if request.alphas:
        raise BadInput(f"{what} does not choose α: leave out `alphas`")
    if request.measured_only:
        raise BadInput(f"{what} is made whole: leave out `measured_only`")
