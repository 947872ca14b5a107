"""NRRD (.nrrd, .nhdr): lines `field: value` up to an empty one, then the voxels, or the name of their file.

Read without ITK, whose reader trusts the header: it can overwrite memory, and copy any file that the header names."""

import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vrnet.images.checks import MAX_SPACING_MM, SHEARED, Voxels, beside, check_grid, unreadable
from vrnet.images.grid import Grid
from vrnet.images.voxel_bytes import MAX_HEADER_BYTES, MAX_LINE_BYTES, numbers, read_voxels, whole_numbers
from vrnet.wording import counted

NUMBER_TYPES = {
    code: names.split(", ")
    for code, names in {
        "i1": "signed char, int8, int8_t",
        "u1": "uchar, unsigned char, uint8, uint8_t",
        "i2": "short, short int, signed short, signed short int, int16, int16_t",
        "u2": "ushort, unsigned short, unsigned short int, uint16, uint16_t",
        "i4": "int, signed int, int32, int32_t",
        "u4": "uint, unsigned int, uint32, uint32_t",
        "i8": "longlong, long long, long long int, signed long long, signed long long int, int64, int64_t",
        "u8": "ulonglong, unsigned long long, unsigned long long int, uint64, uint64_t",
        "f4": "float",
        "f8": "double",
    }.items()
}
TO_LPS = {
    "left-posterior-superior": (1, 1, 1), "LPS": (1, 1, 1),
    "right-anterior-superior": (-1, -1, 1), "RAS": (-1, -1, 1),
    "left-anterior-superior": (1, -1, 1), "LAS": (1, -1, 1),
}  # fmt: skip
"""The signs that take a direction of a named space to LPS, which ITK uses."""
ENCODINGS = {"raw": False, "gzip": True, "gz": True}
ALIASES = {"datafile": "data file", "lineskip": "line skip", "byteskip": "byte skip", "centerings": "centers"}
UNSUPPORTED = ("axis mins", "axismins", "axis maxs", "axismaxs", "line skip", "subdim")
MAX_DIMENSIONS = 6


def is_nrrd(head: bytes) -> bool:
    """Whether the first bytes of a file are those of an NRRD file."""
    return head.startswith(b"NRRD000")


def read_nrrd(path: Path) -> Voxels:
    """The voxels of an NRRD file and where they are; or BadInput."""
    with path.open("rb") as file:
        fields = read_fields(file, path)
        channels, grid = nrrd_grid(fields, path)
        dtype = number_type(fields, path)
        is_compressed = ENCODINGS.get(fields.get("encoding", ""))
        if is_compressed is None:
            raise unreadable(path, "its voxels are encoded in a way that is not known; save it as raw or gzip")
        name = fields.get("data file")
        if name is None:
            skip_bytes(file, fields, is_compressed, path)
            return read_voxels(file, path, grid, dtype, channels, is_compressed)
    if name.startswith("LIST") or "%" in name:
        raise unreadable(path, "its voxels are in several files; save it as one .nrrd file")
    with beside(path, name).open("rb") as data:
        skip_bytes(data, fields, is_compressed, path)
        return read_voxels(data, path, grid, dtype, channels, is_compressed)


def skip_bytes(file: BinaryIO, fields: dict[str, str], is_compressed: bool, path: Path) -> None:
    """Pass over the bytes before the first voxel, where the header says that there are some."""
    skip = fields.get("byte skip", "0")
    if skip == "0":
        return
    if is_compressed:
        raise unreadable(path, "its header has `byte skip` before compressed voxels, which is not supported")
    (count,) = whole_numbers(skip, 1, path)
    file.seek(count, 1)


def nrrd_place(path: Path) -> Grid:
    """Where the voxels of an NRRD file are, which are not read; or BadInput."""
    with path.open("rb") as file:
        return nrrd_grid(read_fields(file, path), path)[1]


def counts_frames(path: Path) -> bool:
    """Whether the first axis of an NRRD file counts images, as that of a sequence of 3D Slicer does."""
    with path.open("rb") as file:
        kinds = read_fields(file, path).get("kinds", "").split()
    return kinds[:1] in (["list"], ["time"])


def read_fields(file: BinaryIO, path: Path) -> dict[str, str]:
    """The fields of a header, up to an empty line (or, where the voxels are in another file, to the end)."""
    fields: dict[str, str] = {}
    file.readline(MAX_LINE_BYTES)
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES or file.tell() > MAX_HEADER_BYTES:
            raise unreadable(path, "its header has a line that is too long; it is damaged")
        text = line.decode("latin-1").rstrip("\r\n")
        if not text:
            break
        key, separator, value = text.partition(":")
        if text.startswith("#") or value.startswith("="):  # a comment, or a remark of the form `name:=value`
            continue
        key = ALIASES.get(key.strip().lower(), key.strip().lower())
        if not separator or key in fields:
            raise unreadable(path, f"its header is damaged at the line {text[:40]!a}")
        fields[key] = value.strip()
    for key in UNSUPPORTED:
        if key in fields:
            raise unreadable(path, f"its header has the field {key}, which is not supported; save it by SimpleITK")
    return fields


def nrrd_grid(fields: dict[str, str], path: Path) -> tuple[int, Grid]:
    """How many values a voxel has, and where the voxels are."""
    (dimension,) = whole_numbers(fields.get("dimension", ""), 1, path)
    if dimension > MAX_DIMENSIONS:
        raise unreadable(path, f"it has {dimension} dimensions; give an image of 2 or 3")
    sizes = whole_numbers(fields.get("sizes", ""), dimension, path)
    is_vector = has_vectors(fields, dimension, path)
    channels, shape = (sizes[0], sizes[1:]) if is_vector else (1, sizes)
    if len(shape) < 2:
        raise unreadable(path, f"it has {counted(len(shape), 'dimension')}; give an image of 2 or 3")
    directions, origin = place(fields, len(shape), is_vector, path)
    signs = np.array(TO_LPS.get(fields.get("space", ""), (1,) * len(shape)))
    if signs.shape != (len(shape),):
        raise unreadable(path, f"it has {len(shape)} axes in a space of 3; give an image of 2 or 3 dimensions")
    if not (np.abs(directions) <= MAX_SPACING_MM).all() or not directions.any(1).all():
        raise unreadable(path, SHEARED)
    spacing = np.sqrt((directions * directions).sum(1))
    if not (spacing > 0).all():  # numbers so small that their squares are 0
        raise unreadable(path, SHEARED)
    axes = directions * (1 / spacing)[:, None] * signs
    grid = Grid(shape, tuple(spacing.tolist()), tuple((origin * signs).tolist()), tuple(axes.T.ravel().tolist()))
    check_grid(grid, path)
    return channels, grid


def has_vectors(fields: dict[str, str], dimension: int, path: Path) -> bool:
    """Whether the first axis counts the values of a voxel; BadInput if another does."""
    directions = re.findall(r"none|\([^()]*\)", fields.get("space directions", ""))
    kinds = fields.get("kinds", "").split()
    is_space = [kind in ("domain", "space", "time", "???", "none", "?") for kind in kinds] or [True] * dimension
    if directions:
        is_space = [direction != "none" for direction in directions]
    if {len(is_space), len(kinds) or dimension} != {dimension} or not all(is_space[1:]):
        raise unreadable(path, "the values of a voxel should be its first axis, and the others axes of space")
    return not is_space[0]


def place(fields: dict[str, str], d: int, is_vector: bool, path: Path) -> tuple[Any, Any]:
    """The step in space along each axis, one row per axis, and the place of the first voxel."""
    if "space directions" in fields:
        vectors = re.findall(r"\([^()]*\)", fields["space directions"])
        rows = [numbers(vector[1:-1].replace(",", " "), d, path) for vector in vectors]
        if len(rows) != d:
            raise unreadable(path, f"its header should have {d} space directions")
        origin = fields.get("space origin", f"({','.join('0' * d)})")
        return np.array(rows), np.array(numbers(origin.strip("()").replace(",", " "), d, path))
    words = fields.get("spacings", " ".join("1" * (d + is_vector))).split()
    return np.diag(numbers(" ".join(words[is_vector:]), d, path)), np.zeros(d)


def number_type(fields: dict[str, str], path: Path) -> "np.dtype[Any]":
    """The type of a voxel's values, as they are stored."""
    code = next((code for code, names in NUMBER_TYPES.items() if fields.get("type", "").lower() in names), None)
    if code is None:
        raise unreadable(path, "its voxels are of a number type that is not known; save it as integers or floats")
    order = fields.get("endian", "").lower()
    if order not in ("little", "big") and code not in ("i1", "u1"):
        raise unreadable(path, "its header does not say the order of bytes (`endian: little` or `endian: big`)")
    return np.dtype(code).newbyteorder(">" if order == "big" else "<")
