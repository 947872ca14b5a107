"""Data sets in, tables and models out: what `vrnet prepare`, `vrnet train` and `vrnet evaluate --data` share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from vrnet.app.pair import Stage, write_json
from vrnet.data.dataset import Dataset, dataset
from vrnet.data.prepared import PreparedSplit, load_pack, prepared, save_pack
from vrnet.data.sample import Purpose, Sample
from vrnet.devices import capture_graph, find_device, threads_for
from vrnet.errors import BadInput
from vrnet.evaluation.cohort import Initializer, measured, summarise, unregistered, write_rows
from vrnet.files import check_file, check_folder
from vrnet.methods.method import Method, Trainable
from vrnet.methods.names import parse

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


def trainable(name: str) -> Trainable:
    """The learned method of a name, or BadInput if there is nothing to train."""
    found = parse(name)
    if not found.is_trainable:
        raise BadInput(f"{name} has nothing to learn: train R-L1-3x2, VoxelMorph, 3xRC-Net or the like")
    return cast(Trainable, found)


def run_cohort(stage: Stage, method: Method, pairs: PreparedSplit, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Measure a method on every subject of a split; write metrics.csv and summary.json, and return the latter."""
    check_folder(folder, ("metrics.csv", "summary.json"))
    there, first, found, before = find_device(device), pairs.samples[0], [], []
    ready = method.resolve(len(first.spacing), first.spacing)
    find = quick(ready, first, there)
    tick = stage(f"{ready} on {len(pairs.samples)} subjects")
    for done, sample in enumerate(pairs.samples, start=1):
        with threads_for(ready.is_network, sample.fixed[0].numel()):
            found.append(measured(sample, find, pairs.structures, there.type))
            before.append(unregistered(sample, pairs.structures))
        tick(done / len(pairs.samples))
    what = {"method": str(ready), "weights": ready.weights, "data": pairs.data, "split": pairs.split}
    summary: dict[str, Any] = {**what, "subjects": len(found), "metrics": summarise(found)}
    summary["before"] = summarise(before)
    write_rows(found, folder / "metrics.csv")
    write_json(summary, folder / "summary.json")
    return summary


def quick(method: Method, sample: Sample, device: torch.device) -> Initializer:
    """What finds the field of a pair; a network on a GPU is recorded once, since all pairs have one shape."""
    find = method.build(len(sample.spacing), device)
    if device.type != "cuda" or not method.is_network or method.is_random:
        return find
    I0, I1 = sample.fixed[:1].to(device), sample.moving[:1].to(device)
    with torch.inference_mode():
        replay = capture_graph(lambda I0, I1: find(I0, I1, sample.spacing), I0, I1)
    return lambda I0, I1, spacing: replay(I0, I1).clone()
