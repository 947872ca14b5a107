"""A split of a data set, prepared: each subject is made once and kept; all that cannot be used are named at once. A
cache keeps one subject per file, FOLDER/DATA/SUBJECT-PURPOSE-HASH.npz; a pack several splits in one file, for a machine
without the images. Both are arrays of NumPy: images in steps of 1/65535, labels as bytes, nothing that is executed."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import torch
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.data.dataset import Dataset, find_dataset
from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput, Progress, Stage
from vrnet.files import atomic_write, check_file, check_folder, check_ordinary, exists, is_folder, read_record
from vrnet.images.grid import MAX_SPACING_MM, MIN_SPACING_MM

FORMAT = 5  # to be raised when files are written otherwise, or another sample is made of the same sources
STEPS = 65535
DTYPES = {"fixed": "u2", "moving": "u2", "spacing": "f8", "fixed_labels": "u1", "moving_labels": "u1", "field": "f4"}
OPTIONAL = "fixed_labels", "moving_labels", "field"
PACK_SUFFIX = ".npz"
PREPARE_AGAIN = "prepare it again"


def arrays_of(sample: Sample) -> dict[str, Shaped[ndarray, "..."]]:
    about = {"name": np.array(sample.name), "spacing": np.array(sample.spacing, np.float64)}
    for name in ("fixed", "moving"):
        about[name] = np.round(getattr(sample, name).numpy() * np.float64(STEPS)).astype(np.uint16)
    return about | {name: getattr(sample, name).numpy() for name in OPTIONAL if getattr(sample, name) is not None}


def write_arrays(arrays: Iterable[tuple[str, Shaped[ndarray, "..."]]], path: Path) -> None:
    with atomic_write(path) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as file:
        for name, array in arrays:
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, array, allow_pickle=False)


def read_sample(places: Mapping[str, tuple[Path, str]], subject: str) -> Sample:
    """The sample of a subject; `places` give its file, and the prefix that the names of its arrays have there."""
    path, place = places[subject]
    try:
        with np.load(path) as file:
            arrays = {name: file[place + name] for name in ("name", *DTYPES) if place + name in file}
        (b, _, *s), spacing = arrays["fixed"].shape, tuple(arrays["spacing"].tolist())
        shapes = dict.fromkeys(DTYPES, (b, 1, *s)) | {"spacing": (len(s),), "field": (b, len(s), *s)}
        is_fit = b > 0 and len(s) in (2, 3) and 0 not in s
        is_fit &= all(MIN_SPACING_MM <= h <= MAX_SPACING_MM for h in spacing)
        for name in arrays.keys() & DTYPES.keys():
            is_fit &= (arrays[name].dtype, arrays[name].shape) == (np.dtype(DTYPES[name]), shapes[name])
        if not is_fit or str(arrays["name"]) != subject:
            raise ValueError(f"not the sample of {subject}")
        fixed, moving = (torch.from_numpy(arrays[name] / np.float32(STEPS)) for name in ("fixed", "moving"))
        others = {name: torch.from_numpy(arrays[name]) for name in OPTIONAL if name in arrays}
        return Sample(subject, fixed, moving, spacing, **others)
    except Exception as error:
        raise BadInput(f"{subject}: {path} is damaged, or no longer there: remove it, and {PREPARE_AGAIN}") from error


@dataclass(frozen=True)
class StoredSamples:
    """Samples of known names, each read when it is asked for; none is held."""

    names: Sequence[str]
    read: Callable[[str], Sample]

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
    samples: StoredSamples | tuple[Sample, ...]  # read each time they are asked for, unless `load` put them in memory
    structures: Mapping[str, int]  # {"LV": 3, ...}: what the labels mean
    pairs_across_subjects: bool  # whether images of any two subjects make a pair to train on

    @property
    def names(self) -> list[str]:
        return list(getattr(self.samples, "names", ())) or [sample.name for sample in self.samples]

    def read(self, subject: str) -> Sample:
        return self.samples[self.names.index(subject)]

    def identity(self, subject: str) -> str:
        """The SHA-256 of the sample of a subject; if it cannot be read, the reason."""
        try:
            sample = self.read(subject)
        except BadInput as error:
            return str(error)
        total = hashlib.sha256()
        for name, value in vars(sample).items():
            array = np.asarray([] if value is None else value)
            total.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
        return total.hexdigest()

    def load(self) -> "PreparedSplit":
        """The split with all its samples in memory, to be read many times."""
        return replace(self, samples=tuple(self.samples))

    def spread(self, count: int) -> "PreparedSplit":
        """`count` of the subjects, evenly spread over the list, in which similar subjects may be neighbours."""
        if not 1 <= count <= len(self.samples):
            raise BadInput(f"{self.split} of {self.data} has {len(self.samples)} subjects, and not {count}")
        return self.choose([self.names[k * len(self.samples) // count] for k in range(count)])

    def choose(self, names: Sequence[str]) -> "PreparedSplit":
        return replace(self, samples=StoredSamples(names, self.read))


MAX_NAMED_SUBJECTS = 20


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/vrnet, or ~/.cache/vrnet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrnet"


def cache_name(dataset: Any, subject: str, purpose: Purpose, sources: list[Path]) -> str:
    """The name of a sample in the cache: other for another protocol, format, or name, size or time of a source."""
    if missing := [path.name for path in sources if not exists(path)]:
        raise BadInput(f"there is no {', '.join(missing)}")
    depends_on = FORMAT, dataset.name, parameters(dataset), subject, purpose, [fingerprint(path) for path in sources]
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return f"{safe_name(subject)}-{purpose}-{digest[:16]}{PACK_SUFFIX}"


def parameters(dataset: Any) -> Mapping[str, Any]:
    """The parameters of a protocol: as the data set lists them, or its fields except those that say where it is."""
    own = {part.name: getattr(dataset, part.name) for part in fields(dataset)}
    return getattr(dataset, "parameters", {name: own[name] for name in own if name not in ("root", "split_file")})


def fingerprint(path: Path) -> list[Any]:
    """Name, size in bytes and time of the last change in ns of a file, or of all files of a folder (a DICOM series)."""
    if is_folder(path):
        return [fingerprint(file) for file in sorted(path.iterdir())]
    found = path.stat()
    return [path.name, found.st_size, found.st_mtime_ns]


def safe_name(subject: str) -> str:
    return re.sub(r"[^\w.-]", "_", subject)[:80]


def prepare_split(
    dataset: Dataset, split: str, purpose: Purpose, cache: Path | None = None, *, skip_broken: bool = False,
    progress: Progress | None = None, say: Callable[[str], None] = print,
) -> PreparedSplit:  # fmt: skip
    """The subjects of a split, each made unless the cache has it; BadInput, or `say` if skipped, names broken ones."""
    subjects, folder = dataset.subjects(split), (cache or cache_folder()) / dataset.name
    check_folder(folder)
    parameters(dataset)  # a data set that cannot find them says so once, not for each subject
    places: dict[str, tuple[Path, str]] = {}
    broken: dict[str, str] = {}
    for done, subject in enumerate(subjects, start=1):
        try:
            file = folder / cache_name(dataset, subject, purpose, dataset.sources(subject, purpose))
            if not exists(file):
                write_arrays(arrays_of(dataset.prepare(subject, purpose)).items(), file)
            places[subject] = file, ""
        except BadInput as error:
            broken[subject] = str(error)
        if progress is not None:
            progress(done / len(subjects))
    if broken and not (skip_broken and len(broken) < len(subjects)):
        lines = [f"{len(broken)} of {len(subjects)} subjects of {dataset.name} cannot be used:"]
        lines += [f"{subject}: {reason}" for subject, reason in [*broken.items()][:MAX_NAMED_SUBJECTS]]
        lines += [f"and {more} more"] if (more := len(broken) - MAX_NAMED_SUBJECTS) > 0 else []
        is_all = len(broken) == len(subjects)
        way = "; or is this the wrong folder?" if is_all else ", or go on without them: `skip_broken`"
        raise BadInput("\n  ".join(lines) + f"\nmend them{way}")
    for subject, reason in broken.items():
        say(f"left out {subject}: {reason}")
    samples, structures = StoredSamples(list(places), partial(read_sample, places)), dataset.structures
    if structures is None:  # labels are called by their numbers
        maps = (labels for sample in samples for labels in (sample.fixed_labels, sample.moving_labels))
        numbers = {number for labels in maps if labels is not None for number in np.unique(labels).tolist()}
        structures = {str(number): number for number in sorted(numbers - {0})}
    return PreparedSplit(dataset.name, split, samples, structures, dataset.pairs_across_subjects)


# Packs: several prepared splits in one file. Its arrays are PART/NUMBER/NAME; what the parts are is in "index".

Use = tuple[str, Purpose]  # a split, and what it is prepared for


@dataclass(frozen=True)
class PartRecord:
    """What the index of a pack says of a split."""

    data: str
    split: str
    purpose: Purpose
    structures: dict[str, int]
    pairs_across_subjects: bool
    subjects: tuple[str, ...]
    checksums: Any = None  # of earlier versions; they are not compared

    def __post_init__(self) -> None:
        if not 0 < len(self.subjects) == len(set(self.subjects)):
            raise BadInput("the subjects are none, or named twice")


def save_pack(parts: Mapping[Use, PreparedSplit], path: Path) -> None:
    """Write {(split, purpose): a prepared split} in one file."""
    check_file(path, (PACK_SUFFIX,))
    records = [
        asdict(PartRecord(part.data, *use, dict(part.structures), part.pairs_across_subjects, tuple(part.names)))
        for use, part in parts.items()
    ]

    def arrays() -> Iterable[tuple[str, ndarray]]:
        for place, part in enumerate(parts.values()):
            for number, sample in enumerate(part.samples):
                yield from ((f"{place}/{number}/{name}", array) for name, array in arrays_of(sample).items())
        yield "index", np.array(json.dumps({"format": FORMAT, "parts": records}))

    write_arrays(arrays(), path)


def load_pack(path: Path) -> dict[Use, PreparedSplit]:
    """{(split, purpose): a prepared split} of a file. Each sample is read when it is asked for."""
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    check_ordinary(path)
    try:
        with np.load(path) as file:
            index = json.loads(file["index"].item())
        parts = {FORMAT: list(index["parts"])}[index.get("format")]
    except Exception as error:
        raise BadInput(f"{path} is damaged, no pack, or one of another version of vrnet: {PREPARE_AGAIN}") from error
    found = {}
    for place, values in enumerate(parts):
        part = read_record(values, PartRecord, path, PREPARE_AGAIN)
        places = {subject: (path, f"{place}/{k}/") for k, subject in enumerate(part.subjects)}
        samples, about = StoredSamples(part.subjects, partial(read_sample, places)), (part.data, part.split)
        found[part.split, part.purpose] = PreparedSplit(*about, samples, part.structures, part.pairs_across_subjects)
    return found


USES: tuple[Use, ...] = (("train", "training"), ("val", "evaluation"), ("test", "evaluation"))
MORE_USES: dict[str, tuple[Use, ...]] = {"acdc": (("train", "evaluation"),)}
"""By data set, what some budgets of `vrnet paper` need as well: training on the three slices that are measured."""


@dataclass(frozen=True)
class Source:
    """A data set as a command line names it, and how its splits are prepared."""

    data: str  # the name of a data set, or a file that `vrnet prepare` wrote
    root: Path | None = None
    split_file: Path | None = None
    cache: Path | None = None
    skip_broken: bool = False

    def split(self, split: str, purpose: Purpose, stage: Stage, say: Callable[[str], None]) -> PreparedSplit:
        if not self.data.endswith(PACK_SUFFIX):
            asked, tick = (self.dataset, split, purpose, self.cache), stage(f"preparing {self.data}, {split}")
            return prepare_split(*asked, skip_broken=self.skip_broken, progress=tick, say=say)
        if self.root or self.split_file:
            raise BadInput(f"{self.data} holds a data set already prepared: leave out `root` and `split_file`")
        if (split, purpose) not in self.parts:
            known = ", ".join(f"{name} (for {use})" for name, use in self.parts)
            again = f'`vrnet prepare`, or give `data="{next(iter(self.parts.values())).data}"` and `root`, its folder'
            raise BadInput(f"{self.data} holds no split {split} for {purpose}: it holds {known}; make it by {again}")
        return self.parts[split, purpose]

    @cached_property
    def dataset(self) -> Dataset:
        return find_dataset(self.data, self.root, self.split_file)

    @cached_property
    def parts(self) -> dict[Use, PreparedSplit]:
        return load_pack(Path(self.data))


def pack(source: Source, path: Path, stage: Stage, say: Callable[[str], None]) -> dict[Use, PreparedSplit]:
    check_file(path, (PACK_SUFFIX,))
    uses: list[Use] = []
    for use in (*USES, *MORE_USES.get(source.data, ())):
        with suppress(BadInput):  # which is raised for a split that nobody is in
            uses += [use] if source.dataset.subjects(use[0]) else []
    parts = {use: source.split(*use, stage, say) for use in uses or USES}
    stage(f"writing {path}")
    save_pack(parts, path)
    return parts
