"""Deflated voxels: inflated up to the size that the header says, and checked to the last byte of their checksum."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vrnet.images.checks import DAMAGED, check_memory, unreadable

MAX_DEFLATE_RATIO = 1032
"""A byte of deflated data holds at most this many bytes."""
GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 18


def inflate(file: BinaryIO, size: int, path: Path) -> bytearray:
    """The `size` bytes that the rest of a file, in zlib's or gzip's form, holds; BadInput unless there are just as many
    and their checksum is right."""
    deflated_size = bytes_left(file)
    if size > MAX_DEFLATE_RATIO * deflated_size:
        raise unreadable(path, DAMAGED)
    check_memory(path, size)
    inflated = bytearray()
    for part in inflated_parts(file, path):
        inflated += part
        if len(inflated) > size:
            raise unreadable(path, "it holds more voxels than its header says; it is damaged")
    if len(inflated) < size:
        raise unreadable(path, DAMAGED)
    return inflated


def inflated_parts(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """What the rest of a file holds, in small parts; BadInput unless every stream is whole and its checksum right.

    Gzip allows several streams one after another, and zeros after the last."""
    stream, waiting = zlib.decompressobj(wbits=47), file.read(CHUNK_BYTES)  # 47: zlib's form or gzip's
    try:
        while waiting:
            yield stream.decompress(waiting, CHUNK_BYTES)
            waiting = stream.unconsumed_tail or stream.unused_data or file.read(CHUNK_BYTES)
            if stream.eof and waiting:
                waiting = waiting.lstrip(b"\0") or file.read(CHUNK_BYTES).lstrip(b"\0")
                if waiting and not waiting.startswith(GZIP_MAGIC):
                    raise unreadable(path, DAMAGED)
                stream = zlib.decompressobj(wbits=31) if waiting else stream
    except zlib.error as error:
        raise unreadable(path, DAMAGED) from error
    if not stream.eof:
        raise unreadable(path, DAMAGED)


def bytes_left(file: BinaryIO) -> int:
    """How many bytes lie between the place where a file is being read and its end."""
    here = file.tell()
    end = file.seek(0, 2)
    file.seek(here)
    return end - here
