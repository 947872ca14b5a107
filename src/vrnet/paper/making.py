"""A table or a figure by its name: what is missing is measured, and files are written."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vrnet.data.prepared import prepare_split
from vrnet.data.source import Source
from vrnet.data.store import PACK_SUFFIX
from vrnet.errors import BadInput
from vrnet.files import write_rows
from vrnet.paper.budget import BUDGETS, DIMENSIONS, Budget
from vrnet.paper.figures import FIGURES
from vrnet.paper.sheet import Sheet
from vrnet.paper.study import Split, Study
from vrnet.paper.tables import TABLES, runtime_sheet, sheet, write
from vrnet.progress import Stage
from vrnet.report.figures import save

RUNTIME = "runtime"
NAMES = {"table": (*TABLES, RUNTIME), "figure": tuple(FIGURES)}


@dataclass(frozen=True)
class PaperRequest:
    """What a reader asks for."""

    source: Source
    """Its data is empty where the table's own is meant."""
    out: Path
    budget: str = "short"
    device: str = "auto"
    at_once: int = 4
    seeds: int = 1

    def __post_init__(self) -> None:
        if min(self.at_once, self.seeds) < 1:
            raise BadInput("--seeds and --at-once are 1 at least")


def study_of(asked: PaperRequest, own: str, instead: str | None, stage: Stage, say: Callable[[str], None]) -> Study:
    """On the data that is named; else on its own; else, where the reader has none of that, on phantoms instead."""
    budget = BUDGETS[asked.budget]
    data, split = _data(asked, own, instead, stage, say)
    return Study(asked.out, data, budget, split, stage, say, asked.device, asked.at_once)


def _data(
    asked: PaperRequest, own: str, instead: str | None, stage: Stage, say: Callable[[str], None]
) -> tuple[str, Split]:
    source, budget = asked.source, BUDGETS[asked.budget]
    if budget.phantoms is not None:
        small = budget.phantoms(DIMENSIONS[own])
        return small.name, lambda split, purpose: prepare_split(small, split, purpose, source.cache, say=say)
    if source.data.endswith(PACK_SUFFIX):
        name = source.split("test", "evaluation", stage, say).data
    else:
        name = source.data or (instead if instead and source.root is None else own)
    if DIMENSIONS.get(name) != DIMENSIONS[own]:
        known = ", ".join(name for name, d in DIMENSIONS.items() if d == DIMENSIONS[own])
        raise BadInput(f"this is not made of {name}: choose one of {known}, or a file that vrnet prepare made of one")
    there = source if source.data else replace(source, data=name)
    return name, lambda split, purpose: there.split(split, purpose, stage, say)


def make_table(name: str, asked: PaperRequest, stage: Stage, say: Callable[[str], None]) -> tuple[Sheet, list[Path]]:
    """A table, and the files it was written to."""
    check(name, "table")
    if name == RUNTIME:
        budget = BUDGETS[asked.budget]
        made = runtime_sheet(asked.out, budget, budget if budget.phantoms else BUDGETS["paper"], stage)
        title = budgeted(name, budget)
    else:
        table = TABLES[name]
        study = study_of(asked, table.data, table.instead, stage, say)
        made, title = sheet(name, study, asked.seeds), titled(name, study, table.data)
    return made, write(made, asked.out / "tables", title)


def make_figure(name: str, asked: PaperRequest, stage: Stage, say: Callable[[str], None]) -> list[Path]:
    """A figure, and the numbers it was drawn from."""
    check(name, "figure")
    named = asked.source.data  # of any dimension: a figure is made of what it is given
    study = study_of(asked, named if named in DIMENSIONS else FIGURES[name].data, None, stage, say)
    figure, numbers = FIGURES[name].draw(study)
    place = asked.out / "figures" / titled(name, study, FIGURES[name].data)
    paths = [place.with_name(f"{place.name}{ending}") for ending in (".png", ".csv")]
    save(figure, paths[0])
    write_rows(numbers, paths[1])
    return paths


def titled(name: str, study: Study, own: str) -> str:
    """The name of its files: a table of other data than its own says so."""
    return budgeted(name if study.data == own else f"{name}_{study.data}", study.budget)


def budgeted(title: str, budget: Budget) -> str:
    """What was made with another budget than most, or of small images, is not taken for the same."""
    return title if budget.name == "short" else f"{title}_{budget.name}"


def check(name: str, kind: str) -> None:
    if name not in NAMES[kind]:
        raise BadInput(f'there is no {kind} "{name}": choose one of {", ".join(NAMES[kind])}')
