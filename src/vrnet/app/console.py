"""What a person sees in the terminal: progress, tables, lines."""

import gc
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich import progress
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vrnet.errors import InputWarning, Stage, as_options

if TYPE_CHECKING:
    from vrnet.cohort.run import Tally
    from vrnet.training.fit import TrainingStatus


class Screen(Console):
    """A terminal that shows what names of files and cells of tables hold, and obeys none of it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All text comes by here, that of tables and bars too; what moves the cursor of a bar is marked as such."""
        for text, style, control in super().render(renderable, options):
            shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
            yield Segment(text if control else shown, style, control)

    def on_broken_pipe(self) -> None:
        """Whoever closes a pipe, as `head -1` does, has seen enough: the work goes on in silence."""
        self.quiet = True


screen = Screen(emoji=False)
error_screen, bar_screen = Screen(stderr=True, emoji=False), Screen(stderr=True, emoji=False)
FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 60.0  # until the first line of progress in a log, and between two lines


def print_line(*lines: str) -> None:
    """Print lines as they are: file names may hold brackets, which are no markup, and ends of lines."""
    for line in lines:
        screen.print(line.replace("\n", "\\n"), markup=False, highlight=False, soft_wrap=True)


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """Print the verdict of metrics.json: the level in its colour, then one line per reason and thing to try."""
    from vrnet.verdict.rules import WORDS

    level, colours = verdict["level"], {"good": "green", "look": "yellow", "failed": "red"}
    screen.print(Text.assemble("Verdict: ", (WORDS[level], f"bold {colours[level]}")), soft_wrap=True)
    print_line(*(f"  {reason}" for reason in verdict["reasons"]), *(f"  Try: {advice}." for advice in verdict["try"]))


@contextmanager
def notes() -> Iterator[None]:
    """Print what the package warns of, with options instead of arguments, as lines that begin with Note:, each once."""
    with warnings.catch_warnings():
        shown_by_others, noted = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *place: Any, **others: Any) -> None:
            if not issubclass(category, InputWarning):
                shown_by_others(message, category, *place, **others)
            elif str(message) not in noted:
                noted.add(str(message))
                print_line(f"Note: {as_options(str(message))}.")

        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = show
        yield


@contextmanager
def progress_bar(
    *columns: progress.ProgressColumn, line: Callable[[progress.Task], str]
) -> Iterator[tuple[progress.Progress, progress.TaskID]]:
    """A bar on the error stream, and its task; in a file a line now and then: a log must show that the run lives."""
    if not gc.isenabled():
        gc.freeze()  # what is loaded by now stays
        gc.enable()
    is_live, end = bar_screen.is_terminal and not bar_screen.is_dumb_terminal, Event()
    with progress.Progress(*columns, console=bar_screen, speed_estimate_period=3600) as bar:
        task = bar.add_task("starting", total=None, line="starting")

        def print_lines() -> None:
            seconds = FIRST_LINE_SECONDS
            while not is_live and not end.wait(seconds):
                seconds = LINE_SECONDS
                bar_screen.print(line(bar.tasks[task]), markup=False, highlight=False, soft_wrap=True)

        speaker = Thread(target=print_lines, daemon=True)
        speaker.start()
        try:
            yield bar, task
        except BaseException:
            bar.live.transient = True  # an unfinished bar goes: the line that says what is wrong stands alone
            raise
        finally:
            end.set()
            speaker.join()


@contextmanager
def stage_progress() -> Iterator[Stage]:
    """stage(name) starts the bar anew, and returns what sets how much of that stage is done."""
    name_column = progress.TextColumn("{task.description}", markup=False)
    columns = name_column, progress.BarColumn(), progress.TaskProgressColumn(), progress.TimeRemainingColumn()
    line = lambda now: now.description + (f", {now.percentage:.0f} %" if now.total else "")  # noqa: E731
    with progress_bar(*columns, line=line) as (bar, task):

        def stage(name: str) -> Callable[[float], None]:
            bar.reset(task, description=name)
            bar.tasks[task].total = None  # to `reset`, None is no change
            return lambda done: bar.update(task, total=1.0, completed=done)

        yield stage
        bar.update(task, description="done", total=1.0, completed=1.0)


@contextmanager
def cohort_progress() -> Iterator[Callable[["Tally"], None]]:
    columns = progress.BarColumn(20), progress.TextColumn("{task.fields[line]}", markup=False)
    with progress_bar(*columns, line=lambda now: str(now.fields["line"])) as (bar, task):

        def show(tally: "Tally") -> None:
            bar.update(task, total=tally.total, completed=tally.done + tally.failed)
            bar.update(task, line=tally_line(tally, bar.tasks[task].speed))

        yield show


def tally_line(tally: "Tally", per_second: float | None) -> str:
    """12 done, 1 failed, 27 left, 3.2 per minute, 0:09:12 left."""
    parts = [f"{tally.done:,} done", f"{tally.failed:,} failed", f"{tally.left:,} left"]
    if per_second:
        parts.append(f"{per_second:.3g} per second" if per_second >= 1 else f"{60 * per_second:.3g} per minute")
        if tally.left:
            parts.append(f"{timedelta(seconds=round(tally.left / per_second))} left")
    return ", ".join(parts if tally.has_workers else [*parts, "no worker yet"])


@contextmanager
def training_bar(method: str) -> Iterator[Callable[["TrainingStatus"], None]]:
    texts = [progress.TextColumn(form, markup=False) for form in ("{task.description}", "{task.fields[line]}")]
    columns = texts[0], progress.BarColumn(12), texts[1], progress.TimeRemainingColumn()
    with progress_bar(*columns, line=lambda now: str(now.fields["line"])) as (bar, task):
        bar.update(task, description=method, line="the first steps")
        yield lambda status: bar.update(task, completed=status.step, total=status.steps, line=status_line(status))


def status_line(status: "TrainingStatus") -> str:
    """250/300, loss 0.0123, Dice 0.801, 52.1 steps/s."""
    dice = f", Dice {status.scores['val_dice']:.3f}" if "val_dice" in status.scores else ""
    speed = f"{status.steps_per_second:.3g} steps/s"
    return f"{status.step}/{status.steps}, loss {status.loss:.4f}{dice}, {speed}"


def print_result(metrics: dict[str, Any], notes: Iterable[str], *lines: str) -> None:
    """Print what came out of a registration: its measures, what to note, the verdict, and more lines. Exit with status
    3 if it failed, unless nothing was to be registered."""
    from vrnet.report.measures import HAUSDORFF_LEGEND, heart_table

    screen.print(metrics_table(metrics))
    if "hausdorff_mm" in metrics:
        print_line(HAUSDORFF_LEGEND)
    if heart := metrics.get("heart"):
        title, columns, rows, remarks = heart_table(heart).values()
        table = numbers_table(title, *columns[1:])
        for row in rows:
            table.add_row(*row)
        screen.print(table) if rows else print_line(f"{title}.")
        print_line(*(f"  {remark}" for remark in remarks))
    print_line(*(f"Note: {note}" for note in notes))
    print_verdict(metrics["verdict"])
    print_line(*lines)
    exit_if(metrics["verdict"]["level"] == "failed" and metrics["method"] != "identity")


def metrics_table(metrics: dict[str, Any]) -> Table:
    """metrics.json as one row per measure, before and after."""
    from vrnet.report import measures

    names = {"Dice": "Dice, mean"}
    names |= {name: f"Mean {name}" for name in (measures.WHOLE_VOLUME, measures.title("dice_mean_over_slices"))}
    by_slice = ", slice by slice" if metrics["slice_by_slice"] else ""
    table = numbers_table(method_title(metrics["method"], metrics.get("weights")) + by_slice, "before", "after")
    if "dice" in metrics:
        whole, rows = measures.title("dice", metrics).removeprefix("Dice"), measures.by_structure(metrics)["dice"]
        for row in rows if len(rows) <= 7 else []:  # of more structures, only the mean is shown
            table.add_row(Text(f"Dice {row.name}{whole}"), row.before, row.after)
    for row in measures.summary(metrics):
        table.add_row(Text(names.get(row.name, row.name)), row.before, row.after)
    if metrics["seconds"] is not None:
        table.add_row("Seconds", "", measures.number(metrics["seconds"]))
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


def exit_if(is_failed: bool) -> None:
    """Leave with status 3 if all files are written, but something failed: a script need not read the verdict."""
    if is_failed:
        sys.exit(3)


def this_command() -> str:
    """The words that started this process, as a shell takes them."""
    return shlex.join(["vrnet", *sys.argv[1:]])
