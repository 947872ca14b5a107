"""One subject is one task with one result: done, failed with a reason that is kept, or left to others."""

import platform
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from vrnet.cohort.attempts import MAX_UNENDED, begin_attempt
from vrnet.cohort.records import DONE, CohortFolder, Recipe, has_content, of_input
from vrnet.cohort.results import check_own, publish, seal, write_record
from vrnet.cohort.stamps import Stamps, digests, stamps
from vrnet.cohort.state import judge
from vrnet.cohort.table import Subject
from vrnet.errors import BadInput, UnfitMachine
from vrnet.files import Row
from vrnet.provenance import __version__, commit, may_be_same_commit

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
