"""A prepared split; and several of them in one file, to be carried to a machine without the images or their readers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vrnet.data import stored
from vrnet.data.sample import Sample
from vrnet.errors import BadInput
from vrnet.files import check_file, exists

INDEX = "index"


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """A split of a data set, ready to be trained on or measured on."""

    data: str
    split: str
    samples: tuple[Sample, ...]
    structures: Mapping[str, int]
    pairs_across_subjects: bool
    """Whether images of any two subjects make a pair to train on."""


Parts = Mapping[tuple[str, str], PreparedSplit]
"""{(split, purpose): what was prepared}."""


def save_pack(parts: Parts, path: Path) -> None:
    """Write prepared splits in one .npz file: arrays PART/NUMBER/NAME, and what they are in "index"."""
    check_file(path, (".npz",))
    arrays = {
        f"{place}/{number}/{name}": array
        for place, part in enumerate(parts.values())
        for number, sample in enumerate(part.samples)
        for name, array in stored.arrays_of(sample).items()
    }
    index = [stored.FORMAT, [described(purpose, part) for (_, purpose), part in parts.items()]]
    stored.write({INDEX: np.array(json.dumps(index)), **arrays}, path)


def described(purpose: str, part: PreparedSplit) -> dict[str, Any]:
    """All but the samples, of which it says how many there are."""
    kept = {
        "data": part.data,
        "split": part.split,
        "structures": dict(part.structures),
        "pairs_across_subjects": part.pairs_across_subjects,
    }
    return {"purpose": purpose, "count": len(part.samples), "prepared": kept}


def load_pack(path: Path) -> dict[tuple[str, str], PreparedSplit]:
    """The prepared splits of a file, the same to the bit."""
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    try:
        with np.load(path, allow_pickle=False) as file:
            version, index = json.loads(str(file[INDEX]))
            if version != stored.FORMAT:
                raise BadInput(f"{path} was written by another version of vrnet: prepare it again")
            return dict(unpacked(file, place, entry) for place, entry in enumerate(index))
    except BadInput:
        raise
    except (*stored.DAMAGE, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is damaged, or no pack of prepared data: prepare it again") from error


def unpacked(file: Any, place: int, entry: dict[str, Any]) -> tuple[tuple[str, str], PreparedSplit]:
    """One (split, purpose), and what was prepared for it."""
    samples = []
    for number in range(entry["count"]):
        names = (*stored.NEEDED, *(name for name in stored.OPTIONAL if f"{place}/{number}/{name}" in file))
        samples.append(stored.sample_of({name: file[f"{place}/{number}/{name}"] for name in names}))
    part = PreparedSplit(samples=tuple(samples), **entry["prepared"])
    return (part.split, entry["purpose"]), part
