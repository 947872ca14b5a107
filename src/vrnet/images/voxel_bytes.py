"""Numbers in the text of headers, and voxels in the bytes after it."""

import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vrnet.images.checks import DAMAGED, Voxels, check_memory, unreadable
from vrnet.images.compressed import bytes_left, inflate
from vrnet.images.grid import Grid
from vrnet.wording import counted

MAX_LINE_BYTES = 4096
MAX_HEADER_BYTES = 1 << 20
WHOLE_NUMBER = re.compile(r"[1-9][0-9]{0,11}")
DECIMAL_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")


def whole_numbers(text: str, count: int, path: Path) -> tuple[int, ...]:
    """That many positive whole numbers; or BadInput."""
    words = text.split()
    if len(words) != count or not all(map(WHOLE_NUMBER.fullmatch, words)):
        raise unreadable(
            path, f"its header should have {counted(count, 'positive whole number')} where it has {text[:40]!a}"
        )
    return tuple(map(int, words))


def numbers(text: str, count: int, path: Path) -> tuple[float, ...]:
    """That many finite numbers; or BadInput."""
    words = text.split()
    if (
        len(words) != count
        or not all(map(DECIMAL_NUMBER.fullmatch, words))
        or not np.isfinite(list(map(float, words))).all()
    ):
        raise unreadable(path, f"its header should have {counted(count, 'finite number')} where it has {text[:40]!a}")
    return tuple(map(float, words))


def read_voxels(
    file: BinaryIO, path: Path, grid: Grid, dtype: "np.dtype[Any]", channels: int, is_compressed: bool
) -> Voxels:
    """The voxels that the rest of a file holds, first axis fastest, channels faster still; BadInput if it is short."""
    count = channels
    for n in grid.shape:
        count *= n
    size = count * dtype.itemsize
    if is_compressed:
        values = np.frombuffer(inflate(file, size, path), dtype)
    else:
        if size > bytes_left(file):
            raise unreadable(path, DAMAGED)
        check_memory(path, size)
        values = np.fromfile(file, dtype, count)
    shape = (*reversed(grid.shape), channels) if channels > 1 else grid.shape[::-1]
    return Voxels(values.reshape(shape).T, grid, channels > 1, path)
