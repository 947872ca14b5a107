"""MetaImage (.mha, .mhd): lines `key = value`, the last of which says where the voxels are.

Read without ITK, whose reader trusts the header: it can overwrite memory, and copy any file that the header names."""

import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vrnet.images.checks import BAD_SPACING, Voxels, beside, check_grid, unreadable
from vrnet.images.grid import Grid
from vrnet.images.voxel_bytes import MAX_HEADER_BYTES, MAX_LINE_BYTES, numbers, read_voxels, whole_numbers

NUMBER_TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_UINT": "u4",
    "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
YES = ("True", "true", "TRUE", "T", "t", "1")
MAX_DIMENSIONS, MAX_CHANNELS = 5, 64
LAST_KEY = "ElementDataFile"


def is_metaimage(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a MetaImage."""
    return re.match(rb"\s*[A-Za-z]\w*[ \t]*=", head) is not None and b"NDims" in head


def read_metaimage(path: Path) -> Voxels:
    """The voxels of a MetaImage and where they are; or BadInput."""
    with path.open("rb") as file:
        fields = read_fields(file, path)
        grid, dtype, channels = metaimage_grid(fields, path), number_type(fields, path), channel_count(fields, path)
        is_compressed, name = fields.get("CompressedData", "False") in YES, fields[LAST_KEY]
        if name in ("LOCAL", "Local", "local"):
            return read_voxels(file, path, grid, dtype, channels, is_compressed)
    if name.startswith("LIST") or "%" in name:
        raise unreadable(path, "its voxels are in several files; save it as one .mha file")
    with beside(path, name).open("rb") as data:
        skip_header(data, fields, path, int(np.prod(grid.shape, dtype=object)) * channels * dtype.itemsize)
        return read_voxels(data, path, grid, dtype, channels, is_compressed)


def metaimage_place(path: Path) -> Grid:
    """Where the voxels of a MetaImage are, which are not read; or BadInput."""
    with path.open("rb") as file:
        return metaimage_grid(read_fields(file, path), path)


def read_fields(file: BinaryIO, path: Path) -> dict[str, str]:
    """The fields of a header; the file is left at the byte after it."""
    fields: dict[str, str] = {}
    while LAST_KEY not in fields:
        line = file.readline(MAX_LINE_BYTES)
        key, separator, value = line.decode("latin-1").partition("=")
        if not line.endswith(b"\n") or file.tell() > MAX_HEADER_BYTES or not (separator or not line.strip()):
            raise unreadable(path, "its header is damaged: a line is too long, or is not `key = value`")
        if key.strip() in fields:
            raise unreadable(path, f"its header says {key.strip()[:40]!a} twice; it is damaged")
        fields[key.strip()] = value.strip()
    return fields


def metaimage_grid(fields: dict[str, str], path: Path) -> Grid:
    """Where the voxels are. Row i of the matrix in the file is the direction of axis i."""
    (d,) = whole_numbers(fields.get("NDims", ""), 1, path)
    if not 2 <= d <= MAX_DIMENSIONS:
        raise unreadable(path, f"it has {d} dimensions; give an image of 2 or 3")
    shape = whole_numbers(fields.get("DimSize", ""), d, path)
    spacing = numbers(first_of(fields, "ElementSpacing", "ElementSize") or " ".join("1" * d), d, path)
    origin = numbers(first_of(fields, "Offset", "Position", "Origin") or " ".join("0" * d), d, path)
    matrix = first_of(fields, "TransformMatrix", "Orientation", "Rotation")
    rows = np.reshape(numbers(matrix, d * d, path), (d, d)) if matrix else np.eye(d)
    if min(spacing) <= 0:
        raise unreadable(path, BAD_SPACING)
    if fields.get("DistanceUnits", "mm") not in ("mm", "?"):
        raise unreadable(path, "its lengths are not in millimetres; convert it")
    grid = Grid(shape, spacing, origin, tuple(rows.T.ravel().tolist()))
    check_grid(grid, path)
    return grid


def first_of(fields: dict[str, str], *keys: str) -> str:
    """The value of the first of these keys that a header has, or nothing."""
    return next((fields[key] for key in keys if key in fields), "")


def number_type(fields: dict[str, str], path: Path) -> "np.dtype[Any]":
    """The type of a voxel's values, as they are stored."""
    code = NUMBER_TYPES.get(fields.get("ElementType", ""))
    if code is None or fields.get("BinaryData", "True") not in YES:
        raise unreadable(path, "its voxels are stored in a way that is not known; save it again as binary numbers")
    scaling = {part: fields.get(f"ElementToIntensityFunction{part}", "") for part in ("Slope", "Offset")}
    if scaling["Slope"] not in ("", "1") or scaling["Offset"] not in ("", "0"):
        raise unreadable(path, "its values are to be scaled, which readers do differently; save the scaled values")
    is_big = (first_of(fields, "BinaryDataByteOrderMSB", "ElementByteOrderMSB") or "False") in YES
    return np.dtype(code).newbyteorder(">" if is_big else "<")


def channel_count(fields: dict[str, str], path: Path) -> int:
    """How many values a voxel has."""
    (count,) = whole_numbers(fields.get("ElementNumberOfChannels", "1"), 1, path)
    if count > MAX_CHANNELS:
        raise unreadable(path, f"it has {count} values per voxel; give a grey image")
    return count


def skip_header(data: BinaryIO, fields: dict[str, str], path: Path, voxel_bytes: int) -> None:
    """Go to the first voxel of a file of voxels, which may begin with a header of its own."""
    skip = fields.get("HeaderSize", "0")
    if skip == "-1":
        data.seek(max(0, data.seek(0, 2) - voxel_bytes))
    elif skip != "0":
        data.seek(*whole_numbers(skip, 1, path))
