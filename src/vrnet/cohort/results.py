"""The result of one subject takes its place whole: a folder that is written elsewhere, and renamed."""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from secrets import token_hex
from stat import S_ISDIR
from typing import Any

import numpy as np

from vrnet.cohort.table import Subject
from vrnet.errors import BadInput
from vrnet.files import (
    PARTIAL,
    Row,
    acquire_lock,
    check_written,
    closing,
    json_ready,
    remove_leftovers,
    write_bytes,
    write_json,
)
from vrnet.images.formats import files_of_image

# What an input was when a result was made of it: its path, size and time, quick to compare, and the SHA-256 of its
# content.
#
# As `make` and `git` do, a file of the same path, size and time is taken for unchanged; of any other the content
# decides.

Stamp = list[str | int]
"""Path, bytes, and the time of the last change in ns since 1970; of several files (a folder of DICOM, a header with its
voxels) the sum, and a number that changes with the name, size or time of any of them."""
Stamps = Mapping[str, Stamp | str | None]
"""By column; None of a file that is not there."""


def stamp(path: str) -> Stamp | None:
    """The size and time of a file, or of all files of an input; None if it is not there, or not to be seen."""
    try:
        found = os.stat(path)
        files = files_of(path, S_ISDIR(found.st_mode))
        if files == [path]:
            return [path, found.st_size, found.st_mtime_ns]
        stats = {name: os.stat(file) for name, file in by_name(files, path)}
    except OSError:
        return None
    lines = "".join(f"{name}\0{one.st_size}\0{one.st_mtime_ns}\n" for name, one in stats.items())
    number = hashlib.sha256(lines.encode(errors="surrogateescape")).digest()[:6]
    return [path, sum(one.st_size for one in stats.values()), int.from_bytes(number)]


def files_of(path: str, is_folder: bool) -> list[str]:
    """The files of an input: those in a folder; or an image, with the file of its voxels where that is another."""
    return list(files_below(path)) if is_folder else files_of_image(path)


def by_name(files: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    """Each file of an input with its name seen from there, which stays when all of them move."""
    return ((os.path.relpath(file, path), file) for file in files)


def stamps(subject: Subject) -> Stamps:
    """By column, the stamp of each file of a subject; and what it depends on beside files, as it is."""
    return {column: stamp(path) for column, path in subject.files.items()} | subject.values


def find_unseen(subjects: Iterable[Subject]) -> frozenset[str]:
    """The names of subjects of which a file is not there: also one inside a folder, as where a link leads nowhere."""
    return frozenset(one.name for one in subjects if None in stamps(one).values())


def digests(subject: Subject) -> dict[str, str]:
    """By column, the SHA-256 of each file of a subject; and what it depends on beside files, as it is."""
    return {column: digest(path) for column, path in subject.files.items()} | subject.values


def digest(path: str) -> str:
    """The SHA-256 of a file; of several files, that of their names and contents."""
    try:
        files = files_of(path, os.path.isdir(path))
        if files == [path]:
            return digest_file(path)
        total = hashlib.sha256()
        for name, file in by_name(files, path):
            total.update(f"{name}\0{digest_file(file)}\n".encode(errors="surrogateescape"))
        return total.hexdigest()
    except FileNotFoundError as error:
        raise BadInput(f"there is no {error.filename or path}: check its name") from error
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}): check your permission") from error


def digest_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(folder: str) -> Iterator[str]:
    """Every file in a folder and in those inside it, in one order."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted(names))


# Attempts at a subject that were begun and never ended: their process was killed, or there was too little memory.
#
# The lock file of a subject holds their number. Who ends an attempt removes the file; a killed process leaves it behind,
# and the next one reads it there. So a subject that kills its process blocks nobody behind it: it is done last, and after
# three times it is a failure.

MAX_UNENDED = 3
"""Attempts at a subject that may be begun and never end."""
MAX_COUNT = 9
"""What one digit can say."""


@contextmanager
def begin_attempt(lock: Path) -> Iterator[int]:
    """Hold the lock of a subject meanwhile, and yield how many attempts before never ended; BlockingIOError if another
    process is at it.

    One that is stopped has not ended: the run that is stopped takes it back."""
    descriptor = acquire_lock(lock)
    with closing(descriptor):
        unended = read_count(descriptor)
        write_count(descriptor, unended + 1)
        try:
            yield unended
        except Exception:
            lock.unlink(missing_ok=True)
            raise
        lock.unlink(missing_ok=True)


def take_back(lock: Path) -> None:
    """Count one attempt less at a subject that no process is at."""
    with suppress(OSError), closing(descriptor := acquire_lock(lock, is_needed=True)):
        write_count(descriptor, read_count(descriptor) - 1)


def read_count(descriptor: int) -> int:
    """The number in a lock file; 0 if there is none."""
    text = os.pread(descriptor, 1, 0)
    return int(text) if text.isdigit() else 0


def write_count(descriptor: int, count: int) -> None:
    """Write the number in a lock file. On a full disk it is not counted: the attempt itself will say so."""
    with suppress(OSError):
        if count > 0:
            os.pwrite(descriptor, str(min(count, MAX_COUNT)).encode(), 0)
        else:
            os.ftruncate(descriptor, 0)


def count_unended(lock: str) -> int:
    """How many attempts never ended, or are under way, by what a lock file says; 0 if it is not there."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    with closing(descriptor):
        return read_count(descriptor)


# What a cohort's folder remembers: `done.json` of each result, and of each failure its reason and traceback.
#
#     DIR/subjects/NAME/     the result of a subject, whole, with done.json
#     DIR/failures/NAME.json why a subject could not be done; NAME.txt has the traceback
#     DIR/.working/          locks and temporary folders of those that are under way, or whose process was killed
#
# There is no other memory: whoever can read the folder knows what is done.

Recipe = Mapping[str, Any]
"""What is done to every subject, as JSON says it: method, parameters, version. Results of another are done again."""
DONE, FAILURES = "done.json", "failures"
READ_BYTES = 1 << 16
"""At a time; most records are shorter."""
STAGED = "~"
"""Between a subject's name, which cannot hold it, and what makes that of a temporary folder unique."""


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
        """Make the folders, and remove what killed processes left in them."""
        for folder in self.places:
            folder.mkdir(parents=True, exist_ok=True)
        self.tidy()

    def tidy(self) -> None:
        """Remove what killed processes left behind; what living ones use stays."""
        for folder in (self.path, self.failures):
            remove_leftovers(folder)
        for name in {name.removesuffix(".lock").partition(STAGED)[0] for name in names_in(self.working)}:
            with suppress(OSError), closing(acquire_lock(lock := self.lock(name), is_needed=True)):
                for place in self.working.glob(f"{escape(name)}{STAGED}*"):
                    remove_tree(place)
                if not count_unended(str(lock)) or self.has_ended_since(name, os.stat(lock).st_mtime_ns):
                    lock.unlink()

    def has_ended_since(self, name: str, moment: int) -> bool:
        """Whether a result or a failure of a subject was written since a moment, in ns since 1970."""
        for record in (f"{self.subjects}/{name}/{DONE}", f"{self.failures}/{name}.json"):
            with suppress(OSError):
                if os.stat(record).st_mtime_ns >= moment:
                    return True
        return False

    def unended(self) -> dict[str, int]:
        """How many attempts were begun at subjects, and never ended or are under way."""
        names = (name.removesuffix(".lock") for name in names_in(self.working) if name.endswith(".lock"))
        counts = {name: count_unended(f"{self.working}/{name}.lock") for name in names}
        return {name: count for name, count in counts.items() if count}

    def remove(self) -> None:
        """Remove the records of a run whose results are elsewhere by now; files of others stay, and their folders."""
        for name in (*self.names_of_results(), *self.names_of_failures()):
            self.forget_failure(name)
            (self.subjects / name / DONE).unlink(missing_ok=True)
            remove_if_empty(self.subjects / name)
        for folder in (self.subjects, self.failures, self.working):
            remove_if_empty(folder)

    def remove_if_unused(self, made: Collection[Path]) -> None:
        """Remove the folders that a run made, if nothing is in any, nor a process at work: it was refused, or stopped
        at once."""
        if not self.names_of_results() - {FAILURES} and not names_in(self.failures) and not names_in(self.working):
            for folder in reversed(self.places):
                if folder in made:
                    remove_if_empty(folder)

    def lock(self, name: str) -> Path:
        """The file that the process holds that is at a subject."""
        return self.working / f"{name}.lock"

    @contextmanager
    def staging(self, name: str) -> Iterator[tuple[Path, Path]]:
        """A folder to write a subject's result in, and a place for an earlier one; afterwards both are gone.

        The holder of the subject's lock has it: if killed, what is in it is removed by `tidy`."""
        staged = self.working / f"{name}{STAGED}{token_hex(8)}"
        old = staged.with_name(f"{staged.name}{STAGED}old")
        staged.mkdir()
        try:
            yield staged, old
        finally:
            remove_tree(staged)
            remove_tree(old)

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

    def record_error(self, name: str, record: Mapping[str, Any], traceback: str) -> None:
        """Remember why a subject could not be done; BadInput where that cannot be written."""
        write_bytes(traceback.encode(errors="backslashreplace"), self.failures / f"{name}.txt")
        write_json(record, self.failures / f"{name}.json")

    def forget_failure(self, name: str) -> None:
        """A subject that is done has not failed."""
        for end in ("json", "txt"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.failures}/{name}.{end}")


def identify(recipe: Recipe) -> str:
    """A short text that is another for another recipe."""
    text = json.dumps(json_ready(recipe), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def remove_if_empty(folder: Path) -> None:
    """Remove a folder with nothing in it."""
    with suppress(OSError):
        folder.rmdir()


def remove_tree(place: Path) -> None:
    """Remove a folder and what is in it, if it is there; of a link, the link alone."""
    with suppress(OSError):
        if place.is_symlink():
            place.unlink()
    if place.exists():
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
        found = json.loads(read_bytes(path))
        is_record = all(isinstance(found[part], dict) for part in parts)
        is_record = is_record and all(isinstance(value, dict) for value in found[parts[-1]].values())
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return found if is_record else {}


def read_bytes(path: str) -> bytes:
    """What a small file holds; `open` would take twice as long."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, READ_BYTES)]
        while len(parts[-1]) == READ_BYTES:
            parts.append(os.read(descriptor, READ_BYTES))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def has_stamps(record: Mapping[str, Any], now: Stamps) -> bool:
    """Whether the inputs have the sizes, times and values that a record has."""
    return now == {column: of_input(found, "stamp") for column, found in record.get("inputs", {}).items()}


def has_content(record: Mapping[str, Any], digests: Mapping[str, str]) -> bool:
    """Whether the inputs have the SHA-256, or the values, that a record has."""
    return digests == {column: of_input(found, "sha256") for column, found in record.get("inputs", {}).items()}


def of_input(recorded: Any, part: str) -> Any:
    """The stamp or the SHA-256 of a file as it is recorded; of what is no file, its value."""
    return recorded.get(part, recorded.get("value")) if isinstance(recorded, dict) else None


def damage(folder: str, record: Mapping[str, Any]) -> str:
    """What is wrong with the files that done.json lists; nothing if they are there, in their sizes."""
    files = record.get("files", {})
    try:
        if all(os.stat(f"{folder}/{name}").st_size == file.get("bytes") for name, file in files.items()):
            return ""
    except OSError:
        return "files are missing"
    return "files are cut short, or were changed"


def seal(staged: Path, record: Mapping[str, Any]) -> None:
    """Write done.json, with the size and SHA-256 of every file beside it.

    The files are on the disk, as their writers see to. done.json is not waited for: should the power fail now, it is
    damaged, and the subject is done again."""
    files = {
        os.path.relpath(file, staged): {"bytes": os.stat(file).st_size, "sha256": digest_file(file)}
        for file in files_below(str(staged))
    }
    write_record({**record, "files": files}, staged / DONE)


def write_record(record: Mapping[str, Any], path: Path) -> None:
    """Write a JSON file that is not waited for."""
    text = json.dumps(json_ready(record), allow_nan=False).encode()
    path.write_bytes(text)
    check_written(path.stat().st_size == len(text), path)


def publish(staged: Path, folder: Path, old: Path, earlier: Mapping[str, Any]) -> None:
    """Rename a sealed folder to its place. An earlier result, which has a record, goes to `old`; BadInput if others put
    files there.

    If that fails, the earlier one goes back. Killed between the two renames, the subject is not done: the earlier
    result was to be replaced."""
    try:
        os.rename(staged, folder)  # also over an empty folder
    except OSError:
        if not folder.is_dir():
            raise
        check_own(folder, earlier, staged)
        os.rename(folder, old)
        try:
            os.rename(staged, folder)
        except BaseException:
            os.rename(old, folder)
            raise


def check_own(folder: Path, record: Mapping[str, Any], staged: Path | None = None) -> None:
    """BadInput unless every file in a result's folder is as its record lists it.

    Beside a record that cannot be read, files are ours that have names of the new result; before there is one, nobody
    knows these."""
    if not record and staged is None and os.path.lexists(folder / DONE):
        return
    listed = record.get("files", {})
    for file in files_below(str(folder)):
        name = os.path.relpath(file, folder)
        is_listed = name in listed and digest_file(file) == listed[name].get("sha256")
        if not is_listed and name not in replaced_names(folder, record, staged):
            raise BadInput(
                f"{file} is not as this cohort wrote it, and would be lost: {advice(file, listed.get(name))}"
            )


def advice(file: str, listed: Any) -> str:
    """What to do about a file that is in the way: one of ours that is shorter by now may be damaged."""
    written = listed.get("bytes") if isinstance(listed, dict) else None
    size = os.stat(file).st_size
    if isinstance(written, int) and size < written:
        return f"it has {size:,} of {written:,} bytes; remove it if it is damaged, or move it away, and try it again"
    return "move it away, and try it again"


def replaced_names(folder: Path, record: Mapping[str, Any], staged: Path | None) -> set[str]:
    """The files of a result's folder that are ours whatever they hold."""
    if record:
        return {DONE}
    if staged is None or not os.path.lexists(folder / DONE):
        return set()
    return {os.path.relpath(file, staged) for file in files_below(str(staged))}


# Which subjects to look at first: those that failed, then by verdict, then those unlike the rest of the cohort.
#
# Unlike the rest: the largest robust z-score, |x − median| / (1.4826 MAD), of any measure. Of one that has a worse side,
# only what lies on that side counts: nobody need look at the best result first.

MAD_TO_STD = 1.4826
"""Of a normal distribution, the standard deviation in units of the median absolute deviation."""
MEAN_TO_STD = 1.2533
"""The same in units of the mean absolute deviation, for a measure that most subjects have alike, such as folds."""
MIN_SUBJECTS, MIN_NAMED = 4, 20
"""With fewer subjects there are no z-scores; with fewer than the second, they rank, but no measure is named."""
MAX_Z = 99.0
OUTLIER_FROM = 3.5
"""A z-score from which the measure is named (Iglewicz and Hoaglin)."""
TOLD_FROM = 2.0
"""A z-score from which the measure is told that ranks a subject, of however few."""
OF_STATUS, OF_VERDICT = {"failed": 300.0}, {"failed": 200.0, "look": 100.0}
"""What failures and verdicts count beside a z-score, which is MAX_Z at most."""

OWN_UNITS = ("mae",)
"""How the measures begin that are in units of the images: those of two scanners, or of two sequences, say nothing of
each other, and nobody knows which lists have both. What they would tell, correlation tells."""
WORSE_BELOW = ("dice", "ncc")
WORSE_ABOVE = ("hausdorff", "surface", "folding", "jacobian", "closure", "frames_repaired", "end_point_error")
"""How the measures begin that are worse the lower, and the higher, they are; others are unusual on either side."""


def add_suspicion(rows: Sequence[Row], measures: Sequence[str]) -> None:
    """Give each row of a result or a failure its suspicion, and the measure that is most unlike the rest's: as
    suspicion_by; where it is far out, among many, as outlier too."""
    measures = [name for name in measures if not name.startswith(OWN_UNITS)]
    most, which = np.zeros(len(rows)), np.full(len(rows), -1)
    for k, name in enumerate(measures):
        z = towards_worse(name, robust_z([row.get(name) for row in rows]))
        which[z > most] = k
        most = np.maximum(most, z)
    for row, score, k in zip(rows, most.tolist(), which.tolist(), strict=True):
        if row["status"] in ("done", "failed"):
            verdict = OF_VERDICT.get(str(row.get("verdict")), 0.0)
            row["suspicion"] = round(score + OF_STATUS.get(row["status"], 0.0) + verdict, 2)
        if score >= TOLD_FROM:
            row["suspicion_by"] = measures[k]
        if score >= OUTLIER_FROM and len(rows) >= MIN_NAMED:
            row["outlier"] = measures[k]


def towards_worse(name: str, z: np.ndarray) -> np.ndarray:
    """How far each value of a measure is out, on its worse side if it has one."""
    if name.startswith(WORSE_BELOW):
        return (-z).clip(min=0)
    return z.clip(min=0) if name.startswith(WORSE_ABOVE) else np.abs(z)


def robust_z(values: Sequence[object]) -> np.ndarray:
    """(x − median) / (1.4826 MAD) of each value; 0 where there is no number, or too few differ."""
    x = np.array([v if isinstance(v, (int, float)) else np.nan for v in values], dtype=float)
    known = x[np.isfinite(x)]
    if len(known) < MIN_SUBJECTS:
        return np.zeros(len(x))
    median = np.median(known)
    away = np.abs(known - median)
    spread = MAD_TO_STD * np.median(away) or MEAN_TO_STD * away.mean()
    if spread <= 0:
        return np.zeros(len(x))
    return np.nan_to_num((x - median) / spread).clip(-MAX_Z, MAX_Z)
