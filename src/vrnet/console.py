"""What a person sees in the terminal: progress, tables, lines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

screen, errors = Console(), Console(stderr=True)
Stage = Callable[[str], Callable[[float], None]]
DISTANCES = {
    "hausdorff_mm": "Hausdorff (contours)",
    "surface_hausdorff_mm": "Hausdorff (surfaces)",
    "hausdorff95_mm": "Hausdorff 95 %",
    "mean_surface_distance_mm": "mean surface distance",
}
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

        yield stage
        bar.update(task, description="done", total=1.0, completed=1.0)


def metrics_table(metrics: dict[str, Any], structures: dict[str, str] | None = None) -> Table:
    """Before and after, a row a measure; structures are named where names are given, and summed up where many."""
    table = Table("", "before", "after", title=title(metrics))
    for column in table.columns[1:]:
        column.justify = "right"
    for when in ("similarity",):
        add(table, "mean absolute difference", metrics[when]["mae_before"], metrics[when]["mae_after"], ".4g")
        add(table, "correlation (NCC)", metrics[when]["ncc_before"], metrics[when]["ncc_after"], ".3f")
    for label in shown_labels(metrics):
        name = (structures or {}).get(label, label)
        add_measure(table, f"Dice {name}", metrics["dice"], label, ".3f")
    for measure, words in DISTANCES.items():
        if measure in metrics:
            add_measure(table, f"{words}, mm", metrics[measure], "mean", ".2f")
    if "target_registration_error_mm" in metrics:
        error = metrics["target_registration_error_mm"]
        add(table, "target registration error, mm", error["before"], error["after"], ".2f")
    add(table, "folded voxels, %", "", metrics["folding_percent"], ".3f")
    add(table, "folded voxels (strict), %", "", metrics["folding_strict_percent"], ".3f")
    if metrics["seconds"] is not None:
        add(table, "seconds", "", metrics["seconds"], ".2f")
    return table


def title(metrics: dict[str, Any]) -> str:
    return f"{metrics['method']}, slice by slice" if metrics["slice_by_slice"] else str(metrics["method"])


def shown_labels(metrics: dict[str, Any]) -> list[str]:
    """Each label and the mean, or the mean alone where there are many."""
    labels = list(metrics.get("dice", {}).get("before", {}))
    return labels if len(labels) <= MANY else ["mean"]


def add_measure(table: Table, name: str, measure: dict[str, Any], label: str, form: str) -> None:
    add(table, name, measure["before"][label], measure["after"][label], form)


def add(table: Table, name: str, before: float | str, after: float, form: str) -> None:
    table.add_row(name, *(value if isinstance(value, str) else format(value, form) for value in (before, after)))
