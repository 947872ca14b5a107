"""A cine in DICOM: every file is a slice at a time, in one series or one per slice; or a file holds many frames.

Slices are put together by where they lie, and frames by when they were taken; what series they are in, and how files
are called, does not matter."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.checks import check_grid, unreadable
from vrnet.images.cine import Cine
from vrnet.images.dicom import DICOM_READER, check_slices, files_of, is_dicom, read_isolated
from vrnet.images.dicom_frames import (
    INSTANCE,
    ORIENTATION,
    PIXEL_SPACING,
    POSITION,
    SLICE_DISTANCE,
    TEMPORAL_INDEX,
    THICKNESS,
    TRIGGER_DELAY,
    TRIGGER_TIME,
    Tag,
    Values,
    read_frames,
)
from vrnet.images.grid import Grid
from vrnet.images.nifti import first_bytes
from vrnet.images.sandbox import ask_sandbox

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
