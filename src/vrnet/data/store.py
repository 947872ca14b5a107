"""Prepared samples on disk, one .npz file per subject in the cache; packs (prepared.py) hold the same arrays.

Images are kept in steps of 1/65535, labels as bytes; no pickle, nothing but NumPy. A file of the cache is
FOLDER/DATA/SUBJECT-PURPOSE-HASH.npz, the hash being of all that the sample depends on.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float, UInt8, UInt16
from numpy import ndarray
from torch import Tensor

from vrnet.array_files import DAMAGE, Array, ArrayFile, Checksums, write_arrays
from vrnet.data.sample import Purpose, Sample
from vrnet.errors import BadInput
from vrnet.files import exists, is_folder
from vrnet.images.checks import MAX_SPACING_MM, MIN_SPACING_MM, check_memory

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
