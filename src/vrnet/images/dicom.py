"""DICOM by pydicom: a series as a volume; and a cine, as a file per slice and frame, or as files of many frames. Slices
are put together by where they lie, and frames by when they were taken, whatever their series and file names."""

import warnings
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput, counted, some, warn_of_input
from vrnet.files import exists, unreadable
from vrnet.images.formats import Voxels, check_picture, first_bytes, refuse_errors
from vrnet.images.grid import Grid, checked_grid
from vrnet.images.image import Times
from vrnet.images.isolated import read_isolated

MIN_SLICE_DISTANCE_MM = 1e-3
MAX_DISTANCE_VARIATION = 0.02  # how much the distances between slices may differ, relative to the largest
SAME_PLACE_MM, SAME_DIRECTION = 0.2, 1e-3
MAX_OFFSET_MM = 5.0  # of the slices of a stack from each other, within their planes
MAX_FILES = 20_000
# The name of a form in which all of a file is deflated, which is rare, and could fill the memory.
DEFLATED, DEFLATED_WITHIN = b"1.2.840.10008.1.2.1.99", 1 << 16
OF_FRAMES = (
    "ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SpacingBetweenSlices",
    "NominalCardiacTriggerDelayTime", "TriggerTime", "TemporalPositionIndex", "InstanceNumber", "RescaleSlope",
    "RescaleIntercept",
)  # fmt: skip
OF_FILES = ("Rows", "Columns", "NumberOfFrames", "SeriesInstanceUID", "SharedFunctionalGroupsSequence",
            "PerFrameFunctionalGroupsSequence", "SOPInstanceUID", "SeriesNumber", "SeriesDescription", "ImageType",
            "AcquisitionTime")  # fmt: skip
PHASE_TYPES = {"P", "PHASE", "PHASE MAP", "VELOCITY", "VELOCITY MAP"}  # those of maps of flow, which show no heart


class Series(NamedTuple):
    uid: str
    number: int
    title: str

    def __str__(self) -> str:
        return f"series {self.number}" + (f" ({self.title})" if self.title else "")


class Frame(NamedTuple):
    """One slice at one time: where it is stored, where it lies and when it was taken."""

    file: Path
    part: int  # which of the images of its file
    series: Series
    taken: str  # when the file was made, and which file that is, to tell a copy, or what was taken again
    is_phase: bool
    size: tuple[int, int]
    position: tuple[float, ...]
    axes: tuple[float, ...]  # the directions of its rows and columns
    spacing: tuple[float, ...]
    thickness: float
    time_ms: float | None
    number: float | None  # its place in the order in which frames were made
    scale: tuple[float, float]  # slope and intercept of its values

    @property
    def normal(self) -> Shaped[ndarray, "3"]:
        return np.cross(self.axes[:3], self.axes[3:])

    @property
    def level(self) -> float:
        """Its position along the normal of its plane, in mm."""
        return float(np.dot(self.position, self.normal))


def is_dicom(head: bytes) -> bool:
    """Whether the first bytes of a file are those of DICOM, with its preamble or without."""
    return head[128:132] == b"DICM" or head[:2] in (b"\2\0", b"\x08\0", b"\0\2", b"\0\x08")


def read_series(path: Path) -> Voxels:
    """The one series of a folder, or of a file, as a volume."""
    frames = list_frames(path)
    series = len({frame.series.uid for frame in frames})
    if series != 1:
        raise BadInput(f"{path} holds {series or 'no'} DICOM series: name a folder with one, or an image file")
    check_alike(frames, path)
    stack = sorted(frames, key=lambda frame: frame.level)
    grid = grid_of_stack(stack, path)
    return Voxels(read_planes(stack, path).transpose(2, 1, 0), grid)


def read_study(path: Path, wanted: str | None = None) -> tuple[list[Frame], tuple[str, ...]]:
    """The frames of a cine, and what is said of each series, taken or left: the largest stack of parallel slices seen
    over time, of a place seen again the latest series; of those wanted, by number or a part of their description."""
    parts: dict[Any, list[Frame]] = {}  # of a series, what has one size, direction and kind
    frames = list_frames(path, also_below=True)
    for frame in {frame._replace(file=path if frame.taken else frame.file): frame for frame in frames}.values():
        kind = tuple(np.round(frame.axes, 2) + 0.0), tuple(np.round(frame.spacing, 3)), frame.size, frame.is_phase
        parts.setdefault((frame.series, kind), []).append(frame)  # each once, of copies one
    if not parts:
        raise BadInput(f"{path} holds no DICOM image that says where it lies: name the folder of a cine")
    found = {series for series, _ in parts}
    asked_for = {series for series in found if wanted in (None, str(series.number), series.uid)}
    asked_for |= {one for one in found if not asked_for and (wanted or "").casefold() in one.title.casefold()}
    left: dict[Any, str] = {}
    stacks: list[dict[float, tuple[Any, list[Frame]]]] = []  # {level: the last part that shows it, and its frames}
    for key in sorted(parts, key=lambda key: (key[0].number, min(frame.taken for frame in parts[key]))):
        places = places_of(parts[key])
        if key[0] not in asked_for:
            left[key] = "not asked for"
        elif parts[key][0].is_phase:
            left[key] = "a map of flow"
        elif len(parts[key]) < 2 * len(places):
            left[key] = "one image of each place, no cine"
        else:
            stack = next((each for each in stacks if is_beside(places, [place for _, place in each.values()])), None)
            if stack is None:
                stacks.append(stack := {})
            for place in places:
                for level in [level for level in stack if abs(level - place[0].level) <= SAME_PLACE_MM]:
                    left[stack.pop(level)[0]] = f"taken again by {key[0]}"
                stack[place[0].level] = key, place
    stacks.sort(key=len, reverse=True)
    if not stacks:
        names = ", ".join(sorted(map(str, found)))
        if wanted is not None:
            why = sorted({f"{series} has {left[series, kind]}" for series, kind in parts if series in asked_for})
            raise BadInput(f"{path}: {'; '.join(why) or f'no series is called {wanted!r}'}. It has {names}")
        raise BadInput(f"{path} holds no images of one place over time ({names}): name the folder of a cine")
    size = counted(len(stacks[0]), "slice")
    if len(stacks) > 1 and len(stacks[1]) == len(stacks[0]):
        alike = {str(key[0]) for stack in stacks if len(stack) == len(stacks[0]) for key, _ in stack.values()}
        told = f"{path} holds several cines of {size} each, {', '.join(sorted(alike))}"
        raise BadInput(f"{told}: name the series of one, by its number or a part of its description (--series)")
    taken, lines = {key for key, _ in stacks[0].values()}, []
    for key in sorted(parts, key=lambda key: (key[0].number, key[1])):
        places, reason = places_of(parts[key]), left.get(key)
        shown = f"{counted(len(places), 'slice')} x {counted(max(map(len, places)), 'frame')}"
        fate = f"left, {reason or f'no part of a stack of {size}'}"
        if key in taken:
            fate = "taken" + (f", but for what was {reason}" if reason else "")
        lines.append(f"{key[0]}, {shown} of {' x '.join(map(str, key[1][2]))} pixels: {fate}")
    return [frame for _, place in stacks[0].values() for frame in place], tuple(lines)


def is_beside(places: list[list[Frame]], stack: list[list[Frame]]) -> bool:
    """Whether slices are like those of a stack, and lie before, behind or between them."""
    a, b = places[0][0], stack[0][0]
    is_alike = a.size == b.size and np.allclose(a.spacing, b.spacing, SAME_DIRECTION)
    is_parallel = np.allclose(a.axes, b.axes, 0, SAME_DIRECTION)
    within = np.subtract(a.position, b.position) - (a.level - b.level) * b.normal
    is_near = np.abs(within).max() <= MAX_OFFSET_MM
    return bool(is_alike and is_parallel and is_near) and max(map(len, places)) == max(map(len, stack))


def places_of(frames: list[Frame]) -> list[list[Frame]]:
    """Those of one place together, from the first along the normal on."""
    ordered = sorted(frames, key=lambda frame: frame.level)
    places = [[ordered[0]]]
    for before, frame in pairwise(ordered):
        if frame.level - before.level > SAME_PLACE_MM:
            places.append([])
        places[-1].append(frame)
    return places


def read_cine_frames(frames: list[Frame], path: Path) -> tuple[Shaped[ndarray, "t x y z"], Grid, Times]:
    """The pixels of a cine, where they lie, and when they were taken: in the order of time, by their times or else by
    their numbers; of a frame, from the first place along the normal on."""
    check_alike(frames, path)
    places = places_of(frames)
    fewest, most = (choose(map(len, places)) for choose in (min, max))
    if fewest < most:
        raise BadInput(f"{path} has slices with {fewest} to {most} frames: are some missing, or is it two cines?")
    for order in (lambda frame: frame.time_ms, lambda frame: frame.number):
        if all(None not in (values := [*map(order, place)]) and len({*values}) == most for place in places):
            break
    else:
        raise BadInput(f"{path} has frames at one place without trigger times or numbers: their order is unknown")
    stacks = [list(stack) for stack in zip(*(sorted(place, key=order) for place in places), strict=True)]
    grid = grid_of_stack(stacks[0], path)
    planes = read_planes([frame for stack in stacks for frame in stack], path)
    stacked = planes.reshape(len(stacks), len(stacks[0]), *planes.shape[1:])
    # Each slice was seen in beats of its own: a frame was taken at the mean of their times.
    seen = [[np.nan if frame.time_ms is None else frame.time_ms for frame in stack] for stack in stacks]
    means = tuple(np.mean(seen, axis=1).tolist())
    return np.ascontiguousarray(stacked.transpose(0, 3, 2, 1)), grid, means if (np.diff(means) > 0).all() else None


def list_frames(path: Path, also_below: bool = False) -> list[Frame]:
    """Every image that says where it lies, of a folder, and of those below it if so asked; of a file that is named
    alone, which need not say it. BadInput if there is something that could block, such as a pipe."""
    files = [path]
    if path.is_dir():
        below = sorted(place for place in path.rglob("*") if place.is_dir()) if also_below else []
        entries = [entry for folder in (path, *below) for entry in sorted(folder.iterdir())]
        for entry in entries:
            if exists(entry) and not (entry.is_file() or entry.is_dir()):
                raise BadInput(f"{entry.parent} holds {entry.name!a}, which is no ordinary file: remove it")
        files = [entry for entry in entries if entry.is_file()]
    if len(files) > MAX_FILES:
        raise BadInput(f"{path} holds {len(files):,} files: name the folder of one study")
    found, unread = list[Frame](), list[str]()
    for file in files:
        if file == path or is_dicom(first_bytes(file)):
            try:
                found += frames_of_file(file, is_lone=file == path)
            except BadInput:
                if file == path or len(files) == 1:
                    raise
                unread.append(file.name)
    if unread:
        warn_of_input(f"{path} holds DICOM files without an image that can be read, which are left out: {some(unread)}")
    return found


def frames_of_file(file: Path, is_lone: bool) -> list[Frame]:
    """The images of a file that say where they lie; the only image of a lone file need not say it."""
    import pydicom

    if DEFLATED in first_bytes(file, DEFLATED_WITHIN):
        raise unreadable(file, "its header is stored in a rare way; save it as explicit, little endian")
    with refuse_errors(file), warnings.catch_warnings(action="ignore"):
        head = pydicom.dcmread(file, stop_before_pixels=True, force=True, specific_tags=[*OF_FRAMES, *OF_FILES])
        size, named = (int(head.Columns), int(head.Rows)), str(head.get("SeriesNumber") or 0)
        title = "".join(c for c in str(head.get("SeriesDescription", "")) if c.isprintable())[:64].strip()
        series = Series(str(head.get("SeriesInstanceUID", "")), int(named) if named.isdecimal() else 0, title)
        taken = f"{head.get('AcquisitionTime', '')} {head.get('SOPInstanceUID', '')}".strip()
        is_phase = not PHASE_TYPES.isdisjoint(map(str.upper, map(str, np.atleast_1d(head.get("ImageType", "")))))
        count, of_each = int(head.get("NumberOfFrames") or 1), head.get("PerFrameFunctionalGroupsSequence")
        shared = values_in(chain(head, *(item.iterall() for item in head.get("SharedFunctionalGroupsSequence") or ())))
        values = [shared | values_in(item.iterall()) for item in of_each] if of_each else [shared] * count
    if len(values) != count:
        raise unreadable(file, f"it holds {count} images and says of {len(values)} where they lie")
    frames = []
    for part, said in enumerate(values):
        position, axes, spacing = (said.get(key, ()) for key in OF_FRAMES[:3])
        if is_lone and count == 1:
            position, axes, spacing = position or (0.0, 0.0, 0.0), axes or (1.0, 0, 0, 0, 1.0, 0), spacing or (1.0, 1.0)
        if (len(position), len(axes), len(spacing)) == (3, 6, 2) and min(size) >= 1:
            thickness = first_number(said, "SpacingBetweenSlices", "SliceThickness")
            time = first_number(said, "NominalCardiacTriggerDelayTime", "TriggerTime")
            number = first_number(said, "TemporalPositionIndex", "InstanceNumber")
            slope, intercept = first_number(said, "RescaleSlope"), first_number(said, "RescaleIntercept")
            scale = 1.0 if slope is None else slope, intercept or 0.0
            place = position, axes, spacing, thickness or 1.0
            frames.append(Frame(file, part, series, taken, is_phase, size, *place, time, number, scale))
    return frames


def values_in(elements: Iterable[Any]) -> dict[str, tuple[float, ...]]:
    """{keyword: finite numbers} of what frames need; what is no list of numbers is left out."""
    found = {}
    for element in elements:
        if element.keyword in OF_FRAMES:
            with suppress(TypeError, ValueError):
                numbers = np.atleast_1d(np.asarray(element.value, np.float64))
                if np.isfinite(numbers).all():
                    found[element.keyword] = tuple(numbers.tolist())
    return found


def first_number(values: dict[str, tuple[float, ...]], *keys: str) -> float | None:
    """The number that the first of these keys has, of those that are there."""
    return next((values[key][0] for key in keys if values.get(key)), None)


def check_alike(frames: list[Frame], path: Path) -> None:
    """BadInput unless all images have one size and spacing, and lie parallel."""
    if len(sizes := sorted({"{} x {}".format(*frame.size) for frame in frames})) > 1:
        raise BadInput(
            f"{path} holds frames that differ in size, {sizes[0]} and {sizes[1]}: name a folder with one cine"
        )
    if np.ptp([frame.axes for frame in frames], axis=0).max() > SAME_DIRECTION:
        raise BadInput(f"{path} holds images in several directions (long and short axis?): give one cine per folder")
    if not np.allclose([frame.spacing for frame in frames], frames[0].spacing, rtol=SAME_DIRECTION):
        raise BadInput(f"{path} holds images with pixels of several sizes: give one cine per folder")


def grid_of_stack(stack: list[Frame], path: Path) -> Grid:
    """Where the voxels of slices are; BadInput unless they lie behind each other at equal distances, in this order."""
    first, last = stack[0], stack[-1]
    steps, distance = np.diff([frame.level for frame in stack]), first.thickness
    if len(steps):
        distance = (last.level - first.level) / len(steps)
        if steps.min() < MIN_SLICE_DISTANCE_MM:
            raise BadInput(f"{path} holds several images at one place (time frames?): give a folder with one frame")
        if np.ptp(steps) > MAX_DISTANCE_VARIATION * steps.max():
            raise BadInput(f"{path} has slices at unequal distances, up to {steps.max():.3g} mm: are some missing?")
    offset = np.subtract(last.position, first.position) - (last.level - first.level) * first.normal
    if np.abs(offset).max() > SAME_PLACE_MM:
        raise BadInput(f"{path} has slices that do not lie behind each other: give a cine of one stack")
    axes, spacing = np.column_stack([first.axes[:3], first.axes[3:], first.normal]), (*first.spacing[::-1], distance)
    return checked_grid(Grid.of((*first.size, len(stack)), spacing, first.position, axes), path)


def read_planes(frames: list[Frame], path: Path) -> Shaped[ndarray, "n y x"]:
    """The pixels of frames, with the slope and the intercept of each; whole numbers where these are."""
    import pydicom
    from pydicom.pixels.decoders.base import get_decoder

    held: dict[Path, Shaped[ndarray, ...]] = {}
    waiting: list[Path] = []
    for file in dict.fromkeys(frame.file for frame in frames):
        with refuse_errors(file), warnings.catch_warnings(action="ignore"):
            data = pydicom.dcmread(file, force=True)
            count = int(data.get("NumberOfFrames") or 1)
            claimed = count * data.Rows * data.Columns * int(data.get("SamplesPerPixel", 1)) * data.BitsAllocated // 8
            check_picture(path, claimed, file.stat().st_size)
            syntax = data.file_meta.get("TransferSyntaxUID") if "file_meta" in vars(data) else None
            if syntax is not None and syntax.is_compressed and not get_decoder(syntax).is_available:
                waiting.append(file)
            else:
                held[file] = data.pixel_array.reshape(-1, *data.pixel_array.shape[-2:])
    if waiting:  # ITK scales its values itself
        found = read_isolated("slices", path, waiting)
        held |= {file: found[str(k)] for k, file in enumerate(waiting)}
        frames = [frame._replace(scale=(1.0, 0.0)) if frame.file in waiting else frame for frame in frames]
    planes = [held[frame.file][frame.part] for frame in frames]
    if {plane.shape for plane in planes} != {frame.size[::-1] for frame in frames}:  # which all have one size
        raise unreadable(path, "its images are not grey, or not as large as their headers say")
    scales, stack = np.array([frame.scale for frame in frames]), np.stack(planes)
    if (scales == (1, 0)).all():
        return stack
    stack = stack * scales[:, 0, None, None] + scales[:, 1, None, None]
    if (scales % 1).any() or not np.isfinite(stack).all():
        return stack
    return stack.astype(np.promote_types(np.min_scalar_type(int(stack.min())), np.min_scalar_type(int(stack.max()))))
