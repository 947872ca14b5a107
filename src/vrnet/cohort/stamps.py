"""What an input was when a result was made of it: its path, size and time, quick to compare, and the SHA-256 of its
content.

As `make` and `git` do, a file of the same path, size and time is taken for unchanged; of any other the content
decides."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from stat import S_ISDIR

from vrnet.cohort.table import Subject
from vrnet.errors import BadInput
from vrnet.images.voxel_files import files_of_image

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
