"""Files of NumPy's arrays (.npz): each is read when it is asked for, and refused unless its checksum is right.

Python reads them here, without NumPy's reader, which would trust what they say of their sizes."""

import re
import zlib
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.attributes import cached_property
from vrnet.files import atomic_write, check_ordinary, check_written

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
