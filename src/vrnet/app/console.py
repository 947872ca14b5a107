"""What a person sees in the terminal: progress, tables, lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from vrnet.progress import Stage
from vrnet.report.measures import Row, by_structure, number, summary

if TYPE_CHECKING:
    from vrnet.paper import table as paper
    from vrnet.training.loop import TrainingStatus

screen, errors, bars = Console(), Console(stderr=True), Console(stderr=True)
MANY = 8
BRIEFLY = ("method", "Dice Avg", "HD Avg", "J<0 %", "p Dice")
"""How the columns begin that are shown of a large table."""


def say(line: str) -> None:
    """A line for the reader, taken as it is: file names may hold brackets."""
    screen.print(line, markup=False, highlight=False, soft_wrap=True)


def silence() -> None:
    """Errors only: for all but the first of several processes that do one thing."""
    screen.quiet = bars.quiet = True


@contextmanager
def stages() -> Iterator[Stage]:
    """A bar on the error stream, so that results can be piped; stage(name) starts it anew, and returns its setter."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=bars) as bar:
        task = bar.add_task("starting", total=None)

        def stage(name: str) -> Callable[[float], None]:
            bar.reset(task, description=name, total=None)
            return lambda done: bar.update(task, total=1.0, completed=done)

        with hidden_if_failed(bar):
            yield stage
        bar.update(task, description="done", total=1.0, completed=1.0)


@contextmanager
def hidden_if_failed(bar: Progress) -> Iterator[None]:
    """No half of a bar above the line that says what is wrong."""
    try:
        yield
    except BaseException:
        bar.live.transient = True
        raise


@contextmanager
def training_bar(method: str) -> Iterator[Callable[["TrainingStatus"], None]]:
    """A bar with the loss, the latest Dice on validation, θ, and steps a second; in a file, a line a validation."""
    columns = TextColumn("{task.description}"), BarColumn(12), TextColumn("{task.fields[how]}"), TimeRemainingColumn()
    told = 0
    with Progress(*columns, console=bars) as bar:
        task = bar.add_task(method, total=None, how="the first steps")

        def watch(moment: "TrainingStatus") -> None:
            nonlocal told
            bar.update(task, completed=moment.step, total=moment.steps, how=how_it_goes(moment))
            if not bars.is_terminal and moment.scores.get("step", 0) > told:
                told = int(moment.scores["step"])
                bars.print(how_it_goes(moment), highlight=False, soft_wrap=True)

        with hidden_if_failed(bar):
            yield watch


def how_it_goes(moment: "TrainingStatus") -> str:
    """250/300, loss .0123, Dice .801, θ .098 .113, 52.1 steps/s."""
    words = [f"{moment.step}/{moment.steps}", f"loss {short(moment.loss)}"]
    if "val_dice" in moment.scores:
        words.append(f"Dice {short(moment.scores['val_dice'], 3)}")
    if moment.thetas:
        words.append("θ " + spread(moment.thetas))
    return ", ".join([*words, f"{moment.steps_per_second:.3g} steps/s"])


def spread(values: list[float]) -> str:
    """A few numbers, or the least and the greatest of many."""
    shown = values if len(values) < 4 else [min(values), max(values)]
    return ("–" if len(values) > 3 else " ").join(short(value, 3) for value in shown)


def short(value: float, digits: int = 4) -> str:
    """.0123"""
    return f"{value:.{digits}f}".removeprefix("0")


def best_score(row: Mapping[str, int | float], before: Mapping[str, float]) -> str:
    """The row of metrics.csv whose model was kept, beside what there was before registration, in words."""
    name, key, digits = ("Dice", "val_dice", 3) if "val_dice" in row else ("loss", "val_loss", 4)
    return f"after {row['step']} steps: {name} {row[key]:.{digits}f} (unregistered {before[key]:.{digits}f})"


def metrics_table(metrics: dict[str, Any], structures: dict[str, str] | None = None) -> Table:
    """Before and after, a row a measure, and one for the Dice of each structure unless there are many of them."""
    weights = f" ({metrics['weights']})" if metrics.get("weights") else ""
    what = f"{metrics['method']}{weights}" + (", slice by slice" if metrics["slice_by_slice"] else "")
    table = Table("", "before", "after", title=Text(what))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in [*dice_rows(metrics, structures or {}), *summary(metrics)]:
        table.add_row(Text("Dice, mean" if row.name == "Dice" else row.name), row.before, row.after)
    if metrics["seconds"] is not None:
        table.add_row("Seconds", "", number(metrics["seconds"]))
    return table


def dice_rows(metrics: dict[str, Any], structures: dict[str, str]) -> list[Row]:
    rows = by_structure({"dice": metrics["dice"]})[0].rows if "dice" in metrics else []
    return [replace(row, name=f"Dice {structures.get(row.name, row.name)}") for row in rows] if len(rows) < MANY else []


def summary_table(summary: dict[str, Any]) -> Table:
    """The mean before registration, and the mean and standard deviation after, a row a column of metrics.csv."""
    what = f"{summary['method']} on {summary['subjects']} subjects ({summary['data']}, {summary['split']})"
    table = Table("", "before", "mean", "std", title=Text(what))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in summary["metrics"].items():
        before = number(summary["before"][name]["mean"]) if name in summary["before"] else ""
        table.add_row(name, before, number(value["mean"]), number(value["std"]))
    return table


def sheet_table(made: "paper.Table") -> Table:
    """A table of the paper; of many columns those that a terminal has room for."""
    rest = {j for j, name in enumerate(made.header) if not name.startswith(BRIEFLY)}
    shown = made if len(made.columns) <= MANY else replace(made.without_deviations(), csv_only=rest)
    head, *rows = shown.lines(Text, lambda words: Text(words, style="bold"))
    table = Table(title=Text(made.title))
    for j, name in enumerate(head):
        table.add_column(name, justify="right" if j else "left", no_wrap=j == 0)
    for row in rows:
        table.add_row(*row)
    return table
