"""Files: checked before the work, written whole or not at all; rows of CSV files; JSON."""

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np

from vrnet.errors import BadInput


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
    """A file of the same name in a folder of its own; it takes path's place if the writing succeeds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
            temporary, plain = Path(folder) / path.name, Path(folder) / ".plain"
            plain.touch()
            yield temporary
            temporary.chmod(plain.stat().st_mode)  # some libraries write files that nobody else may read
            temporary.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}): choose another place") from error


def check_folder(folder: Path, names: tuple[str, ...] = ()) -> None:
    """BadInput unless the folder, or the nearest one above it that is there, can be written in, and these files too."""
    there = next(place for place in (folder, *folder.absolute().parents) if exists(place))
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
    for name in names:
        if is_folder(folder / name):
            raise BadInput(f"{folder / name} is a folder, and would have to be a file: choose another folder")


def check_file(path: Path, kinds: tuple[str, ...]) -> None:
    """BadInput unless a file of one of these kinds can be written there."""
    if is_folder(path):
        raise BadInput(f"{path} is a folder: name a file")
    if not path.name.endswith(kinds):
        raise BadInput(f"{path.name} has no ending that can be written: choose one of {', '.join(kinds)}")
    check_folder(path.parent)


Row = dict[str, Any]
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}


def read_rows(path: Path, form: str) -> list[dict[str, str]]:
    """The rows of a CSV file, {column: value}; `form` is how it should look, for the message if there is none."""
    return list(iterate_rows(path, form))


def iterate_rows(path: Path, form: str) -> Iterator[dict[str, str]]:
    """The rows of a CSV file one by one, as `read_rows` gives them, for files too long to be held."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            columns = [name.strip() for name in next(reader, [])]
            check_separator(columns, path)
            for cells in reader:
                if cells:  # a blank line is no row; cells that are missing are empty
                    yield dict(zip(columns, chain(map(str.strip, cells), repeat("")), strict=False))
    except FileNotFoundError as error:
        raise BadInput(f"there is no {path}: write one with {form}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"cannot read {path}: it should be a text file with {form}") from error


def check_separator(columns: Sequence[str], path: Path) -> None:
    """BadInput if another mark than a comma stands between columns."""
    for mark, called in OTHER_SEPARATORS.items():
        if any(mark in column for column in columns):
            raise BadInput(f"the columns of {path} are separated by {called}: separate them by commas")


def write_rows(found: list[Row], path: Path) -> None:
    """metrics.csv: a row a subject."""
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns_of(found))
        writer.writeheader()
        writer.writerows(found)


def columns_of(found: list[Row]) -> list[str]:
    """Those that any subject has: some may have labels, and others none."""
    return list(dict.fromkeys(key for row in found for key in row))


def write_json(metrics: dict[str, Any], path: Path) -> None:
    """Strict JSON: a measure that has no value is null."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(json_ready(metrics), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def json_ready(value: Any) -> Any:
    """The same in what strict JSON can say: NumPy's numbers and arrays are Python's, and NaN and ±∞ are None."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
