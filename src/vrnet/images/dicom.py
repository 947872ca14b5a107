"""A DICOM series as one volume."""

import mmap
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.files import exists
from vrnet.images.checks import DAMAGED, Voxels, check_grid, check_regular, unreadable
from vrnet.images.grid import Grid
from vrnet.images.image import Cine
from vrnet.images.nifti import first_bytes
from vrnet.images.sandbox import ask_sandbox

DICOM_READER = "GDCMImageIO"
POSITION_TAG, ORIENTATION_TAG = "0020|0032", "0020|0037"
MIN_SLICE_DISTANCE_MM = 1e-3
MAX_DISTANCE_VARIATION = 0.02
"""How much the distances between slices may differ, relative to the largest."""


def is_dicom(head: bytes) -> bool:
    """Whether the first bytes of a file are those of DICOM, with its preamble or without."""
    return head[128:132] == b"DICM" or head[:2] in (b"\2\0", b"\x08\0", b"\0\2", b"\0\x08")


def read_series(folder: Path) -> Voxels:
    """The one DICOM series of a folder, or BadInput."""
    files = files_of(folder)
    tags = [POSITION_TAG, ORIENTATION_TAG]
    found, _ = ask_sandbox("series", folder, files, folder=str(folder.absolute()), tags=tags)
    if found["series"] != 1:
        count = f"{found['series']} DICOM series" if found["series"] else "no DICOM series"
        raise BadInput(f"{folder} holds {count}: name a folder with one, or an image file")
    check_slices(folder, [slice_position(*texts) for texts in found["tags"]])
    return read_isolated(folder, [Path(name) for name in found["names"]], DICOM_READER)


def files_of(folder: Path) -> list[Path]:
    """The files of a folder; BadInput if there is something that could block, such as a pipe."""
    entries = sorted(folder.iterdir())
    for entry in entries:
        if exists(entry) and not (entry.is_file() or entry.is_dir()):
            raise BadInput(f"{folder} holds {entry.name!a}, which is no ordinary file: remove it")
    return [entry for entry in entries if entry.is_file()]


def read_isolated(path: Path, files: list[Path], reader: str) -> Voxels:
    """An image by one of ITK's readers, which runs in another process."""
    names = [str(file.absolute()) for file in files]
    found, data = ask_sandbox("image", path, files, names=names, reader=reader)
    shape, components = found["shape"], found["components"]
    array = np.frombuffer(data, found["number_type"])
    array = array.reshape((*reversed(shape), components) if components > 1 else shape[::-1]).T
    place = (tuple(map(float, found[part])) for part in ("spacing", "origin", "direction"))
    return Voxels(array, Grid(tuple(shape), *place), components > 1, path)


def slice_position(position: str | None, orientation: str | None) -> float:
    """Position of a slice along the normal of its plane, in mm; NaN if its file does not say."""
    try:
        x, axes = (np.array(str(text).split("\\"), float) for text in (position, orientation))
        return float(x @ np.cross(axes[:3], axes[3:]))
    except ValueError:
        return np.nan


def check_slices(folder: Path, positions: list[float]) -> None:
    """BadInput unless slices lie one behind another at equal distances. ITK would take time frames for slices."""
    steps = np.diff(positions)
    if len(steps) == 0 or np.isnan(steps).any():
        return
    if (np.abs(steps) < MIN_SLICE_DISTANCE_MM).any() or len(set(np.sign(steps))) > 1:
        raise BadInput(f"{folder} holds several images at one place (time frames?): give a folder with one frame")
    if np.ptp(steps) > MAX_DISTANCE_VARIATION * np.abs(steps).max():
        raise BadInput(f"{folder} has slices at unequal distances, {np.abs(steps).min():.3g} to "
                       f"{np.abs(steps).max():.3g} mm: are some missing?")  # fmt: skip


# Enhanced multi-frame DICOM: what the header says of each frame, which ITK does not tell.
#
# A header is a list of elements (group, element, type, length, value). A value may be a sequence of items, each a list of
# elements again. Only the values that a cine needs are kept; every length is checked against the end of the file.

Tag = tuple[int, int]
POSITION, ORIENTATION, PIXEL_SPACING = (0x20, 0x32), (0x20, 0x37), (0x28, 0x30)
THICKNESS, SLICE_DISTANCE = (0x18, 0x50), (0x18, 0x88)
TRIGGER_DELAY, TRIGGER_TIME = (0x20, 0x9153), (0x18, 0x1060)
TEMPORAL_INDEX, INSTANCE = (0x20, 0x9128), (0x20, 0x13)
KEPT = {
    POSITION, ORIENTATION, PIXEL_SPACING, THICKNESS, SLICE_DISTANCE,
    TRIGGER_DELAY, TRIGGER_TIME, TEMPORAL_INDEX, INSTANCE,
}  # fmt: skip
BINARY = {TRIGGER_DELAY: "<d", TEMPORAL_INDEX: "<I"}
"""Values that are stored as numbers; the others are text."""
SHARED, PER_FRAME, PIXELS, SYNTAX = (0x5200, 0x9229), (0x5200, 0x9230), (0x7FE0, 0x10), (0x2, 0x10)
ITEM, END_OF_ITEM, END_OF_SEQUENCE = (0xFFFE, 0xE000), (0xFFFE, 0xE00D), (0xFFFE, 0xE0DD)
FIRST_ELEMENT, UNKNOWN_LENGTH = 132, 0xFFFFFFFF
IMPLICIT = b"1.2.840.10008.1.2"
OTHER_LAYOUTS = (b"1.2.840.10008.1.2.2", b"1.2.840.10008.1.2.1.99")
"""Numbers of high byte first, and a header that is deflated: neither is written by scanners."""
LONG_TYPES = {b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"}
MAX_DEPTH, MAX_VALUE_BYTES = 16, 256
Values = dict[Tag, str]


class Element(NamedTuple):
    """One element: where its value starts and stops; stop is None where an end mark says so."""

    tag: Tag
    start: int
    stop: int | None
    is_sequence: bool


class Header:
    """The bytes of a DICOM file, read element by element."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.is_implicit = data, False

    def element(self, place: int) -> Element:
        """The element at a place; struct.error where the file ends before it does."""
        group, number = struct.unpack_from("<HH", self.data, place)
        tag, kind = (group, number), bytes(self.data[place + 4 : place + 6])
        if group == 0xFFFE or (self.is_implicit and group != 2):
            (length,), start = struct.unpack_from("<I", self.data, place + 4), place + 8
            is_sequence = length == UNKNOWN_LENGTH or tag in (SHARED, PER_FRAME)
        elif kind in LONG_TYPES:
            (length,), start = struct.unpack_from("<I", self.data, place + 8), place + 12
            is_sequence = kind == b"SQ" or (kind == b"UN" and length == UNKNOWN_LENGTH)
        else:
            (length,), start, is_sequence = struct.unpack_from("<H", self.data, place + 6), place + 8, False
        stop = None if length == UNKNOWN_LENGTH else start + length
        if stop is not None and stop > len(self.data):
            raise ValueError("a value reaches beyond the end of the file")
        return Element(tag, start, stop, is_sequence)

    def elements(self, place: int, stop: int | None, depth: int = 0) -> Iterator[tuple[Element, int]]:
        """The elements of a list, each with the place after it; up to the pixels, or to an end mark."""
        if depth > MAX_DEPTH:
            raise ValueError("sequences within sequences without end")
        while place < (len(self.data) if stop is None else stop):
            found = self.element(place)
            if found.tag in (END_OF_ITEM, END_OF_SEQUENCE, PIXELS):
                return
            place = found.stop if found.stop is not None else self.end_of(found, depth)
            yield found, place

    def items(self, sequence: Element, depth: int) -> Iterator[Element]:
        """The items of a sequence."""
        return (item for item, _ in self.elements(sequence.start, sequence.stop, depth + 1) if item.tag == ITEM)

    def end_of(self, found: Element, depth: int) -> int:
        """The place after a value that ends by a mark."""
        end = found.start
        for _, end in self.elements(found.start, None, depth + 1):  # noqa: B007
            pass
        return end + 8

    def values(self, place: int, stop: int | None, depth: int = 0) -> Values:
        """The values that are kept of a list of elements and of all sequences within it."""
        kept: Values = {}
        for found, _ in self.elements(place, stop, depth):
            if found.tag in KEPT:
                kept[found.tag] = self.text(found)
            elif found.is_sequence or (self.is_implicit and self.begins_item(found)):
                for item in self.items(found, depth):
                    kept |= self.values(item.start, item.stop, depth + 2)
        return kept

    def begins_item(self, found: Element) -> bool:
        """Whether a value of unknown type begins as a sequence does."""
        return bytes(self.data[found.start : found.start + 4]) == struct.pack("<HH", *ITEM)

    def text(self, found: Element) -> str:
        """A value as text; one in binary as its number."""
        stop = found.start + MAX_VALUE_BYTES if found.stop is None else found.stop
        value = bytes(self.data[found.start : min(stop, found.start + MAX_VALUE_BYTES)])
        form = BINARY.get(found.tag)
        return str(struct.unpack(form, value)[0]) if form else value.decode("latin-1").strip(" \0")


def read_frames(path: Path) -> list[Values]:
    """What the header of an enhanced multi-frame file says of each frame, {} where it says nothing; or BadInput."""
    check_regular(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return frames_in(Header(data), path)
    except (struct.error, ValueError, IndexError) as error:
        raise unreadable(path, DAMAGED) from error


def frames_in(header: Header, path: Path) -> list[Values]:
    """The values of every frame, with those that all share."""
    shared: Values = {}
    for found, _ in header.elements(FIRST_ELEMENT, None):
        if found.tag == SYNTAX:
            name = bytes(header.data[found.start : found.stop]).strip(b"\0 ")
            header.is_implicit = name == IMPLICIT
            if name in OTHER_LAYOUTS:
                raise unreadable(path, "its header is stored in a rare way; save it as explicit, little endian")
        elif found.tag == SHARED:
            for item in header.items(found, 0):
                shared |= header.values(item.start, item.stop, 2)
        elif found.tag == PER_FRAME:
            return [shared | header.values(item.start, item.stop, 2) for item in header.items(found, 0)]
    return []


# A cine in DICOM: every file is a slice at a time, in one series or one per slice; or a file holds many frames.
#
# Slices are put together by where they lie, and frames by when they were taken; what series they are in, and how files
# are called, does not matter.

ASKED = (POSITION, ORIENTATION, PIXEL_SPACING, THICKNESS, SLICE_DISTANCE, TRIGGER_TIME, INSTANCE)
MAX_FILES = 20_000
SAME_PLACE_MM, SAME_DIRECTION = 0.2, 1e-3


class Frame(NamedTuple):
    """One slice at one time: where it is stored, where it lies and when it was taken."""

    file: Path
    part: int
    """Which of the images of its file."""
    size: tuple[int, int]
    position: tuple[float, ...]
    axes: tuple[float, ...]
    """The directions of its rows and columns."""
    spacing: tuple[float, ...]
    thickness: float
    time_ms: float | None
    number: float | None
    """Its place in the order in which frames were made."""

    @property
    def normal(self) -> Shaped[ndarray, "3"]:
        return np.cross(self.axes[:3], self.axes[3:])

    @property
    def level(self) -> float:
        """Its position along the normal of its plane, in mm."""
        return float(np.dot(self.position, self.normal))


def read_dicom_cine(path: Path) -> Cine:
    """The cine in a folder, whose sub-folders may hold a slice each, or in a multi-frame file; or BadInput."""
    found = list_frames(path)
    check_alike(found, path)
    stacks = by_time(by_level(found, path), path)
    grid = grid_of_stack(stacks[0], path)
    return Cine(read_pixels(stacks, path), grid, mean_times(stacks), str(path))


def list_frames(path: Path) -> list[Frame]:
    """Every image in the DICOM files of a folder, or in a file."""
    files = dicom_files(path) if path.is_dir() else [path]
    tags = [f"{group:04x}|{number:04x}" for group, number in ASKED]
    names = [str(file.absolute()) for file in files]
    answer, _ = ask_sandbox("headers", path, files, names=names, tags=tags)
    found: list[Frame] = []
    for file, header in zip(files, answer["headers"], strict=True):
        if header is not None:
            found += frames_of_file(file, header["size"], header["tags"])
    if not found:
        raise BadInput(f"{path} holds no DICOM image that says where it lies: name the folder of a cine")
    return found


def dicom_files(folder: Path) -> list[Path]:
    """The DICOM files of a folder and of the folders in it."""
    folders = [folder, *sorted(place for place in folder.iterdir() if place.is_dir())]
    files = [file for place in folders for file in files_of(place)]
    if len(files) > MAX_FILES:
        raise BadInput(f"{folder} holds {len(files):,} files: name the folder of one cine")
    return [file for file in files if is_dicom(first_bytes(file))]


def frames_of_file(file: Path, size: Sequence[int], texts: Sequence[str | None]) -> list[Frame]:
    """The images of a file, of those that say where they lie."""
    count = size[2] if len(size) > 2 else 1
    plain = {tag: text for tag, text in zip(ASKED, texts, strict=True) if text is not None}
    frames = read_frames(file) if count > 1 else [plain]
    if frames and len(frames) != count:
        raise unreadable(file, f"it holds {count} images and says of {len(frames)} where they lie")
    made = (as_frame(file, k, (size[0], size[1]), values) for k, values in enumerate(frames))
    return [frame for frame in made if frame is not None]


def as_frame(file: Path, index: int, size: tuple[int, int], values: Values) -> Frame | None:
    """An image with what its header says; None if it does not say where it lies."""
    position, axes, spacing = (numbers(values, tag) for tag in (POSITION, ORIENTATION, PIXEL_SPACING))
    if (len(position), len(axes), len(spacing)) != (3, 6, 2):
        return None
    thickness = first_number(values, SLICE_DISTANCE, THICKNESS)
    time, number = first_number(values, TRIGGER_DELAY, TRIGGER_TIME), first_number(values, TEMPORAL_INDEX, INSTANCE)
    return Frame(file, index, size, position, axes, spacing, 1.0 if thickness is None else thickness, time, number)


def numbers(values: Values, tag: Tag) -> tuple[float, ...]:
    """The finite numbers of a value; none where there is no such value, or it is no list of numbers."""
    try:
        found = tuple(map(float, values.get(tag, "").split("\\")))
    except ValueError:
        return ()
    return found if np.isfinite(found).all() else ()


def first_number(values: Values, *tags: Tag) -> float | None:
    """The number that the first of these tags has, of those that are there."""
    return next((found[0] for tag in tags if (found := numbers(values, tag))), None)


def check_alike(frames: list[Frame], path: Path) -> None:
    """BadInput unless all images have one size and spacing, and lie parallel."""
    sizes = sorted({frame.size for frame in frames})
    if len(sizes) > 1:
        (a, b), (c, d) = sizes[:2]
        raise BadInput(f"{path} holds frames that differ in size, {a} x {b} and {c} x {d}: name a folder with one cine")
    first = frames[0]
    for frame in frames:
        if not np.allclose(frame.axes, first.axes, atol=SAME_DIRECTION):
            raise BadInput(
                f"{path} holds images in several directions (long and short axis?): give one cine per folder"
            )
        if not np.allclose(frame.spacing, first.spacing, rtol=SAME_DIRECTION):
            raise BadInput(f"{path} holds images with pixels of several sizes: give one cine per folder")


def by_level(frames: list[Frame], path: Path) -> list[list[Frame]]:
    """The images at each place, from the first place along the normal on; BadInput if some have more than others."""
    ordered = sorted(frames, key=lambda frame: frame.level)
    places = [[ordered[0]]]
    for before, frame in pairwise(ordered):
        if frame.level - before.level > SAME_PLACE_MM:
            places.append([])
        places[-1].append(frame)
    counts = sorted({len(place) for place in places})
    if len(counts) > 1:
        raise BadInput(
            f"{path} has slices with {counts[0]} to {counts[-1]} frames: are some missing, or is it two cines?"
        )
    check_slices(path, [place[0].level for place in places])
    return places


def by_time(places: list[list[Frame]], path: Path) -> list[list[Frame]]:
    """The slices of each frame, in the order of time."""
    for key in ("time_ms", "number"):
        values = [[getattr(frame, key) for frame in place] for place in places]
        if all(None not in place and len(set(place)) == len(place) for place in values):
            ordered = [sorted(place, key=lambda frame: getattr(frame, key)) for place in places]
            return [list(stack) for stack in zip(*ordered, strict=True)]
    raise BadInput(
        f"{path} has frames at one place without trigger times or numbers of their own: their order is unknown"
    )


def grid_of_stack(stack: list[Frame], path: Path) -> Grid:
    """Where the voxels of a frame are."""
    first, last = stack[0], stack[-1]
    distance = (last.level - first.level) / (len(stack) - 1) if len(stack) > 1 else first.thickness
    offset = np.subtract(last.position, first.position) - (last.level - first.level) * first.normal
    if np.abs(offset).max() > SAME_PLACE_MM:
        raise BadInput(f"{path} has slices that do not lie behind each other: give a cine of one stack")
    axes = np.column_stack([first.axes[:3], first.axes[3:], first.normal])
    spacing = first.spacing[1], first.spacing[0], distance
    grid = Grid((*first.size, len(stack)), spacing, first.position, tuple(axes.ravel().tolist()))
    check_grid(grid, path)
    return grid


def read_pixels(stacks: list[list[Frame]], path: Path) -> Shaped[ndarray, "t x y z"]:
    """The voxels of every frame."""
    flat = [frame for stack in stacks for frame in stack]
    files = list(dict.fromkeys(frame.file for frame in flat))
    if len(files) == len(flat) and len(files) > 1:
        images = read_isolated(path, files, DICOM_READER).array
        planes = np.moveaxis(images, -1, 0)
    else:
        held = {file: read_isolated(file, [file], DICOM_READER).array for file in files}
        planes = np.stack([np.atleast_3d(held[frame.file])[..., frame.part] for frame in flat])
    if planes.shape != (len(flat), *flat[0].size):
        raise unreadable(path, "its images are not grey, or not as large as their headers say")
    whole = planes.reshape(len(stacks), len(stacks[0]), *flat[0].size)
    return np.ascontiguousarray(np.moveaxis(whole, 1, -1))


def mean_times(stacks: list[list[Frame]]) -> tuple[float, ...] | None:
    """When each frame was taken, as a mean over slices, each of which was seen in beats of its own."""
    times = [[frame.time_ms for frame in stack] for stack in stacks]
    if any(time is None for stack in times for time in stack):
        return None
    means = tuple(float(np.mean(stack)) for stack in times)  # type: ignore[arg-type]
    return means if (np.diff(means) > 0).all() else None
