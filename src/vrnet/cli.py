"""The command line: `vrnet COMMAND --help` explains each command."""

import sys
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from vrnet import __version__
from vrnet.errors import BadInput

app = tyro.extras.SubcommandApp()
screen, errors = Console(), Console(stderr=True)


@app.command
def demo(out: Path = Path("demo"), method: str = "TV-L1", seed: int = 7) -> None:
    """Register a made-up beating heart, and show how well that went.

    A phantom's end-systole (moving) is registered to its end-diastole (fixed). Since the phantom's true motion is
    known, so is the error that is left.

    Args:
        out: Folder for the images, the transform, metrics.json and a figure to look at.
        method: Any name that `vrnet methods` lists.
        seed: Which phantom patient.
    """
    from vrnet import demo as demonstration
    from vrnet.data.phantom import phantom
    from vrnet.images.io import made_folder
    from vrnet.methods.names import parse

    chosen, patient = parse(method), phantom(seed)
    made_folder(out)
    with progress_bar() as bar:
        task = bar.add_task(f"registering with {chosen}", total=1.0)
        result = demonstration.run(patient, out, chosen, progress=lambda done: bar.update(task, completed=done))
    screen.print(metrics_table(result.metrics, demonstration.STRUCTURES, result.end_point_error))
    screen.print(f"Look at {out / 'overview.png'}; the transform and the images are beside it.", markup=False)


@app.command
def methods() -> None:
    """List every method by its name."""
    from vrnet.methods.names import names

    table = Table("name", "what it is", box=None)
    for name, line in names().items():
        table.add_row(name, line)
    screen.print(table)


def progress_bar() -> Progress:
    """A bar with the part done and the time left, on the error stream so that results can be piped."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    return Progress(*columns, console=errors)


def metrics_table(metrics: dict[str, Any], structures: dict[str, str], error: dict[str, float]) -> Table:
    """Before and after, a row a measure."""
    table = Table("", "before", "after", title=f"{metrics['method']} on a phantom heart")
    for column in table.columns[1:]:
        column.justify = "right"
    for label, name in [*structures.items(), ("mean", "mean")]:
        table.add_row(f"Dice {name}", *(f"{metrics['dice'][when][label]:.3f}" for when in ("before", "after")))
    for label, name in [*structures.items(), ("mean", "mean")]:
        distances = metrics["hausdorff_mm"]
        table.add_row(f"Hausdorff {name}, mm", *(f"{distances[when][label]:.2f}" for when in ("before", "after")))
    table.add_row("distance from the true motion, mm", f"{error['before']:.2f}", f"{error['after']:.2f}")
    table.add_row("folded voxels (strict), %", "", f"{metrics['folding_strict_percent']:.2f}")
    table.add_row("seconds", "", f"{metrics['seconds']:.2f}")
    return table


def main() -> None:
    """Run a command; bad input ends with one line and status 2."""
    if sys.argv[1:] == ["--version"]:
        print(f"vrnet {__version__}")
        return
    try:
        app.cli(prog="vrnet", description="Deformable image registration for cardiac MR, in 2D and 3D.")
    except BadInput as error:
        errors.print(f"vrnet: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
