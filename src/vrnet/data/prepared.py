"""A split of a data set, prepared: each subject is made once and kept; all that cannot be used are named at once.

A cache keeps one subject per file, FOLDER/DATA/SUBJECT-PURPOSE-HASH.npz, the hash being of all that the sample depends
on. A pack holds several splits in one file, for a machine without the images or their readers. Both are arrays of NumPy
in a zip file, images in steps of 1/65535 and labels as bytes; nothing in them can be executed.
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8, UInt16
from numpy import ndarray
from torch import Tensor

from vrnet.data.dataset import Dataset, find_dataset
from vrnet.data.protocols import Purpose, Sample
from vrnet.devices import check_memory
from vrnet.errors import BadInput, Progress, Stage
from vrnet.files import (
    atomic_write,
    check_file,
    check_folder,
    check_ordinary,
    exists,
    is_folder,
    parse_json,
    read_record,
)
from vrnet.images.grid import MAX_SPACING_MM, MIN_SPACING_MM

FORMAT = 5
"""To be raised when files are written otherwise, or another sample is made of the same sources."""
STEPS = 65535
DTYPES = {"fixed": "u2", "moving": "u2", "spacing": "f8", "fixed_labels": "u1", "moving_labels": "u1", "field": "f4"}
NEEDED, OPTIONAL = ("name", "spacing", "fixed", "moving"), ("fixed_labels", "moving_labels", "field")
LABEL_VALUES = "label_values"
"""The array of a file of the cache that lists the labels of its sample: small, and read without the images."""
INDEX = "index"
"""The array of a pack that says what is in it."""
DAMAGE = (
    BadZipFile, zlib.error, OSError, EOFError, KeyError, TypeError, ValueError, NotImplementedError, RuntimeError,
    MemoryError,
)  # fmt: skip
"""What reading a damaged file raises."""
PATH_FIELDS = "root", "split_file"
"""The fields of a data set that say where it is, and not what is made of it."""
HASH_DIGITS = 16
MAX_NAMED_SUBJECTS = 20
"""Broken subjects that one message names."""
MAX_LABEL = 255
PACK_SUFFIX = ".npz"
PREPARE_AGAIN = "prepare it again"
Arrays = Mapping[str, Shaped[ndarray, "..."]]


# Samples as arrays.


def arrays_of(sample: Sample) -> Arrays:
    """What a file keeps of a sample."""
    images = {name: quantise(getattr(sample, name)) for name in ("fixed", "moving")}
    others = {name: getattr(sample, name).numpy() for name in OPTIONAL if getattr(sample, name) is not None}
    return {"name": np.array(sample.name), "spacing": np.array(sample.spacing, np.float64), **images, **others}


def sample_of(arrays: Arrays) -> Sample:
    """The sample that a file kept; KeyError or ValueError if it kept another thing."""
    b, _, *s = arrays["fixed"].shape
    if b < 1 or len(s) not in (2, 3) or 0 in s:
        raise ValueError(f"no images are of shape {arrays['fixed'].shape}")
    shapes = dict.fromkeys(DTYPES, (b, 1, *s)) | {"spacing": (len(s),), "field": (b, len(s), *s)}
    for name in (name for name in DTYPES if name in arrays or name in NEEDED):
        if (arrays[name].dtype, arrays[name].shape) != (np.dtype(DTYPES[name]), shapes[name]):
            raise ValueError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
    spacing = tuple(arrays["spacing"].tolist())
    if not all(MIN_SPACING_MM <= h <= MAX_SPACING_MM for h in spacing):
        raise ValueError(f"the spacing is {spacing} mm")
    if "field" in arrays and not np.isfinite(arrays["field"]).all():
        raise ValueError("the field is not finite")
    others = {name: torch.from_numpy(arrays[name]) for name in OPTIONAL if name in arrays}
    return Sample(str(arrays["name"]), dequantise(arrays["fixed"]), dequantise(arrays["moving"]), spacing, **others)


def quantise(image: Float[Tensor, "b 1 *s"]) -> UInt16[ndarray, "b 1 *s"]:
    """An image in [0, 1] in steps of 1/65535."""
    return np.round(image.numpy() * np.float64(STEPS)).astype(np.uint16)


def dequantise(steps: UInt16[ndarray, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    """The image in [0, 1] that was kept in steps of 1/65535."""
    return torch.from_numpy(steps.astype(np.float32) / np.float32(STEPS))


def label_values(sample: Sample) -> UInt8[ndarray, " n"]:
    """The values of both label maps of a sample, each once, in rising order; none if it has no labels."""
    masks = (mask for mask in (sample.fixed_labels, sample.moving_labels) if mask is not None)
    return np.unique(np.concatenate([np.zeros(0, np.uint8), *(np.unique(mask.numpy()) for mask in masks)]))


# Files of arrays, as np.savez_compressed writes them: written one array after the other, read by name.


def write_arrays(arrays: Iterable[tuple[str, Shaped[ndarray, "..."]]], path: Path) -> None:
    """Write named arrays in one file, whole or not at all; no more than one is held at a time."""
    with atomic_write(path) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as file:
        for name, array in arrays:
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, array, allow_pickle=False)


def read_arrays(file: ZipFile, names: Iterable[str], path: Path, folder: str = "") -> Arrays:
    """Arrays of a file by their names; one of DAMAGE if any is not whole, BadInput if memory has no room for them."""
    members = {name: file.getinfo(f"{folder}{name}.npy") for name in names}
    check_memory(path, sum(info.file_size for info in members.values()))
    found = {}
    for name, info in members.items():
        with file.open(info) as member:
            found[name] = np.lib.format.read_array(member, allow_pickle=False)  # type: ignore[no-untyped-call]
    return found


def read_sample(file: ZipFile, path: Path, folder: str = "") -> Sample:
    """The sample of a file, or of a folder in a pack; one of DAMAGE, or BadInput, as `read_arrays`."""
    optional = [name for name in OPTIONAL if f"{folder}{name}.npy" in file.NameToInfo]
    return sample_of(read_arrays(file, [*NEEDED, *optional], path, folder))


def open_arrays(path: Path) -> ZipFile:
    """A file of arrays, to be read from; one of DAMAGE if it is none. It stays open for who opens it again.

    Each process opens it by itself: forks would move one another's place in a file that all have open."""
    check_ordinary(path)
    found = path.stat()
    return _open_version(path, os.getpid(), found.st_ino, found.st_mtime_ns)


@lru_cache(maxsize=4)
def _open_version(path: Path, process: int, inode: int, changed_ns: int) -> ZipFile:
    return ZipFile(path)


def save_sample(sample: Sample, path: Path) -> None:
    """Write a sample in one file, whole or not at all."""
    write_arrays([*arrays_of(sample).items(), (LABEL_VALUES, label_values(sample))], path)


def load_sample(path: Path) -> Sample | None:
    """The sample of a file; None if there is no such file, or it is damaged."""
    try:
        check_ordinary(path)
        with ZipFile(path) as file:
            return read_sample(file, path)
    except BadInput:  # of too little memory
        raise
    except DAMAGE:
        return None


def load_label_values(path: Path) -> set[int] | None:
    """The labels of the sample of a file, whose images are not read; None if there is no such file, or it is
    damaged."""
    try:
        with ZipFile(path) as file:
            found = read_arrays(file, [LABEL_VALUES], path)[LABEL_VALUES]
    except DAMAGE:
        return None
    return set(found.tolist()) if found.dtype == np.uint8 and found.ndim == 1 else None


# Splits whose samples are read when they are asked for.


class StoredSamples:
    """A sequence of samples of known names, each read when it is asked for; none is held.

    `identify` gives a short text that changes with the sample of a name, if that can be known without reading it."""

    def __init__(
        self,
        names: Sequence[str],
        read: Callable[[str], Sample],
        identify: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        self.names, self.read, self.identify = tuple(names), read, identify

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.read, self.names)

    def __getitem__(self, k: int) -> Sample:
        return self.read(self.names[k])


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """A split of a data set, ready to be trained on or measured on."""

    data: str
    split: str
    samples: StoredSamples | tuple[Sample, ...]
    """Read from disk one by one, each time they are asked for, unless `load` put them in memory."""
    structures: Mapping[str, int]
    """{"LV": 3, ...}: what the labels mean."""
    pairs_across_subjects: bool
    """Whether images of any two subjects make a pair to train on."""

    @property
    def names(self) -> list[str]:
        """The subjects; no image is read to know them."""
        if isinstance(self.samples, StoredSamples):
            return list(self.samples.names)
        return [sample.name for sample in self.samples]

    @property
    def read(self) -> Callable[[str], Sample]:
        """What gives the sample of a name; it can be sent to other processes."""
        if isinstance(self.samples, StoredSamples):
            return self.samples.read
        return {sample.name: sample for sample in self.samples}.__getitem__

    def identity(self, subject: str) -> str:
        """A short text that changes with the sample of a subject: that by which it is stored, or its SHA-256."""
        if isinstance(self.samples, StoredSamples) and (known := self.samples.identify(subject)):
            return known
        total = hashlib.sha256()
        for part, value in vars(self.read(subject)).items():
            array = np.asarray([] if value is None else value)
            total.update(f"{part} {array.dtype} {array.shape} ".encode() + array.tobytes())
        return total.hexdigest()

    def load(self) -> "PreparedSplit":
        """The split with all its samples in memory, for those who go through it many times."""
        return replace(self, samples=tuple(self.samples))

    def spread(self, count: int) -> "PreparedSplit":
        """So many of its subjects, evenly spread over its list, in which subjects that are alike may lie together."""
        if not 1 <= count <= len(self.samples):
            raise BadInput(f"{self.split} of {self.data} has {len(self.samples)} subjects, and not {count}")
        names = [self.names[k * len(self.samples) // count] for k in range(count)]
        return replace(self, samples=StoredSamples(names, self.read, self.identity))


# The cache: what it does not keep is made.


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/vrnet, or ~/.cache/vrnet; BadInput for a user who has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrnet"
    except RuntimeError as error:
        raise BadInput("you have no home folder to keep prepared subjects in: name a folder by `cache`") from error


def cache_name(dataset: Any, subject: str, purpose: Purpose, sources: list[Path]) -> str:
    """The name of a sample's file in the cache: it changes with the protocol and its parameters, with how files are
    written, and with the name, size or time of any source; it does not depend on where these are."""
    if missing := [path.name for path in sources if not exists(path)]:
        raise BadInput(f"there is no {', '.join(missing)}")
    depends_on = FORMAT, dataset.name, parameters(dataset), subject, purpose, [fingerprint(path) for path in sources]
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return f"{safe_name(subject)}-{purpose}-{digest[:HASH_DIGITS]}{PACK_SUFFIX}"


def parameters(dataset: Any) -> Mapping[str, Any]:
    """What a protocol can be given: as the data set says, or its fields but those that say where it is."""
    found = {part.name: getattr(dataset, part.name) for part in fields(dataset) if part.name not in PATH_FIELDS}
    return getattr(dataset, "parameters", found)


def fingerprint(path: Path) -> list[Any]:
    """Name, size in bytes and time of the last change in ns of a file; of a folder (a DICOM series), of all its files.

    The contents are not read."""
    if is_folder(path):
        return [fingerprint(file) for file in sorted(path.iterdir())]
    found = path.stat()
    return [path.name, found.st_size, found.st_mtime_ns]


def safe_name(subject: str) -> str:
    """The name in characters that any file may have."""
    return re.sub(r"[^\w.-]", "_", subject)[:80]


@dataclass(frozen=True)
class SampleCache:
    """The samples of a data set that a folder keeps."""

    dataset: Dataset
    purpose: Purpose
    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    """{subject: the name of its file}, of those looked for."""

    def find_or_make(self, subject: str) -> Sample | None:
        """None if the folder has the sample, else the sample, made; or BadInput. No file of the folder is opened."""
        sources = self.dataset.sources(subject, self.purpose)
        self.files[subject] = cache_name(self.dataset, subject, self.purpose, sources)
        return None if exists(self.folder / self.files[subject]) else self.make(subject)

    def make(self, subject: str) -> Sample:
        """The sample out of its sources, to the bit as it will be read; or BadInput, with files by their names."""
        try:
            return sample_of(arrays_of(self.dataset.prepare(subject, self.purpose)))
        except BadInput as error:
            message = str(error)
            for path in self.dataset.sources(subject, self.purpose):
                message = message.replace(str(path), path.name)
            raise BadInput(message) from error

    def read(self, subject: str) -> Sample:
        """The sample that the folder has; made and kept again if its file is damaged or gone."""
        found = load_sample(self.folder / self.files[subject])
        return self.remake(subject) if found is None else found

    def labels(self, subject: str) -> set[int]:
        """The labels of the sample that the folder has; it is made again if its file is damaged or gone."""
        found = load_label_values(self.folder / self.files[subject])
        return set(label_values(self.remake(subject)).tolist()) if found is None else found

    def remake(self, subject: str) -> Sample:
        """A sample that was there before, made and kept again; or BadInput, which names the subject."""
        try:
            made = self.make(subject)
        except BadInput as error:
            raise BadInput(f"{subject}: {error}") from error
        save_sample(made, self.folder / self.files[subject])
        return made


def prepare_split(
    dataset: Dataset,
    split: str,
    purpose: Purpose,
    cache: Path | None = None,
    *,
    skip_broken: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
) -> PreparedSplit:
    """The subjects of a split, each made unless the cache has it; BadInput names all that cannot be used.

    With `skip_broken` those are left out, and `say` is told of each. `progress` hears which part is done."""
    subjects, kept = dataset.subjects(split), SampleCache(dataset, purpose, (cache or cache_folder()) / dataset.name)
    check_folder(kept.folder)
    parameters(dataset)  # a data set that cannot find them says so once, not for each subject
    broken: dict[str, str] = {}
    for done, subject in enumerate(subjects, start=1):
        try:
            made = kept.find_or_make(subject)
        except BadInput as error:
            broken[subject] = str(error)
        else:
            if made is not None:
                save_sample(made, kept.folder / kept.files[subject])
        if progress is not None:
            progress(done / len(subjects))
    if broken and not (skip_broken and len(broken) < len(subjects)):
        raise refusal(broken, dataset.name, len(subjects))
    for subject, reason in broken.items():
        say(f"left out {subject}: {reason}")
    samples = StoredSamples([subject for subject in subjects if subject not in broken], kept.read, kept.files.get)
    structures = dataset.structures
    if structures is None:  # labels are called by their numbers: no image is read to know them
        values = sorted(set().union(*map(kept.labels, samples.names)) - {0})
        structures = {str(value): value for value in values}
    return PreparedSplit(dataset.name, split, samples, structures, dataset.pairs_across_subjects)


def refusal(broken: Mapping[str, str], data: str, count: int) -> BadInput:
    """What is wrong with {subject: reason} of so many, and what to do."""
    reasons = [f"{subject}: {reason}" for subject, reason in broken.items()]
    rest = [f"and {len(broken) - MAX_NAMED_SUBJECTS} more"] if len(broken) > MAX_NAMED_SUBJECTS else []
    head = f"{len(broken)} of {count} subjects of {data} cannot be used:"
    way = "; or is this the wrong folder?" if len(broken) == count else ", or go on without them: `skip_broken`"
    return BadInput("\n  ".join([head, *reasons[:MAX_NAMED_SUBJECTS], *rest]) + f"\nmend them{way}")


# Packs: several prepared splits in one file. Its arrays are PART/NUMBER/NAME; what the parts are is in "index".


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
    checksums: Any = None
    """Packs of earlier versions have them; they are not compared."""

    def __post_init__(self) -> None:
        if not 0 < len(self.subjects) == len(set(self.subjects)):
            raise BadInput("the subjects are none, or named twice")
        if not all(0 < label <= MAX_LABEL for label in self.structures.values()):
            raise BadInput(f"structures are labels from 1 to {MAX_LABEL}")


@dataclass(frozen=True)
class PackIndex:
    """What a pack says of itself."""

    format: int
    parts: tuple[PartRecord, ...]

    def __post_init__(self) -> None:
        if len({(part.split, part.purpose) for part in self.parts}) < len(self.parts):
            raise BadInput("a split is there twice")


@dataclass(frozen=True)
class PackReader:
    """Reads a subject of a pack; it can be sent to other processes."""

    path: Path
    places: Mapping[str, str]
    """{subject: what the names of its arrays begin with}."""

    def __call__(self, subject: str) -> Sample:
        try:
            found = read_sample(open_arrays(self.path), self.path, self.places[subject])
            if found.name != subject:
                raise ValueError(f"it is of {found.name}")
        except BadInput:  # of too little memory
            raise
        except DAMAGE as error:
            raise BadInput(f"{subject}: {self.path} is damaged, or no longer there: {PREPARE_AGAIN}") from error
        return found

    def identify(self, subject: str) -> str:
        """A short text that changes with the arrays of a subject; none is read: the file lists their checksums."""
        file, place = open_arrays(self.path), self.places[subject]
        members = {name: file.NameToInfo.get(f"{place}{name}.npy") for name in (*NEEDED, *OPTIONAL)}
        sums = {name: info.CRC for name, info in members.items() if info is not None}
        return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def save_pack(parts: Mapping[tuple[str, str], PreparedSplit], path: Path) -> None:
    """Write {(split, purpose): a prepared split} in one file."""
    check_file(path, (PACK_SUFFIX,))
    records: list[dict[str, Any]] = [
        {
            "data": part.data,
            "split": split,
            "purpose": purpose,
            "structures": dict(part.structures),
            "pairs_across_subjects": part.pairs_across_subjects,
            "subjects": part.names,
        }
        for (split, purpose), part in parts.items()
    ]
    for record in records:
        read_record(record, PartRecord, path, "name subjects and splits by a line of text")

    def arrays() -> Iterable[tuple[str, ndarray]]:
        for place, part in enumerate(parts.values()):
            for number, sample in enumerate(part.samples):
                yield from ((f"{place}/{number}/{name}", array) for name, array in arrays_of(sample).items())
        yield INDEX, np.array(json.dumps({"format": FORMAT, "parts": records}))

    write_arrays(arrays(), path)


def load_pack(path: Path) -> dict[tuple[str, str], PreparedSplit]:
    """{(split, purpose): a prepared split} of a file, to the bit as they were. Only the index is read; each sample is
    read when it is asked for."""
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    try:
        index = parse_json(read_arrays(open_arrays(path), [INDEX], path)[INDEX].item())
    except BadInput:  # of too little memory
        raise
    except DAMAGE as error:
        raise BadInput(f"{path} is damaged, or no pack of prepared data: {PREPARE_AGAIN}") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise BadInput(f"{path} was written by another version of vrnet: {PREPARE_AGAIN}")
    found: dict[tuple[str, str], PreparedSplit] = {}
    for place, part in enumerate(read_record(index, PackIndex, path, PREPARE_AGAIN).parts):
        reader = PackReader(path, {subject: f"{place}/{k}/" for k, subject in enumerate(part.subjects)})
        samples = StoredSamples(part.subjects, reader, reader.identify)
        use = part.split, part.purpose
        found[use] = PreparedSplit(part.data, part.split, samples, part.structures, part.pairs_across_subjects)
    return found


# Where pairs come from: a data set by its name (DATASETS in dataset.py lists them), or one prepared in a file.

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
        if not self.data.endswith(PACK_SUFFIX):
            found, tick = self.dataset, stage(f"preparing {self.data}, {split}")
            return prepare_split(
                found, split, purpose, self.cache, skip_broken=self.skip_broken, progress=tick, say=say
            )
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
    def dataset(self) -> Dataset:
        """The data set that is named, opened once."""
        return find_dataset(self.data, self.root, self.split_file)

    @cached_property
    def parts(self) -> dict[tuple[str, str], PreparedSplit]:
        """The prepared splits of the file that is named, opened once."""
        return load_pack(Path(self.data))

    def has(self, split: str) -> bool:
        """Whether anyone is in a split of the data set."""
        try:
            return bool(self.dataset.subjects(split))
        except BadInput:
            return False


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
