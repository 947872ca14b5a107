"""What a cohort's folder remembers: `done.json` of each result, and of each failure its reason and traceback.

    DIR/subjects/NAME/     the result of a subject, whole, with done.json
    DIR/failures/NAME.json why a subject could not be done; NAME.txt has the traceback
    DIR/.working/          locks and temporary folders of those that are under way, or whose process was killed

There is no other memory: whoever can read the folder knows what is done."""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import Any

from vrnet.cohort.attempts import count_unended
from vrnet.cohort.stamps import Stamps
from vrnet.files import json_ready, write_bytes, write_json
from vrnet.locks import PARTIAL, acquire_lock, closing, remove_leftovers

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
