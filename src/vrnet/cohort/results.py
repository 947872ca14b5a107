"""What a cohort's folder remembers of each subject: a whole result with its `done.json`, or why there is none.

    DIR/subjects/NAME/       the result of a subject, whole, with done.json
    DIR/failures/NAME.json   why a subject could not be done; NAME.txt has the traceback
    DIR/.working/NAME~.../   what a process writes meanwhile; left behind where that process is killed

There is no other memory, and nothing is locked. A result is written in .working and renamed when it is whole. Whoever
ends a subject removes what is in .working of it: of two processes that are at one subject, the first to end wins."""

import hashlib
import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from secrets import token_hex
from stat import S_ISDIR
from typing import Any, Literal, NamedTuple

from vrnet.cohort.table import Subject
from vrnet.errors import BadInput, counted
from vrnet.files import PARTIAL, check_written, json_ready, remove_leftovers, write_bytes, write_json
from vrnet.provenance import may_be_same_commit

# What an input was when a result was made of it: its path, size and time, quick to compare, and the SHA-256 of its
# content. As for `make` and `git`, a file of the same path, size and time is unchanged; of others the content decides.

Stamp = list[str | int]
"""Path, bytes, and the time of the last change in ns since 1970; of several files (a folder of DICOM, a header with its
voxels) the sum, and a number that changes with the name, size or time of any of them."""
Stamps = Mapping[str, Stamp | str | None]
"""By column; None of a file that is not there. Of what is no file, such as a frame, the value."""
Inputs = Mapping[str, Mapping[str, Any]]
"""Of each column the path, the stamp and the SHA-256 of its file; of what is no file, the value."""
Recipe = Mapping[str, Any]
"""What is done to every subject, as JSON says it: method, parameters, version. Results of another are done again."""


def files_of(path: str, is_folder: bool) -> list[str]:
    """The files of an input: those in a folder; or an image, with the file of its voxels where that is another."""
    from vrnet.images.formats import files_of_image

    return list(files_below(path)) if is_folder else files_of_image(path)


def files_below(folder: str) -> Iterator[str]:
    """Every file in a folder and in those inside it, in one order."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted(names))


def stamp(path: str) -> Stamp | None:
    """The size and time of a file, or of all files of an input; None if it is not there, or not to be seen."""
    try:
        found = os.stat(path)
        files = files_of(path, S_ISDIR(found.st_mode))
        if files == [path]:
            return [path, found.st_size, found.st_mtime_ns]
        stats = {os.path.relpath(file, path): os.stat(file) for file in files}
    except OSError:
        return None
    lines = "".join(f"{name}\0{one.st_size}\0{one.st_mtime_ns}\n" for name, one in stats.items())
    number = hashlib.sha256(lines.encode(errors="surrogateescape")).digest()[:6]
    return [path, sum(one.st_size for one in stats.values()), int.from_bytes(number)]


def stamps(subject: Subject) -> Stamps:
    """The stamps of all inputs of a subject."""
    return {column: stamp(path) for column, path in subject.files.items()} | subject.values


def digest(path: str) -> str:
    """The SHA-256 of a file; of several files, that of their names and contents."""
    try:
        files = files_of(path, os.path.isdir(path))
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


def describe_inputs(subject: Subject, before: Stamps) -> Inputs:
    """What a record says of the inputs of a subject, whose stamps were taken before they are read."""
    files = {
        column: {"path": path, "stamp": before[column], "sha256": digest(path)}
        for column, path in subject.files.items()
    }
    return files | {column: {"value": value} for column, value in subject.values.items()}


def recorded(inputs: Any, part: str) -> dict[str, Any]:
    """By column, the stamp or the SHA-256 that a record has of its inputs; of what is no file, the value."""
    found = {column: one if isinstance(one, dict) else {} for column, one in inputs.items()}
    return {column: one.get(part, one.get("value")) for column, one in found.items()}


# The folder, and what is written in it.

DONE, FAILURES = "done.json", "failures"
BEGUN = "~"
"""Between a subject's name, which cannot hold it, and what tells of the process that is at it."""


@cache
def this_machine() -> str:
    """A short text that is another on another machine, and in a container that sees other processes."""
    space = "/proc/self/ns/pid"
    seen = os.readlink(space) if os.path.exists(space) else ""
    return hashlib.sha256(f"{platform.node()} {seen}".encode()).hexdigest()[:8]


def was_killed_here(place: str) -> bool:
    """Whether a folder in .working is of a process of this machine that lives no more."""
    _, machine, process, _ = place.rsplit(BEGUN, 3)
    if machine != this_machine():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


@dataclass(frozen=True)
class CohortFolder:
    """The places in a cohort's folder. Paths are texts: planning asks for hundreds of thousands."""

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
        """All folders, the outer one first."""
        return (self.path, self.subjects, self.failures, self.working)

    def is_there(self) -> bool:
        """Whether all folders are there: some are made anew by whoever writes where a file system was taken away."""
        return all(map(os.path.isdir, self.places))

    def make(self) -> None:
        for folder in self.places:
            folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.failures)

    def remove(self) -> None:
        """Remove the records of a run whose results are elsewhere by now; files of others stay, and their folders."""
        for name in (*self.names_of_results(), *self.names_of_failures()):
            self.forget_failure(name)
            (self.subjects / name / DONE).unlink(missing_ok=True)
            remove_if_empty(self.subjects / name)
        for folder in (self.subjects, self.failures, self.working):
            remove_if_empty(folder)

    def begun(self) -> Counter[str]:
        """How many processes are at each subject, or were killed during it."""
        return Counter(name.partition(BEGUN)[0] for name in names_in(self.working) if BEGUN in name)

    @contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """A folder to write the result of a subject in; afterwards it is gone, unless this process is killed."""
        place = self.working / BEGUN.join((name, this_machine(), str(os.getpid()), token_hex(4)))
        place.mkdir()
        try:
            yield place
        finally:
            remove_tree(place)

    def clear(self, names: Collection[str]) -> None:
        """Remove what is in .working of subjects that have ended."""
        for place in names_in(self.working):
            if place.partition(BEGUN)[0] in names:
                remove_tree(self.working / place)

    def names_of_results(self) -> set[str]:
        """The subjects that have a folder."""
        return {name for name in names_in(self.subjects) if not name.startswith(".")}

    def names_of_failures(self) -> set[str]:
        """The subjects that could not be done once, and have not been since."""
        return {name.removesuffix(".json") for name in names_in(self.failures) if name.endswith(".json")}

    def done(self, name: str) -> dict[str, Any]:
        """What done.json of a subject says; empty if there is none that can be read."""
        found = read_record(f"{self.path}/{self.results}/{name}/{DONE}", ("recipe", "row", "inputs", "files"))
        return found if isinstance(found.get("seconds"), (int, float)) else {}

    def failure(self, name: str) -> dict[str, Any]:
        """Why a subject could not be done, as it is recorded; empty if nothing is."""
        return read_record(f"{self.path}/{FAILURES}/{name}.json", ("recipe", "inputs"))

    def record_failure(self, name: str, record: Mapping[str, Any], traceback: str) -> None:
        """Remember why a subject could not be done; BadInput where that cannot be written."""
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


def remove_tree(place: Path) -> None:
    """Remove a folder and what is in it, if it is there."""
    shutil.rmtree(place, ignore_errors=True)


def names_in(folder: Path) -> list[str]:
    """The names in a folder, but for those of temporary folders; none if there is no such folder."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(PARTIAL)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_record(path: str, parts: tuple[str, ...]) -> dict[str, Any]:
    """A record, whose parts are keys and values; empty if it is no such file, or one that a power failure damaged.

    The last part has keys and values for each of its keys. (A schema would take longer than reading the file.)"""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
        is_record = all(isinstance(found[part], dict) for part in parts)
        is_record = is_record and all(isinstance(value, dict) for value in found[parts[-1]].values())
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return found if is_record else {}


def write_record(record: Mapping[str, Any], path: Path) -> None:
    """Write done.json, which is not waited for: should the power fail, it is damaged, and the subject done again."""
    text = json.dumps(json_ready(record), allow_nan=False).encode()
    path.write_bytes(text)
    check_written(path.stat().st_size == len(text), path)


def seal(staged: Path, record: Mapping[str, Any]) -> None:
    """Write done.json, with the size and SHA-256 of every file beside it, which their writers have seen to the disk."""
    files = {
        os.path.relpath(file, staged): {"bytes": os.stat(file).st_size, "sha256": digest_file(file)}
        for file in files_below(str(staged))
    }
    write_record({**record, "files": files}, staged / DONE)


def replace_result(staged: Path, folder: Path, old: Path, earlier: Mapping[str, Any]) -> None:
    """Rename a sealed folder to the place of an earlier result, which goes to `old`; BadInput if files of others are
    there.

    If that fails, the earlier one goes back. Killed between the two renames, the subject is not done: the earlier
    result was to be replaced."""
    check_own(folder, earlier, staged)
    os.rename(folder, old)
    try:
        os.rename(staged, folder)
    except BaseException:
        os.rename(old, folder)
        raise
    if old.is_symlink():
        old.unlink()  # and what it leads to stays


def check_own(folder: Path, record: Mapping[str, Any], staged: Path | None = None) -> None:
    """BadInput unless every file in a result's folder is as its record lists it.

    Beside a record that cannot be read, files are ours that have names of the new result, once there is one."""
    listed, is_damaged = record.get("files", {}), not record and os.path.lexists(folder / DONE)
    if is_damaged and staged is None:
        return
    new = {os.path.relpath(file, staged) for file in files_below(str(staged))} if is_damaged and staged else set()
    for file in files_below(str(folder)):
        name, size = os.path.relpath(file, folder), os.stat(file).st_size
        wanted = listed.get(name, {})
        if name in new or (record and name == DONE) or (wanted and digest_file(file) == wanted.get("sha256")):
            continue
        advice = "move it away, and try it again"
        if wanted and size < wanted["bytes"]:
            whole = f"{wanted['bytes']:,}"
            advice = f"it has {size:,} of {whole} bytes; remove it if it is damaged, or move it away, and try it again"
        raise BadInput(f"{file} is not as this cohort wrote it, and would be lost: {advice}")


# What there is of a subject: the one answer that plans, tables, shards and tasks go by.

Kind = Literal["to do", "done", "changed", "damaged", "failed"]
"""done: a whole result of this recipe and of these inputs; changed: one of others; damaged: one that is not whole, or
whose record cannot be read; failed: it could not be done, by this recipe and with these inputs; to do: nothing counts
that is there."""
NOTHING: Mapping[str, Any] = {}
OTHER_INPUTS = "newer or other inputs"


class State(NamedTuple):
    """What there is of a subject."""

    kind: Kind
    why: str = ""
    """What is other than asked for, what is damaged, or why it could not be done."""
    record: Mapping[str, Any] = NOTHING
    """What is recorded of the result, or of the failure."""


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
            record = self.folder.done(name)
            found = judge(self.folder, name, record, self.recipe, now == recorded(record.get("inputs", {}), "stamp"))
            if found.why == OTHER_INPUTS and None in now.values():
                found = found._replace(why="inputs are missing")
        if found.kind != "done" and name in self.failures:
            failure = self.folder.failure(name)
            if is_made_by(self.recipe, failure) and now == recorded(failure.get("inputs", {}), "stamp"):
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
    try:
        if all(os.stat(f"{place}/{name}").st_size == file.get("bytes") for name, file in record["files"].items()):
            return State("done", "", record)
    except OSError:
        return State("damaged", "files are missing", record)
    return State("damaged", "files are cut short, or were changed", record)


def has_content(folder: CohortFolder, subject: Subject, inputs: Mapping[str, str], recipe: Recipe) -> State:
    """What the result of a subject is worth whose inputs have this SHA-256, or these values, by column."""
    record = folder.done(subject.name)
    return judge(folder, subject.name, record, recipe, inputs == recorded(record.get("inputs", {}), "sha256"))


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
    begun: Mapping[str, int] = field(default_factory=dict)
    """By subject: processes that are at it, or were killed during it."""

    @property
    def subjects(self) -> list[Subject]:
        return [*self.done, *self.failed, *self.again, *self.new]

    def to_do(self, retry: bool) -> list[Subject]:
        """What a run has to do: failures after all else, and those last that a process is at, or was killed during."""
        subjects = [*self.new, *self.again, *(self.failed if retry else [])]
        return sorted(subjects, key=lambda one: self.begun.get(one.name, 0)) if self.begun else subjects


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
    """BadInput if results would be replaced by others. Of inputs that are only newer, the content decides."""

    def is_kept(one: Subject) -> bool:
        record = folder.done(one.name)
        if record and not is_made_by(recipe, record):  # which is quick to tell; inputs may be large
            return False
        content = {column: digest(path) for column, path in one.files.items()} | one.values
        return has_content(folder, one, content, recipe).kind in ("done", "damaged")

    if replaced := [one for one in plan.again if not is_kept(one)]:
        reasons = "; ".join(f"{why} ({number:,})" for why, number in plan.changes.items())
        raise BadInput(
            f"{counted(len(replaced), 'result')} in {folder.path} would be replaced, since they are not as asked for: "
            f"{reasons}: leave out `keep`, or choose another folder"
        )


@contextmanager
def open_folder(folder: CohortFolder, plan: Plan) -> Iterator[None]:
    """A folder, made if it is not there, while a run is at it; folders that were made for nothing go again.

    A run that may be stopped: the processes that it then ended were not killed during their subjects."""
    made, before = [place for place in folder.places if not place.exists()], {*names_in(folder.working)}
    folder.make()
    folder.clear({one.name for one in (*plan.done, *plan.failed)})
    try:
        yield
    except BaseException:
        for place in {*names_in(folder.working)} - before:
            if was_killed_here(place):
                remove_tree(folder.working / place)
        raise
    finally:
        if not folder.names_of_results() - {FAILURES} and not names_in(folder.failures) and not folder.begun():
            for place in reversed(made):
                remove_if_empty(place)
