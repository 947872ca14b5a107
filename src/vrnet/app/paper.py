"""`vrnet paper`: the tables and figures of the paper, ours beside the published figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vrnet.app import arguments as args
from vrnet.app.arguments import changed_fields, refuse_options
from vrnet.app.console import print_line, stage_progress
from vrnet.errors import BadInput, Stage, check_range, did_you_mean

if TYPE_CHECKING:
    from vrnet.paper.results import Say, Study
    from vrnet.paper.specs import Budget
    from vrnet.paper.tables import Table

FIGURE_DATA = "acdc"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Make a table or a figure of the paper, what was published beside what is measured; or judge its claims.

    Tables: ablation, parts, initialisation, acdc, matched, matched_half, averaged, smoothness, ukbb, cmr3d, acdc3d,
    hippocampus, hippocampus_half, runtime. Figures: parameterisations, alpha, cascades, efficiency, boxplots,
    visual, denoising.

    What is missing is trained and measured first, and kept in DIR: one folder per method, with one row per subject. The
    same command continues a stopped one. Without --root, the tables ukbb and cmr3d are made on phantoms. Writes
    DIR/tables, as Markdown and CSV, and DIR/figures, with their numbers.

    claims needs no NAME: it compares what is measured with each claim of the paper, with 95 % intervals, in
    DIR/claims.csv, and in DIR/comparisons.csv the methods with each other.
    """

    kind: Annotated[Literal["table", "figure", "claims"], tyro.conf.Positional]
    """What is to be made."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = ""
    """Which table or figure."""
    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE", help_behavior_hint="(default: the one in the paper)")] = ""
    """Another data set of the same dimension, or a file that `vrnet prepare` wrote."""
    out: args.Folder = Path("results")
    """Where results are kept, and looked for."""
    budget: Literal[
        "paper", "augmented", "cycles", "cycles-augmented", "short", "central", "consistent", "long", "quick"
    ] = "short"
    """How learned methods are trained. paper: its width and steps; augmented: the same with augmentation; cycles,
    cycles-augmented: as these, with every frame of the cycle (data set acdc-cycles) and the weights of the last step;
    short: narrow networks and a tenth of the steps; central: as short, with smoothness of central differences;
    consistent: as short, with inverse consistency; long: as consistent, with three times the steps; quick: a few steps
    on small phantoms."""
    quick: bool = False
    """Short for --budget quick, in minutes on a CPU."""
    seeds: int = 1
    """Train each learned method at least so often; all results are used."""
    alphas: Annotated[tuple[float, ...], tyro.conf.arg(metavar="A A ...")] = ()
    """Of a table: train each learned method with each of these weights of smoothness, and take the best on validation
    (alphas.csv). Without this option, α is chosen by scores in alphas.csv, if all methods of the table have two or more
    of the same weights; else it is the budget's."""
    measured_only: bool = False
    """Of a table: only rows that are already measured; train nothing."""
    jobs: args.Jobs = 1
    """So many subjects at a time, each in a process with one thread (needs vrnet[cluster])."""
    source_options: args.Group[args.SourceOptions]
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        table = None
        try:
            with stage_progress() as stage:
                if self.kind == "table":
                    table, written = make_table(self, stage, print_line)
                elif self.kind == "claims":
                    written = make_claims(self)
                else:
                    written = make_figure(self, stage, print_line)
        except KeyboardInterrupt:
            print_line("Stopped. What is done stays done: the same command goes on from there.")
            raise
        if table:
            print_line(*table.markdown().splitlines())
        print_line(f"Wrote {', '.join(path.name for path in written)} in {written[0].parent}.")

    @property
    def chosen_budget(self) -> "Budget":
        from vrnet.paper.specs import BUDGETS

        return BUDGETS["quick" if self.quick else self.budget]

    def stem(self, data: str, own: str) -> str:
        """The name of the files: those of other data, or of another budget than "short", name it."""
        of_data = "" if data == own else f"_{data}"
        return f"{self.name}{of_data}{'' if self.chosen_budget.name == 'short' else f'_{self.chosen_budget.name}'}"

    def check(self, known: Sequence[str]) -> None:
        """BadInput where there is no such table or figure, or options are given that it does not depend on."""
        from vrnet.cohort.run import check_jobs
        from vrnet.paper.specs import TABLES

        if self.name not in known:
            meant = did_you_mean(self.name, known) or f"choose one of {', '.join(known)}"
            raise BadInput(f'there is no {self.kind} "{self.name}": {meant}')
        if self.quick:
            refuse_options(self, ("budget",), "beside --quick: leave out one")
        if self.chosen_budget.phantoms:
            refuse_options(self, args.OF_A_SPLIT[:2], "on small phantoms, which this budget takes: leave that out")
        if self.kind == "figure":
            refuse_options(self, ("seeds", "alphas", "measured_only"), "on a figure: make a table with them first")
        elif self.name not in TABLES:
            of_others = "data", "seeds", "alphas", "measured_only", "jobs", "device", *args.OF_A_SPLIT
            refuse_options(self, of_others, f"on the table {self.name}: leave that out")
        check_jobs(self.jobs)
        check_range({"`seeds`": self.seeds}, 1, 1000)
        if self.alphas and self.measured_only:
            raise BadInput("α is chosen by training: leave out `alphas` or `measured_only`")
        for alpha in self.alphas:
            check_range({"one of `alphas`": alpha})


def make_table(asked: Paper, stage: Stage, say: "Say") -> tuple["Table", list[Path]]:
    from vrnet.paper.specs import TABLES
    from vrnet.paper.tables import OTHER_TABLES, build_table

    asked.check((*TABLES, *OTHER_TABLES))
    if asked.name in OTHER_TABLES:
        table, stem = OTHER_TABLES[asked.name](asked.out, asked.chosen_budget), asked.stem("", "")
    else:
        spec = TABLES[asked.name]
        study = plan_study(asked, spec.data, spec.fallback, stage, say)
        table = build_table(asked.name, study, asked.seeds, asked.alphas, asked.measured_only)
        stem = asked.stem(study.data, spec.data)
    return table, table.write(asked.out / "tables", stem)


def make_claims(asked: Paper) -> list[Path]:
    """Judge the claims of the paper by the rows that are there; return the files that say so."""
    from vrnet.paper.claims import write_claims

    refuse_options(asked, {*changed_fields(asked)} - {"kind", "out"}, "on claims: leave that out")
    return write_claims(asked.out)


def make_figure(asked: Paper, stage: Stage, say: "Say") -> list[Path]:
    """Draw a figure, and write it beside the numbers that it was drawn from; return both files."""
    from vrnet.files import write_rows
    from vrnet.paper.pictures import FIGURES
    from vrnet.paper.specs import DIMENSIONS
    from vrnet.report.figures import save

    asked.check(tuple(FIGURES))
    own = asked.data if asked.data in DIMENSIONS else FIGURE_DATA  # a figure can be drawn of any dimension
    study = plan_study(asked, own, None, stage, say)
    picture, numbers = FIGURES[asked.name](study)
    paths = [asked.out / "figures" / f"{asked.stem(study.data, FIGURE_DATA)}{suffix}" for suffix in (".png", ".csv")]
    save(picture, paths[0])
    write_rows(numbers, paths[1])
    return paths


def plan_study(asked: Paper, own: str, fallback: str | None, stage: Stage, say: "Say") -> "Study":
    """A study of the data set that is named; else of the table's own; where the reader has none, of the fallback."""
    from vrnet.data.prepared import PACK_SUFFIX, prepare_split
    from vrnet.paper.results import PrepareSplit, Results, Study
    from vrnet.paper.specs import DIMENSIONS

    source, budget, d = asked.source_options.source(asked.data), asked.chosen_budget, DIMENSIONS[own]
    split: PrepareSplit
    if budget.phantoms is not None:
        phantoms = budget.phantoms[d]
        name = phantoms.name
        split = partial(prepare_split, phantoms, cache=source.cache, say=say)
    else:
        if asked.data.endswith(PACK_SUFFIX):
            read = source.split("test", "evaluation", stage, say).data
            name = next((data for data, other in budget.data_sets.items() if other == read), read)
        else:
            name = asked.data or (fallback if fallback and source.root is None else own)
            source = replace(source, data=budget.data_sets.get(name, name))
        if DIMENSIONS.get(name) != d:
            known = ", ".join(name for name in DIMENSIONS if DIMENSIONS[name] == d)
            said = f"this is not made of {name}: choose one of {known}"
            raise BadInput(f"{said}, or a file that vrnet prepare made of one")
        split = partial(source.split, stage=stage, say=say)
    return Study(Results(asked.out, name, budget), split, stage, say, asked.device_options.device, asked.jobs)
