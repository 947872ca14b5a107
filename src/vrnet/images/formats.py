"""The formats of image files: NIfTI by nibabel, NRRD by pynrrd, pictures by Pillow, and MetaImage. Libraries read
headers; `read_numbers` compares what they claim with the size of the file before memory is asked for. No other file is
read but the file of voxels that a header names, in its folder or below. (SimpleITK reads none: a damaged header of
MetaImage or NRRD makes it overwrite memory.)"""

import gzip
import logging
import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.devices import check_memory
from vrnet.errors import BadInput, InputWarning, warn_of_input
from vrnet.files import check_ordinary, unreadable
from vrnet.images.grid import BAD_SPACING, MAX_ORIGIN_MM, SHEARED, Grid, checked_grid
from vrnet.images.image import RAS_TO_LPS, UNITS_MM, frame_step

DAMAGED = "it is damaged or incomplete"
UNKNOWN_KIND = "it is not an image, or of a kind that is not known"
NOT_NIFTI = "it is not a NIfTI image, or damaged or incomplete"
TOO_LARGE = "it asks for more memory than a file of its size should: it is damaged, or too large to be read"
ODD_HEADER = "its header is damaged, or has what few tools write; save it by SimpleITK"
MAX_DEFLATE_RATIO = 1032  # a byte of deflated data holds at most this many bytes
ANY_PICTURE_BYTES = 1 << 24  # a compressed picture of this size is read, though its file is small: of one colour
MAX_SURPLUS_BYTES = 1 << 16  # so many bytes may follow the last voxel in compressed data
MAX_HEADER_BYTES, MAX_DIMENSIONS, MAX_CHANNELS = 1 << 20, 5, 64
GZIP_MAGIC = b"\x1f\x8b"
for library in ("PIL", "pydicom", "nrrd"):  # what they log of odd files would come out on the terminal
    logging.getLogger(library).addHandler(logging.NullHandler())


class Voxels(NamedTuple):
    """The content of an image file: an array whose axes are the grid's, after that of the components of a vector."""

    array: Shaped[ndarray, "..."]  # empty where only the place was asked for
    grid: Grid
    is_vector: bool = False
    frame_ms: float | None = None  # from one frame to the next, of a file with a fourth axis whose header says so
    is_sequence: bool = False  # whether the components are frames, as 3D Slicer saves sequences


@contextmanager
def refuse_errors(path: Path, reason: str = DAMAGED) -> Iterator[None]:
    """Whatever a library raises while a file is read, as BadInput."""
    try:
        yield
    except (BadInput, InputWarning):  # the latter where the user wants warnings to be errors
        raise
    except MemoryError as error:
        raise BadInput(f"{path} needs more memory than is free: use a smaller image, or more memory") from error
    except OSError as error:
        why = f"{error.strerror}; check its name and your permission" if error.strerror else reason
        raise unreadable(path, why) from error
    except Exception as error:
        raise unreadable(path, reason) from error


def first_bytes(path: Path, count: int = 4096) -> bytes:
    """The first bytes of an ordinary file, inflated if they are in gzip's form; or BadInput."""
    with refuse_errors(path):
        check_ordinary(path)
        with path.open("rb") as file:
            head = file.read(count)
            file.seek(0)
            return gzip.GzipFile(fileobj=file).read(count) if head.startswith(GZIP_MAGIC) else head


def read_numbers(
    file: BinaryIO, path: Path, dtype: "np.dtype[Any]", count: int, is_compressed: bool, skip: int = 0
) -> Shaped[ndarray, "n"]:
    """So many numbers after some bytes that are skipped, in the byte order of this machine; BadInput if the rest of
    the file, deflated in the form of gzip or zlib or not, does not hold them."""
    size, stored = skip + count * dtype.itemsize, os.fstat(file.fileno()).st_size - file.tell()
    if size > stored * (MAX_DEFLATE_RATIO if is_compressed else 1):
        raise unreadable(path, DAMAGED)
    check_memory(path, size)
    data = bytearray(size)
    stream: Any = file
    if is_compressed:
        is_gzip = file.read(2) == GZIP_MAGIC
        file.seek(-2, os.SEEK_CUR)
        stream = gzip.GzipFile(fileobj=file)
        if not is_gzip:
            inflater = zlib.decompressobj()
            found = inflater.decompress(file.read(), size + MAX_SURPLUS_BYTES + 1)
            if len(found) <= size + MAX_SURPLUS_BYTES and not inflater.eof:
                raise unreadable(path, DAMAGED)
            stream = BytesIO(found)
    if stream.readinto(data) < size:
        raise unreadable(path, DAMAGED)
    if is_compressed and len(stream.read(MAX_SURPLUS_BYTES + 1)) > MAX_SURPLUS_BYTES:  # it also sees the checksum
        raise unreadable(path, "it holds more voxels than its header says; it is damaged")
    return np.frombuffer(data, dtype, count, skip).astype(dtype.newbyteorder("="), copy=False)


def beside(header: Path, name: str) -> Path:
    """The file of voxels that a header names: in its own folder or below, where links lead, and nowhere else."""
    folder = header.parent.resolve()
    found = (folder / name).resolve()
    if not found.is_relative_to(folder) or not found.is_file():
        raise unreadable(header, "the file of voxels that its header names is not in its folder; put it there")
    return found


# NIfTI. A header may have two forms, sform and qform, which put the image in the world: x = form · (i, j, k, 1). They
# need not agree. nibabel takes the sform if there is one; ITK has another rule. Here an image is where nibabel puts it;
# if others put it elsewhere, the user is told.

NIFTI_HEADERS = {348: "Nifti1Header", 540: "Nifti2Header"}
DISPLACEMENT, VECTOR = 1006, 1007  # the intents of vectors in RAS, as the world of NIfTI is, and in LPS
NOTE_ABOVE_VOXELS, REFUSE_ABOVE_VOXELS = 0.1, 1.0  # in shortest edges: what an image shows, and what moves other tissue
SAME_SIZE = 1e-5  # relative: voxel sizes by a form and by pixdim that differ by less are the same, rounded


def nifti_header(head: bytes, path: Path) -> Any:
    """The header of nibabel in the first bytes of a file; BadInput if it is none, or absurd."""
    import nibabel

    order: Any = next((order for order in ("little", "big") if int.from_bytes(head[:4], order) in NIFTI_HEADERS), None)
    if order is None:
        raise unreadable(path, NOT_NIFTI if ".nii" in path.name.lower() else UNKNOWN_KIND)
    size = int.from_bytes(head[:4], order)
    if len(head) < size:
        raise unreadable(path, NOT_NIFTI)
    header = getattr(nibabel, NIFTI_HEADERS[size])(head[:size], "<" if order == "little" else ">", check=False)
    d, magic, dtype = int(header["dim"][0]), header["magic"].item()[:3], header.get_data_dtype()
    if magic in (b"ni1", b"ni2"):
        raise unreadable(path, "its voxels are in another file (.img); save it as .nii or .nii.gz")
    if dtype.names:
        raise unreadable(path, "it is in colour; save it in shades of grey")
    is_known = magic in (b"n+1", b"n+2") and dtype.kind in "iufc" and not (dtype.kind == "f" and dtype.itemsize > 8)
    is_known &= size + 4 <= float(header["vox_offset"]) <= MAX_ORIGIN_MM
    if not is_known or not 1 <= d <= 7 or min(header["dim"][1 : d + 1]) < 1:
        raise unreadable(path, NOT_NIFTI)
    spacing = header["pixdim"][1 : d + 1]
    if not (spacing[:3] > 0).all() or not np.isfinite(spacing).all():
        raise unreadable(path, BAD_SPACING)
    header["pixdim"][0] = -1 if header["pixdim"][0] < 0 else 1  # the sign of the third axis; some write 0
    return header


def read_nifti(path: Path, with_voxels: bool = True) -> Voxels:
    """A NIfTI file, scaled as its header says: slope · number + intercept."""
    header = nifti_header(first_bytes(path), path)
    shape = tuple(map(int, header["dim"][1 : int(header["dim"][0]) + 1]))
    intent = int(header["intent_code"])
    is_field = len(shape) == 5 and shape[3] == 1 and shape[4] > 1 and intent in (DISPLACEMENT, VECTOR)
    in_space = shape if not is_field else shape[:2] if shape[2:] == (1, 1, 2) else shape[:3]
    grid = nifti_grid(header, in_space, path)
    if not with_voxels:
        return Voxels(np.empty(0), grid, is_field)
    with path.open("rb") as file:
        is_zipped = file.read(2) == GZIP_MAGIC
        file.seek(0)
        skip = int(header["vox_offset"])
        numbers = read_numbers(file, path, header.get_data_dtype(), prod(shape), is_zipped, skip)
    slope, intercept = header.get_slope_inter()
    if slope is not None and (slope, intercept) != (1, 0) and numbers.dtype.kind != "c":
        dtype = numbers.dtype if numbers.dtype.kind == "f" else np.float32  # as in ITK
        numbers = (numbers * np.float64(slope) + intercept).astype(dtype)
    array = numbers.reshape(shape, order="F")
    if is_field:
        vectors = np.moveaxis(array[:, :, :, 0], -1, 0)
        if intent == DISPLACEMENT:
            vectors[:2] *= -1
        return Voxels(vectors.reshape(-1, *in_space), grid, True)
    return Voxels(array, grid, frame_ms=frame_step(header) if len(shape) > 3 else None)


@np.errstate(all="ignore")
def nifti_grid(header: Any, shape: tuple[int, ...], path: Path) -> Grid:
    """Where the voxels are, by the form that nibabel takes; axes beyond the third are no place. Forms that put a corner
    of the image more than a tenth of a voxel apart are told of; BadInput above a voxel."""
    d, k = len(shape), min(3, len(shape))
    unit = UNITS_MM.get(header.get_xyzt_units()[0], 1.0)
    sizes = np.ones(3)
    sizes[:k] = unit * header["pixdim"][1 : k + 1].astype(np.float64)
    to_lps = RAS_TO_LPS @ np.diag([unit, unit, unit, 1.0])
    forms = [to_lps @ header.get_sform()] if header["sform_code"] > 0 else []
    if header["qform_code"] > 0:
        forms.append(to_lps @ header.get_qform())
    form = forms[0] if forms else np.diag([*sizes, 1.0])
    lengths = np.linalg.norm(form[:3, :k], axis=0)
    axes, origin = np.eye(d), np.zeros(d)
    axes[:k, :k], origin[:k] = form[:k, :k] / lengths, form[:k, 3]
    spacing = np.where(np.isclose(lengths, sizes[:k], rtol=SAME_SIZE, atol=0), sizes[:k], lengths)
    rest = [float(h) or 1.0 for h in header["pixdim"][4 : d + 1]]
    grid = checked_grid(Grid.of(shape, [*spacing, *rest], origin, axes), path)
    if not forms:
        warn_of_input(f"the header of {path} does not say where it lies: its first voxel is put at the origin")
    corners = np.array([(*index, 1.0) for index in product(*((0.0, n - 1.0) for n in (*shape, 1, 1)[:3]))])
    gap = float(np.linalg.norm((form - forms[-1]) @ corners.T, axis=0).max()) if forms else 0.0
    if not np.isfinite(gap):
        raise unreadable(path, SHEARED)
    said = f"the sform and the qform of its header put it up to {gap:.2g} mm apart"
    repair = "in nibabel, image.set_qform(image.affine) keeps the sform, image.set_sform(image.get_qform()) the qform"
    if gap > REFUSE_ABOVE_VOXELS * sizes[:k].min():
        raise unreadable(path, f"{said}, and tools differ in which they take; {repair}")
    if gap > NOTE_ABOVE_VOXELS * sizes[:k].min():
        warn_of_input(f"{path}: {said}; the sform is taken, as by nibabel ({repair})")
    return grid


# NRRD (.nrrd, .nhdr): lines `field: value` up to an empty one, then the voxels, or the name of their file.

TO_LPS = {  # the signs that take a direction of a named space to LPS, which ITK uses
    "left-posterior-superior": (1, 1, 1), "LPS": (1, 1, 1),
    "right-anterior-superior": (-1, -1, 1), "RAS": (-1, -1, 1),
    "left-anterior-superior": (1, -1, 1), "LAS": (1, -1, 1),
}  # fmt: skip
ENCODINGS = {"raw": False, "gzip": True, "gz": True}
UNSUPPORTED = ("axis mins", "axismins", "axis maxs", "axismaxs", "line skip", "lineskip", "subdim")


def read_nrrd(path: Path, with_voxels: bool = True) -> Voxels:
    """The first axis counts the values of a voxel if it is no axis in space."""
    import nrrd

    with path.open("rb") as file:
        head = BytesIO(file.read(MAX_HEADER_BYTES))
        with warnings.catch_warnings(action="ignore"):
            fields = nrrd.read_header(head)
        file.seek(head.tell())
        sizes, kinds, dimension = [int(n) for n in fields["sizes"]], fields.get("kinds") or [], int(fields["dimension"])
        rows = fields.get("space directions")
        is_space = [kind in ("domain", "space", "time", "???", "none", "?") for kind in kinds] or [True] * dimension
        if rows is not None:
            is_space = [not np.isnan(row).all() for row in np.asarray(rows, np.float64)]
        counts = {len(sizes), len(is_space), len(kinds) or dimension}
        if counts != {dimension} or min(sizes) < 1 or not all(is_space[1:]):
            raise unreadable(path, ODD_HEADER)
        is_vector = not is_space[0]
        d = dimension - is_vector
        if not 2 <= d <= MAX_DIMENSIONS:
            raise unreadable(path, f"it has {d} dimensions; give an image of 2 or 3")
        origin = np.zeros(d)
        if rows is None:
            rows = np.diag(np.asarray(fields.get("spacings", np.ones(dimension)), np.float64)[is_vector:])
        else:
            rows, origin = (np.asarray(part, np.float64) for part in (rows, fields.get("space origin", origin)))
            rows = rows[is_vector:]
        signs = np.array(TO_LPS.get(fields.get("space", ""), (1,) * d))
        if rows.shape != (d, d) or not origin.shape == signs.shape == (d,):
            raise unreadable(path, f"it has {d} axes in a space of another dimension; give an image of 2D or 3D")
        with np.errstate(all="ignore"):
            spacing = np.linalg.norm(rows, axis=1)
            axes = (rows * (1 / spacing)[:, None] * signs).T
        grid = checked_grid(Grid.of(sizes[is_vector:], spacing, origin * signs, axes), path)
        is_sequence = is_vector and (kinds or [""])[0] in ("list", "time")
        if not with_voxels:
            return Voxels(np.empty(0), grid, is_vector, is_sequence=is_sequence)
        is_compressed, dtype = ENCODINGS.get(fields.get("encoding", "")), nrrd.reader._determine_datatype(fields)
        skip = int(fields.get("byte skip", fields.get("byteskip", 0)))
        is_odd = skip < 0 or (skip and is_compressed) or any(key in fields for key in UNSUPPORTED)
        if is_compressed is None or dtype.kind not in "iuf" or is_odd:
            raise unreadable(path, ODD_HEADER)
        name = fields.get("data file", fields.get("datafile"))
        with nullcontext(file) if name is None else beside(path, name).open("rb") as data:
            numbers = read_numbers(data, path, dtype, prod(sizes), is_compressed, skip)
    return Voxels(numbers.reshape(sizes, order="F"), grid, is_vector, is_sequence=is_sequence)


# MetaImage (.mha, .mhd): lines `key = value`, the last of which says where the voxels are.

METAIMAGE_TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_UINT": "u4",
    "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
YES = ("true", "t", "1")
LAST_KEY = "ElementDataFile"


def read_metaimage(path: Path, with_voxels: bool = True) -> Voxels:
    """Row i of the matrix in the file is the direction of axis i."""
    fields: dict[str, str] = {}
    with path.open("rb") as file:
        while LAST_KEY not in fields:
            line = file.readline(MAX_HEADER_BYTES)
            key, separator, value = (part.strip() for part in line.decode("latin-1").partition("="))
            is_odd = not line.endswith(b"\n") or file.tell() > MAX_HEADER_BYTES or (line.strip() and not separator)
            if is_odd or key in fields:
                raise unreadable(path, ODD_HEADER)
            if key:
                fields[key] = value

        def numbers(default: str, *keys: str) -> list[float]:
            return [float(word) for word in next((fields[key] for key in keys if key in fields), default).split()]

        d, shape = int(fields["NDims"]), tuple(int(word) for word in fields["DimSize"].split())
        if not 2 <= d <= MAX_DIMENSIONS:
            raise unreadable(path, f"it has {d} dimensions; give an image of 2 or 3")
        spacing = numbers("1 " * d, "ElementSpacing", "ElementSize")
        origin = numbers("0 " * d, "Offset", "Position", "Origin")
        rows = numbers(" ".join(map(str, np.eye(d).ravel())), "TransformMatrix", "Orientation", "Rotation")
        if [len(shape), len(spacing), len(origin), len(rows)] != [d, d, d, d * d] or min(shape) < 1:
            raise unreadable(path, ODD_HEADER)
        if fields.get("DistanceUnits", "mm") not in ("mm", "?"):
            raise unreadable(path, "its lengths are not in millimetres; convert it")
        grid = checked_grid(Grid.of(shape, spacing, origin, np.reshape(rows, (d, d)).T), path)
        channels = int(fields.get("ElementNumberOfChannels", "1"))
        if not with_voxels:
            return Voxels(np.empty(0), grid, channels > 1)
        if not 1 <= channels <= MAX_CHANNELS:
            raise unreadable(path, f"it has {channels} values per voxel; give a grey image")
        code, name = METAIMAGE_TYPES.get(fields.get("ElementType", "")), fields[LAST_KEY]
        slope, offset = (fields.get(f"ElementToIntensityFunction{part}", "") for part in ("Slope", "Offset"))
        is_scaled = slope not in ("", "1") or offset not in ("", "0")  # readers do so differently
        if code is None or fields.get("BinaryData", "true").lower() not in YES or is_scaled:
            raise unreadable(path, ODD_HEADER)
        is_big = fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "")).lower() in YES
        dtype = np.dtype(code).newbyteorder(">" if is_big else "<")
        is_compressed, is_local = fields.get("CompressedData", "").lower() in YES, name.lower() == "local"
        count, skip = channels * prod(shape), int(fields.get("HeaderSize", "0"))
        with nullcontext(file) if is_local else beside(path, name).open("rb") as data:
            if skip < 0:  # the voxels are at the end of their file
                skip = os.fstat(data.fileno()).st_size - count * dtype.itemsize
            found = read_numbers(data, path, dtype, count, is_compressed, 0 if is_local else max(0, skip))
    return Voxels(found.reshape((channels, *shape) if channels > 1 else shape, order="F"), grid, channels > 1)


# Pictures: PNG, JPEG, BMP, and TIFF, whose pages are slices.

PICTURES = {  # the first bytes of a picture, and its format
    b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"BM": "BMP",
    b"II*\0": "TIFF", b"MM\0*": "TIFF", b"II+\0": "TIFF", b"MM\0+": "TIFF",
}  # fmt: skip
GREY_MODES = ("L", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")


def check_picture(path: Path, claimed_bytes: int, stored_bytes: int) -> None:
    """BadInput if a compressed picture claims to be far larger than its file can hold, or than memory is."""
    if claimed_bytes > ANY_PICTURE_BYTES + MAX_DEFLATE_RATIO * stored_bytes:
        raise unreadable(path, TOO_LARGE)
    check_memory(path, claimed_bytes)


def read_picture(path: Path, kind: str) -> Voxels:
    """A picture with pixels of 1 mm: the dots per inch in its header are those of a screen or a printer."""
    from PIL import Image as Picture
    from PIL import ImageSequence

    try:
        with warnings.catch_warnings(action="ignore"), Picture.open(path, formats=(kind,)) as opened:
            count = getattr(opened, "n_frames", 1) if kind == "TIFF" else 1
            check_picture(path, count * prod(opened.size) * 4, path.stat().st_size)
            pages = []
            for page in islice(ImageSequence.Iterator(opened), count):
                grey = page if page.mode in GREY_MODES else page.convert("L" if page.mode == "1" else "RGB")
                pages.append(np.asarray(grey))
    except Picture.DecompressionBombError as error:
        raise unreadable(path, TOO_LARGE) from error
    is_vector, array = pages[0].ndim == 3, np.stack(pages).T if count > 1 else pages[0].T
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    shape = array.shape[is_vector:]
    return Voxels(array, Grid.plain(shape, (1.0,) * len(shape)), is_vector)
