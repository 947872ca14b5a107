"""The list of a cohort: a CSV file with one row per subject, and paths relative to it.

Columns subject, fixed and moving; labels and masks where wanted; any further columns go with the subject."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vrnet.errors import BadInput
from vrnet.files import iterate_rows
from vrnet.schema import shown

FORMAT = 'one row per subject, "subject,fixed,moving", "p01,p01_ED.nii.gz,p01_ES.nii.gz" and so on'
REQUIRED = ("subject", "fixed", "moving")
FILES = ("fixed", "moving", "fixed_labels", "moving_labels", "fixed_mask", "moving_mask")
MIN_SIMILARITY = 0.8
"""From 0 to 1: a column whose name is so similar to a known one is taken for a misspelling."""
MAX_NAME_BYTES = 200
"""Of a subject's name, which becomes that of a folder, a lock and two files."""
NOT_IN_NAMES = frozenset('/\\:*?"<>|~')
"""What some file system does not take in a name, and what marks temporary folders."""
MAX_ROWS_NAMED = 5
"""In a message; of more, their number."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One row: its name, its files, and what else the list says of it."""

    name: str
    files: dict[str, str]
    """{column: path} of the files that the row names; absolute."""
    carried: tuple[str, ...] = ()
    """The cells of the further columns."""

    def path(self, column: str) -> Path | None:
        """The file in a column, if there is one."""
        return Path(self.files[column]) if column in self.files else None


@dataclass(frozen=True)
class CohortTable:
    """The subjects of a list, in its order."""

    path: Path
    carried: tuple[str, ...]
    """The names of the further columns."""
    subjects: tuple[Subject, ...]

    def missing(self) -> list[tuple[Subject, str]]:
        """The subjects that name a file that is not there, each with the first such file."""
        found = ((one, next((f for f in one.files.values() if not os.path.exists(f)), None)) for one in self.subjects)
        return [(one, file) for one, file in found if file is not None]

    def check_files(self) -> None:
        """BadInput if a file is not there."""
        lines = [f"{one.name}: {shown(file)}" for one, file in self.missing()]
        if lines:
            raise BadInput(
                f"{self.path} names files that are not there, for {count(lines)} ({some(lines)}): correct the list, or "
                "give `skip_broken`, which makes failures of them"
            )


def read_table(path: Path) -> CohortTable:
    """The subjects of a CSV file; BadInput names the rows that cannot be used. No image is looked at."""
    rows = iterate_rows(path, FORMAT)
    first = next(rows, None)
    if first is None:
        raise BadInput(f"{path} lists no subjects: give it {FORMAT}")
    check_columns(tuple(first), path)
    carried = tuple(name for name in first if name and name not in (*REQUIRED, *FILES))
    folder = os.path.dirname(os.path.abspath(path))
    subjects = [as_subject(first, folder, carried), *(as_subject(row, folder, carried) for row in rows)]
    check_subjects(subjects, path)
    return CohortTable(path, carried, tuple(subjects))


def as_subject(row: dict[str, str], folder: str, carried: Sequence[str]) -> Subject:
    files = {column: os.path.normpath(os.path.join(folder, row[column])) for column in FILES if row.get(column)}
    return Subject(row["subject"], files, tuple(row[name] for name in carried))


def check_columns(found: Sequence[str], path: Path) -> None:
    """BadInput if a needed column is not there, or the name of one is nearly that of another."""
    if "cine" in found:
        raise BadInput(f"{path} has a column cine: cines are tracked one by one, by vrnet track; give fixed and moving")
    if lacking := [name for name in REQUIRED if name not in found]:
        raise BadInput(
            f"{path} lacks the column {' and '.join(lacking)}: it has {shown(', '.join(found))}, and should have "
            f"{', '.join(REQUIRED)} and, where wanted, {', '.join(FILES[2:])}"
        )
    for name in found:
        close = get_close_matches(name.casefold(), set(FILES) - set(found), n=1, cutoff=MIN_SIMILARITY)
        if close and name not in FILES:
            raise BadInput(f'{path} has a column "{shown(name)}": did you mean "{close[0]}"?')


def check_subjects(subjects: Sequence[Subject], path: Path) -> None:
    """BadInput if a row has no name, a name that cannot be a folder's or another's too, or lacks an image."""
    refuse(subjects, lambda one: not one.name, path, "without a subject", "give each a name of its own")
    refuse(
        subjects,
        lambda one: not is_folder_name(one.name),
        path,
        "whose subject cannot be the name of a folder",
        "use letters, digits, - and _",
    )
    refuse(
        subjects,
        lambda one: "fixed" not in one.files or "moving" not in one.files,
        path,
        "without a fixed or a moving image",
        "name both, or leave the row out",
    )
    seen: dict[str, int] = {}
    for one in subjects:
        key = one.name.casefold()
        seen[key] = seen.get(key, 0) + 1
    refuse(
        subjects,
        lambda one: seen[one.name.casefold()] > 1,
        path,
        "with the subject of another",
        "give each a name of its own, and not only by capitals",
    )


def refuse(
    subjects: Sequence[Subject], is_wrong: Callable[[Subject], bool], path: Path, fault: str, advice: str
) -> None:
    """BadInput that names the rows, counted below the header, of the subjects that are wrong."""
    wrong = [f'{row} "{shown(one.name)}"' for row, one in enumerate(subjects, start=1) if is_wrong(one)]
    if wrong:
        raise BadInput(f"{path} has {count(wrong, 'row')} {fault} (row {some(wrong)}): {advice}")


def is_folder_name(name: str) -> bool:
    """Whether a subject's name is that of a folder on any file system, and of no hidden one."""
    if not name.isprintable() or len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        return False
    return not (name.startswith((".", "-")) or name.endswith(".") or NOT_IN_NAMES & set(name))


def count(items: Sequence[object], noun: str = "subject") -> str:
    """3 rows."""
    return f"{len(items):,} {noun}{'' if len(items) == 1 else 's'}"


def some(lines: Sequence[str]) -> str:
    """The first lines, and how many more there are."""
    more = f" and {len(lines) - MAX_ROWS_NAMED:,} more" if len(lines) > MAX_ROWS_NAMED else ""
    return "; ".join(lines[:MAX_ROWS_NAMED]) + more


def shard(subjects: Iterable[Subject], index: int, shards: int) -> list[Subject]:
    """Every `shards`-th subject, from the `index`-th on, counted from 1: together the shards are all, none twice."""
    return list(subjects)[index - 1 :: shards]
