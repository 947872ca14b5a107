"""Files: checked before the work, written whole or not at all; rows of CSV files; JSON."""

import csv
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from math import isfinite
from pathlib import Path, PurePosixPath
from random import uniform
from tempfile import TemporaryFile, mkdtemp
from time import monotonic, sleep
from typing import Any, TextIO

import numpy as np

from vrnet.errors import BadInput
from vrnet.schema import shown

# Locks that end with their process, and temporary folders that go with it.
#
# The lock is flock, which the system releases however a process ends. A lock file is removed by its holder; one that a
# killed process left behind is free, and taken over by the next. Where a file system has no locks, nobody is kept out,
# and nothing is taken for left behind.

PARTIAL = ".partial-"
"""How the names of temporary folders begin."""
ORDINARY = ".ordinary"
"""The lock file of a temporary folder; it also has the permissions of an ordinary file."""
RETRY_SECONDS = 0.02
SHARING_SECONDS = 10.0
"""How long to wait for who looks at a lock that is shared: that takes microseconds, and on a busy file system more."""


@contextmanager
def hold_lock(path: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock file meanwhile; BlockingIOError if another holds it for longer than this process is patient."""
    with closing(wait_for_lock(path, patience_seconds)):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def closing(descriptor: int) -> Iterator[None]:
    """Close a descriptor at the end, which frees its lock."""
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def share_lock(path: Path) -> Iterator[None]:
    """Hold a lock file meanwhile together with others who share it; who wants it alone finds it held.

    It stays where it is, since others may hold it: whoever finds it free removes it. He holds it alone for that moment,
    as does whoever looks whether it is held: this one waits for them."""
    with closing(wait_for_lock(path, SHARING_SECONDS, is_shared=True)):
        yield


def wait_for_lock(path: Path, patience_seconds: float, is_shared: bool = False) -> int:
    """A descriptor that holds a lock file; BlockingIOError if others hold it for longer than one is patient."""
    end = monotonic() + patience_seconds
    while True:
        try:
            return acquire_lock(path, is_shared=is_shared)
        except BlockingIOError:
            if monotonic() > end:
                raise
            sleep(uniform(0.0, RETRY_SECONDS))  # by chance: who holds it again and again may do so in step


def acquire_lock(path: Path, is_needed: bool = False, is_shared: bool = False) -> int:
    """A descriptor that holds a lock file until it is closed; BlockingIOError if another process holds it.

    Where there are no locks, one that is needed is an OSError; any other is taken for held."""
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if is_same_file(path, descriptor):  # and not one that its last holder has just removed
                return descriptor
            os.close(descriptor)
        except OSError as error:
            if not is_needed and not isinstance(error, BlockingIOError):
                return descriptor
            os.close(descriptor)
            raise


def is_same_file(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether a living process holds a lock file."""
    if not path.exists():
        return False
    try:
        os.close(acquire_lock(path))
    except OSError:
        return True
    return False


@contextmanager
def partial_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder in a folder, which is removed at the end; if this process is killed, by the next run."""
    while True:
        folder = Path(mkdtemp(prefix=PARTIAL, dir=parent))
        with suppress(FileNotFoundError):  # another process took it for left behind before it was locked
            descriptor = acquire_lock(folder / ORDINARY)
            break
    with closing(descriptor):
        try:
            yield folder
        finally:
            remove_partial(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders that killed processes left in a folder; those of living ones stay."""
    for place in folder.glob(f"{PARTIAL}*"):
        with suppress(OSError):  # in use, or not ours, or not to be removed: it stays
            if place.is_symlink() or not (place / ORDINARY).exists():
                place.rmdir()  # which removes an empty folder alone
                continue
            with closing(acquire_lock(place / ORDINARY, is_needed=True)):
                remove_partial(place)


def remove_partial(folder: Path) -> None:
    """Remove a temporary folder: its lock file last, so that what a stop leaves of it is known as such."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != ORDINARY:
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


Row = dict[str, Any]
"""One row of a table: {column: value}."""
FORMULA = re.compile("'*[=+\\-@\\t\\r\\n＝＋－＠]")
"""How text begins that a spreadsheet may compute."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}
MAX_LINE_CHARACTERS = 1_000_000
"""Of a CSV file: a longer line is no table, and need not fit in memory."""
MAX_COLUMNS = 1_000
"""Of a CSV file whose rows have names for their cells: each row, however short, holds them all."""


def unreadable(path: Path, reason: str) -> BadInput:
    """The refusal of a file, in one line."""
    return BadInput(f"cannot read {path}: {reason}")


def exists(path: Path) -> bool:
    """Whether something is there that may be seen."""
    try:
        return path.exists()
    except OSError:  # a folder that may not be entered, a name too long
        return False


def is_folder(path: Path) -> bool:
    return exists(path) and path.is_dir()


def check_ordinary(path: Path) -> None:
    """BadInput for a pipe, a device or a socket, which could block for ever or never end. What is not there passes."""
    if exists(path) and not (path.is_file() or path.is_dir()):
        raise BadInput(f"{path} is no ordinary file (but a pipe or a device): give a file")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a place to write to. If the block succeeds, what is there replaces `path`; if not, nothing is left behind.

    The place is a file of the same name in a folder of its own, so that writers of one path do not meet. Writers that
    say nothing of a full disk must look at what they wrote before the block ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_folder(path.parent) as folder:
            temporary = folder / path.name
            yield temporary
            # Some libraries write files that nobody else may read.
            temporary.chmod((folder / ORDINARY).stat().st_mode)
            flush_file(temporary)
            temporary.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}): choose another place") from error


def flush_file(path: Path) -> None:
    """Wait until a file is on the disk: some file systems say only then that there was no room for it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the file system can tell."""
    with suppress(OSError):
        flush_file(folder)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file of this content, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
        check_written(temporary.stat().st_size == len(content), path)


def check_written(is_whole: bool, path: Path) -> None:
    """BadInput unless what was written of a file is whole."""
    if not is_whole:
        raise BadInput(f"cannot write {path}: only a part of it arrived; is the disk full?")


def check_no_twin(path: Path) -> None:
    """BadInput if x.nii lies where x.nii.gz is to be, or the other way round: ITK would read the former for both."""
    for one, other in ((".nii", ".nii.gz"), (".nii.gz", ".nii")):
        twin = path.with_name(f"{path.name.removesuffix(one)}{other}")
        if path.name.endswith(one) and exists(twin):
            raise BadInput(f"{twin} is there, and ITK takes it for {path.name}: remove it, or choose another name")


def check_not_input(outputs: Iterable[Path], inputs: Iterable[Path | None]) -> None:
    """BadInput if one of the files to be written is one that is read, also by another name: links are followed."""
    read = [path for path in inputs if path is not None and exists(path)]
    for output in outputs:
        for path in read:
            if exists(output) and output.samefile(path):
                raise BadInput(f"{output} is an input, and would be lost: choose another place for the result")


def check_folder(folder: Path, names: tuple[str, ...] = ()) -> None:
    """BadInput unless files of these names can be written in the folder, or it can be made. Nothing is made yet.

    What killed processes left half-written there is removed."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if exists(place))
    try:
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
    remove_leftovers(folder)
    for name in names:
        if is_folder(folder / name):
            raise BadInput(f"{folder / name} is a folder, and would have to be a file: choose another folder")


def check_file(path: Path, suffixes: tuple[str, ...]) -> None:
    """BadInput unless a file with one of these suffixes can be written there."""
    if is_folder(path):
        raise BadInput(f"{path} is a folder: name a file")
    if not path.name.endswith(suffixes):
        raise BadInput(f"{path.name} has no ending that can be written: choose one of {', '.join(suffixes)}")
    check_folder(path.parent)
    check_no_twin(path)


def read_rows(path: Path, form: str) -> list[dict[str, str]]:
    """The rows of a CSV file, {column: cell}, without the spaces around either; cells missing at the end are empty.

    `form` says what the file should hold, for the message if it does not."""
    return list(iterate_rows(path, form))


def iterate_rows(path: Path, form: str) -> Iterator[dict[str, str]]:
    """The rows of a CSV file one by one, as `read_rows` gives them, for files too long to be held."""
    lines = read_lines(path, form)
    columns = [name.strip() for name in next(lines, [])]
    check_separator(columns, path)
    check_columns(columns, path)
    return (as_row(columns, cells, path) for cells in lines)


def as_row(columns: list[str], cells: list[str], path: Path) -> dict[str, str]:
    """{column: cell} of one line of a CSV file; BadInput if it has more cells than there are columns."""
    row = dict.fromkeys(columns, "")
    row.update(zip(columns, map(str.strip, cells), strict=False))
    if any(cells[len(columns) :]):
        raise BadInput(
            f'{path} has more cells than columns in the line "{shown(cells[0])}, ...": quote what holds a comma'
        )
    return row


def read_table(path: Path, form: str) -> tuple[list[str], list[list[str]]]:
    """The header of a CSV file, and the cells of each line below it, all as they are; `form` as in `read_rows`."""
    lines = read_lines(path, form)
    header = next(lines, [])
    check_separator(header, path)
    return header, list(lines)


def check_columns(columns: list[str], path: Path) -> None:
    """BadInput if a CSV file has two columns of one name, or more than any of ours; empty names do not count."""
    if len(columns) > MAX_COLUMNS:
        raise BadInput(f"{path} has {len(columns)} columns: it may have {MAX_COLUMNS:,} at most")
    for name in filter(None, columns):
        if columns.count(name) > 1:
            raise BadInput(f'{path} has two columns "{shown(name)}": give each a name of its own')


def read_lines(path: Path, form: str) -> Iterator[list[str]]:
    """The cells of each line of a CSV file that is not empty, one line at a time; `form` as in `read_rows`."""
    check_ordinary(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for cells in filter(None, csv.reader(short_lines(file))):
                yield [without_guard(cell) if cell[:1] == "'" else cell for cell in cells]
    except FileNotFoundError as error:
        raise BadInput(f"there is no {path}: write one with {form}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"cannot read {path}: it should be a text file in UTF-8 with {form}") from error


def short_lines(file: TextIO) -> Iterator[str]:
    """The lines of a text file; ValueError for one that is no text, and before one that is too long is read whole."""
    while line := file.readline(MAX_LINE_CHARACTERS):
        if len(line) == MAX_LINE_CHARACTERS or "\0" in line:
            raise ValueError("no line of text")
        yield line


def check_separator(header: list[str], path: Path) -> None:
    """BadInput if cells are separated by something else than commas."""
    for mark, name in OTHER_SEPARATORS.items():
        if len(header) == 1 and mark in header[0]:
            raise BadInput(f"the columns of {path} are separated by {name}: separate them by commas")


def write_rows(rows: Sequence[Row], path: Path, comments: Iterable[str] = ()) -> None:
    """Write a CSV file with one line per row; where a row lacks a column, its cell is empty. Comments come first."""
    columns = columns_of(rows)
    write_table(columns, ([row.get(column) for column in columns] for row in rows), path, comments)


def write_table(
    header: Sequence[str], lines: Iterable[Iterable[object]], path: Path, comments: Iterable[str] = ()
) -> None:
    """Write a CSV file: comments, on lines that begin with #; a header; and the cells of each line below it."""
    text = "".join(f"# {comment}\n" for comment in comments) + csv_text([header, *lines])
    # Bytes of a name that are no text are written as Python shows them, as in JSON.
    write_bytes(text.encode(errors="backslashreplace"), path)


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    """Lines of cells as the text of a CSV file; None, NaN and ±∞ are empty cells."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # which quotes cells that hold either
    for line in lines:
        writer.writerow([with_guard(finite_or_none(cell)) for cell in line])
        text.seek(text.tell() - 2)
        text.write("\n")
        text.truncate()
    return text.getvalue()


def with_guard(cell: Any) -> Any:
    """The cell; an apostrophe before text that a spreadsheet would take for a formula, which none takes for one then.

    Text that begins with apostrophes and would be a formula without them gets one more, so that none is lost."""
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) and not is_number(cell) else cell


def without_guard(cell: str) -> str:
    """The cell as it was before `with_guard`."""
    return cell[1:] if cell[:1] == "'" and FORMULA.match(cell) else cell


def is_number(text: str) -> bool:
    """Whether a cell is a number, such as -1.5, which no spreadsheet takes for a formula."""
    return NUMBER.fullmatch(text) is not None


def columns_of(rows: Iterable[Row]) -> list[str]:
    """The columns that any row has, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in row))


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    check_ordinary(path)
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: it should be a JSON file") from error


def parse_json(text: str) -> Any:
    """The value that a text in JSON says; ValueError if it is none, or lists within lists without end."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its lists are too deep") from error


def write_json(value: Any, path: Path) -> None:
    """Write strict JSON, in which NaN and ±∞ are null."""
    text = json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # A file name may hold bytes that are no text: Python's escape for them, \udc80, is JSON's too.
    write_bytes(text.encode(errors="backslashreplace"), path)


def json_ready(value: Any) -> Any:
    """The value in what strict JSON can say: NumPy's numbers and arrays become Python's, NaN and ±∞ become None."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return finite_or_none(value)


def finite_or_none(value: Any) -> Any:
    """The value itself; None for NaN and ±∞, which are no results."""
    return None if isinstance(value, (float, np.floating)) and not isfinite(value) else value


# Sets of files that belong together, such as the results of a registration: all of the old ones, or all of the new.
#
# No system call renames several files at once, so a set is swapped by a link that all of its names go through:
#
# 1. The new set is written and verified in a temporary folder inside the folder of the results. Beside it, `old` gets
#    hard links to the files that are there, and `current` is a symbolic link to `old`. The folder becomes `.vrnet-swap`.
# 2. Each name is replaced by a symbolic link to `.vrnet-swap/current/NAME`, which is still the old file.
# 3. `current` is replaced by a link to `new`, in one rename: at this moment, and for all names, the new set is there.
# 4. Each link is replaced by the file that it leads to; links that lead nowhere are removed, and so is `.vrnet-swap`.
#
# Whoever opens the files by their names sees all of one set at any moment, also if the process is killed between two
# steps; the next run then puts the files that the links lead to in their places. Where the file system has no links,
# files are renamed one by one.
#
# A name may lead into folders below, such as `transforms/frame_00.nii.gz`: these are made, and removed when empty.
#
# A record in the folder says which files were written so, and their SHA-256. Only those are replaced or removed: what
# was put there by others, or changed since, stays, and a run that would need its name is refused before the work.

RECORD, LOCK, SWAP = ".vrnet.json", ".vrnet.lock", ".vrnet-swap"
OLD, NEW, CURRENT = "old", "new", "current"
PATIENCE_SECONDS = 10.0
"""How long to wait for another run that swaps its files: that takes milliseconds."""
NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""What a file system without links answers."""


def check_set(folder: Path, names: Iterable[str]) -> None:
    """BadInput unless these files can be written in the folder without loss of a file that is not of an earlier run."""
    names = tuple(names)
    check_folder(folder, names)
    for place in {folder / parent for name in names for parent in PurePosixPath(name).parents}:
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()) and place != folder:
            raise BadInput(f"{place} is no folder, and would have to be one: move it away, or choose another folder")
    if names and exists(folder):
        with writing(folder):  # a set that is half swapped would be taken for one of others
            settle(folder)
            check_unclaimed(folder, names)


@contextmanager
def replace_set(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a folder to write a set of files in. If the block succeeds, they replace the earlier set; if not, it stays.

    `names` are all that the set may have: recorded files of these names that the new set lacks go with the old one."""
    check_set(folder, ())
    with failing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with partial_folder(folder) as partial:
            (partial / NEW).mkdir()
            try:
                yield partial / NEW
            except BadInput as error:  # in the words of the reader, who knows nothing of the temporary folder
                raise BadInput(str(error).replace(str(partial / NEW), str(folder))) from error
            with writing(folder):
                settle(folder)
                swap(folder, partial, names)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other runs from writing in the folder meanwhile; BadInput if one does not end."""
    with failing(folder):
        try:
            with hold_lock(folder / LOCK, PATIENCE_SECONDS):
                yield
        except BlockingIOError as error:
            raise BadInput(f"another run is writing in {folder}: wait for it, or choose another folder") from error


@contextmanager
def failing(folder: Path) -> Iterator[None]:
    """BadInput in place of the system's errors."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot write in {folder} ({error.strerror}): nothing was replaced") from error


def swap(folder: Path, partial: Path, names: Sequence[str]) -> None:
    """Put the new set of a temporary folder in the place of the old one."""
    written = names_in(partial / NEW)
    check_unclaimed(folder, written)
    owned = own_files(folder)
    going = [name for name in owned if name in names]
    kept = {name: owned[name] for name in owned if name not in going}
    write_json({"files": kept | {name: sha256(partial / NEW / name) for name in written}}, partial / NEW / RECORD)
    if exists(folder / RECORD):
        going.append(RECORD)
    try:
        link_old(folder, partial, going)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        rename_one_by_one(folder, partial, going)
        return
    try:
        show_new(folder, partial, going)
    finally:
        settle(folder)


def names_in(folder: Path) -> list[str]:
    """The files in a folder and in the folders below it, by their names from there."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not is_real_folder(path))


def is_real_folder(path: Path) -> bool:
    """Whether something is a folder itself, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def link_to_swap(name: str) -> Path:
    """Where the link of a name leads, seen from its own folder."""
    return Path(*[".."] * (len(PurePosixPath(name).parts) - 1), SWAP, CURRENT, name)


def link_old(folder: Path, partial: Path, going: Iterable[str]) -> None:
    """Step 1: hard links to the old files, and `current`, which leads to them."""
    (partial / OLD).mkdir()
    for name in going:
        (partial / OLD / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / OLD / name).hardlink_to(folder / name)
    (partial / CURRENT).symlink_to(OLD)
    partial.chmod(folder.stat().st_mode)  # whoever may read the results may follow the links through it
    for place in (partial / OLD, partial / NEW, partial):
        flush_folder(place)


def show_new(folder: Path, partial: Path, going: Iterable[str]) -> None:
    """Steps 2 and 3: every name leads through `current`, which then leads to the new set."""
    place = folder / SWAP
    partial.rename(place)
    for name in going:
        if not os.path.samestat((folder / name).lstat(), (place / OLD / name).lstat()):
            raise FileExistsError(errno.EEXIST, f"{name} was changed meanwhile")
        (place / "link").symlink_to(link_to_swap(name))
        (place / "link").replace(folder / name)
    for name in names_in(place / NEW):
        if name not in going:  # fails where somebody has put a file meanwhile
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(link_to_swap(name))
    flush_folder(folder)
    (place / "link").symlink_to(NEW)
    (place / "link").replace(place / CURRENT)
    flush_folder(place)


def settle(folder: Path) -> None:
    """Step 4, after a swap that went through or was stopped: the files that the links lead to, in their places."""
    place = folder / SWAP
    if not exists(place):
        return
    names = {name for side in (OLD, NEW) for name in names_in(place / side)}
    for name in names:
        if not is_link_of_swap(folder, name):
            continue
        with suppress(FileNotFoundError):
            (place / CURRENT / name).replace(folder / name)
        if is_link_of_swap(folder, name):
            (folder / name).unlink()
    remove_empty_folders(folder, names)
    flush_folder(folder)
    shutil.rmtree(place)


def remove_empty_folders(folder: Path, names: Iterable[str]) -> None:
    """Remove the folders of these names, below the folder, that hold nothing any more."""
    places = {parent for name in names for parent in PurePosixPath(name).parents if parent.parts}
    for place in sorted(places, key=lambda place: -len(place.parts)):
        with suppress(OSError):  # which is raised where something is in it
            (folder / place).rmdir()


def is_link_of_swap(folder: Path, name: str) -> bool:
    """Whether a name is a link that a swap has made."""
    try:
        return (folder / name).readlink() == link_to_swap(name)
    except OSError:
        return False


def rename_one_by_one(folder: Path, partial: Path, going: Iterable[str]) -> None:
    """Replace the old set where there are no links; a process that is killed meanwhile leaves some of both."""
    new = names_in(partial / NEW)
    for name in new:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / NEW / name).replace(folder / name)
    for name in set(going) - set(new):
        (folder / name).unlink()
    remove_empty_folders(folder, going)
    flush_folder(folder)


def check_unclaimed(folder: Path, names: Iterable[str]) -> None:
    """BadInput if a file of one of these names is there that no earlier run recorded as its own, or one that ITK would
    read in its stead."""
    owned = own_files(folder)
    for name in names:
        check_no_twin(folder / name)
        if name not in owned and os.path.lexists(folder / name):
            raise BadInput(
                f"{folder / name} is not as an earlier run of this command wrote it, and would be lost: move it away, "
                "or choose another folder"
            )


def own_files(folder: Path) -> dict[str, str]:
    """{name: SHA-256} of the files that the record has, and that are still as they were written."""
    try:
        recorded = dict(read_json(folder / RECORD)["files"])
    except (BadInput, LookupError, TypeError, ValueError):  # no record, or a damaged one: nothing is ours
        return {}
    return {name: digest for name, digest in recorded.items() if is_as_recorded(folder, name, digest)}


def is_as_recorded(folder: Path, name: object, digest: object) -> bool:
    """Whether a file of that very folder, or of one below it, has the content that was recorded."""
    if not isinstance(name, str) or not is_plain(name):
        return False
    path = folder / name
    if any((folder / parent).is_symlink() for parent in PurePosixPath(name).parents if parent.parts):
        return False
    try:
        return path.is_file() and not path.is_symlink() and sha256(path) == digest
    except OSError:
        return False


def is_plain(name: str) -> bool:
    """Whether a name leads into the folder or below it, and nowhere else."""
    place = PurePosixPath(name)
    return str(place) == name and not place.is_absolute() and bool(place.parts) and ".." not in place.parts


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
