"""What a person sees in the terminal: progress, tables, lines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from vrnet.report.measures import Row, by_structure, number, summary
from vrnet.workflow import Stage

if TYPE_CHECKING:
    from vrnet.training.fit import Moment

screen, errors = Console(), Console(stderr=True)
MANY = 8


def say(line: str) -> None:
    """A line for the reader, taken as it is: file names may hold brackets."""
    screen.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def stages() -> Iterator[Stage]:
    """A bar on the error stream, so that results can be piped; stage(name) starts it anew, and returns its setter."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("starting", total=None)

        def stage(name: str) -> Callable[[float], None]:
            bar.reset(task, description=name, total=None)
            return lambda done: bar.update(task, total=1.0, completed=done)

        try:
            yield stage
        except BaseException:
            bar.live.transient = True  # no half of a bar above the line that says what is wrong
            raise
        bar.update(task, description="done", total=1.0, completed=1.0)


@contextmanager
def training_bar(method: str) -> Iterator[Callable[["Moment"], None]]:
    """A bar with the loss, the latest Dice on validation, θ, and steps a second."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TextColumn("{task.fields[how]}"), TimeRemainingColumn(), console=errors) as bar:
        task = bar.add_task(method, total=None, how="")
        yield lambda moment: bar.update(task, completed=moment.step, total=moment.steps, how=how_it_goes(moment))


def how_it_goes(moment: "Moment") -> str:
    """loss .0123, Dice .801, θ .09 .11, 52.1 steps/s."""
    words = [f"loss {moment.loss:.4f}"]
    if "val_dice" in moment.scores:
        words.append(f"Dice {moment.scores['val_dice']:.3f}")
    if moment.thetas:
        words.append("θ " + " ".join(f"{theta:.2g}" for theta in moment.thetas))
    return ", ".join([*words, f"{moment.steps_per_second:.3g} steps/s"])


def metrics_table(metrics: dict[str, Any], structures: dict[str, str] | None = None) -> Table:
    """Before and after, a row a measure, and one for the Dice of each structure unless there are many of them."""
    what = f"{metrics['method']}, slice by slice" if metrics["slice_by_slice"] else str(metrics["method"])
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
    """Mean and standard deviation over the subjects, a row a column of metrics.csv."""
    what = f"{summary['method']} on {summary['subjects']} subjects ({summary['data']}, {summary['split']})"
    table = Table("", "mean", "std", title=Text(what))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in summary["metrics"].items():
        table.add_row(name, number(value["mean"]), number(value["std"]))
    return table
