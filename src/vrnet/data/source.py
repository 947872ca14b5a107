"""Where pairs come from: a data set by its name (DATASETS in dataset.py lists them), or one prepared in a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vrnet.attributes import cached_property
from vrnet.data.dataset import Dataset, find_dataset
from vrnet.data.packs import load_pack, save_pack
from vrnet.data.prepared import PreparedSplit, prepare_split
from vrnet.data.sample import Purpose
from vrnet.data.store import PACK_SUFFIX
from vrnet.errors import BadInput
from vrnet.files import check_file
from vrnet.progress import Stage

Use = tuple[str, Purpose]
"""A split, and what it is prepared for."""
USES: tuple[Use, ...] = (("train", "training"), ("val", "evaluation"), ("test", "evaluation"))
MORE_USES: dict[str, tuple[Use, ...]] = {"acdc": (("train", "evaluation"),)}
"""By data set, what some budgets of `vrnet paper` need beside: to train on the slices that are measured alone."""


@dataclass(frozen=True)
class Source:
    """A data set as a command line names it, and how its splits are prepared."""

    data: str
    """The name of a data set, or a file that `vrnet prepare` wrote."""
    root: Path | None = None
    split_file: Path | None = None
    cache: Path | None = None
    skip_broken: bool = False

    def split(self, split: str, purpose: Purpose, stage: Stage, say: Callable[[str], None]) -> PreparedSplit:
        """A split, its subjects prepared if they are not yet."""
        if self.data.endswith(PACK_SUFFIX):
            return self._packed(split, purpose)
        found, tick = self.dataset, stage(f"preparing {self.data}, {split}")
        return prepare_split(found, split, purpose, self.cache, skip_broken=self.skip_broken, progress=tick, say=say)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set that is named, opened once."""
        return find_dataset(self.data, self.root, self.split_file)

    def has(self, split: str) -> bool:
        """Whether anyone is in a split of the data set."""
        try:
            return bool(self.dataset.subjects(split))
        except BadInput:
            return False

    def _packed(self, split: str, purpose: Purpose) -> PreparedSplit:
        if self.root or self.split_file:
            raise BadInput(f"{self.data} holds a data set already prepared: leave out `root` and `split_file`")
        if (split, purpose) not in self.parts:
            known = ", ".join(f"{name} (for {use})" for name, use in self.parts)
            name = next(iter(self.parts.values())).data
            again = (split, purpose) in MORE_USES.get(name, ())
            way = "make it again by `vrnet prepare`" if again else f'give `data="{name}"` and `root`, its folder'
            raise BadInput(f"{self.data} holds no split {split} for {purpose}: it holds {known}; {way}")
        return self.parts[split, purpose]

    @cached_property
    def parts(self) -> dict[tuple[str, str], PreparedSplit]:
        """The prepared splits of the file that is named, opened once."""
        return load_pack(Path(self.data))


def splits(
    source: Source, uses: Sequence[Use], stage: Stage, say: Callable[[str], None]
) -> dict[tuple[str, str], PreparedSplit]:
    """Several prepared splits; BadInput tells at once what is wrong with any of them."""
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
    check_file(path, (PACK_SUFFIX,))
    uses = (*USES, *MORE_USES.get(source.data, ()))
    parts = splits(source, [use for use in uses if source.has(use[0])] or USES, stage, say)
    stage(f"writing {path}")
    save_pack(parts, path)
    return parts
