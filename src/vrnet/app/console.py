"""What a person sees in the terminal: progress, tables, lines."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vrnet.app.log_lines import from_time_to_time
from vrnet.app.tables import FittingTable
from vrnet.errors import InputWarning
from vrnet.evaluation.levels import WORDS
from vrnet.progress import Stage
from vrnet.report.measures import (
    HAUSDORFF_LEGEND,
    NAMES,
    WHOLE_VOLUME,
    Row,
    by_structure,
    number,
    summary,
    title,
)
from vrnet.wording import counted, in_runs, numbered

if TYPE_CHECKING:
    from vrnet.app.tracking import Tracking
    from vrnet.paper import table as paper
    from vrnet.training.loop import TrainingStatus


class Screen(Console):
    """A terminal that shows what names of files and cells of tables hold, and obeys none of it."""

    def __init__(self, is_for_errors: bool = False) -> None:
        super().__init__(stderr=is_for_errors, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All text comes by here, that of tables and bars too; what moves the cursor of a bar is marked as such."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)

    def on_broken_pipe(self) -> None:
        """Whoever closes a pipe, as `head -1` does, has seen enough: the work goes on in silence."""
        self.quiet = True


def visible(text: str) -> str:
    """The text with characters that a terminal obeys or cannot show, but for ends of lines, as Python writes them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


screen, error_screen, bar_screen = Screen(), Screen(is_for_errors=True), Screen(is_for_errors=True)
VERDICT_COLOURS = {"good": "green", "look": "yellow", "failed": "red"}
MEAN_DICE = {"Dice": "Dice, mean", **{name: f"Mean {name}" for name in (WHOLE_VOLUME, NAMES["dice_mean_over_slices"])}}
"""What the mean over structures is called beside the Dice of each."""
MAX_STRUCTURES = 7
"""Structures whose Dice has a row of its own in the table of a pair; of more, only the mean is shown."""
MAX_COLUMNS = 8
"""Columns of a table of the paper that are all shown."""
MAIN_COLUMNS = ("method", "Dice Avg", "HD Avg", "J<0 %", "p Dice")
"""How the names of the columns begin that are shown of a table with more than MAX_COLUMNS."""


def print_line(line: str) -> None:
    """Print one line as it is: file names may hold brackets, which are no markup, and ends of lines."""
    screen.print(line.replace("\n", "\\n"), markup=False, highlight=False, soft_wrap=True)


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """Print the verdict of metrics.json: the level in its colour, then one line per reason and thing to try."""
    level = verdict["level"]
    screen.print(Text.assemble("Verdict: ", (WORDS[level], f"bold {VERDICT_COLOURS[level]}")), soft_wrap=True)
    for reason in verdict["reasons"]:
        print_line(f"  {reason}")
    for advice in verdict["try"]:
        print_line(f"  Try: {advice}.")


@contextmanager
def notes(reword: Callable[[str], str] = str) -> Iterator[None]:
    """Print what the package warns of, reworded, as lines that begin with Note:, each once."""
    with warnings.catch_warnings():
        shown_by_others, noted = warnings.showwarning, set[str]()

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, InputWarning):
                shown_by_others(message, category, filename, lineno, file, line)
            elif str(message) not in noted:
                noted.add(str(message))
                print_line(f"Note: {reword(str(message))}.")

        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = show
        yield


def show_errors_only() -> None:
    """Hide results and progress: for all but the first of several processes that do one thing."""
    screen.quiet = bar_screen.quiet = True


@contextmanager
def stage_progress() -> Iterator[Stage]:
    """A progress bar on the error stream, so that results can be piped; where that is a file, a line now and then.

    stage(name) starts the bar anew, and returns what sets how much of that stage is done."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=bar_screen) as bar:
        task = bar.add_task("starting", total=None)

        def stage(name: str) -> Callable[[float], None]:
            bar.reset(task, description=name)
            bar.tasks[task].total = None  # to `reset`, None is no change
            return lambda done: bar.update(task, total=1.0, completed=done)

        def print_stage() -> None:
            now = bar.tasks[task]
            done = f", {now.percentage:.0f} %" if now.total else ""
            bar_screen.print(f"{now.description}{done}", markup=False, highlight=False, soft_wrap=True)

        with hide_on_failure(bar), nullcontext() if bar_screen.is_terminal else from_time_to_time(print_stage):
            yield stage
        bar.update(task, description="done", total=1.0, completed=1.0)


@contextmanager
def hide_on_failure(bar: Progress) -> Iterator[None]:
    """Remove an unfinished bar, so that the line that says what is wrong stands alone."""
    try:
        yield
    except BaseException:
        bar.live.transient = True
        raise


@contextmanager
def training_bar(method: str) -> Iterator[Callable[["TrainingStatus"], None]]:
    """A bar that shows the status of a training run; where the error stream is a file, one line per validation."""
    words = (TextColumn(form, markup=False) for form in ("{task.description}", "{task.fields[line]}"))
    columns = next(words), BarColumn(12), next(words), TimeRemainingColumn()
    printed_step = 0
    with Progress(*columns, console=bar_screen) as bar:
        task = bar.add_task(method, total=None, line="the first steps")

        def show(status: "TrainingStatus") -> None:
            nonlocal printed_step
            bar.update(task, completed=status.step, total=status.steps, line=status_line(status))
            if not bar_screen.is_terminal and status.scores.get("step", 0) > printed_step:
                printed_step = int(status.scores["step"])
                bar_screen.print(status_line(status), highlight=False, soft_wrap=True)

        with hide_on_failure(bar):
            yield show


def status_line(status: "TrainingStatus") -> str:
    """250/300, loss .0123, Dice .801, θ .098 .113, 52.1 steps/s."""
    parts = [f"{status.step}/{status.steps}", f"loss {decimals(status.loss)}"]
    if "val_dice" in status.scores:
        parts.append(f"Dice {decimals(status.scores['val_dice'], 3)}")
    if status.thetas:
        parts.append("θ " + values_or_range(status.thetas))
    return ", ".join([*parts, f"{status.steps_per_second:.3g} steps/s"])


def values_or_range(values: list[float]) -> str:
    """Up to three values: .098 .113; of more, the least and the greatest: .090–.500."""
    if len(values) > 3:
        return f"{decimals(min(values), 3)}–{decimals(max(values), 3)}"
    return " ".join(decimals(value, 3) for value in values)


def decimals(value: float, digits: int = 4) -> str:
    """.0123: no zero before the point."""
    return f"{value:.{digits}f}".removeprefix("0")


def best_score(row: Mapping[str, int | float], others: Mapping[str, Mapping[str, int | float]]) -> str:
    """The row of metrics.csv whose model was kept, beside the scores of others, in words."""
    name, key, digits = ("Dice", "val_dice", 3) if "val_dice" in row else ("loss", "val_loss", 4)
    beside = ", ".join(f"{other} {scores[key]:.{digits}f}" for other, scores in others.items())
    return f"after {row['step']} steps: {name} {row[key]:.{digits}f} ({beside})"


def print_metrics(metrics: dict[str, Any]) -> None:
    """Print metrics.json as a table, and in a line what each kind of distance is where there are any."""
    screen.print(metrics_table(metrics))
    if "hausdorff_mm" in metrics:
        print_line(HAUSDORFF_LEGEND)


def metrics_table(metrics: dict[str, Any]) -> Table:
    """metrics.json as one row per measure, before and after."""
    title = method_title(metrics["method"], metrics.get("weights"))
    title += ", slice by slice" if metrics["slice_by_slice"] else ""
    table = numbers_table(title, "before", "after")
    for row in [*dice_rows(metrics), *summary(metrics)]:
        table.add_row(Text(MEAN_DICE.get(row.name, row.name)), row.before, row.after)
    if metrics["seconds"] is not None:
        table.add_row("Seconds", "", number(metrics["seconds"]))
    return table


def dice_rows(metrics: dict[str, Any]) -> list[Row]:
    """The Dice of each structure, unless there are too many of them."""
    names = metrics.get("label_names", {})
    rows = by_structure({"dice": metrics["dice"], "label_names": names})[0].rows if "dice" in metrics else []
    if len(rows) > MAX_STRUCTURES:
        return []
    whole = title("dice", metrics).removeprefix("Dice")
    return [replace(row, name=f"Dice {row.name}{whole}") for row in rows]


def summary_table(summary: dict[str, Any]) -> Table:
    """summary.json as one row per column of metrics.csv: the mean before registration; mean and std after it."""
    method = method_title(summary["method"], summary.get("weights"))
    title = f"{method} on {counted(summary['subjects'], 'subject')} ({summary['data']}, {summary['split']})"
    table = numbers_table(title, "before", "mean", "std")
    for name, value in summary["metrics"].items():
        before = number(summary["before"][name]["mean"]) if name in summary["before"] else ""
        table.add_row(Text(name), before, number(value["mean"]), number(value["std"]))
    return table


def tracking_table(tracking: "Tracking") -> Table:
    """What a tracked cine comes to: volumes and peaks of strain where there are labels, and how well it closes."""
    from vrnet.evaluation.strain import TITLES
    from vrnet.report.cine_numbers import frame_text

    grid, by_slice = tracking.cine.grid, ", slice by slice" if tracking.found.slice_axis is not None else ""
    steps = {"turned": tracking.found.turned_by, "refined": tracking.found.refined_by}
    helped = "".join(f", {step}" for step, solver in steps.items() if solver)
    method = method_title(tracking.found.method, tracking.found.weights)
    table = numbers_table(f"{method}{helped}, {len(tracking.cine)} frames{by_slice}", "value")
    if (found := tracking.volumes) is not None:
        without = f" (without {numbered('slice', found.open_slices)})" if found.open_slices else ""
        for name, fraction in found.ejection_fractions_percent.items():
            table.add_row(f"Ejection fraction of the {name}, %", number(fraction) + (without if name == "LV" else ""))
    for measure in ("green_circumferential", "green_radial", "midwall_length", "wall_thickness"):
        peak = tracking.strain and tracking.strain.peak(measure)
        if peak:
            place = frame_text(peak.frame, len(tracking.cine))
            table.add_row(f"Peak {TITLES[measure]}, %", f"{number(peak.percent)} ({place})")
    if tracking.strain is not None and len(grid.shape) == 3:
        measured = in_runs([k + 1 for k in sorted(tracking.strain.slices)])
        table.add_row("Strain is of slices", f"{measured} (of {grid.shape[grid.across]})")
    for way, length in tracking.closure_mm.items():
        table.add_row(f"Closure error {way}, mm", number(length))
    table.add_row("Folded voxels (strict), %", number(tracking.folding_strict_percent))
    table.add_row("Seconds of tracking", number(tracking.found.seconds))
    return table


def method_title(name: str, weights: str | None) -> str:
    """A method as people know it, and in brackets what it is: of the model in the box its kind, else its weights."""
    from vrnet.methods.names import kind_of

    said = kind_of(name) or weights
    return f"{name} ({said})" if said else name


def numbers_table(title: str, *columns: str) -> Table:
    """An empty table: names on the left, then columns of numbers."""
    return FittingTable.of(title, "", *columns)


def paper_table(made: "paper.Table") -> Table:
    """A table of the paper; of many columns those that a terminal has room for."""
    rest = {j for j, name in enumerate(made.header) if not name.startswith(MAIN_COLUMNS)}
    brief = made if len(made.columns) <= MAX_COLUMNS else replace(made.without_deviations(), csv_only=rest)
    head, *rows = brief.lines(Text, lambda words: Text(words, style="bold"))
    table = FittingTable.of(made.title, *head)
    for row in rows:
        table.add_row(*row)
    return table
