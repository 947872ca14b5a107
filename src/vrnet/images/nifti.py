"""NIfTI-1: a header of 348 bytes, checked here before ITK reads the file.

ITK says nothing where voxels are missing, takes NaN for 0, and mends or flips odd spacings."""

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from vrnet.errors import BadInput, counted
from vrnet.images.checks import (
    BAD_SPACING,
    DAMAGED,
    MAX_ORIGIN_MM,
    MAX_SPACING_MM,
    SHEARED,
    UNKNOWN_KIND,
    Voxels,
    beside,
    check_grid,
    check_memory,
    check_regular,
    unreadable,
)
from vrnet.images.grid import Grid

# Deflated voxels: inflated up to the size that the header says, and checked to the last byte of their checksum.

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


NOT_FINITE = "contains NaN or infinite values: replace them first (numpy.nan_to_num)"
NOT_NIFTI = "it is not a NIfTI image, or damaged or incomplete"
NUMBER_TYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 32: "c8", 64: "f8", 128: "u1,u1,u1", 256: "i1", 512: "u2", 768: "u4",
    1024: "i8", 1280: "u8", 1792: "c16", 2304: "u1,u1,u1,u1",
}  # fmt: skip
UNITS_MM = {1: 1e3, 2: 1.0, 3: 1e-3}
"""Metres, millimetres and micrometres."""
UNITS_MS = {8: 1e3, 16: 1.0, 24: 1e-3}
"""Seconds, milliseconds and microseconds."""
HEADER_BYTES, NIFTI_2_BYTES = 348, 540
FIRST_VOXEL_AT = 352
SCALE_TOLERANCE = 1e-5
"""How far, relatively, rows and spacing may differ before ITK is expected to say so."""
PARTNERS = {".hdr": ".img", ".img": ".hdr"}


class Header(NamedTuple):
    """The fields of a NIfTI header on which reading depends."""

    is_pair: bool
    order: Literal["<", ">"]
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    unit_mm: float
    handedness: Literal[-1, 1]
    """The sign of the third axis of the qform."""
    number_type: str
    first_voxel: float
    rotation: tuple[float, ...]
    rows: tuple[float, ...]
    has_rotation: bool
    has_rows: bool
    frame_ms: float | None
    """From one frame to the next, if there are frames and the unit is known."""


def is_nifti(head: bytes) -> bool:
    """Whether the first bytes of a file, inflated, are those of a NIfTI header."""
    return head[:4] in [struct.pack(order + "i", size) for order in "<>" for size in (HEADER_BYTES, NIFTI_2_BYTES)]


def first_bytes(path: Path, count: int = 4096) -> bytes:
    """The first bytes of an ordinary file, inflated if they are in gzip's form; or BadInput."""
    check_regular(path)
    with path.open("rb") as file:
        head = file.read(count)
        if not head.startswith(GZIP_MAGIC):
            return head
        file.seek(0)
        return next(inflated_parts(file, path), b"")[:count]


def header_of_pair(path: Path) -> Path | None:
    """The .hdr file of an .img file; None if there is none."""
    bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if bare.suffix.lower() != ".img" or is_nifti(first_bytes(path)):
        return None
    return partner(path) if is_nifti(first_bytes(partner(path))) else None


def partner(path: Path) -> Path:
    """The other file of a pair .hdr and .img; either may be zipped."""
    bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    other = PARTNERS.get(bare.suffix.lower(), ".img")
    endings = [ending for end in (other, other.upper()) for ending in (end, end + ".gz", end + ".GZ")]
    found = next((place for ending in endings if (place := bare.with_suffix(ending)).exists()), None)
    if found is None:
        raise unreadable(path, f"there is no {bare.with_suffix(other).name} beside it, which belongs to it")
    check_regular(found)
    return found


@contextmanager
def checked_nifti(path: Path, with_voxels: bool = True) -> Iterator[tuple[Path, Header]]:
    """A name under which ITK can read a NIfTI file, whatever its ending, that has passed every check here, and its
    header; or BadInput.

    The name is in a folder of its own: where x.nii lies beside x.nii.gz, ITK would read the voxels of the former."""
    header_file = header_of_pair(path) or path
    header = parse_header(first_bytes(header_file), path)
    check_header(header, path)
    voxel_file = partner(header_file) if header.is_pair else path
    if with_voxels:
        check_voxels(voxel_file, header, path)
    with TemporaryDirectory() as folder:
        names = {header_file: ".hdr", voxel_file: ".img"} if header.is_pair else {path: ".nii"}
        for file, ending in names.items():
            zipped = ".gz" if is_zipped(file) else ""
            (Path(folder) / f"image{ending}{zipped}").symlink_to(file.resolve())
        yield next(place for place in Path(folder).iterdir() if ".img" not in place.name), header


def is_zipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def parse_header(head: bytes, path: Path) -> Header:
    """The header in the first bytes of a file; BadInput if they are none."""
    if not is_nifti(head):
        raise unreadable(path, NOT_NIFTI if ".nii" in path.name.lower() else UNKNOWN_KIND)
    if NIFTI_2_BYTES.to_bytes(4, "little") in (head[:4], head[3::-1]):
        raise unreadable(path, "it is NIfTI-2, which is not supported; save it as NIfTI-1")
    order: Literal["<", ">"] = "<" if head[:4] == struct.pack("<i", HEADER_BYTES) else ">"

    def field(form: str, place: int) -> tuple[Any, ...]:
        return struct.unpack_from(order + form, head, place)

    if len(head) < HEADER_BYTES or head[344:347] not in (b"n+1", b"ni1") or not 1 <= field("h", 40)[0] <= 7:
        raise unreadable(path, NOT_NIFTI)
    (d, *shape), (qform, sform) = field("8h", 40), field("2h", 252)
    unit_ms = UNITS_MS.get(field("b", 123)[0] & 56) if d > 3 else None
    return Header(
        is_pair=head[344:347] == b"ni1",
        order=order,
        shape=tuple(shape[:d]),
        spacing=field("8f", 76)[1 : d + 1],
        unit_mm=UNITS_MM.get(field("b", 123)[0] & 7, 1.0),
        handedness=-1 if field("f", 76)[0] < 0 else 1,
        number_type=NUMBER_TYPES.get(field("h", 70)[0], ""),
        first_voxel=field("f", 108)[0],
        rotation=field("6f", 256),
        rows=field("12f", 280),
        has_rotation=qform > 0,
        has_rows=sform > 0,
        frame_ms=None if unit_ms is None else field("f", 92)[0] * unit_ms,
    )


def check_header(header: Header, path: Path) -> None:
    """BadInput unless sizes, spacings and poses are those of an image."""
    if min(header.shape) < 1 or not header.number_type:
        raise unreadable(path, NOT_NIFTI)
    if not (np.array(header.spacing[:3]) > 0).all() or not np.isfinite(header.spacing).all():
        raise unreadable(path, BAD_SPACING)
    pose = header.rows * header.has_rows + header.rotation * header.has_rotation
    if not (np.abs(pose) <= MAX_ORIGIN_MM).all():
        raise unreadable(path, SHEARED)
    first = 0 if header.is_pair else FIRST_VOXEL_AT
    if not first <= header.first_voxel <= MAX_ORIGIN_MM:
        raise unreadable(path, NOT_NIFTI)


def may_warn(header: Header) -> bool:
    """Whether ITK may warn of a file: that a pair is old-fashioned, or that its rows and its spacing disagree."""
    lengths = np.linalg.norm(np.reshape(header.rows, (3, 4))[:, : min(3, len(header.shape))], axis=0)
    is_odd = header.has_rows and not np.allclose(lengths, header.spacing[:3], rtol=SCALE_TOLERANCE, atol=0)
    return header.is_pair or is_odd


def check_voxels(file: Path, header: Header, path: Path) -> None:
    """BadInput unless all voxels are there, whole and finite."""
    dtype, count = np.dtype(header.number_type).newbyteorder(header.order), 1
    for n in header.shape:
        count *= n
    start = int(header.first_voxel)
    needed, there, zipped = start + count * dtype.itemsize, file.stat().st_size, is_zipped(file)
    if needed > there * (MAX_DEFLATE_RATIO if zipped else 1):
        raise unreadable(path, DAMAGED)
    check_memory(path, count * dtype.itemsize)
    if not zipped and dtype.kind not in "fc":
        return
    with file.open("rb") as source:
        if zipped:
            voxels = np.frombuffer(collect(source, start, needed, path), dtype)
        else:
            voxels = np.memmap(source, dtype, "r", start, (count,))
        if len(voxels) < count:
            raise unreadable(path, DAMAGED)
        if dtype.kind in "fc" and not np.isfinite(voxels).all():
            raise BadInput(f"{path} {NOT_FINITE}")


def collect(source: BinaryIO, start: int, stop: int, path: Path) -> bytearray:
    """Those bytes of a zipped file, all of which is inflated, so that its checksum is seen; BadInput if it is short."""
    kept, place = bytearray(), 0
    for part in inflated_parts(source, path):
        if place < stop:
            kept += part[max(0, start - place) : stop - place]
        place += len(part)
    if place < stop:
        raise unreadable(path, DAMAGED)
    return kept


# Numbers in the text of headers, and voxels in the bytes after it.

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


# NRRD (.nrrd, .nhdr): lines `field: value` up to an empty one, then the voxels, or the name of their file.
#
# Read without ITK, whose reader trusts the header: it can overwrite memory, and copy any file that the header names.

NRRD_NUMBER_TYPES = {
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
    code = next((code for code, names in NRRD_NUMBER_TYPES.items() if fields.get("type", "").lower() in names), None)
    if code is None:
        raise unreadable(path, "its voxels are of a number type that is not known; save it as integers or floats")
    order = fields.get("endian", "").lower()
    if order not in ("little", "big") and code not in ("i1", "u1"):
        raise unreadable(path, "its header does not say the order of bytes (`endian: little` or `endian: big`)")
    return np.dtype(code).newbyteorder(">" if order == "big" else "<")


# MetaImage (.mha, .mhd): lines `key = value`, the last of which says where the voxels are.
#
# Read without ITK, whose reader trusts the header: it can overwrite memory, and copy any file that the header names.

METAIMAGE_NUMBER_TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_UINT": "u4",
    "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
YES = ("True", "true", "TRUE", "T", "t", "1")
METAIMAGE_MAX_DIMENSIONS, MAX_CHANNELS = 5, 64
LAST_KEY = "ElementDataFile"


def is_metaimage(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a MetaImage."""
    return re.match(rb"\s*[A-Za-z]\w*[ \t]*=", head) is not None and b"NDims" in head


def read_metaimage(path: Path) -> Voxels:
    """The voxels of a MetaImage and where they are; or BadInput."""
    with path.open("rb") as file:
        fields = read_fields_of_metaimage(file, path)
        grid, dtype, channels = (
            metaimage_grid(fields, path),
            number_type_of_metaimage(fields, path),
            channel_count(fields, path),
        )
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
        return metaimage_grid(read_fields_of_metaimage(file, path), path)


def read_fields_of_metaimage(file: BinaryIO, path: Path) -> dict[str, str]:
    """The fields of a header; the file is left at the byte after it."""
    fields: dict[str, str] = {}
    while LAST_KEY not in fields:
        line = file.readline(MAX_LINE_BYTES)
        key, separator, value = line.decode("latin-1").partition("=")
        if line.endswith(b"\n") and not line.strip() and file.tell() < MAX_HEADER_BYTES:
            continue
        if not line.endswith(b"\n") or file.tell() > MAX_HEADER_BYTES or not separator:
            raise unreadable(path, "its header is damaged: a line is too long, or is not `key = value`")
        if key.strip() in fields:
            raise unreadable(path, f"its header says {key.strip()[:40]!a} twice; it is damaged")
        fields[key.strip()] = value.strip()
    return fields


def metaimage_grid(fields: dict[str, str], path: Path) -> Grid:
    """Where the voxels are. Row i of the matrix in the file is the direction of axis i."""
    (d,) = whole_numbers(fields.get("NDims", ""), 1, path)
    if not 2 <= d <= METAIMAGE_MAX_DIMENSIONS:
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


def number_type_of_metaimage(fields: dict[str, str], path: Path) -> "np.dtype[Any]":
    """The type of a voxel's values, as they are stored."""
    code = METAIMAGE_NUMBER_TYPES.get(fields.get("ElementType", ""))
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


# The files that an image consists of: one, or a header and the file of voxels that it names (.mhd, .nhdr, .hdr).

METAIMAGES, NRRDS, PAIRS = (".mhd", ".mha"), (".nhdr", ".nrrd"), (".hdr", ".img", ".hdr.gz", ".img.gz")
WITHIN_FILE = ("LOCAL", "Local", "local")
"""What a MetaImage whose voxels follow its header says."""


def files_of_image(path: str) -> list[str]:
    """The file of an image and, where its voxels or its header are in another, that one too; both by their paths.

    What cannot be read, or names a file that is not there, is one file: whoever reads the image will say so."""
    if not path.lower().endswith((*METAIMAGES, *NRRDS, *PAIRS)):
        return [path]
    try:
        other = other_file(Path(path))
    except (BadInput, OSError):
        other = None
    return [path] if other is None else [path, str(other)]


def other_file(path: Path) -> Path | None:
    """The second file of an image; None if there is none, BadInput if it is not there."""
    name = path.name.lower()
    if name.endswith(PAIRS):
        return partner(path)
    with path.open("rb") as file:
        if name.endswith(METAIMAGES):
            voxels = read_fields_of_metaimage(file, path)[LAST_KEY]
            return None if voxels in WITHIN_FILE else beside(path, voxels)
        named = read_fields(file, path).get("data file")
        return None if named is None else beside(path, named)
