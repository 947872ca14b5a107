"""Runs the tasks of a cohort: here or by Dask. What is done is in the folder; a run that ends loses nothing."""

import hashlib
import os
import platform
import re
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic, perf_counter, sleep
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vrnet.cohort.results import (
    DONE,
    MAX_UNENDED,
    CohortFolder,
    Recipe,
    Stamps,
    add_suspicion,
    begin_attempt,
    check_own,
    damage,
    digests,
    has_content,
    has_stamps,
    identify,
    of_input,
    publish,
    seal,
    stamps,
    take_back,
    write_record,
)
from vrnet.cohort.table import CohortTable, Subject
from vrnet.errors import BadInput, UnfitMachine, counted
from vrnet.files import RETRY_SECONDS, Row, columns_of, is_locked, share_lock
from vrnet.provenance import __version__, commit, may_be_same_commit

# What a cohort's folder says of a subject: the one answer that plans, tables, shards and tasks go by.
#
# to do     nothing counts that is there
# done      a whole result of this recipe, and of these inputs
# changed   a whole result of another recipe, or of other inputs
# damaged   a result that is not whole, or whose record cannot be read
# failed    it could not be done, by this recipe and with these inputs

Kind = Literal["to do", "done", "changed", "damaged", "failed"]
NOTHING: Mapping[str, Any] = {}
OTHER_INPUTS = "newer or other inputs"


class State(NamedTuple):
    """What there is of a subject."""

    kind: Kind
    why: str = ""
    """What is other than asked for, what is damaged, or why it could not be done."""
    record: Mapping[str, Any] = NOTHING
    """What is recorded of the result, or of the failure."""

    @property
    def is_settled(self) -> bool:
        """Whether a run leaves the subject alone, unless it is told to try failures again."""
        return self.kind in ("done", "failed")


@dataclass(frozen=True)
class Survey:
    """A folder, asked about subjects. Names are listed once; records are read when they are asked for."""

    folder: CohortFolder
    recipe: Recipe
    results: frozenset[str] = field(init=False)
    failures: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", frozenset(self.folder.names_of_results()))
        object.__setattr__(self, "failures", frozenset(self.folder.names_of_failures()))

    def state(self, subject: Subject) -> State:
        """What there is of a subject. A file of the same path, size and time is taken for unchanged."""
        name = subject.name
        if name not in self.results and name not in self.failures:
            return State("to do")
        now = stamps(subject)
        found = State("to do")
        if name in self.results:
            record = self.folder.done(name)
            found = judge(self.folder, name, record, self.recipe, has_stamps(record, now))
            if found.why == OTHER_INPUTS and None in now.values():
                found = found._replace(why="inputs are missing")
        if found.kind != "done" and name in self.failures:
            failure = self.folder.failure(name)
            if is_made_by(self.recipe, failure) and has_stamps(failure, now):
                return State("failed", str(failure.get("reason", "the reason is not recorded")), failure)
        return found


def judge(folder: CohortFolder, name: str, record: Mapping[str, Any], recipe: Recipe, has_same_inputs: bool) -> State:
    """What the result of a subject is worth, by its record and by whether its inputs are as they were."""
    place = f"{folder.path}/{folder.results}/{name}"
    if not record:
        is_ours = os.path.lexists(f"{place}/{DONE}")
        return State("damaged", f"{DONE} cannot be read") if is_ours else State("to do")
    if not is_made_by(recipe, record):
        return State("changed", differences(record["recipe"], recipe), record)
    if not has_same_inputs:
        return State("changed", OTHER_INPUTS, record)
    why = damage(place, record)
    return State("damaged", why, record) if why else State("done", "", record)


def is_made_by(recipe: Recipe, record: Mapping[str, Any]) -> bool:
    """Whether what a record is of is what a recipe asks for.

    It may have a page beyond that. Where the images choose, as for the method `default`, what they chose counts. And a
    commit that one of both does not know is no difference."""
    made = record.get("recipe", NOTHING)
    if made == recipe:
        return True
    as_asked = dict(made)
    if "commit" in made and may_be_same_commit(made["commit"], recipe.get("commit")):
        as_asked["commit"] = recipe.get("commit")
    if made.get("report"):
        as_asked["report"] = recipe.get("report")
    if record.get("row", NOTHING).get("method") == recipe.get("method"):
        as_asked["method"] = recipe.get("method")
        if recipe.get("weights") is None and "weights" in made:  # those that `default` may have used, and did not
            as_asked["weights"] = None
    return as_asked == recipe


def differences(made: Recipe, recipe: Recipe) -> str:
    """What of a recipe is another than it was, in words."""
    keys = {key for key in {*made, *recipe} if made.get(key) != recipe.get(key)}
    if may_be_same_commit(made.get("commit"), recipe.get("commit")):
        keys -= {"commit"}
    return ", ".join(f"{key.replace('_', ' ')} {made.get(key)} → {recipe.get(key)}" for key in sorted(keys))


# One subject is one task with one result: done, failed with a reason that is kept, or left to others.

Status = Literal["done", "failed", "elsewhere", "unable"]
"""elsewhere: another process is at it. unable: this machine cannot do it, or any; another may."""
DEATHS = (
    "the process ended {} times during this subject: where the memory does not suffice, run fewer jobs at once, or on "
    "a larger machine; where a job has a time limit, give it more"
)
Inputs = Mapping[str, Mapping[str, Any]]
"""Of each column the path, the stamp and the SHA-256 of its file; of what is no file, the value."""


@runtime_checkable
class Work(Protocol):
    """What is done to one subject; it is sent to other processes."""

    def __call__(self, subject: Subject, folder: Path) -> Row:
        """Write the files of a result in a folder, and return the row of the table."""
        ...


class Outcome(NamedTuple):
    """What came of a subject."""

    name: str
    status: Status
    seconds: float = 0.0
    reason: str = ""
    is_recorded: bool = True
    """Whether the folder remembers it: a failure cannot be recorded on a full disk."""


@dataclass(frozen=True)
class Task:
    """What a process needs to know to do any subject of a cohort."""

    folder: CohortFolder
    work: Work
    recipe: Recipe
    known_missing: frozenset[str] = frozenset()
    """The subjects that lacked files when the run was planned, and so are failures. Others that lack some now do so on
    this machine."""

    def __call__(self, subject: Subject) -> Outcome:
        """Do a subject, unless it is done or another process is at it. Whatever goes wrong is its failure alone, but
        what is wrong with this machine is not."""
        start = perf_counter()
        if not self.folder.is_there():  # nothing is made here: that would be a folder of this machine alone
            return self.unseen(subject, 0.0)
        before = stamps(subject)
        try:
            with begin_attempt(self.folder.lock(subject.name)) as unended:
                if unended >= MAX_UNENDED:
                    return self.fail(subject, BadInput(DEATHS.format(unended)), perf_counter() - start, before)
                return self.attempt(subject, before, start)
        except BlockingIOError:
            return Outcome(subject.name, "elsewhere")
        except OSError as error:
            return self.end(subject, error, perf_counter() - start, before)

    def attempt(self, subject: Subject, before: Stamps, start: float) -> Outcome:
        """Do a subject that no other process is at."""
        try:
            self.check_version()
            self.check_seen(subject, before)
            inputs = describe_inputs(subject, before)
            if self.is_done(subject.name, inputs):
                self.renew_stamps(subject.name, inputs)
            else:
                self.make(subject, inputs, start)
            self.folder.forget_failure(subject.name)  # now that the result is in its place: never is neither there
        except UnfitMachine as error:
            return Outcome(subject.name, "unable", perf_counter() - start, str(error))
        except Exception as error:
            return self.end(subject, error, perf_counter() - start, before)
        return Outcome(subject.name, "done", perf_counter() - start)

    def check_version(self) -> None:
        """UnfitMachine where this process has another vrnet than the one that asks."""
        wanted, asked = self.recipe.get("vrnet", __version__), self.recipe.get("commit")
        if wanted != __version__:
            raise UnfitMachine(f"{platform.node()} has vrnet {__version__}, not {wanted}: install the same everywhere")
        if asked is not None and not may_be_same_commit(asked, commit()):
            raise UnfitMachine(
                f"{platform.node()} has commit {commit()} of vrnet, not {asked}: use the same everywhere"
            )

    def check_seen(self, subject: Subject, now: Stamps) -> None:
        """UnfitMachine where this machine does not see a file that was there when the run was planned."""
        if subject.name not in self.known_missing and None in now.values():
            gone = next(path for column, path in subject.files.items() if now[column] is None)
            raise UnfitMachine(
                f"{platform.node()} does not see {gone}, which was there when the run was planned: is its file system "
                "mounted?"
            )

    def is_done(self, name: str, inputs: Inputs) -> bool:
        """Whether there is a whole result of this recipe and of inputs with this content."""
        record, now = self.folder.done(name), {column: of_input(one, "sha256") for column, one in inputs.items()}
        return judge(self.folder, name, record, self.recipe, has_content(record, now)).kind == "done"

    def renew_stamps(self, name: str, inputs: Inputs) -> None:
        """Remember the times of inputs that were copied or touched, so that the next plan need not read them."""
        with self.folder.staging(name) as (staged, _):
            write_record({**self.folder.done(name), "inputs": inputs}, staged / DONE)
            (staged / DONE).replace(self.folder.subjects / name / DONE)

    def make(self, subject: Subject, inputs: Inputs, start: float) -> None:
        """Make the result of a subject elsewhere, and put it in its place when it is whole.

        BadInput before the work if others put files where it is to be."""
        earlier, place = self.folder.done(subject.name), self.folder.subjects / subject.name
        check_own(place, earlier)
        with self.folder.staging(subject.name) as (staged, old):
            row = self.work(subject, staged)
            check_unchanged(subject, inputs)
            record = {
                "subject": subject.name,
                "recipe": self.recipe,
                "inputs": inputs,
                "row": {**row, "machine": platform.node()},
                "seconds": perf_counter() - start,
                "finished": now(),
            }
            seal(staged, record)
            publish(staged, place, old, earlier)

    def end(self, subject: Subject, error: BaseException, seconds: float, before: Stamps) -> Outcome:
        """What came of a subject that raised an error: nothing, where the folder has gone away meanwhile."""
        return self.fail(subject, error, seconds, before) if self.folder.is_there() else self.unseen(subject, seconds)

    def unseen(self, subject: Subject, seconds: float) -> Outcome:
        """That this machine does not see the folder."""
        where = f"{platform.node()} does not see {self.folder.path}, or not all of it"
        return Outcome(subject.name, "unable", seconds, f"{where}: is its file system mounted, and shared?")

    def without_temporary(self, reason: str) -> str:
        """A reason without the temporary folder of a subject: alike for all who failed alike."""
        return re.sub(rf"{re.escape(str(self.folder.working))}/[^/]+/", "", reason)

    def fail(
        self,
        subject: Subject,
        error: BaseException,
        seconds: float,
        before: Stamps | None = None,
    ) -> Outcome:
        """The failure of a subject, recorded if that is possible. `before`: its inputs as the work began with them."""
        reason = self.without_temporary(reason_of(error))
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
            self.folder.record_error(subject.name, record, "".join(traceback.format_exception(error)))
        except BadInput:
            return Outcome(subject.name, "failed", seconds, reason, is_recorded=False)
        return Outcome(subject.name, "failed", seconds, reason)


def describe_inputs(subject: Subject, before: Stamps) -> dict[str, dict[str, Any]]:
    """What a record says of the inputs of a subject, whose stamps were taken before they are read."""
    found = digests(subject)
    files = {
        column: {"path": path, "stamp": before[column], "sha256": found[column]}
        for column, path in subject.files.items()
    }
    return files | {column: {"value": value} for column, value in subject.values.items()}


def check_unchanged(subject: Subject, inputs: Inputs) -> None:
    """BadInput if an input is another than when the work began."""
    for column, found in stamps(subject).items():
        if found != of_input(inputs[column], "stamp"):
            path = subject.files[column]
            raise BadInput(f"{path} was replaced while it was read: start again when it is complete")


def reason_of(error: BaseException) -> str:
    """Why a subject could not be done, in one line."""
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, MemoryError):
        return "there was too little memory: run fewer jobs at once, or on a larger machine"
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # of two the second: the first one is a temporary folder
        place = f"{name}: " if name else ""
        return f"{place}{error.strerror}"
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def now() -> str:
    """This moment, with the time zone."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


# How far a run is: counts, rate, time left, and the slowest subject.

RECENT = 200
"""Subjects whose ends say how fast a run is now."""


@dataclass
class Tally:
    """What came of the subjects of a run so far."""

    total: int
    workers: int = 1
    done: int = 0
    failed: int = 0
    elsewhere: int = 0
    """Those that another run is at, when they were last looked at."""
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
        """Count a subject."""
        if outcome.status == "done":
            self.done += 1
        elif outcome.status == "failed":
            self.failed += 1
            self.reasons[outcome.name] = outcome.reason
        elif outcome.status == "unable":
            self.unable[outcome.name] = outcome.reason
        if outcome.status in ("done", "failed"):
            self.ends.append(monotonic())
            self.slowest = max(self.slowest, (outcome.seconds, outcome.name))

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed

    @property
    def rate(self) -> float:
        """Subjects per second of late; 0 before the first."""
        return (len(self.ends) - 1) / max(monotonic() - self.ends[0], 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """None before the first subject is done."""
        return self.left / self.rate if self.rate else None

    def line(self) -> str:
        """12 done, 1 failed, 27 left, 3.2 per minute, 9 min left, slowest p07 (45 s)."""
        parts = [f"{self.done:,} done", f"{self.failed:,} failed", f"{self.left:,} left"]
        if self.elsewhere:
            parts.append(f"{self.elsewhere:,} by another run")
        if self.unable:
            parts.append(f"{len(self.unable):,} put off")
        if self.rate:
            per = (self.rate, "second") if self.rate >= 1 else (60 * self.rate, "minute")
            parts.append(f"{per[0]:.3g} per {per[1]}")
        if self.left and self.seconds_left is not None:
            parts.append(f"{duration(self.seconds_left)} left")
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


# What a run has to do, by what the folder says of each subject; no image is looked into.


@dataclass(frozen=True)
class Plan:
    """The subjects of a list by what is to happen to them."""

    done: list[Subject] = field(default_factory=list)
    failed: list[Subject] = field(default_factory=list)
    """Tried again only if asked."""
    again: list[Subject] = field(default_factory=list)
    """Those with results that changed or are damaged."""
    new: list[Subject] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    """Why subjects are done again, and how many."""
    unended: Mapping[str, int] = field(default_factory=dict)
    """By subject: attempts that were begun and never ended, such as those that killed their process."""

    @property
    def subjects(self) -> list[Subject]:
        """All of them."""
        return [*self.done, *self.failed, *self.again, *self.new]

    def to_do(self, retry: bool) -> list[Subject]:
        """What a run has to do: failures after all else, and those last whose process ended during them before."""
        subjects = [*self.new, *self.again, *(self.failed if retry else [])]
        return sorted(subjects, key=lambda one: self.unended.get(one.name, 0)) if self.unended else subjects


def make_plan(folder: CohortFolder, subjects: Iterable[Subject], recipe: Recipe) -> Plan:
    """Sort the subjects by what the folder says of them."""
    plan, survey = Plan(unended=folder.unended()), Survey(folder, recipe)
    places = {"done": plan.done, "failed": plan.failed, "to do": plan.new}
    for one in subjects:
        kind, why, _ = survey.state(one)
        places.get(kind, plan.again).append(one)
        if kind in ("changed", "damaged"):
            plan.changes[why] += 1
    return plan


def check_kept(plan: Plan, folder: CohortFolder, recipe: Recipe) -> None:
    """BadInput if results would be replaced by others. Of inputs that are only newer, the content decides."""
    if replaced := [one for one in plan.again if not is_kept(folder, one, recipe)]:
        reasons = "; ".join(f"{why} ({number:,})" for why, number in plan.changes.items())
        raise BadInput(
            f"{counted(len(replaced), 'result')} in {folder.path} would be replaced, since they are not as asked for: "
            f"{reasons}: leave out `keep`, or choose another folder"
        )


def is_kept(folder: CohortFolder, subject: Subject, recipe: Recipe) -> bool:
    """Whether a result is not replaced by another: it is of this recipe, and of inputs of this content."""
    record = folder.done(subject.name)
    if record and not is_made_by(recipe, record):  # which is quick to tell; inputs may be large
        return False
    found = judge(folder, subject.name, record, recipe, bool(record) and has_content(record, digests(subject)))
    return found.kind in ("done", "damaged")


# Runs that are at one folder at the same time: any number of one recipe, which share the work, and of no other, whose
# results they would take from each other.
#
# A run holds a lock file that is named by its recipe, together with all runs of that recipe.

RUN = ".run-"
"""How the names of these lock files begin; those of subjects begin with no dot."""
LOOKING_SECONDS = 0.5
"""How long the lock of another run must be held before it is taken for one that is under way."""


@contextmanager
def open_folder(folder: CohortFolder, recipe: Recipe) -> Iterator[None]:
    """A folder, made if it is not there, while a run is at it; BadInput if one of another recipe is. What killed
    processes left there is removed before and after; folders that were made for nothing go, too."""
    made = [place for place in folder.places if not place.exists()]
    folder.make()
    try:
        with share_run(folder, recipe), forgiving(folder):
            yield
    finally:
        folder.tidy()
        folder.remove_if_unused(made)


@contextmanager
def share_run(folder: CohortFolder, recipe: Recipe) -> Iterator[None]:
    """Be one of the processes of a recipe at a folder; BadInput if one of another recipe is there.

    A worker of a cluster does so, too: it may outlive the run that it works for."""
    own = folder.lock(name_of_run(recipe))
    with share_lock(own):
        check_alone(folder, own)
        yield


def name_of_run(recipe: Recipe) -> str:
    """The name of the lock file of a run, without its ending: what is asked for, and the commit that it is asked by."""
    asked = {name: value for name, value in recipe.items() if name != "commit"}
    return f"{RUN}{identify(asked)}-{recipe.get('commit') or ''}"


def is_same_run(one: str, other: str) -> bool:
    """Whether runs of these names ask for the same, by code that may be the same."""
    (asked, _, commit), (asked_there, _, commit_there) = (name[len(RUN) :].partition("-") for name in (one, other))
    return asked == asked_there and may_be_same_commit(commit or None, commit_there or None)


def check_alone(folder: CohortFolder, own: Path) -> None:
    """BadInput if a run of another recipe is at a folder.

    Whoever tidies the folder holds what killed runs left, for a moment: only what stays held is held by a run."""
    end = monotonic() + LOOKING_SECONDS
    others = [path for path in folder.working.glob(f"{RUN}*.lock") if not is_same_run(path.stem, own.stem)]
    while any(map(is_locked, others)):
        if monotonic() > end:
            raise BadInput(
                f"another run is at {folder.path}, with another method or other options: wait for its end, or choose "
                "another folder"
            )
        sleep(RETRY_SECONDS)


@contextmanager
def forgiving(folder: CohortFolder) -> Iterator[None]:
    """A run that may be stopped: the attempts that it then ends, here or in its processes, do not count, and those
    before them still do."""
    before = folder.unended()
    try:
        yield
    except BaseException:
        for name, count in folder.unended().items():
            if count > before.get(name, 0):
                take_back(folder.lock(name))
        raise


# What came out of a cohort: one row per subject, in the order of the list, and what they come to.

TABLE, SUMMARY = "cohort.csv", "summary.json"
FIRST, LAST = (
    ("subject", "status", "verdict", "suspicion", "suspicion_by", "outlier"),
    ("seconds", "machine", "reason", "notes"),
)
"""Columns that every table has, at its beginning and at its end."""
IMAGES = (".nii.gz", ".tfm")
"""How the names of files end that a registration is: other ones tell how long it took, or how it is shown."""
VERSION_DIGITS = 8
MAX_REASONS = 20
"""Of failures, the most frequent first, in summary.json."""


class Result(NamedTuple):
    """What the page of a cohort needs to know of a subject beside its row."""

    version: str = ""
    """Another text for other images that came out, however they are shown; empty where nothing did."""
    has_page: bool = True
    """Whether it comes with a page of its own."""


class Collection(NamedTuple):
    """What came of the subjects of a list, in its order."""

    columns: list[str]
    rows: list[Row]
    results: list[Result]


def collect_rows(folder: CohortFolder, table: CohortTable, recipe: Recipe, page: str = "") -> Collection:
    """The columns of the table, and a row per subject: its status, what the list says of it, and what was measured.

    `page` is the name of the page that a subject may have; {subject} stands for its name."""
    survey, rows, results = Survey(folder, recipe), [], []
    for one in table.subjects:
        given, state = zip(table.carried, one.carried, strict=True), survey.state(one)
        rows.append({**dict(given), **status_row(one.name, state)})
        results.append(result_of(state, page.replace("{subject}", one.name)))
    columns = ordered(columns_of(rows), table.carried)
    add_suspicion(rows, [name for name in columns if name not in (*FIRST, *LAST, *table.carried)])
    return Collection(columns, rows, results)


def result_of(state: State, page: str) -> Result:
    """What the record of a subject says of its files."""
    if state.kind != "done":
        return Result("", has_page=False)
    files = state.record["files"]
    digests = [str(file.get("sha256")) for name, file in files.items() if name.endswith(IMAGES)]
    version = hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()[:VERSION_DIGITS]
    return Result(version, page in files)


def status_row(name: str, state: State) -> Row:
    """What the folder says of a subject: its status, and what was measured if it is done."""
    row: Row = {"subject": name, "status": state.kind}
    if state.kind == "done":
        return row | state.record["row"] | {"seconds": state.record["seconds"]}
    if state.kind == "failed":
        row |= {name: state.record[name] for name in ("seconds", "machine") if name in state.record}
    return row | ({"reason": state.why} if state.why else {})


def ordered(columns: Sequence[str], carried: Sequence[str]) -> list[str]:
    """The columns of a table: ours at both ends, what was measured and what the list says between them."""
    middle = [name for name in columns if name not in (*FIRST, *LAST, *carried)]
    return [*FIRST, *middle, *carried, *LAST]


def summarise_rows(rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    """What summary.json holds: counts, and of each measured column its mean, spread and percentiles."""
    statuses, verdicts = (Counter(row[name] for row in rows if name in row) for name in ("status", "verdict"))
    reasons = Counter(row.get("reason", "") for row in rows if row["status"] == "failed")
    return {
        "subjects": len(rows),
        "done": statuses["done"],
        "failed": statuses["failed"],
        "left": len(rows) - statuses["done"] - statuses["failed"],
        "verdicts": dict(verdicts),
        "failures": dict(reasons.most_common(MAX_REASONS)),
        "metrics": {name: describe(values) for name, values in numbers(rows).items()},
        "recipe": dict(recipe),
    }


def numbers(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The numbers of each column that has some, of subjects that are done."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["status"] == "done":
            for name, value in row.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "suspicion":
                    found.setdefault(name, []).append(float(value))
    return found


def describe(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, and percentiles."""
    low, median, high = np.percentile(values, (5, 50, 95))
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "percentile_5": float(low),
        "median": float(median),
        "percentile_95": float(high),
    }
