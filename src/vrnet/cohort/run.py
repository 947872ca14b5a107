"""Runs the tasks of a cohort: here or by Dask. What is done is in the folder; a run that ends loses nothing.

One subject is one task with one result: done, failed with a reason that is kept, or left to others."""

import os
import platform
import re
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from time import monotonic, perf_counter
from types import MappingProxyType
from typing import Literal, NamedTuple

from vrnet.cohort.results import (
    DONE,
    CohortFolder,
    Inputs,
    Recipe,
    Stamps,
    Survey,
    check_own,
    describe_inputs,
    has_content,
    recorded,
    replace_result,
    seal,
    stamps,
    write_record,
)
from vrnet.cohort.table import Subject
from vrnet.errors import BadInput, UnfitMachine
from vrnet.files import Row
from vrnet.provenance import __version__, commit, may_be_same_commit

Status = Literal["done", "failed", "elsewhere", "unable"]
"""elsewhere: another process is at it, or was killed during it. unable: this machine cannot do it; another may."""
MAX_KILLED = 3
"""Processes that may be killed during a subject before it is a failure."""
KILLED = (
    "the process ended {} times during this subject: where the memory does not suffice, run fewer jobs at once, or on "
    "a larger machine; where a job has a time limit, give it more"
)


Work = Callable[[Subject, Path], Row]
"""What is done to one subject: it writes the files of a result in a folder, and returns the row of the table. It is
sent to other processes."""


class Outcome(NamedTuple):
    """What came of a subject."""

    name: str
    status: Status
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Task:
    """What a process needs to know to do any subject of a cohort."""

    folder: CohortFolder
    work: Work
    recipe: Recipe
    known_missing: frozenset[str] = frozenset()
    """The subjects that lacked files when the run was planned, and so are failures. Others that lack some now do so on
    this machine."""
    is_last: bool = False
    """Whether to do subjects, too, that others are at, or were killed during."""

    def __call__(self, subject: Subject) -> Outcome:
        """Do a subject, unless it is done. Whatever goes wrong is its failure alone, but for what is wrong with this
        machine."""
        start = perf_counter()
        before, killed = stamps(subject), self.folder.begun()[subject.name]
        if killed and not self.is_last:
            return Outcome(subject.name, "elsewhere")
        try:
            if not self.folder.is_there():  # nothing is made here: that would be a folder of this machine alone
                raise UnfitMachine("no folder")
            if killed >= MAX_KILLED:
                raise BadInput(KILLED.format(killed))
            with self.folder.staging(subject.name) as place:
                self.do(subject, before, place, start)
        except Exception as error:
            seconds = perf_counter() - start
            if not self.folder.is_there():
                where = f"{platform.node()} does not see {self.folder.path}, or not all of it"
                return Outcome(subject.name, "unable", seconds, f"{where}: is its file system mounted, and shared?")
            if isinstance(error, UnfitMachine):
                return Outcome(subject.name, "unable", seconds, str(error))
            if isinstance(error, FileNotFoundError) and Survey(self.folder, self.recipe).state(subject).kind == "done":
                return Outcome(subject.name, "done", seconds)  # by another, who then cleared what this one wrote
            return self.fail(subject, error, seconds, before)
        self.folder.clear({subject.name})
        self.folder.forget_failure(subject.name)  # now that the result is in its place: never is neither there
        return Outcome(subject.name, "done", perf_counter() - start)

    def do(self, subject: Subject, before: Stamps, place: Path, start: float) -> None:
        """Make the result of a subject in a folder, and put it in its place when it is whole; if it is there already,
        remember the times of its inputs, so that the next plan need not read them."""
        self.check_machine(subject)
        inputs, result = describe_inputs(subject, before), self.folder.subjects / subject.name
        (staged := place / "new").mkdir()
        if self.is_done(subject, inputs):
            write_record({**self.folder.done(subject.name), "inputs": inputs}, staged / DONE)
            (staged / DONE).replace(result / DONE)
            return
        earlier = self.folder.done(subject.name)
        check_own(result, earlier)
        row = self.work(subject, staged)
        self.check_unchanged(subject, inputs)
        record = {
            "subject": subject.name,
            "recipe": self.recipe,
            "inputs": inputs,
            "row": {**row, "machine": platform.node()},
            "seconds": perf_counter() - start,
            "finished": now(),
        }
        seal(staged, record)
        try:
            os.rename(staged, result)  # also over an empty folder
        except OSError:
            if not result.is_dir():
                raise
            if not self.is_done(subject, inputs):  # by another process meanwhile
                replace_result(staged, result, place / "old", earlier)

    def is_done(self, subject: Subject, inputs: Inputs) -> bool:
        """Whether there is a whole result of this recipe and of inputs with this content."""
        return has_content(self.folder, subject, recorded(inputs, "sha256"), self.recipe).kind == "done"

    def check_machine(self, subject: Subject) -> None:
        """UnfitMachine where this process has another vrnet than the one that asks, or does not see a file that was
        there when the run was planned."""
        node, asked = platform.node(), self.recipe.get("commit")
        if (wanted := self.recipe.get("vrnet", __version__)) != __version__:
            raise UnfitMachine(f"{node} has vrnet {__version__}, not {wanted}: install the same everywhere")
        if asked is not None and not may_be_same_commit(asked, commit()):
            raise UnfitMachine(f"{node} has commit {commit()} of vrnet, not {asked}: use the same everywhere")
        gone = [path for path in subject.files.values() if not os.path.exists(path)]
        if gone and subject.name not in self.known_missing:
            raise UnfitMachine(
                f"{node} does not see {gone[0]}, which was there when the run was planned: is its file system mounted?"
            )

    def check_unchanged(self, subject: Subject, inputs: Inputs) -> None:
        """BadInput if an input is another than when the work began."""
        for column, found in stamps(subject).items():
            if found != recorded(inputs, "stamp")[column]:
                path = subject.files[column]
                raise BadInput(f"{path} was replaced while it was read: start again when it is complete")

    def fail(self, subject: Subject, error: BaseException, seconds: float, before: Stamps | None = None) -> Outcome:
        """Record the failure of a subject, whose inputs were as `before` when the work began; BadInput, the end of the
        run, where not even that can be written."""
        reason = re.sub(rf"{re.escape(str(self.folder.working))}/[^/]+/new/", "", reason_of(error))
        record = {
            "subject": subject.name,
            "reason": reason,
            "recipe": self.recipe,
            "inputs": {column: {"stamp": found} for column, found in (before or stamps(subject)).items()},
            "seconds": seconds,
            "machine": platform.node(),
            "finished": now(),
        }
        try:
            self.folder.record_failure(subject.name, record, "".join(traceback.format_exception(error)))
        except BadInput as refused:
            raise BadInput(
                f"{subject.name} could not be done ({reason}), and not even that can be written in {self.folder.path}: "
                "check its room and your permission, then start again: what is done stays done"
            ) from refused
        self.folder.clear({subject.name})
        return Outcome(subject.name, "failed", seconds, reason)


def reason_of(error: BaseException) -> str:
    """Why a subject could not be done, in one line."""
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, MemoryError):
        return "there was too little memory: run fewer jobs at once, or on a larger machine"
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # of two the second: the first one is a temporary folder
        return f"{name}: {error.strerror}" if name else error.strerror
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def now() -> str:
    """This moment, with the time zone."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


# How far a run is.

RECENT = 200
"""Subjects whose ends say how fast a run is now."""


@dataclass
class Tally:
    """What came of the subjects of a run so far."""

    total: int
    workers: int = 1
    done: int = 0
    failed: int = 0
    unable: dict[str, str] = field(default_factory=dict)
    """Why subjects are left that no machine could do which tried, by name; the folder does not remember it."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Why workers get no more work, by machine."""
    slowest: tuple[float, str] = (0.0, "")
    """Seconds, and the name."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why subjects could not be done, by name."""
    ends: deque[float] = field(default_factory=lambda: deque([monotonic()], maxlen=RECENT))
    """When the last subjects ended, after when the run began."""

    def add(self, outcome: Outcome) -> None:
        if outcome.status == "unable":
            self.unable[outcome.name] = outcome.reason
        if outcome.status not in ("done", "failed"):
            return
        self.done += outcome.status == "done"
        if outcome.status == "failed":
            self.failed += 1
            self.reasons[outcome.name] = outcome.reason
        self.ends.append(monotonic())
        self.slowest = max(self.slowest, (outcome.seconds, outcome.name))

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed

    def line(self) -> str:
        """12 done, 1 failed, 27 left, 3.2 per minute, 9 min left, slowest p07 (45 s)."""
        parts = [f"{self.done:,} done", f"{self.failed:,} failed", f"{self.left:,} left"]
        if self.unable:
            parts.append(f"{len(self.unable):,} put off")
        if rate := (len(self.ends) - 1) / max(monotonic() - self.ends[0], 1e-9):  # subjects per second of late
            parts.append(f"{rate:.3g} per second" if rate >= 1 else f"{60 * rate:.3g} per minute")
            if self.left:
                parts.append(f"{duration(self.left / rate)} left")
        if self.slowest[1]:
            parts.append(f"slowest {self.slowest[1]} ({duration(self.slowest[0])})")
        if not self.workers:
            parts.append("no worker yet")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """45 s, 9 min, 3.5 h, 12 days."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


# Where the subjects of a run are done: in this process, in several, or by the workers of a cluster.

Show = Callable[[Tally], None]
MAX_JOBS = 1024
MAX_UNABLE_IN_TURN = 3
"""Subjects that this machine cannot do, one after the other, before it is taken for one that can do none."""


class Executor:
    """Where tasks run: in this process, one after the other."""

    workers = 1
    """How many processes there are to run tasks; 0 while there is none."""
    stopped: Mapping[str, str] = MappingProxyType({})
    """Why machines get no more work, by their names."""

    def map(self, task: Task, subjects: Sequence[Subject]) -> Iterator[Outcome | None]:
        """The outcome of each subject, as they come; None from time to time while nothing comes. BadInput where no
        machine can do anything."""
        unable_in_turn = 0
        for outcome in map(task, subjects):
            unable_in_turn = unable_in_turn + 1 if outcome.status == "unable" else 0
            if unable_in_turn == MAX_UNABLE_IN_TURN:
                raise BadInput(outcome.reason)
            yield outcome


def check_jobs(jobs: int, scheduler: str | None = None) -> None:
    """BadInput unless it is clear where the subjects are to be done."""
    if not 1 <= jobs <= MAX_JOBS:
        raise BadInput(f"`jobs` is {jobs}: choose from 1 to {MAX_JOBS:,}")
    if jobs > 1 and scheduler is not None:
        raise BadInput("a scheduler has workers of its own: leave out `jobs`, or `scheduler`")


def open_executor(subjects: int, jobs: int = 1, scheduler: str | None = None) -> AbstractContextManager[Executor]:
    """What does so many subjects. No more processes are started than there are subjects to do."""
    from vrnet.cohort.dask import existing_cluster, local_cluster

    jobs = min(jobs, subjects)
    if not subjects or (scheduler is None and jobs == 1):
        return nullcontext(Executor())
    return local_cluster(jobs) if scheduler is None else existing_cluster(scheduler)


def run_tasks(
    task: Task,
    subjects: Sequence[Subject],
    executor: Executor,
    show: Show = lambda tally: None,
    tally: Tally | None = None,
) -> Tally:
    """Do the subjects; those last that others are at, or were killed during, unless they are done by then.

    A tally that is given is kept up to date, for whoever has to tell how far a run was that is stopped."""
    tally = tally or Tally(len(subjects))
    show(tally)
    for is_last in (False, True):
        by_name, elsewhere = {one.name: one for one in subjects}, []
        for outcome in executor.map(replace(task, is_last=is_last), subjects):
            if outcome is not None:
                tally.add(outcome)
                elsewhere += [by_name[outcome.name]] * (outcome.status == "elsewhere")
            tally.workers, tally.stopped = executor.workers, executor.stopped
            show(tally)
        subjects = elsewhere
    return tally
