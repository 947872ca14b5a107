"""Files: checked before the work, written whole or not at all; rows of CSV files; JSON."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np

from vrnet.errors import BadInput

Row = dict[str, Any]
"""One row of a table: {column: value}."""
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}


def exists(path: Path) -> bool:
    """Whether something is there that may be seen."""
    try:
        return path.exists()
    except OSError:  # a folder that may not be entered, a name too long
        return False


def is_folder(path: Path) -> bool:
    return exists(path) and path.is_dir()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a place to write to. If the block succeeds, what is there replaces `path`; if not, nothing is left behind.

    The place is a file of the same name in a folder of its own, so that writers of one path do not meet."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
            temporary, ordinary = Path(folder) / path.name, Path(folder) / ".ordinary"
            ordinary.touch()
            yield temporary
            temporary.chmod(ordinary.stat().st_mode)  # some libraries write files that nobody else may read
            temporary.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}): choose another place") from error


def check_folder(folder: Path, names: tuple[str, ...] = ()) -> None:
    """BadInput unless files of these names can be written in the folder, or it can be made. Nothing is made yet."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if exists(place))
    try:
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
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


def read_rows(path: Path, form: str) -> list[dict[str, str]]:
    """The rows of a CSV file, {column: cell}, without the spaces around either; cells missing at the end are empty.

    `form` says what the file should hold, for the message if it does not."""
    return list(iterate_rows(path, form))


def iterate_rows(path: Path, form: str) -> Iterator[dict[str, str]]:
    """The rows of a CSV file one by one, as `read_rows` gives them, for files too long to be held."""
    lines = read_lines(path, form)
    columns = [name.strip() for name in next(lines, [])]
    check_separator(columns, path)
    return (as_row(columns, cells, path) for cells in lines)


def as_row(columns: list[str], cells: list[str], path: Path) -> dict[str, str]:
    """{column: cell} of one line of a CSV file; BadInput if it has more cells than there are columns."""
    row = dict.fromkeys(columns, "")
    row.update(zip(columns, map(str.strip, cells), strict=False))
    if any(cells[len(columns) :]):
        raise BadInput(f'{path} has more cells than columns in the line "{cells[0]}, ...": quote what holds a comma')
    return row


def read_table(path: Path, form: str) -> tuple[list[str], list[list[str]]]:
    """The header of a CSV file, and the cells of each line below it, all as they are; `form` as in `read_rows`."""
    lines = read_lines(path, form)
    header = next(lines, [])
    check_separator(header, path)
    return header, list(lines)


def read_lines(path: Path, form: str) -> Iterator[list[str]]:
    """The cells of each line of a CSV file that is not empty, one line at a time; `form` as in `read_rows`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from filter(None, csv.reader(file))
    except FileNotFoundError as error:
        raise BadInput(f"there is no {path}: write one with {form}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"cannot read {path}: it should be a text file with {form}") from error


def check_separator(header: list[str], path: Path) -> None:
    """BadInput if cells are separated by something else than commas."""
    for mark, name in OTHER_SEPARATORS.items():
        if len(header) == 1 and mark in header[0]:
            raise BadInput(f"the columns of {path} are separated by {name}: separate them by commas")


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write a CSV file with one line per row; where a row lacks a column, its cell is empty."""
    columns = columns_of(rows)
    write_table(columns, ([row.get(column) for column in columns] for row in rows), path)


def write_table(header: Sequence[str], lines: Iterable[Iterable[object]], path: Path) -> None:
    """Write a CSV file of a header and the cells of each line below it."""
    with atomic_write(path) as temporary:
        temporary.write_text(csv_text([header, *lines]), encoding="utf-8", newline="")


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    """Lines of cells as the text of a CSV file; None is an empty cell."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def columns_of(rows: Iterable[Row]) -> list[str]:
    """The columns that any row has, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in row))


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: it should be a JSON file") from error


def write_json(value: Any, path: Path) -> None:
    """Write strict JSON, in which NaN and ±∞ are null."""
    text = json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as temporary:
        # A file name may hold bytes that are no text: Python's escape for them, \udc80, is JSON's too.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def json_ready(value: Any) -> Any:
    """The value in what strict JSON can say: NumPy's numbers and arrays become Python's, NaN and ±∞ become None."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
