"""Runs the tasks of a cohort: here or by Dask. What is done is in the folder; a run that ends loses nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic, sleep
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from vrnet.cohort.table import Subject
from vrnet.cohort.tally import Tally
from vrnet.cohort.task import Outcome, Task
from vrnet.errors import BadInput

Show = Callable[[Tally], None]
LOOK_AGAIN_SECONDS = 2.0
"""Between two looks at subjects that another run is at."""
MAX_UNABLE_IN_TURN = 3
"""Subjects that this machine cannot do, one after the other, before it is taken for one that can do none."""
PATIENCE_SECONDS = 60.0
"""How long to wait for another run that finishes nothing."""


@runtime_checkable
class Executor(Protocol):
    """Where tasks run."""

    @property
    def workers(self) -> int:
        """How many processes there are to run tasks; 0 while there is none."""
        ...

    @property
    def stopped(self) -> Mapping[str, str]:
        """Why machines get no more work, by their names."""
        ...

    def map(self, task: Task, subjects: Sequence[Subject]) -> Iterator[Outcome | None]:
        """The outcome of each subject, as they come; None from time to time while nothing comes."""
        ...


class Here:
    """Tasks run in this process, one after the other."""

    workers = 1
    stopped: Mapping[str, str] = MappingProxyType({})

    def map(self, task: Task, subjects: Sequence[Subject]) -> Iterator[Outcome | None]:
        """BadInput where this machine can do nothing: there is no other."""
        unable_in_turn = 0
        for outcome in map(task, subjects):
            unable_in_turn = unable_in_turn + 1 if outcome.status == "unable" else 0
            if unable_in_turn == MAX_UNABLE_IN_TURN:
                raise BadInput(outcome.reason)
            yield outcome


def run_tasks(
    task: Task,
    subjects: Sequence[Subject],
    executor: Executor,
    show: Show = lambda tally: None,
    tally: Tally | None = None,
) -> Tally:
    """Do the subjects, those last that another run is at; these are left to it if it does not end.

    A tally that is given is kept up to date, for whoever has to tell how far a run was that is stopped."""
    tally, waiting = tally or Tally(len(subjects)), list(subjects)
    tally.workers = executor.workers
    show(tally)
    patience_ends = monotonic() + PATIENCE_SECONDS
    while waiting:
        elsewhere, before = run_round(task, waiting, executor, tally, show), len(waiting)
        tally.elsewhere, waiting = len(elsewhere), elsewhere
        if len(waiting) < before:
            patience_ends = monotonic() + PATIENCE_SECONDS
        if waiting and monotonic() > patience_ends:
            break
        show(tally)
        if waiting:
            sleep(LOOK_AGAIN_SECONDS)
    return tally


def run_round(task: Task, subjects: Sequence[Subject], executor: Executor, tally: Tally, show: Show) -> list[Subject]:
    """Try each subject once, and return those that another run is at."""
    elsewhere, by_name = [], {one.name: one for one in subjects}
    for outcome in executor.map(task, subjects):
        if outcome is not None:
            tally.add(outcome)
            if outcome.status == "elsewhere":
                elsewhere.append(by_name[outcome.name])
            elif not outcome.is_recorded:
                record_here(task, by_name[outcome.name], outcome)
        tally.workers, tally.stopped = executor.workers, executor.stopped
        show(tally)
    return elsewhere


def record_here(task: Task, subject: Subject, outcome: Outcome) -> None:
    """Record a failure that the process where it happened could not; BadInput, the end of the run, if this cannot."""
    found = task.fail(subject, BadInput(outcome.reason), outcome.seconds)
    if not found.is_recorded:
        raise BadInput(
            f"{outcome.name} could not be done ({outcome.reason}), and not even that can be written in "
            f"{task.folder.path}: check its room and your permission, then start again: what is done stays done"
        )
