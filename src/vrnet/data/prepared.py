"""A split of a data set, prepared: each subject is made once and kept; all that cannot be used are named at once."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float, UInt8, UInt16
from numpy import ndarray
from torch import Tensor

from vrnet.data import prepared as store
from vrnet.data.dataset import Dataset, find_dataset
from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput, Progress, Stage
from vrnet.files import check_file, check_folder, exists, is_folder, parse_json
from vrnet.images.checks import MAX_SPACING_MM, MIN_SPACING_MM, check_memory
from vrnet.schema import read_record
from vrnet.tensors import DAMAGE, Array, ArrayFile, Checksums, write_arrays

# Prepared samples on disk, one .npz file per subject in the cache; packs (prepared.py) hold the same arrays.
#
# Images are kept in steps of 1/65535, labels as bytes; no pickle, nothing but NumPy. A file of the cache is
# FOLDER/DATA/SUBJECT-PURPOSE-HASH.npz, the hash being of all that the sample depends on.

FORMAT = 5
"""To be raised when files are written otherwise, or another sample is made of the same sources."""
STEPS = 65535
DTYPES = {"fixed": "u2", "moving": "u2", "spacing": "f8", "fixed_labels": "u1", "moving_labels": "u1", "field": "f4"}
NEEDED, OPTIONAL = ("name", "spacing", "fixed", "moving"), ("fixed_labels", "moving_labels", "field")
PATH_FIELDS = "root", "split_file"
"""The fields of a data set that say where it is, and not what is made of it."""
HASH_DIGITS = 16
PACK_SUFFIX = ".npz"
PREPARE_AGAIN = "prepare it again"
LABEL_VALUES = "label_values"
"""The array of a file of the cache that lists the labels of its sample: small, and read without the images."""
Arrays = Mapping[str, Array]


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

    @overload
    def __getitem__(self, key: int) -> Sample: ...
    @overload
    def __getitem__(self, key: slice) -> "StoredSamples": ...
    def __getitem__(self, key: int | slice) -> "Sample | StoredSamples":
        if isinstance(key, slice):
            return StoredSamples(self.names[key], self.read, self.identify)
        return self.read(self.names[key])


Samples = StoredSamples | tuple[Sample, ...]


def names_of(samples: Samples) -> list[str]:
    """The names of samples; none that is stored is read to know them."""
    return list(samples.names) if isinstance(samples, StoredSamples) else [sample.name for sample in samples]


def reader_of(samples: Samples) -> Callable[[str], Sample]:
    """What gives the sample of a name."""
    if isinstance(samples, StoredSamples):
        return samples.read
    return {sample.name: sample for sample in samples}.__getitem__


def identity_of(samples: Samples, name: str) -> str:
    """A short text that changes with a sample: that by which it is stored; without one, the SHA-256 of its arrays."""
    if isinstance(samples, StoredSamples) and (known := samples.identify(name)):
        return known
    total = hashlib.sha256()
    for part, value in vars(reader_of(samples)(name)).items():
        array = np.asarray([] if value is None else value)
        total.update(f"{part} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return total.hexdigest()


def arrays_of(sample: Sample) -> Arrays:
    """What a file keeps of a sample."""
    images = {name: quantise(getattr(sample, name)) for name in ("fixed", "moving")}
    others = {name: getattr(sample, name).numpy() for name in OPTIONAL if getattr(sample, name) is not None}
    return {"name": np.array(sample.name), "spacing": np.array(sample.spacing, np.float64), **images, **others}


def sample_of(arrays: Arrays) -> Sample:
    """The sample that a file kept; KeyError or ValueError if it kept another thing."""
    check_arrays(arrays)
    others = {name: torch.from_numpy(arrays[name]) for name in OPTIONAL if name in arrays}
    fixed, moving = (dequantise(arrays[name]) for name in ("fixed", "moving"))
    return Sample(str(arrays["name"]), fixed, moving, tuple(arrays["spacing"].tolist()), **others)


def quantise(image: Float[Tensor, "b 1 *s"]) -> UInt16[ndarray, "b 1 *s"]:
    """An image in [0, 1] in steps of 1/65535."""
    return np.round(image.numpy() * np.float64(STEPS)).astype(np.uint16)


def dequantise(steps: UInt16[ndarray, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    """The image in [0, 1] that was kept in steps of 1/65535."""
    return torch.from_numpy(steps.astype(np.float32) / np.float32(STEPS))


def check_arrays(arrays: Arrays) -> None:
    """KeyError or ValueError unless these are the arrays of one sample."""
    b, _, *s = arrays["fixed"].shape
    if b < 1 or len(s) not in (2, 3) or 0 in s:
        raise ValueError(f"no images are of shape {arrays['fixed'].shape}")
    shapes = dict.fromkeys(DTYPES, (b, 1, *s)) | {"spacing": (len(s),), "field": (b, len(s), *s)}
    for name in (name for name in DTYPES if name in arrays or name in NEEDED):
        if (arrays[name].dtype, arrays[name].shape) != (np.dtype(DTYPES[name]), shapes[name]):
            raise ValueError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
    if not all(MIN_SPACING_MM <= h <= MAX_SPACING_MM for h in arrays["spacing"]):
        raise ValueError(f"the spacing is {arrays['spacing']} mm")
    if "field" in arrays and not np.isfinite(arrays["field"]).all():
        raise ValueError("the field is not finite")


def save_sample(sample: Sample, path: Path) -> None:
    """Write a sample in one .npz file, whole or not at all."""
    write_arrays([*arrays_of(sample).items(), (LABEL_VALUES, label_values(sample))], path)


def load_sample(path: Path) -> Sample | None:
    """The sample of a file; None if there is no such file, or it is damaged."""
    try:
        file = ArrayFile(path)
        if not file.checksums.keys() <= {*NEEDED, *OPTIONAL, LABEL_VALUES}:
            return None
        check_memory(path, file.size(file.checksums))
        return sample_of({name: file.read(name) for name in file.checksums if name != LABEL_VALUES})
    except BadInput:  # of too little memory
        raise
    except DAMAGE:
        return None


def label_values(sample: Sample) -> UInt8[ndarray, " n"]:
    """The values of both label maps of a sample, each once, in rising order; none if it has no labels."""
    masks = (mask for mask in (sample.fixed_labels, sample.moving_labels) if mask is not None)
    return np.unique(np.concatenate([np.zeros(0, np.uint8), *(np.unique(mask.numpy()) for mask in masks)]))


def load_label_values(path: Path) -> set[int] | None:
    """The labels of the sample of a file, whose images are not read; None if there is no such file, or it is
    damaged."""
    try:
        found = ArrayFile(path).read(LABEL_VALUES)
    except DAMAGE:
        return None
    return set(found.tolist()) if found.dtype == np.uint8 and found.ndim == 1 else None


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
class PackReader:
    """Reads a subject of a pack, which is opened at the first and stays open; a pickle of it, or a fork, opens the
    pack anew."""

    path: Path
    places: Mapping[str, str]
    """{subject: what the names of its arrays begin with}."""
    checksums: Mapping[str, Checksums]
    """{subject: its arrays, and their checksums}."""
    files: dict[int, ArrayFile] = field(default_factory=dict, init=False, repr=False, compare=False)
    """{process: the pack as that opened it}."""

    def __call__(self, subject: str) -> Sample:
        wanted = {f"{self.places[subject]}/{name}": checksum for name, checksum in self.checksums[subject].items()}
        try:
            if any(self.file.checksums[name] != checksum for name, checksum in wanted.items()):
                raise ValueError("its checksums are not those of the index")
            check_memory(self.path, self.file.size(wanted))
            found = sample_of({name.split("/")[-1]: self.file.read(name) for name in wanted})
            if found.name != subject:
                raise ValueError(f"it is of {found.name}")
        except BadInput:  # of too little memory
            raise
        except DAMAGE as error:
            raise BadInput(f"{subject}: {self.path} is damaged, or no longer there: {PREPARE_AGAIN}") from error
        return found

    def identify(self, subject: str) -> str:
        """The SHA-256 of the checksums of a subject's arrays."""
        return hashlib.sha256(json.dumps(self.checksums[subject], sort_keys=True).encode()).hexdigest()

    @property
    def file(self) -> ArrayFile:
        """The open pack. A process and its forks would move one another's place in a file that all have open."""
        return self.files.setdefault(os.getpid(), ArrayFile(self.path))

    def __reduce__(self) -> tuple[type, tuple[Path, Mapping[str, str], Mapping[str, Checksums]]]:
        return PackReader, (self.path, self.places, self.checksums)


MAX_NAMED_SUBJECTS = 20
"""Broken subjects that one message names."""


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
        return names_of(self.samples)

    @property
    def read(self) -> Callable[[str], Sample]:
        """What gives the sample of a name; it can be sent to other processes."""
        return reader_of(self.samples)

    def identity(self, subject: str) -> str:
        """A short text that changes with the sample of a subject."""
        return identity_of(self.samples, subject)

    def load(self) -> "PreparedSplit":
        """The split with all its samples in memory, for those who go through it many times."""
        return replace(self, samples=tuple(self.samples))

    def spread(self, count: int) -> "PreparedSplit":
        """So many of its subjects, evenly spread over its list, in which subjects that are alike may lie together."""
        if not 1 <= count <= len(self.samples):
            raise BadInput(f"{self.split} of {self.data} has {len(self.samples)} subjects, and not {count}")
        names = [self.names[k * len(self.samples) // count] for k in range(count)]
        return replace(self, samples=StoredSamples(names, self.read, self.identity))


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
    store.parameters(dataset)  # a data set that cannot find them says so once, not for each subject
    broken: dict[str, str] = {}
    for done, subject in enumerate(subjects, start=1):
        try:
            made = kept.find_or_make(subject)
        except BadInput as error:
            broken[subject] = str(error)
        else:
            kept.save(subject, made)
        if progress is not None:
            progress(done / len(subjects))
    report_broken(broken, dataset.name, len(subjects), say if skip_broken else None)
    samples = StoredSamples([subject for subject in subjects if subject not in broken], kept.read, kept.files.get)
    structures = kept.structures(samples.names) if dataset.structures is None else dataset.structures
    return PreparedSplit(dataset.name, split, samples, structures, dataset.pairs_across_subjects)


@dataclass(frozen=True)
class SampleCache:
    """The samples of a data set that a folder keeps; what it does not keep is made."""

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
            made = self.dataset.prepare(subject, self.purpose)
        except BadInput as error:
            message = str(error)
            for path in self.dataset.sources(subject, self.purpose):
                message = message.replace(str(path), path.name)
            raise BadInput(message) from error
        return sample_of(arrays_of(made))

    def save(self, subject: str, made: Sample | None) -> None:
        """Keep a sample, if it was made."""
        if made is not None:
            save_sample(made, self.folder / self.files[subject])

    def read(self, subject: str) -> Sample:
        """The sample that the folder has; made and kept again if its file is damaged or gone."""
        found = load_sample(self.folder / self.files[subject])
        return self.remake(subject) if found is None else found

    def remake(self, subject: str) -> Sample:
        """A sample that was there before, made and kept again; or BadInput, which names the subject."""
        try:
            made = self.make(subject)
        except BadInput as error:
            raise BadInput(f"{subject}: {error}") from error
        self.save(subject, made)
        return made

    def structures(self, subjects: Iterable[str]) -> dict[str, int]:
        """{"7": 7, ...}: every label but 0 that any of the samples has; no image is read to know them."""
        values = sorted(set().union(*map(self.labels, subjects)) - {0})
        return {str(value): value for value in values}

    def labels(self, subject: str) -> set[int]:
        """The labels of the sample that the folder has; it is made again if its file is damaged or gone."""
        found = load_label_values(self.folder / self.files[subject])
        return set(label_values(self.remake(subject)).tolist()) if found is None else found


def report_broken(broken: Mapping[str, str], data: str, count: int, say: Callable[[str], None] | None) -> None:
    """Say who is left out, and why; BadInput if nobody listens, or nobody is left."""
    reasons = [f"{subject}: {reason}" for subject, reason in broken.items()]
    if broken and (say is None or len(broken) == count):
        way = (
            "mend them; or is this the wrong folder?"
            if len(broken) == count
            else "mend them, or go on without them: `skip_broken`"
        )
        head = f"{len(broken)} of {count} subjects of {data} cannot be used:"
        rest = [f"and {len(broken) - MAX_NAMED_SUBJECTS} more"] if len(broken) > MAX_NAMED_SUBJECTS else []
        raise BadInput("\n  ".join([head, *reasons[:MAX_NAMED_SUBJECTS], *rest]) + f"\n{way}")
    if say is not None:
        for reason in reasons:
            say(f"left out {reason}")


# Several prepared splits in one file, a pack, for a machine without the images or their readers.

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
