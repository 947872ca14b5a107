"""Who is trained on and who is measured: a file with a line a subject."""

from collections import Counter
from pathlib import Path

from vrnet.errors import BadInput
from vrnet.files import read_rows

FORMAT = 'two columns, the lines "subject,split", "patient001,train", "patient002,test" and so on'
SUBJECT = "subject", "patient"


def listed(path: Path, split: str) -> list[str]:
    """The subjects of a split, in the order of the file."""
    return members(read_splits(path), split, path)


def members(splits: dict[str, str], split: str, path: Path) -> list[str]:
    """Those of a split, out of {subject: split}; BadInput, which names the splits there are, if there are none."""
    if lost := [subject for subject, own in splits.items() if not own]:
        raise BadInput(f"{path} does not say in which split {lost[0]} is: fill the column in")
    found = [subject for subject, own in splits.items() if own == split]
    if not found:
        known = ", ".join(sorted(set(splits.values()))) or "none"
        raise BadInput(f'nothing is in the split "{split}" of {path}: choose one of those there ({known})')
    return found


def read_splits(path: Path) -> dict[str, str]:
    """{subject: split}, in the order of the file."""
    rows = read_rows(path, FORMAT)
    column = next((name for name in SUBJECT if rows and name in rows[0]), None)
    if column is None or "split" not in rows[0]:
        raise BadInput(f"{path} does not say who is in which split: give it {FORMAT}")
    check_unique([row[column] for row in rows], path)
    return {row[column]: row["split"] for row in rows}


def check_unique(names: list[str], path: Path) -> None:
    """BadInput if a name comes twice: it would be counted twice, or be trained on and measured."""
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise BadInput(f'{path} lists "{name}" {count} times: list each once')
