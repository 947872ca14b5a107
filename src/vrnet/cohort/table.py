"""The list of a cohort: a CSV file with one row per subject, and paths relative to it.

A list of pairs has the columns subject, fixed and moving, with labels and masks where wanted; a list of cines has
subject and cine, with labels and frame where wanted. Any further columns go with the subject."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from vrnet.errors import BadInput, counted, shown, some
from vrnet.files import read_rows, refuse_misspelt

FORMAT = 'one row per subject, "subject,fixed,moving", "p01,p01_ED.nii.gz,p01_ES.nii.gz" and so on'


@dataclass(frozen=True)
class ListKind:
    needed: tuple[str, ...]  # the files without which there is nothing to do
    optional: tuple[str, ...]  # files that may be given, too
    noun: str
    numbers: tuple[str, ...] = ()  # columns of whole numbers, from 0 on

    @property
    def files(self) -> tuple[str, ...]:
        return *self.needed, *self.optional

    @property
    def columns(self) -> tuple[str, ...]:
        return "subject", *self.files, *self.numbers


PAIRS = ListKind(("fixed", "moving"), ("fixed_labels", "moving_labels", "fixed_mask", "moving_mask"), "pairs")
CINES = ListKind(("cine",), ("labels",), "cines", ("frame",))


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    files: dict[str, str]  # {column: absolute path} of the files that the row names
    carried: tuple[str, ...] = ()  # the cells of the further columns
    values: dict[str, str] = field(default_factory=dict)
    """{column: value} of what the result depends on beside files, such as the frame that labels belong to."""

    def path(self, column: str) -> Path | None:
        return Path(self.files[column]) if column in self.files else None

    @property
    def has_labels(self) -> bool:
        return any(column.endswith("labels") for column in self.files)


@dataclass(frozen=True)
class CohortTable:
    """The subjects of a list, in its order."""

    path: Path
    carried: tuple[str, ...]  # the names of the further columns
    subjects: tuple[Subject, ...]
    kind: ListKind = PAIRS


def read_table(path: Path) -> CohortTable:
    """The subjects of a CSV file; BadInput names the rows that cannot be used. No image is looked at."""
    rows = read_rows(path, FORMAT)
    if not rows:
        raise BadInput(f"{path} lists no subjects: give it {FORMAT}")
    columns = [*rows[0]]
    kind, other = (CINES, PAIRS) if "cine" in columns else (PAIRS, CINES)
    if lacking := [name for name in ("subject", *kind.needed) if name not in columns]:
        wanted = f"subject, {', '.join(kind.needed)} and, where wanted, {', '.join((*kind.optional, *kind.numbers))}"
        said = f"{path} lacks the column {' and '.join(lacking)}: it has {shown(', '.join(columns))}"
        raise BadInput(f"{said}, and should have {wanted}")
    if misplaced := [name for name in columns if name in other.columns and name not in kind.columns]:
        raise BadInput(f"{path} lists {kind.noun}, and has the column {' and '.join(misplaced)} of a list of "
                       f"{other.noun}: make a list of each, or call that column otherwise")  # fmt: skip
    refuse_misspelt(columns, kind.columns, path)
    carried = tuple(name for name in columns if name and name not in kind.columns)
    folder = os.path.dirname(os.path.abspath(path))
    subjects = []
    for row in rows:
        files = {name: os.path.normpath(os.path.join(folder, row[name])) for name in kind.files if row.get(name)}
        numbers = {name: row[name] for name in kind.numbers if row.get(name)}
        numbers = {name: str(int(cell)) if is_number(cell) else cell for name, cell in numbers.items()}
        subjects.append(Subject(row["subject"], files, tuple([row[name] for name in carried]), numbers))
    table = CohortTable(path, carried, tuple(subjects), kind)
    check_subjects(table)
    return table


def check_subjects(table: CohortTable) -> None:
    """BadInput if a row has no name, a name that cannot be a folder's or another's too, or lacks an image.

    Two names are the same if some file system takes them for that: one that knows no capitals, and one code per letter,
    though é can be written as two."""
    needed = table.kind.needed
    images = " or a ".join(f"{name} image" if table.kind is PAIRS else name for name in needed)
    on_disk = {one.name: normalize("NFC", one.name).casefold() for one in table.subjects}
    seen = Counter(on_disk[one.name] for one in table.subjects)
    refuse(table, lambda one: not one.name, "without a subject", "give each a name of its own")
    fault = "whose subject cannot be the name of a folder"
    refuse(table, lambda one: not is_folder_name(one.name), fault, "use letters, digits, - and _")
    fault = f"without a {images}"
    refuse(table, lambda one: not {*needed} <= {*one.files}, fault, "name it, or leave the row out")
    fault = "whose frame is no number"
    refuse(table, lambda one: not all(map(is_number, one.values.values())), fault, "count frames from 0")
    advice = "give each a name of its own, and not only by capitals"
    refuse(table, lambda one: seen[on_disk[one.name]] > 1, "with the subject of another", advice)


def refuse(table: CohortTable, is_wrong: Callable[[Subject], bool], fault: str, advice: str) -> None:
    """BadInput that names the rows, counted below the header, of the subjects that are wrong."""
    wrong = [f'{row} "{shown(one.name)}"' for row, one in enumerate(table.subjects, start=1) if is_wrong(one)]
    if wrong:
        raise BadInput(f"{table.path} has {counted(len(wrong), 'row')} {fault} (row {some(wrong)}): {advice}")


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6


def is_folder_name(name: str) -> bool:
    """Whether a subject's name is that of a folder on any file system, and of no hidden one; ~ marks temporary ones."""
    is_short = len(name.encode(errors="replace")) <= 200
    return name.isprintable() and is_short and re.fullmatch(r'(?![.-])[^/\\:*?"<>|~]*(?<!\.)', name) is not None


def find_missing(subjects: Iterable[Subject]) -> dict[str, str]:
    missing = {}
    for one in subjects:
        if file := next((file for file in one.files.values() if not os.path.exists(file)), None):
            missing[one.name] = ("..." if len(file) > 80 else "") + shown(file[-80:])  # of a long path, the end
    return missing


def check_files(path: Path, subjects: Sequence[Subject], missing: Mapping[str, str], skip_broken: bool) -> None:
    """BadInput if files of a list are missing; if such subjects are to be skipped, only if all are."""
    if not missing:
        return
    lines = some([f"{name}: {file}" for name, file in missing.items()])
    fault = f"{path} names files that are not there, for {counted(len(missing), 'subject')} ({lines})"
    if not skip_broken:
        raise BadInput(f"{fault}: correct the list, or give `skip_broken`, which makes failures of them")
    if len(missing) == len(subjects) >= 3:  # of fewer, each may be broken by itself
        raise BadInput(f"{fault}, which are all: is the file system of the images mounted here?")
