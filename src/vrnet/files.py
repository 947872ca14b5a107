"""Files: checked before the work, written whole or not at all; CSV, JSON and tensors."""

import csv
import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from io import StringIO
from itertools import zip_longest
from math import isfinite
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vrnet.errors import BadInput, most_like, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")


def unreadable(path: Path, reason: str) -> BadInput:
    return BadInput(f"cannot read {path}: {reason}")


exists, is_folder = os.path.exists, os.path.isdir
"""Unlike those of Path, False where nothing may be seen: in a folder that may not be entered, of a name too long."""


def check_ordinary(path: Path) -> None:
    """BadInput for a folder, and for a pipe or a device, which could block for ever. What is not there passes."""
    if exists(path) and not path.is_file():
        raise BadInput(f"{path} is no ordinary file (but a pipe, a device or a folder): give a file")


def sha256(path: Path) -> str:
    check_ordinary(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_no_twin(path: Path) -> None:
    """BadInput if x.nii lies where x.nii.gz is to be, or the other way round: ITK would read the former for both."""
    twin = path.with_name(f"{path.name}.gz" if path.name.endswith(".nii") else path.name.removesuffix(".gz"))
    if path.name.endswith((".nii", ".nii.gz")) and exists(twin):
        raise BadInput(f"{twin} is there, and ITK takes it for {path.name}: remove it, or choose another name")


def check_not_input(outputs: Iterable[Path], inputs: Iterable[Path | None]) -> None:
    """BadInput if a file to be written is one that is read, also by another name: links are followed."""
    read = [path for path in inputs if path is not None and exists(path)]
    for output in filter(exists, outputs):
        if any(output.samefile(path) for path in read):
            raise BadInput(f"{output} is an input, and would be lost: choose another place for the result")


def check_folder(folder: Path, names: tuple[str, ...] = ()) -> None:
    """BadInput unless files of these names can be written in the folder, or it can be made. Nothing is made yet."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if exists(place))
    try:
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
    remove_leftovers(folder)
    for path in (folder / name for name in names):
        if is_folder(path) or (path.parent != folder and exists(path.parent) and not path.parent.is_dir()):
            raise BadInput(f"{path} is a folder, or in a file, and would have to be a file: choose another folder")


def check_file(path: Path, suffixes: tuple[str, ...]) -> None:
    """BadInput unless a file with one of these suffixes can be written there."""
    if is_folder(path):
        raise BadInput(f"{path} is a folder: name a file")
    if not path.name.endswith(suffixes):
        raise BadInput(f"{path.name} has no ending that can be written: choose one of {', '.join(suffixes)}")
    check_folder(path.parent)
    check_no_twin(path)


PARTIAL = ".partial-"  # how the names of temporary folders begin


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a file of the same name in a folder of its own. If the block succeeds, it replaces `path`; if not, nothing
    is left behind. Writers that say nothing of a full disk must look at what they wrote before."""
    with partial_folder(path.parent, path) as folder:
        temporary, ordinary = folder / path.name, folder / ".ordinary"
        yield temporary
        ordinary.touch()
        temporary.chmod(ordinary.stat().st_mode)  # some libraries write files that nobody else may read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # some file systems say only then that there was no room for it
        temporary.replace(path)


@contextmanager
def partial_folder(folder: Path, path: Path) -> Iterator[Path]:
    """A temporary folder in another, which is made; BadInput, which names a path, where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=PARTIAL, dir=folder) as temporary:
            yield Path(temporary)
    except OSError as error:
        if names_other_file(error, folder):
            raise
        raise BadInput(f"cannot write {path} ({error.strerror}): choose another place") from error


def names_other_file(error: Exception, place: Path) -> bool:
    """Whether an error names a file neither in this place nor above it, such as one that was read meanwhile."""
    name = getattr(error, "filename", None)
    return isinstance(name, str) and not (Path(name).is_relative_to(place) or place.is_relative_to(name))


def remove_leftovers(folder: Path, names: str = f"{PARTIAL}*") -> None:
    """Remove the temporary folders that killed processes left in a folder: those unchanged for a day."""
    for place in folder.glob(names):
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > 24 * 3600:
                shutil.rmtree(place)


def write_bytes(content: bytes, path: Path) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
        check_written(temporary.stat().st_size == len(content), path)


def check_written(is_whole: bool, path: Path) -> None:
    if not is_whole:
        raise BadInput(f"cannot write {path}: only a part of it arrived; is the disk full?")


# The files of a result: each is moved to its place when all are written.
#
# A record in the folder says which files a run wrote, and their SHA-256. Only those are replaced or removed. Files that
# others put there, or changed since, stay; a run that needs their names is refused before the work. A name may lead
# into folders below, such as `transforms/frame_00.nii.gz`: these are made, and removed when empty.

RECORD = ".vrnet.json"


def check_set(folder: Path, names: Iterable[str]) -> None:
    """BadInput unless these files can be written in the folder without loss of a file that is not of an earlier run."""
    names = tuple(names)
    check_folder(folder, names)
    owned = own_files(folder)
    for name in names:
        check_no_twin(folder / name)
        if name not in owned and os.path.lexists(folder / name):
            raise BadInput(f"{folder / name} is not as an earlier run of this command wrote it, and would be lost: "
                           "move it away, or choose another folder")  # fmt: skip


@contextmanager
def replace_set(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a folder to write files in. If the block succeeds, they replace those of the earlier run, of which those of
    these names that are not written again are removed; else these stay."""
    check_folder(folder)
    with partial_folder(folder, folder) as staged:
        try:
            yield staged
        except BadInput as error:  # in the words of the reader, who knows nothing of the temporary folder
            raise BadInput(str(error).replace(str(staged), str(folder))) from error
        written = {path.relative_to(staged).as_posix(): path for path in staged.rglob("*") if path.is_file()}
        check_set(folder, sorted(written))
        owned = own_files(folder)
        kept = {name: digest for name, digest in owned.items() if name not in names}
        recorded = kept | {name: sha256(path) for name, path in sorted(written.items())}
        # Both the old files and the new ones, so that a run that is killed meanwhile can be repeated.
        write_json({"files": recorded, "before": owned}, folder / RECORD)
        for name, path in written.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(folder / name)
        for name in owned.keys() - recorded.keys():
            (folder / name).unlink()
            for parent in PurePosixPath(name).parents[:-1]:
                with suppress(OSError):  # which is raised where something is in it
                    (folder / parent).rmdir()
        write_json({"files": recorded}, folder / RECORD)


def own_files(folder: Path) -> dict[str, str]:
    """{name: SHA-256} of the files that the record has, and that are still as they were written."""
    try:
        record = read_json(folder / RECORD)
        recorded = [*record.get("before", {}).items(), *record["files"].items()]
        own = {}
        for name, digest in recorded:
            path = folder / name
            is_within = path.parent.resolve().is_relative_to(folder.resolve())
            if is_within and path.is_file() and not path.is_symlink() and sha256(path) == digest:
                own[name] = digest
    except (BadInput, OSError, LookupError, TypeError, ValueError, AttributeError):  # none, or damaged: nothing is ours
        return {}
    return own


Row = dict[str, Any]  # one row of a table: {column: value}


def read_rows(path: Path, form: str) -> list[dict[str, str]]:
    """The rows of a CSV file, {column: cell}, without the spaces around either; `form` says what it should hold."""
    lines = read_lines(path, form)
    columns, rows = [name.strip() for name in next(lines, [])], []
    if twice := next((name for name in columns if name and columns.count(name) > 1), None):
        raise BadInput(f'{path} has two columns "{shown(twice)}": give each a name of its own')
    for cells in lines:
        if any(cells[len(columns) :]):
            raise BadInput(f'{path} has more cells than columns in "{shown(cells[0])}, ...": quote what holds a comma')
        rows.append(dict(zip_longest(columns, map(str.strip, cells[: len(columns)]), fillvalue="")))
    return rows


def read_lines(path: Path, form: str) -> Iterator[list[str]]:
    """The cells of each line of a CSV file that is not empty, one line at a time; `form` as in `read_rows`."""
    check_ordinary(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for count, cells in enumerate(filter(None, csv.reader(file))):
                if any("\0" in cell for cell in cells):
                    raise ValueError("no text")
                for mark, name in ((";", "semicolons"), ("\t", "tabs")):
                    if count == 0 and len(cells) == 1 and mark in cells[0]:
                        raise BadInput(f"the columns of {path} are separated by {name}: separate them by commas")
                yield cells
    except BadInput:
        raise
    except FileNotFoundError as error:
        raise BadInput(f"there is no {path}: write one with {form}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"cannot read {path}: it should be a text file in UTF-8 with {form}") from error


def refuse_misspelt(columns: Collection[str], known: Collection[str], path: Path) -> None:
    """BadInput for a column of a file that is nearly one of the known ones; any other may be the owner's own."""
    for name in columns:
        meant = most_like(name, {*known} - {*columns}, min_similarity=0.8)
        if meant and name not in known:
            raise BadInput(f'{path} has a column "{shown(name)}": did you mean {meant}?')


def write_rows(rows: Sequence[Row], path: Path, comments: Iterable[str] = ()) -> None:
    """Write a CSV file with one line per row; where a row lacks a column, its cell is empty. Comments come first."""
    columns = columns_of(rows)
    write_table(columns, ([row.get(column) for column in columns] for row in rows), path, comments)


def write_table(
    header: Sequence[str], lines: Iterable[Iterable[object]], path: Path, comments: Iterable[str] = ()
) -> None:
    """Write a CSV file: comments, on lines that begin with #; a header; and the cells of each line below it."""
    text = "".join(f"# {comment}\n" for comment in comments) + csv_text([header, *lines])
    write_bytes(text.encode(errors="backslashreplace"), path)  # a name may hold bytes that are no text


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    """Lines of cells as the text of a CSV file; None, NaN and ±∞ are empty cells."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(finite_or_none, line) for line in lines)
    return text.getvalue()


def columns_of(rows: Iterable[Row]) -> list[str]:
    """The columns that any row has, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in row))


def read_json(path: Path) -> Any:
    check_ordinary(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last of lists within lists without end
        raise BadInput(f"cannot read {path}: it should be a JSON file") from error


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
    return [json_ready(item) for item in value] if isinstance(value, (list, tuple)) else finite_or_none(value)


def finite_or_none(value: Any) -> Any:
    """The value itself; None for NaN and ±∞, which are no results."""
    return None if isinstance(value, (float, np.floating)) and not isfinite(value) else value


def read_record(values: Any, schema: type[T], path: Path, advice: str) -> T:
    """What a file holds, as this dataclass; BadInput names the file and the wrong key, and ends in the advice."""
    import msgspec

    try:
        check_plain(values)
        known = {field.name for field in fields(schema)}  # type: ignore[arg-type]
        if isinstance(values, dict) and (unknown := [key for key in values if key not in known]):
            raise ValueError(f"the key {unknown[0]!r} is not known")
        return msgspec.convert(values, schema)
    except ValueError as error:
        raise BadInput(f"{path} is not as vrnet writes it, {shown(str(error))}: {advice}") from error


def check_plain(value: Any) -> None:
    """ValueError for a number that is not finite, or a text that a line of a message cannot hold, anywhere within."""
    if isinstance(value, (dict, list, tuple)):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            check_plain(item)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"it holds {value}, which is no finite number")
    if isinstance(value, str) and (not value.isprintable() or len(value) > 1_000):
        raise ValueError(f"it holds {value[:40]!a}, which is no line of text")


# Tensors: safetensors, in which nothing is executed. What a file says of itself is known before its numbers are read.

CHECKSUM = "sha256"  # the key of the header that has the checksum of all that a file holds
Layout = tuple[tuple[int, ...], "torch.dtype"]  # shape and type of a tensor


def write_tensors(tensors: "Mapping[str, Tensor]", path: Path, metadata: dict[str, str]) -> None:
    """Write tensors, whole or not at all, and only finite numbers."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    if not are_finite(tensors):
        raise BadInput(f"some of its numbers are NaN or infinite: {path} is not written")
    with atomic_write(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata | {CHECKSUM: checksum(tensors, metadata)})
            with safe_open(temporary, "pt") as file:  # which compares the size with the header
                check_written(file.keys() == sorted(tensors), path)
        except SafetensorError as error:
            raise BadInput(f"cannot write {path}: is the disk full?") from error


def checksum(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> str:
    """SHA-256 of what a file says of itself, of the name, type and shape of each tensor, and of all numbers."""
    import torch

    layouts = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([dict(metadata), layouts], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def are_finite(tensors: "Mapping[str, Tensor]") -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


@contextmanager
def open_tensors(path: Path, advice: str) -> Iterator["TensorFile"]:
    """A file of tensors to read from; BadInput, which ends in the advice, if it is none."""
    from safetensors import SafetensorError, safe_open

    check_ordinary(path)
    try:
        with safe_open(path, "pt") as file:
            yield TensorFile(path, file, dict(file.metadata() or {}), advice)
    except (SafetensorError, OSError) as error:
        if names_other_file(error, path):
            raise
        raise BadInput(f"{path} is damaged, or no file of tensors: {advice}") from error


@dataclass(frozen=True)
class TensorFile:
    """A file of tensors that is open; `advice` is what to do if it cannot be used."""

    path: Path
    file: Any
    metadata: Mapping[str, str]
    advice: str

    def record(self, key: str, schema: type[T]) -> T:
        """What the header says under a key, in JSON, as a dataclass."""
        try:
            values = json.loads(self.metadata[key])
        except (LookupError, ValueError, RecursionError) as error:
            raise self.refusal(f'was not written by vrnet for this: it has no JSON under "{key}"') from error
        return read_record(values, schema, self.path, self.advice)

    def layouts(self) -> dict[str, Layout]:
        """Shape and type of every tensor. None is read to know them: what safetensors gives is the file itself."""
        tensors = {name: self.file.get_tensor(name) for name in self.file.keys()}  # noqa: SIM118
        return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}

    def read(self) -> "dict[str, Tensor]":
        """All tensors, as copies; BadInput unless a checksum is that of the content, and all numbers are finite."""
        tensors = {name: self.file.get_tensor(name).clone() for name in self.file.keys()}  # noqa: SIM118
        said = {key: text for key, text in self.metadata.items() if key != CHECKSUM}
        if self.metadata.get(CHECKSUM, "") not in ("", checksum(tensors, said)):
            raise self.refusal("is damaged, its content is not that of its checksum")
        if not are_finite(tensors):
            raise self.refusal("holds numbers that are NaN or infinite")
        return tensors

    def refusal(self, reason: str) -> BadInput:
        return BadInput(f"{self.path} {reason}: {self.advice}")
