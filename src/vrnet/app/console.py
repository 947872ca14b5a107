"""What a person sees in the terminal: progress, tables, lines."""

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vrnet.errors import InputWarning, Stage, counted

if TYPE_CHECKING:
    from vrnet.cohort.run import Tally
    from vrnet.paper import tables as paper
    from vrnet.report.measures import Row
    from vrnet.training.fit import TrainingStatus


# Tables that show every number at any width: names wrap, numbers never do, and where all else fails rows are lists.

MIN_NAME_COLUMNS = 10
"""Below this width, names in the first column would be hard to read."""
BORDER_COLUMNS = 3
"""What a column takes beside its cells: a line, and a blank on either side."""


class FittingTable(Table):
    """A table whose first column holds names, which wrap, and whose others hold numbers, which do not.

    In a terminal too narrow for that, each row is a name, and below it a line per number."""

    @classmethod
    def of(cls, title: str, first: RenderableType, *columns: RenderableType) -> "FittingTable":
        """An empty table with these headings."""
        table = cls(title=Text(title))
        table.add_column(first, overflow="fold")
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType | Segment]:
        if self.least_width(console) <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self.lists()

    def least_width(self, console: Console) -> int:
        """The columns of a terminal that all numbers need beside narrow names."""
        numbers = [
            max(console.measure(cell).maximum for cell in (column.header, *column.cells)) for column in self.columns[1:]
        ]
        return MIN_NAME_COLUMNS + sum(numbers) + BORDER_COLUMNS * len(self.columns) + 1

    def lists(self) -> Iterator[RenderableType]:
        """The rows, one below the other, each value after the heading of its column."""
        if self.title:
            yield self.title
        names, *others = self.columns
        for name, *values in zip(names.cells, *(column.cells for column in others), strict=True):
            yield name
            for column, value in zip(others, values, strict=True):
                if str(value):
                    yield Text.assemble("  ", as_text(column.header), ": ", as_text(value))


def as_text(cell: RenderableType) -> Text:
    """A cell as text that can be joined with other text."""
    return cell if isinstance(cell, Text) else Text(str(cell))


# Lines of progress where nothing can be written over, as in a log: whoever reads it must see that the run lives.

FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 60.0
"""Until the first line, and between two lines."""


@contextmanager
def from_time_to_time(say: Callable[[], None]) -> Iterator[None]:
    """Say something again and again meanwhile, also while nothing ends."""
    end = Event()

    def repeat() -> None:
        seconds = FIRST_LINE_SECONDS
        while not end.wait(seconds):
            seconds = LINE_SECONDS
            say()

    speaker = Thread(target=repeat, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        end.set()
        speaker.join()


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
    from vrnet.verdict.rules import WORDS

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
    from vrnet.report.measures import HAUSDORFF_LEGEND

    screen.print(metrics_table(metrics))
    if "hausdorff_mm" in metrics:
        print_line(HAUSDORFF_LEGEND)


def metrics_table(metrics: dict[str, Any]) -> Table:
    """metrics.json as one row per measure, before and after."""
    from vrnet.report.measures import NAMES, WHOLE_VOLUME, number, summary

    means = {"Dice": "Dice, mean", **{name: f"Mean {name}" for name in (WHOLE_VOLUME, NAMES["dice_mean_over_slices"])}}
    title = method_title(metrics["method"], metrics.get("weights"))
    title += ", slice by slice" if metrics["slice_by_slice"] else ""
    table = numbers_table(title, "before", "after")
    for row in [*dice_rows(metrics), *summary(metrics)]:
        table.add_row(Text(means.get(row.name, row.name)), row.before, row.after)
    if metrics["seconds"] is not None:
        table.add_row("Seconds", "", number(metrics["seconds"]))
    return table


def dice_rows(metrics: dict[str, Any]) -> "list[Row]":
    """The Dice of each structure, unless there are too many of them."""
    from vrnet.report.measures import by_structure, title

    names = metrics.get("label_names", {})
    rows = by_structure({"dice": metrics["dice"], "label_names": names})[0].rows if "dice" in metrics else []
    if len(rows) > MAX_STRUCTURES:
        return []
    whole = title("dice", metrics).removeprefix("Dice")
    return [replace(row, name=f"Dice {row.name}{whole}") for row in rows]


def summary_table(summary: dict[str, Any]) -> Table:
    """summary.json as one row per column of metrics.csv: the mean before registration; mean and std after it."""
    from vrnet.report.measures import number

    method = method_title(summary["method"], summary.get("weights"))
    title = f"{method} on {counted(summary['subjects'], 'subject')} ({summary['data']}, {summary['split']})"
    table = numbers_table(title, "before", "mean", "std")
    for name, value in summary["metrics"].items():
        before = number(summary["before"][name]["mean"]) if name in summary["before"] else ""
        table.add_row(Text(name), before, number(value["mean"]), number(value["std"]))
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


# How a command ends, and how messages that name arguments of Python name options.

FAILED_STATUS = 3
"""The exit status of a command whose files are all written, but whose registration failed."""
STOPPED = "Stopped. What is done stays done: the same command goes on from there."


def end_if_failed(verdict: Mapping[str, Any]) -> None:
    """Leave with a status of its own after a registration that failed, so that a script need not read the verdict."""
    if verdict["level"] == "failed":
        sys.exit(FAILED_STATUS)


def end_if_any(not_done: int) -> None:
    """Leave with a status of its own where subjects are not done."""
    if not_done:
        sys.exit(FAILED_STATUS)


def this_command() -> str:
    """The words that started this process, as a shell takes them."""
    return shlex.join(["vrnet", *sys.argv[1:]])


# How far a cohort is: a line that changes in a terminal, a line every minute elsewhere.


@contextmanager
def cohort_progress() -> Iterator[Callable[["Tally"], None]]:
    """A function that shows a tally, on the error stream."""
    is_smart = bar_screen.is_terminal and not bar_screen.is_dumb_terminal
    with (cohort_bar if is_smart else cohort_lines)() as show:
        yield show


@contextmanager
def cohort_bar() -> Iterator[Callable[["Tally"], None]]:
    columns = BarColumn(20), TextColumn("{task.fields[line]}", markup=False)
    with Progress(*columns, console=bar_screen) as bar, hide_on_failure(bar):
        task = bar.add_task("cohort", total=None, line="starting")
        yield lambda tally: bar.update(task, total=tally.total, completed=tally.done + tally.failed, line=tally.line())


@contextmanager
def cohort_lines() -> Iterator[Callable[["Tally"], None]]:
    """A line from time to time, also while nothing ends."""
    latest: Tally | None = None

    def show(tally: "Tally") -> None:
        nonlocal latest
        latest = tally

    def print_latest() -> None:
        line = "starting" if latest is None else latest.line()
        bar_screen.print(line, markup=False, highlight=False, soft_wrap=True)

    with from_time_to_time(print_latest):
        yield show


@contextmanager
def last_words(words: Callable[[], str]) -> Iterator[None]:
    """Where the system ends this process (SIGTERM, SIGHUP), say these words; then it ends as it would have.

    So whoever started it sees that it was ended, and nothing is cleaned up: time may be short."""

    def end(number: int, frame: object) -> None:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{words()}\n".encode())  # safe amid any print
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)
