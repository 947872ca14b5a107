"""NIfTI-1: a header of 348 bytes, checked here before ITK reads the file.

ITK says nothing where voxels are missing, takes NaN for 0, and mends or flips odd spacings."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from vrnet.errors import BadInput
from vrnet.images.checks import (
    BAD_SPACING,
    DAMAGED,
    MAX_ORIGIN_MM,
    SHEARED,
    UNKNOWN_KIND,
    check_memory,
    check_regular,
    unreadable,
)
from vrnet.images.compressed import GZIP_MAGIC, MAX_DEFLATE_RATIO, inflated_parts

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
