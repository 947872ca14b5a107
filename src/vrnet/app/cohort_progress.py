"""How far a cohort is: a line that changes in a terminal, a line every minute elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from vrnet.app.console import bar_screen, hide_on_failure
from vrnet.app.log_lines import from_time_to_time
from vrnet.cohort.tally import Tally


@contextmanager
def cohort_progress() -> Iterator[Callable[[Tally], None]]:
    """A function that shows a tally, on the error stream."""
    is_smart = bar_screen.is_terminal and not bar_screen.is_dumb_terminal
    with (cohort_bar if is_smart else cohort_lines)() as show:
        yield show


@contextmanager
def cohort_bar() -> Iterator[Callable[[Tally], None]]:
    columns = BarColumn(20), TextColumn("{task.fields[line]}", markup=False)
    with Progress(*columns, console=bar_screen) as bar, hide_on_failure(bar):
        task = bar.add_task("cohort", total=None, line="starting")
        yield lambda tally: bar.update(task, total=tally.total, completed=tally.done + tally.failed, line=tally.line())


@contextmanager
def cohort_lines() -> Iterator[Callable[[Tally], None]]:
    """A line from time to time, also while nothing ends."""
    latest: Tally | None = None

    def show(tally: Tally) -> None:
        nonlocal latest
        latest = tally

    def print_latest() -> None:
        line = "starting" if latest is None else latest.line()
        bar_screen.print(line, markup=False, highlight=False, soft_wrap=True)

    with from_time_to_time(print_latest):
        yield show
