"""Files of tensors: safetensors, in which nothing can be executed, with the checksum of all that they hold.

What a file says of itself (its header) is known before any of its numbers is read, so that one that is not what it
says is refused before memory is asked for."""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
import torch
from jaxtyping import Shaped
from numpy import ndarray
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


# Files of NumPy's arrays (.npz): each is read when it is asked for, and refused unless its checksum is right.
#
# Python reads them here, without NumPy's reader, which would trust what they say of their sizes.

Array = Shaped[ndarray, "..."]
Checksums = dict[str, int]
"""{name of an array: its CRC-32}"""
DAMAGE = BadZipFile, zlib.error, OSError, EOFError, KeyError, ValueError, NotImplementedError, RuntimeError
"""What reading a damaged file raises."""
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|](?:f[48]|u[12]|U\d{1,8}))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,18}(?:, |,?(?=\)))){0,6})\), \} *\n",
    flags=re.DOTALL,
)
"""What stands before the numbers, or the text, of an array: their type, their order, and the shape."""
MAX_DEFLATE_RATIO = 1032
"""A byte of deflated data holds at most this many bytes."""
CHUNK_BYTES = 1 << 18
ENCRYPTED = 1


class ArrayFile:
    """A file of arrays, opened when the first is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def zip(self) -> ZipFile:
        check_ordinary(self.path)
        return ZipFile(self.path)

    @cached_property
    def checksums(self) -> Checksums:
        """What the file says they are; an array is read only if its own is that."""
        return checksums(self.zip)

    def size(self, names: Iterable[str]) -> int:
        """Bytes that these arrays take in memory, as the file says; ValueError if it could not hold as many."""
        members = [self.zip.getinfo(f"{name}.npy") for name in names]
        for info in members:
            check_member(info)
        return sum(info.file_size for info in members)

    def read(self, name: str) -> Array:
        """An array; one of DAMAGE unless it is whole."""
        info = self.zip.getinfo(f"{name}.npy")
        check_member(info)
        return parse_array(inflate(self.zip, info))


def check_member(info: ZipInfo) -> None:
    """ValueError unless an array may be inflated: deflate alone, no password, no more bytes than there can be."""
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED) or info.flag_bits & ENCRYPTED:
        raise ValueError(f"{info.filename} is not deflated")
    if info.file_size > MAX_DEFLATE_RATIO * info.compress_size:
        raise ValueError(f"{info.filename} cannot hold {info.file_size} bytes")


def inflate(file: ZipFile, info: ZipInfo) -> bytearray:
    """The bytes of an array, inflated piece by piece and never further than it says; the last piece comes only if the
    checksum of all is right."""
    found = bytearray()
    with file.open(info) as member:
        while part := member.read(CHUNK_BYTES):
            found += part
    if len(found) != info.file_size:
        raise ValueError(f"{info.filename} is not whole")
    return found


def parse_array(content: bytearray) -> Array:
    """The array that NumPy's format (.npy) says so; ValueError if it is of another form than we write."""
    found = HEADER.match(content)
    if found is None:
        raise ValueError("no array of this form")
    dtype, shape = np.dtype(found[1].decode()), tuple(map(int, re.findall(rb"\d+", found[3])))
    if dtype.itemsize * prod(shape) != len(content) - found.end():
        raise ValueError(f"not the bytes of {dtype} in shape {shape}")
    return np.ndarray(shape, dtype, content, found.end(), order="F" if found[2] == b"True" else "C")


def write_arrays(
    arrays: Iterable[tuple[str, Array]], path: Path, index: Callable[[Checksums], tuple[str, Array]] | None = None
) -> None:
    """Write named arrays, one after the other, in one .npz file, whole or not at all; last the one that `index` makes
    of the checksums of the others."""
    with atomic_write(path) as temporary:
        with ZipFile(temporary, "w", ZIP_DEFLATED) as file:
            for name, array in arrays:
                add_array(file, name, array)
            if index is not None:
                add_array(file, *index(checksums(file)))
        with ZipFile(temporary) as written:  # which reads the list of contents, at its end
            check_written(written.namelist() == file.namelist(), path)


def add_array(file: ZipFile, name: str, array: Array) -> None:
    with file.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.save(member, array, allow_pickle=False)


def checksums(file: ZipFile) -> Checksums:
    """The CRC-32 of each array; none is read to know them."""
    return {info.filename.removesuffix(".npy"): info.CRC for info in file.infolist()}
