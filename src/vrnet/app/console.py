"""What a person sees in the terminal: progress, tables, lines."""

import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vrnet.errors import InputWarning, Stage, counted

if TYPE_CHECKING:
    from vrnet.cohort.run import Tally
    from vrnet.paper import tables as paper
    from vrnet.training.fit import TrainingStatus


FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 60.0
"""Until the first line of progress in a log, and between two lines."""


@contextmanager
def from_time_to_time(say: Callable[[], None]) -> Iterator[None]:
    """Say something again and again meanwhile, also while nothing ends: whoever reads a log must see that the run
    lives."""
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


screen = Screen(emoji=False)
error_screen, bar_screen = Screen(stderr=True, emoji=False), Screen(stderr=True, emoji=False)
VERDICT_COLOURS = {"good": "green", "look": "yellow", "failed": "red"}
MAX_STRUCTURES = 7
"""Structures whose Dice has a row of its own in the table of a pair; of more, only the mean is shown."""
MAX_COLUMNS = 8
"""Columns of a table of the paper that are all shown."""
MAIN_COLUMNS = ("Dice Avg", "HD Avg", "J<0 %", "p Dice")
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

        def show(message: Warning | str, category: type[Warning], *place: Any, **others: Any) -> None:
            if not issubclass(category, InputWarning):
                shown_by_others(message, category, *place, **others)
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
def progress_bar(*columns: ProgressColumn, line: Callable[[Task], str]) -> Iterator[tuple[Progress, TaskID]]:
    """A bar on the error stream, so that results can be piped, and its task; where that is a file, a line now and
    then."""
    with Progress(*columns, console=bar_screen, speed_estimate_period=3600) as bar:
        task = bar.add_task("starting", total=None, line="starting")

        def print_line_of_task() -> None:
            bar_screen.print(line(bar.tasks[task]), markup=False, highlight=False, soft_wrap=True)

        is_live = bar_screen.is_terminal and not bar_screen.is_dumb_terminal
        with hide_on_failure(bar), nullcontext() if is_live else from_time_to_time(print_line_of_task):
            yield bar, task


@contextmanager
def stage_progress() -> Iterator[Stage]:
    """Shows how far the work is: stage(name) starts the bar anew, and returns what sets how much of that stage is
    done."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with progress_bar(
        *columns, line=lambda now: now.description + (f", {now.percentage:.0f} %" if now.total else "")
    ) as (bar, task):

        def stage(name: str) -> Callable[[float], None]:
            bar.reset(task, description=name)
            bar.tasks[task].total = None  # to `reset`, None is no change
            return lambda done: bar.update(task, total=1.0, completed=done)

        yield stage
        bar.update(task, description="done", total=1.0, completed=1.0)


@contextmanager
def cohort_progress() -> Iterator[Callable[["Tally"], None]]:
    """A function that shows how far a cohort is."""
    columns = BarColumn(20), TextColumn("{task.fields[line]}", markup=False)
    with progress_bar(*columns, line=lambda now: str(now.fields["line"])) as (bar, task):

        def show(tally: "Tally") -> None:
            bar.update(task, total=tally.total, completed=tally.done + tally.failed)
            bar.update(task, line=tally_line(tally, bar.tasks[task].speed))

        yield show


def tally_line(tally: "Tally", per_second: float | None) -> str:
    """12 done, 1 failed, 27 left, 3.2 per minute, 9 min left."""
    parts = [f"{tally.done:,} done", f"{tally.failed:,} failed", f"{tally.left:,} left"]
    if per_second:
        parts.append(f"{per_second:.3g} per second" if per_second >= 1 else f"{60 * per_second:.3g} per minute")
        if tally.left:
            parts.append(f"{duration(tally.left / per_second)} left")
    return ", ".join(parts if tally.has_workers else [*parts, "no worker yet"])


def duration(seconds: float) -> str:
    """45 s, 9 min, 3.5 h, 12 days."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.0f} s"


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
    name, line = (TextColumn(form, markup=False) for form in ("{task.description}", "{task.fields[line]}"))
    columns = name, BarColumn(12), line, TimeRemainingColumn()
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
    """250/300, loss .0123, Dice .801, θ .098 .113, 52.1 steps/s; of more than three θ, the range: θ .090–.500."""

    def decimals(value: float, digits: int = 3) -> str:
        return f"{value:.{digits}f}".removeprefix("0")

    parts = [f"{status.step}/{status.steps}", f"loss {decimals(status.loss, 4)}"]
    if "val_dice" in status.scores:
        parts.append(f"Dice {decimals(status.scores['val_dice'])}")
    if len(status.thetas) > 3:
        parts.append(f"θ {decimals(min(status.thetas))}–{decimals(max(status.thetas))}")
    elif status.thetas:
        parts.append(" ".join(["θ", *map(decimals, status.thetas)]))
    return ", ".join([*parts, f"{status.steps_per_second:.3g} steps/s"])


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


def print_result(metrics: dict[str, Any], notes: Iterable[str], *lines: str) -> None:
    """Print what came out of a registration: its measures, what to note, the verdict, and more lines."""
    print_metrics(metrics)
    for note in notes:
        print_line(f"Note: {note}")
    print_verdict(metrics["verdict"])
    for line in lines:
        print_line(line)


def metrics_table(metrics: dict[str, Any]) -> Table:
    """metrics.json as one row per measure, before and after."""
    from vrnet.report import measures

    names = {"Dice": "Dice, mean"}
    names |= {name: f"Mean {name}" for name in (measures.WHOLE_VOLUME, measures.NAMES["dice_mean_over_slices"])}
    by_slice = ", slice by slice" if metrics["slice_by_slice"] else ""
    table = numbers_table(method_title(metrics["method"], metrics.get("weights")) + by_slice, "before", "after")
    if "dice" in metrics:
        label_names, whole = metrics.get("label_names", {}), measures.title("dice", metrics).removeprefix("Dice")
        rows = measures.by_structure({"dice": metrics["dice"], "label_names": label_names})["Dice"]
        for row in rows if len(rows) <= MAX_STRUCTURES else []:
            table.add_row(Text(f"Dice {row.name}{whole}"), row.before, row.after)
    for row in measures.summary(metrics):
        table.add_row(Text(names.get(row.name, row.name)), row.before, row.after)
    if metrics["seconds"] is not None:
        table.add_row("Seconds", "", measures.number(metrics["seconds"]))
    return table


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


def numbers_table(title: str, *columns: RenderableType, first: RenderableType = "") -> Table:
    """An empty table: names on the left, then columns of numbers. In a narrow terminal cells wrap; none is cut."""
    table = Table(title=Text(title))
    table.add_column(first, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    return table


def paper_table(made: "paper.Table") -> Table:
    """A table of the paper; of many columns those that a terminal has room for."""
    brief = made if len(made.printed) < MAX_COLUMNS else made.brief(MAIN_COLUMNS)
    head, *rows = brief.lines(Text, lambda words: Text(words, style="bold"))
    table = numbers_table(made.title, *head[1:], first=head[0])
    table.columns[0].no_wrap = True
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
