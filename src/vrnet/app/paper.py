"""`vrnet paper`: the tables and figures of the paper, ours beside the published figures."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vrnet.app.arguments import OF_A_SPLIT, DeviceOptions, Folder, Group, Jobs, SourceOptions, refuse_options
from vrnet.app.console import STOPPED, paper_table, print_line, screen, stage_progress
from vrnet.cohort.run import check_jobs
from vrnet.data.prepared import PACK_SUFFIX, Source, prepare_split
from vrnet.errors import BadInput, Stage, did_you_mean
from vrnet.files import write_rows
from vrnet.paper.budget import BUDGETS, DIMENSIONS, Budget
from vrnet.paper.figures import FIGURES
from vrnet.paper.results import Results
from vrnet.paper.specs import TABLES
from vrnet.paper.study import PrepareSplit, Study
from vrnet.paper.tables import Table, build_runtime_table, build_table
from vrnet.report.figures import save
from vrnet.training.settings import check_weights


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Make a table or a figure of the paper, what was published beside what is measured.

    Tables: ablation, parts, initialisation, acdc, matched, matched_half, averaged, smoothness, ukbb, cmr3d, acdc3d,
    hippocampus, hippocampus_half, runtime. Figures: parameterisations, alpha, cascades, efficiency, visual, boxplots,
    denoising, strain (of whole stacks of ACDC: give --root).

    What is missing is trained and measured first, networks last, and kept in DIR: one folder per method, with one row
    per subject; what is there is never computed again. Ctrl-C and SIGTERM stop; the same command goes on. The tables
    ukbb and cmr3d are made on phantoms where no folder of the data set is given. Writes tables in DIR/tables, as
    Markdown, CSV and LaTeX, and figures in DIR/figures, with their numbers.
    """

    kind: Annotated[Literal["table", "figure"], tyro.conf.Positional]
    """What is to be made."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which one."""
    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE", help_behavior_hint="(default: the one in the paper)")] = ""
    """Another data set of the same dimension, or a file that `vrnet prepare` wrote."""
    out: Folder = Path("results")
    """Where results are kept, and looked for."""
    budget: Literal["paper", "augmented", "short", "central", "consistent", "long", "quick"] = "short"
    """What is spent on each learned method. paper: its width and steps, without augmentation; augmented: as paper, with
    augmentation; short: narrow networks and a tenth of the steps, for minutes per method on a GPU; central: as short,
    with smoothness of central differences; consistent: as short, with every pair in both directions and a loss of more
    parts; long: as consistent, with three times the steps; quick: a few steps on small phantoms."""
    quick: bool = False
    """Short for --budget quick: to see that all works, in minutes on a CPU."""
    seeds: int = 1
    """Train each learned method so often, at least; all that are there are used."""
    alphas: Annotated[tuple[float, ...], tyro.conf.arg(metavar="A A ...")] = ()
    """Of a table: train each learned method with each of these weights of smoothness, and take the one that is best on
    the validation subjects. The table says which; alphas.csv in its folder keeps the scores. Without this option, α is
    chosen by the scores that are kept, where all methods of the table have some of the same two or more weights; else
    it is the budget's."""
    measured_only: bool = False
    """Of a table: only the rows that are measured already; it names the others, and trains nothing."""
    jobs: Jobs = 1
    """How many subjects are measured at the same time, each in a process with one thread (needs vrnet[cluster])."""
    source_options: Group[SourceOptions]
    device_options: Group[DeviceOptions]

    def run(self) -> None:

        self.check()
        source, device = self.source_options.source(self.data), self.device_options.device
        budget = "quick" if self.quick else self.budget
        request = PaperRequest(source, self.out, budget, device, self.seeds, self.jobs, self.alphas, self.measured_only)
        table = None
        try:
            with stage_progress() as stage:
                if self.kind == "table":
                    table, written = make_table(self.name, request, stage, print_line)
                else:
                    written = make_figure(self.name, request, stage, print_line)
        except KeyboardInterrupt:
            print_line(STOPPED)
            raise
        if table:
            screen.print(paper_table(table))
            for line in table.notes:
                print_line(line)
        print_line(f"Wrote {', '.join(path.name for path in written)} in {written[0].parent}.")

    def check(self) -> None:
        """BadInput where options are given that the table or the figure does not depend on."""
        if self.quick:
            refuse_options(self, ("budget",), "beside --quick: leave out one")
        if self.quick or self.budget == "quick":
            ignored = "root", "split_file", "skip_broken"
            refuse_options(self, ignored, "on small phantoms, which this budget takes: leave that out")
        if self.kind == "figure":
            refuse_options(self, ("seeds", "alphas", "measured_only"), "on a figure: make a table with them first")
        if self.name == "runtime":
            of_others = "data", "seeds", "alphas", "measured_only", "jobs", "device", *OF_A_SPLIT
            refuse_options(self, of_others, "on the table runtime, which is measured on phantoms: leave that out")


# What a reader asks for: a table or a figure by its name. What is missing is measured, and files are written.

RUNTIME, FIGURE_DATA = "runtime", "acdc"
MAX_SEEDS = 1000
Say = Callable[[str], None]


@dataclass(frozen=True)
class PaperRequest:
    """Where images come from and results go, and what may be spent on them: see `Paper`."""

    source: Source
    """Where images come from; `source.data` is empty where the table's own data set is meant."""
    out: Path
    budget: str = "short"
    device: str = "auto"
    seeds: int = 1
    jobs: int = 1
    alphas: tuple[float, ...] = ()
    measured_only: bool = False

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise BadInput(f"`seeds` is 1 at least, and {MAX_SEEDS} at most")
        if self.alphas and self.measured_only:
            raise BadInput("α is chosen by training: leave out `alphas` or `measured_only`")
        for alpha in self.alphas:
            check_weights({"one of `alphas`": alpha})


def make_table(name: str, request: PaperRequest, stage: Stage, say: Say) -> tuple[Table, list[Path]]:
    """A table, and the files that it was written to."""
    check_name(name, "table")
    budget = BUDGETS[request.budget]
    if name == RUNTIME:
        check_plain(request, "the table of times")
        widths = budget if budget.phantoms else BUDGETS["paper"]
        table, stem = build_runtime_table(request.out, budget, widths, stage), name
    else:
        spec = TABLES[name]
        study = plan_study(request, spec.data, spec.fallback, stage, say)
        table = build_table(name, study, request.seeds, request.alphas, request.measured_only)
        stem = name if study.data == spec.data else f"{name}_{study.data}"
    return table, table.write(request.out / "tables", with_budget(stem, budget))


def make_figure(name: str, request: PaperRequest, stage: Stage, say: Say) -> list[Path]:
    """Draw a figure, and write it beside the numbers that it was drawn from; return both files."""
    check_name(name, "figure")
    check_plain(request, f"the figure {name}")
    given = request.source.data  # of any dimension: a figure can be drawn of either
    study = plan_study(request, given if given in DIMENSIONS else FIGURE_DATA, None, stage, say)
    picture, numbers = FIGURES[name](study)
    stem = name if study.data == FIGURE_DATA else f"{name}_{study.data}"
    place = request.out / "figures" / with_budget(stem, study.results.budget)
    paths = [place.with_name(f"{place.name}{suffix}") for suffix in (".png", ".csv")]
    save(picture, paths[0])
    write_rows(numbers, paths[1])
    return paths


def plan_study(request: PaperRequest, own: str, fallback: str | None, stage: Stage, say: Say) -> Study:
    """A study of the data set that is named; else of the table's own; where the reader has none, of the fallback."""
    budget = BUDGETS[request.budget]
    data, split = find_data(request.source, budget, own, fallback, stage, say)
    results = Results(request.out, data, budget)
    return Study(results, split, stage, say, request.device, request.source, request.jobs)


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
