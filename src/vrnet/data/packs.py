"""Several prepared splits in one file, a pack, for a machine without the images or their readers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vrnet.array_files import DAMAGE, Array, ArrayFile, Checksums, write_arrays
from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Purpose
from vrnet.data.store import FORMAT, NEEDED, OPTIONAL, PACK_SUFFIX, PREPARE_AGAIN, PackReader, StoredSamples, arrays_of
from vrnet.errors import BadInput
from vrnet.files import check_file, exists, parse_json
from vrnet.images.checks import check_memory
from vrnet.schema import read_record

INDEX = "index"
"""The array of a pack that says what is in it."""
MAX_LABEL = 255


@dataclass(frozen=True)
class PartRecord:
    """What the index of a pack says of a split."""

    data: str
    split: str
    purpose: Purpose
    structures: dict[str, int]
    """{"LV": 3, ...}: what the labels mean."""
    pairs_across_subjects: bool
    subjects: tuple[str, ...]
    checksums: tuple[Checksums, ...]
    """The arrays of each subject, and the checksums of these."""

    def __post_init__(self) -> None:
        if not 0 < len(self.subjects) == len(set(self.subjects)) == len(self.checksums):
            raise BadInput("the subjects are none, or named twice, or not as many as the checksums")
        if not all(0 < label <= MAX_LABEL for label in self.structures.values()):
            raise BadInput(f"structures are labels from 1 to {MAX_LABEL}")
        for arrays in self.checksums:
            if not set(NEEDED) <= arrays.keys() <= {*NEEDED, *OPTIONAL}:
                raise BadInput(f"a sample has the arrays {', '.join(arrays)}")


@dataclass(frozen=True)
class PackIndex:
    """What a pack says of itself."""

    format: int
    parts: tuple[PartRecord, ...]

    def __post_init__(self) -> None:
        if len({(part.split, part.purpose) for part in self.parts}) < len(self.parts):
            raise BadInput("a split is there twice")


def save_pack(parts: Mapping[tuple[str, str], PreparedSplit], path: Path) -> None:
    """Write {(split, purpose): a prepared split} in one file.

    Its arrays are PART/NUMBER/NAME; what the parts are is in "index", the last one."""
    check_file(path, (PACK_SUFFIX,))

    def index(found: Checksums) -> tuple[str, Array]:
        numbered = enumerate(parts.items())
        records = [describe(*use, part, checksums_of_part(found, n, len(part.names))) for n, (use, part) in numbered]
        for record in records:
            read_record(record, PartRecord, path, "name subjects and splits by a line of text")
        return INDEX, np.array(json.dumps({"format": FORMAT, "parts": records}))

    arrays = (
        (f"{place}/{number}/{name}", array)
        for place, part in enumerate(parts.values())
        for number, sample in enumerate(part.samples)
        for name, array in arrays_of(sample).items()
    )
    write_arrays(arrays, path, index)


def describe(split: str, purpose: str, part: PreparedSplit, checksums: list[Checksums]) -> dict[str, Any]:
    """What a pack says of a split, by the names that it is saved under: everything but its samples."""
    return {
        "data": part.data,
        "split": split,
        "purpose": purpose,
        "structures": dict(part.structures),
        "pairs_across_subjects": part.pairs_across_subjects,
        "subjects": part.names,
        "checksums": checksums,
    }


def checksums_of_part(checksums: Checksums, place: int, count: int) -> list[Checksums]:
    """The checksums of the arrays of each sample of a part."""
    found: list[Checksums] = [{} for _ in range(count)]
    for path, checksum in checksums.items():
        part, number, name = path.split("/")
        if int(part) == place:
            found[int(number)][name] = checksum
    return found


def load_pack(path: Path) -> dict[tuple[str, str], PreparedSplit]:
    """{(split, purpose): a prepared split} of a file, to the bit as they were. Only the index is read; each sample is
    read when it is asked for."""
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    parts = read_index(path).parts
    return {(part.split, part.purpose): packed_split(path, place, part) for place, part in enumerate(parts)}


def read_index(path: Path) -> PackIndex:
    """What a pack says of itself."""
    file = ArrayFile(path)
    try:
        check_memory(path, file.size([INDEX]))
        index = parse_json(file.read(INDEX).item())
    except BadInput:  # of too little memory
        raise
    except (*DAMAGE, TypeError) as error:
        raise BadInput(f"{path} is damaged, or no pack of prepared data: {PREPARE_AGAIN}") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise BadInput(f"{path} was written by another version of vrnet: {PREPARE_AGAIN}")
    return read_record(index, PackIndex, path, PREPARE_AGAIN)


def packed_split(path: Path, place: int, part: PartRecord) -> PreparedSplit:
    """A split of a pack, whose samples are read when they are asked for."""
    places = {subject: f"{place}/{number}" for number, subject in enumerate(part.subjects)}
    reader = PackReader(path, places, dict(zip(part.subjects, part.checksums, strict=True)))
    samples = StoredSamples(part.subjects, reader, reader.identify)
    return PreparedSplit(part.data, part.split, samples, part.structures, part.pairs_across_subjects)
