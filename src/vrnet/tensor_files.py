"""Files of tensors: safetensors, in which nothing can be executed, with the checksum of all that they hold.

What a file says of itself (its header) is known before any of its numbers is read, so that one that is not what it
says is refused before memory is asked for."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.files import atomic_write, check_ordinary, check_written, parse_json
from vrnet.schema import read_record

T = TypeVar("T")
CHECKSUM = "sha256"
"""The key of the header that has the checksum."""
DTYPES = {"F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
"""The types of numbers that models and optimisers have, by the names that safetensors gives them."""
Layout = tuple[tuple[int, ...], torch.dtype]
"""Shape and type of a tensor."""


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write tensors with their checksum, whole or not at all, and only finite numbers."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    if not are_finite(tensors):
        raise BadInput(f"some of its numbers are NaN or infinite: {path} is not written")
    with atomic_write(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata | {CHECKSUM: checksum(tensors, metadata)})
            with safe_open(temporary, "pt") as file:  # which compares the size with the header
                check_written(file.keys() == sorted(tensors), path)
        except SafetensorError as error:
            raise BadInput(f"cannot write {path}: is the disk full?") from error


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of what a file says of itself, of the name, type and shape of each tensor, and of all numbers."""
    layouts = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    digest = sha256(json.dumps([dict(metadata), layouts], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def are_finite(tensors: Mapping[str, Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


@contextmanager
def open_tensors(path: Path, advice: str) -> Iterator["TensorFile"]:
    """A file of tensors to read from; BadInput, which ends in the advice, if it is none."""
    from safetensors import SafetensorError, safe_open

    check_ordinary(path)
    try:
        with safe_open(path, "pt") as file:
            yield TensorFile(path, file, dict(file.metadata() or {}), advice)
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} is damaged, or no file of tensors: {advice}") from error


@dataclass(frozen=True)
class TensorFile:
    """A file of tensors that is open."""

    path: Path
    file: Any
    metadata: Mapping[str, str]
    advice: str
    """What to do if it cannot be used."""

    def record(self, key: str, schema: type[T]) -> T:
        """What the header says under a key, in JSON, as a dataclass."""
        if key not in self.metadata:
            raise self.refusal("was not written by vrnet for this")
        if CHECKSUM not in self.metadata:
            raise self.refusal("carries no checksum, as files of vrnet 0.1.0")
        try:
            values = parse_json(self.metadata[key])
        except ValueError as error:
            raise self.refusal(f'has no JSON under "{key}"') from error
        return read_record(values, schema, self.path, self.advice)

    def layouts(self) -> dict[str, Layout]:
        """Shape and type of every tensor; none is read to know them."""
        found = {}
        for name in self.file.keys():  # noqa: SIM118
            about = self.file.get_slice(name)
            if about.get_dtype() not in DTYPES:
                raise self.refusal(f"holds numbers of type {about.get_dtype()}")
            found[name] = tuple(about.get_shape()), DTYPES[about.get_dtype()]
        return found

    def read(self) -> dict[str, Tensor]:
        """All tensors, as copies: what safetensors gives is the file itself, and changes where it is changed.

        BadInput unless the checksum is that of the content, and all numbers are finite."""
        tensors = {name: self.file.get_tensor(name).clone() for name in self.layouts()}
        said = {key: text for key, text in self.metadata.items() if key != CHECKSUM}
        if self.metadata.get(CHECKSUM) != checksum(tensors, said):
            raise self.refusal("is damaged, its content is not that of its checksum")
        if not are_finite(tensors):
            raise self.refusal("holds numbers that are NaN or infinite")
        return tensors

    def refusal(self, reason: str) -> BadInput:
        """The error to raise where the file cannot be used."""
        return BadInput(f"{self.path} {reason}: {self.advice}")
