"""Where pairs come from: a data set by its name, or one prepared in a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vrnet.data.dataset import Dataset, dataset
from vrnet.data.prepared import PreparedSplit, load_pack, prepared, save_pack
from vrnet.data.sample import Purpose
from vrnet.errors import BadInput
from vrnet.files import check_file
from vrnet.progress import Stage

PACK = ".npz"
Use = tuple[str, Purpose]
"""A split, and what it is prepared for."""
USES: tuple[Use, ...] = (("train", "training"), ("val", "evaluation"), ("test", "evaluation"))


@dataclass(frozen=True)
class Source:
    """Where pairs come from: a data set by its name, or one prepared in a file."""

    data: str
    root: Path | None = None
    split_file: Path | None = None
    cache: Path | None = None
    skip_broken: bool = False

    def split(self, split: str, purpose: Purpose, stage: Stage, say: Callable[[str], None]) -> PreparedSplit:
        """The pairs of a split, prepared if they are not yet."""
        if self.data.endswith(PACK):
            return self._packed(split, purpose)
        found, tick = self.found, stage(f"preparing {self.data}, {split}")
        return prepared(found, split, purpose, self.cache, skip_broken=self.skip_broken, progress=tick, say=say)

    @cached_property
    def found(self) -> Dataset:
        return dataset(self.data, self.root, self.split_file)

    def has(self, split: str) -> bool:
        """Whether anyone is in a split of the data set."""
        try:
            return bool(self.found.subjects(split))
        except BadInput:
            return False

    def _packed(self, split: str, purpose: Purpose) -> PreparedSplit:
        if self.root or self.split_file:
            raise BadInput(f"{self.data} holds a data set already prepared: leave out --root and --split-file")
        parts = load_pack(Path(self.data))
        if (split, purpose) not in parts:
            known = ", ".join(f"{name} (for {use})" for name, use in parts)
            raise BadInput(f"{self.data} holds no split {split} for {purpose}: it holds {known}")
        return parts[split, purpose]


def splits(
    source: Source, uses: Sequence[Use], stage: Stage, say: Callable[[str], None]
) -> dict[tuple[str, str], PreparedSplit]:
    """Several splits; BadInput tells at once what is wrong with any of them."""
    parts: dict[tuple[str, str], PreparedSplit] = {}
    wrong: list[str] = []
    for split, purpose in uses:
        try:
            parts[split, purpose] = source.split(split, purpose, stage, say)
        except BadInput as error:
            wrong.append(str(error))
    if wrong:
        raise BadInput("\n".join(dict.fromkeys(wrong)))
    return parts


def pack(source: Source, path: Path, stage: Stage, say: Callable[[str], None]) -> dict[tuple[str, str], PreparedSplit]:
    """Prepare the splits that a data set has, and put them in one file."""
    check_file(path, (PACK,))
    parts = splits(source, [use for use in USES if source.has(use[0])] or USES, stage, say)
    stage(f"writing {path}")
    save_pack(parts, path)
    return parts
