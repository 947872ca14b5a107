"""Enhanced multi-frame DICOM: what the header says of each frame, which ITK does not tell.

A header is a list of elements (group, element, type, length, value). A value may be a sequence of items, each a list of
elements again. Only the values that a cine needs are kept; every length is checked against the end of the file."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vrnet.images.checks import DAMAGED, check_regular, unreadable

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
