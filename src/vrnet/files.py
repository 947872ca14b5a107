"""Files: checked before the work, written whole or not at all; rows of CSV files; JSON."""

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

import numpy as np

from vrnet.errors import BadInput
from vrnet.locks import ORDINARY, partial_folder, remove_leftovers
from vrnet.schema import shown

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
