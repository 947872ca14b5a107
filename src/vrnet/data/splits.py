"""Who is trained on and who is measured: split.csv, one row per subject."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vrnet.errors import BadInput, shown
from vrnet.files import read_rows

FORMAT = 'two columns, the lines "subject,split", "patient001,train", "patient002,test" and so on'
Splits = Mapping[str, list[str]]
"""{split: its subjects, in the order of the file}."""


@dataclass(frozen=True)
class SubjectFolder:
    """What data sets in a folder share: the folder, and the file that lists the subjects of each split."""

    root: Path
    split_file: Path | None = None
    """split.csv in the folder if None."""

    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        """The subjects of a split, in the order of the file."""
        return choose_split(self.splits, split, self.split_file or self.root / "split.csv")

    @cached_property
    def splits(self) -> Splits:
        """All splits of the file; BadInput unless it lists every subject once, with its split."""
        path = self.split_file or self.root / "split.csv"
        rows = read_rows(path, FORMAT)
        column = next((name for name in ("subject", "patient") if rows and name in rows[0]), None)
        if column is None or "split" not in rows[0]:
            raise BadInput(f"{path} does not say who is in which split: give it {FORMAT}")
        return group_by_split([(row[column], row["split"]) for row in rows], path)


def group_by_split(members: Sequence[tuple[str, str]], path: Path) -> Splits:
    """Collect (subject, split) by split; a name that comes twice might be both trained on and measured."""
    name, count = Counter(subject for subject, _ in members).most_common(1)[0]
    if count > 1:
        raise BadInput(f'{path} lists "{shown(name)}" {count} times: list each once')
    splits: dict[str, list[str]] = {}
    for subject, split in members:
        splits.setdefault(split, []).append(subject)
    if "" in splits:
        raise BadInput(f"{path} does not say in which split {shown(splits[''][0])} is: fill the column in")
    return splits


def choose_split(splits: Splits, split: str, path: Path) -> list[str]:
    """The subjects of a split; BadInput, which names the splits there are, if there is no such split."""
    if split not in splits:
        known = shown(", ".join(sorted(splits))) or "none"
        raise BadInput(f'nothing is in the split "{split}" of {path}: choose one of those there ({known})')
    return splits[split]
