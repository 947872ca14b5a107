"""A cohort's folder: one whole result per subject with its `done.json`, or the reason why there is none.

    DIR/subjects/NAME/       the result of a subject, whole, with done.json
    DIR/failures/NAME.json   why a subject could not be done; NAME.txt has the traceback
    DIR/.working/NAME~.../   what a process is writing; left behind if that process is killed

There is no other memory, and nothing is locked. A result is written in .working and renamed when it is whole. If two
processes do the same subject, the first to end wins, and removes what the other has written in .working."""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import msgspec

from vrnet.cohort.table import Subject
from vrnet.errors import BadInput, counted
from vrnet.files import json_ready, remove_leftovers, write_bytes, write_json
from vrnet.provenance import may_be_same_commit

Recipe = Mapping[str, Any]
"""What is done to every subject, as JSON: method, parameters, version. Results of another recipe are made again."""

# What an input was when a result was made of it. As for `make` and `git`, a file of the same path, size and time is
# unchanged; otherwise its content decides.

Stamp = list[str | int]
"""Path, bytes, and the time of the last change in ns since 1970. If an input has several files (a folder of DICOM, a
header with its voxels), their total size, and a number that changes with the name, size or time of any of them."""
Stamps = Mapping[str, Stamp | str | None]
"""By column; None if the file is not there. If a column is no file, such as the frame, its value."""


def files_of(path: str) -> list[str]:
    """The files of an input: those in a folder; or an image, and the file of its voxels if that is another one."""
    from vrnet.images.formats import files_of_image

    return list(files_below(path)) if os.path.isdir(path) else files_of_image(path)


def files_below(folder: str) -> Iterator[str]:
    """Every file in a folder and in the folders inside it, in a fixed order."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted(names))


def stamp(path: str) -> Stamp | None:
    """The size and time of a file, or of all files of an input; None if one of them cannot be seen."""
    try:
        stats = {file: os.stat(file) for file in files_of(path)}
    except OSError:
        return None
    if stats.keys() == {path}:
        return [path, stats[path].st_size, stats[path].st_mtime_ns]
    lines = [f"{os.path.relpath(file, path)}\0{one.st_size}\0{one.st_mtime_ns}\n" for file, one in stats.items()]
    number = hashlib.sha256("".join(lines).encode(errors="surrogateescape")).digest()[:6]
    return [path, sum(one.st_size for one in stats.values()), int.from_bytes(number)]


def stamps(subject: Subject) -> Stamps:
    """The stamps of all inputs of a subject."""
    return {column: stamp(path) for column, path in subject.files.items()} | subject.values


def digest(path: str) -> str:
    """The SHA-256 of a file; of several files, that of their names and contents."""
    try:
        files = files_of(path)
        if files == [path]:
            return digest_file(path)
        lines = (f"{os.path.relpath(file, path)}\0{digest_file(file)}\n" for file in files)
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()
    except FileNotFoundError as error:
        raise BadInput(f"there is no {error.filename or path}: check its name") from error
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}): check your permission") from error


def digest_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(subject: Subject) -> Stamps:
    """The SHA-256 of all inputs of a subject."""
    return {column: digest(path) for column, path in subject.files.items()} | subject.values


class Record(msgspec.Struct, frozen=True):
    """What done.json holds; or a failure, which has a reason instead of a row and files."""

    subject: str
    recipe: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    """{column: {"path", "stamp", "sha256"}}; {"value"} if the column is no file."""
    seconds: float
    row: dict[str, Any] = {}  # which msgspec copies
    files: dict[str, dict[str, Any]] = {}
    """{name: {"bytes", "sha256"}}."""
    reason: str = ""
    machine: str = ""
    finished: str = ""

    def known(self, part: Literal["stamp", "sha256"]) -> Stamps:
        """The stamp or the SHA-256 of each input; if it is no file, its value."""
        return {column: one.get(part, one.get("value")) for column, one in self.inputs.items()}


NOTHING = Record("", {}, {}, 0.0)
DONE, FAILURES = "done.json", "failures"
BEGUN = "~"
"""Ends the subject's name in the names of folders in .working; no subject's name holds it."""


@dataclass(frozen=True)
class CohortFolder:
    """The places in a cohort's folder. Paths are texts where hundreds of thousands are asked for."""

    path: Path
    results: str = "subjects"
    """The folder in it that holds those of the subjects; "." for itself."""

    @property
    def subjects(self) -> Path:
        return self.path / self.results

    @property
    def failures(self) -> Path:
        return self.path / FAILURES

    @property
    def working(self) -> Path:
        return self.path / ".working"

    @property
    def places(self) -> tuple[Path, ...]:
        return self.subjects, self.failures, self.working

    def is_there(self) -> bool:
        """Whether this machine sees all of it."""
        return all(map(os.path.isdir, self.places))

    def make(self, ended: Collection[str] = ()) -> None:
        """Make the folders, and remove what killed processes left of subjects that have ended."""
        for folder in self.places:
            folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.failures)
        self.clear(ended)

    def remove(self) -> None:
        """Remove the records of a run whose results are elsewhere by now, and the folders that are empty then."""
        for name in (*self.names_of_results(), *self.names_of_failures()):
            self.forget_failure(name)
            (self.subjects / name / DONE).unlink(missing_ok=True)
            remove_if_empty(self.subjects / name)
        for folder in self.places:
            remove_if_empty(folder)

    def staging(self, name: str) -> TemporaryDirectory[str]:
        """A folder to write the result of a subject in; it stays only if this process is killed."""
        return TemporaryDirectory(prefix=f"{name}{BEGUN}", dir=self.working, ignore_cleanup_errors=True)

    def begun(self) -> set[str]:
        """The subjects that a process is at, or was killed during."""
        return {place.partition(BEGUN)[0] for place in names_in(self.working) if BEGUN in place}

    def clear(self, names: Collection[str]) -> None:
        """Remove what is in .working of subjects that have ended."""
        for place in names_in(self.working):
            if place.partition(BEGUN)[0] in names:
                shutil.rmtree(self.working / place, ignore_errors=True)

    def names_of_results(self) -> set[str]:
        """The subjects that have a folder."""
        return {name for name in names_in(self.subjects) if not name.startswith(".")}

    def names_of_failures(self) -> set[str]:
        """The subjects that could not be done once, and have not been since."""
        return {name.removesuffix(".json") for name in names_in(self.failures) if name.endswith(".json")}

    def result(self, name: str) -> Record | None:
        """What done.json of a subject says; None if there is none that can be read."""
        return read_record(f"{self.path}/{self.results}/{name}/{DONE}")

    def failure(self, name: str) -> Record | None:
        """Why a subject could not be done; None if no reason is recorded."""
        return read_record(f"{self.path}/{FAILURES}/{name}.json")

    def record_failure(self, name: str, record: Mapping[str, Any], traceback: str) -> None:
        """Remember why a subject could not be done; BadInput if that cannot be written."""
        write_bytes(traceback.encode(errors="backslashreplace"), self.failures / f"{name}.txt")
        write_json(record, self.failures / f"{name}.json")

    def forget_failure(self, name: str) -> None:
        """A subject that is done has not failed."""
        for end in ("json", "txt"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.failures}/{name}.{end}")


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none if there is no such folder."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_record(path: str) -> Record | None:
    """A record; None if there is no such file, or a damaged one."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def seal(staged: Path, record: Mapping[str, Any]) -> None:
    """Write done.json, with the size and SHA-256 of every file beside it; all of it is on the disk then."""
    files = {
        os.path.relpath(file, staged): {"bytes": os.stat(file).st_size, "sha256": digest_file(file)}
        for file in files_below(str(staged))
    }
    with (staged / DONE).open("wb") as file:
        file.write(msgspec.json.encode(json_ready({**record, "files": files})))
        file.flush()
        os.fsync(file.fileno())


def check_own(folder: Path, record: Record) -> None:
    """BadInput unless every file in a result's folder is as its record lists it: it is about to be replaced."""
    for file in files_below(str(folder)):
        name, size = os.path.relpath(file, folder), os.stat(file).st_size
        wanted = record.files.get(name, {})
        if name == DONE or (wanted and digest_file(file) == wanted["sha256"]):
            continue
        advice = "move it away, and try it again"
        if wanted and size < wanted["bytes"]:
            whole = f"{wanted['bytes']:,}"
            advice = f"it has {size:,} of {whole} bytes; remove it if it is damaged, or move it away, and try it again"
        raise BadInput(f"{file} is not as this cohort wrote it, and would be lost: {advice}")


# What there is of a subject: plans, tables, shards and tasks go by this one answer.

Kind = Literal["to do", "done", "changed", "damaged", "failed"]
"""done: a whole result of this recipe and of these inputs; changed: of other ones; damaged: not whole, or its record
cannot be read; failed: could not be done, by this recipe and with these inputs; to do: none of these."""
OTHER_INPUTS = "newer or other inputs"


class State(NamedTuple):
    """What there is of a subject."""

    kind: Kind
    why: str = ""
    """What is other than asked for, what is damaged, or why it could not be done."""
    record: Record = NOTHING
    """That of the result, or of the failure."""


class Survey:
    """A folder, asked about subjects. Names are listed once; records are read when they are asked for."""

    def __init__(self, folder: CohortFolder, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self.results, self.failures = folder.names_of_results(), folder.names_of_failures()

    def state(self, subject: Subject) -> State:
        """What there is of a subject. A file of the same path, size and time is taken for unchanged."""
        name, found = subject.name, State("to do")
        if name not in self.results and name not in self.failures:
            return found
        now = stamps(subject)
        if name in self.results:
            found = judge(self.folder, name, self.recipe, "stamp", now)
            if found.why == OTHER_INPUTS and None in now.values():
                found = found._replace(why="inputs are missing")
        if found.kind != "done" and name in self.failures:
            failure = self.folder.failure(name)
            if failure and is_made_by(self.recipe, failure) and now == failure.known("stamp"):
                return State("failed", failure.reason, failure)
        return found


def judge(folder: CohortFolder, name: str, recipe: Recipe, part: Literal["stamp", "sha256"], inputs: Stamps) -> State:
    """What the result of a subject is worth whose inputs have these stamps, or this SHA-256."""
    place, record = f"{folder.path}/{folder.results}/{name}", folder.result(name)
    if record is None:
        return State("damaged", f"{DONE} cannot be read") if os.path.lexists(f"{place}/{DONE}") else State("to do")
    if not is_made_by(recipe, record):
        return State("changed", differences(record.recipe, recipe), record)
    if inputs != record.known(part):
        return State("changed", OTHER_INPUTS, record)
    try:
        if all(os.stat(f"{place}/{name}").st_size == file.get("bytes") for name, file in record.files.items()):
            return State("done", "", record)
    except OSError:
        return State("damaged", "files are missing", record)
    return State("damaged", "files are cut short, or were changed", record)


def is_made_by(recipe: Recipe, record: Record) -> bool:
    """Whether a record is of what a recipe asks for.

    It may have a page that is not asked for. If the method was chosen by the images, as for `default`, the chosen one
    counts too. A commit that is not known is no difference."""
    made = dict(record.recipe)
    if "commit" in made and may_be_same_commit(made["commit"], recipe.get("commit")):
        made["commit"] = recipe.get("commit")
    if made.get("report"):
        made["report"] = recipe.get("report")
    if record.row.get("method") == recipe.get("method"):
        made["method"] = recipe.get("method")
        if recipe.get("weights") is None and "weights" in made:  # those that `default` may have used, and did not
            made["weights"] = None
    return made == recipe


def differences(made: Recipe, recipe: Recipe) -> str:
    """How a recipe differs from what it was, in words."""
    keys = {key for key in {*made, *recipe} if made.get(key) != recipe.get(key)}
    if may_be_same_commit(made.get("commit"), recipe.get("commit")):
        keys -= {"commit"}
    return ", ".join(f"{key.replace('_', ' ')} {made.get(key)} → {recipe.get(key)}" for key in sorted(keys))


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
    begun: Collection[str] = ()
    """The subjects that a process is at, or was killed during."""

    @property
    def subjects(self) -> list[Subject]:
        return [*self.done, *self.failed, *self.again, *self.new]

    def to_do(self, retry: bool) -> list[Subject]:
        """What a run has to do: failures after all else, and those last that are begun."""
        subjects = [*self.new, *self.again, *(self.failed if retry else [])]
        return sorted(subjects, key=lambda one: one.name in self.begun)


def make_plan(folder: CohortFolder, subjects: Iterable[Subject], recipe: Recipe) -> Plan:
    """Sort the subjects by what the folder says of them."""
    plan, survey = Plan(begun=folder.begun()), Survey(folder, recipe)
    places = {"done": plan.done, "failed": plan.failed, "to do": plan.new}
    for one in subjects:
        kind, why, _ = survey.state(one)
        places.get(kind, plan.again).append(one)
        if kind in ("changed", "damaged"):
            plan.changes[why] += 1
    return plan


def check_kept(plan: Plan, folder: CohortFolder, recipe: Recipe) -> None:
    """BadInput if results would be replaced by others. If inputs are only newer, their content decides."""

    def is_kept(one: Subject) -> bool:
        record = folder.result(one.name)
        if record and not is_made_by(recipe, record):  # which is quick to tell; inputs may be large
            return False
        return judge(folder, one.name, recipe, "sha256", digests(one)).kind in ("done", "damaged")

    if replaced := [one for one in plan.again if not is_kept(one)]:
        reasons = "; ".join(f"{why} ({number:,})" for why, number in plan.changes.items())
        raise BadInput(
            f"{counted(len(replaced), 'result')} in {folder.path} would be replaced, since they are not as asked for: "
            f"{reasons}: leave out `keep`, or choose another folder"
        )
