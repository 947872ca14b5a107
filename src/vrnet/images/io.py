"""Images, cines and points in files or as a caller gives them. The content of a file says what it is, not its name."""

import gzip
import re
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
import SimpleITK as sitk
from jaxtyping import Float, Shaped
from nibabel.spatialimages import SpatialImage
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput, shown, type_name, warn_of_input
from vrnet.files import atomic_write, check_file, check_written, exists, read_lines, unreadable, write_table
from vrnet.images import formats
from vrnet.images.dicom import is_dicom, read_cine_frames, read_series, read_study
from vrnet.images.formats import Voxels, first_bytes, refuse_errors
from vrnet.images.grid import ORTHONORMAL_TOLERANCE, Grid
from vrnet.images.image import Cine, Image, Times, checked_numbers, frame_step, grid_of, grid_of_nibabel, to_sitk
from vrnet.vocabulary import Space

NIFTI_SUFFIXES = (".nii", ".nii.gz")
NIFTI_HEADER_BYTES = 352
IMAGE_SUFFIXES = (*NIFTI_SUFFIXES, ".mha", ".nrrd")  # the formats that images are written in


def read_voxels(path: Path, with_voxels: bool = True) -> Voxels:
    """What a file, or a folder of DICOM, holds, in most formats without voxels if so asked; or BadInput."""
    check_name(path)
    with refuse_errors(path):
        if path.is_dir():
            return read_series(path)
        head = first_bytes(path)
        if head.startswith(b"NRRD000"):
            return formats.read_nrrd(path, with_voxels)
        if re.match(rb"\s*[A-Za-z]\w*[ \t]*=", head) and b"NDims" in head:
            return formats.read_metaimage(path, with_voxels)
        if kind := next((kind for magic, kind in formats.PICTURES.items() if head.startswith(magic)), None):
            return formats.read_picture(path, kind)
        return read_series(path) if is_dicom(head) else formats.read_nifti(path, with_voxels)


def check_name(path: Path) -> None:
    """BadInput unless something is there, under a name that a message can hold."""
    if not str(path).isprintable():
        raise BadInput(f"the name {str(path)!a} has characters that cannot be written: rename the file")
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")


def read_image(path: str | PathLike[str]) -> Image:
    """One 2D or 3D image, from a file or from a folder that holds one DICOM series."""
    path = Path(path)
    voxels = read_voxels(path)
    array, grid = voxels.array, voxels.grid
    if voxels.is_vector:
        if array.ndim != 3 or len(array) < 3 or not (array[1:3] == array[0]).all():
            raise BadInput(f"{path} holds {len(array)} values per voxel (colours, or a transform): give a grey image")
        warn_of_input(f"{path} is saved in colour, and grey: its channels are alike, and one is used")
        array = array[0]
    if len(grid.shape) == 4 and grid.shape[3] == 1:
        array, grid = array[..., 0], grid_in_space(grid, path)
    return Image(checked_numbers(array, str(path)), grid, str(path))


def read_grid(path: Path) -> Grid:
    """Where the voxels of an image are; their values are not read where the format allows."""
    grid = read_voxels(path, with_voxels=False).grid
    return grid if len(grid.shape) in (2, 3) else read_image(path).grid


def write_image(image: Image, path: str | PathLike[str]) -> None:
    """Write an image or a label map in the format of the file's ending; its number type is kept."""
    path = Path(path)
    if not isinstance(image, Image):
        raise BadInput(f"the image is {type_name(image)}: give vrnet.Image(array, grid), with the grid that it lies on")
    check_file(path, IMAGE_SUFFIXES)
    check_numbers(image.array, path)
    write_sitk(to_sitk(image.array, image.grid), path)


def write_frames(frames: Shaped[ndarray, "t *s"], grid: Grid, times_ms: Times, path: str | PathLike[str]) -> None:
    """Write the frames of a cine, time as the last axis; without times, frames are a second apart."""
    path = Path(path)
    check_file(path, IMAGE_SUFFIXES)
    seconds = 1.0 if times_ms is None else (times_ms[-1] - times_ms[0]) / (len(times_ms) - 1) / 1000
    write_sitk(sitk.JoinSeries([to_sitk(frame, grid) for frame in frames], 0.0, seconds), path)


def check_numbers(array: Shaped[ndarray, "..."], path: Path) -> None:
    """BadInput if any number that is to be written is NaN or infinite."""
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise BadInput(f"some of its numbers are NaN or infinite: {path} is not written")


def write_sitk(image: sitk.Image, path: Path) -> None:
    """Write a SimpleITK image in the format of the file's ending, whole or not at all."""
    with atomic_write(path) as temporary:
        try:
            if path.name.endswith(".nii.gz"):  # by the quickest compression, which costs little room: ITK's is slower
                sitk.WriteImage(image, str(temporary.with_suffix("")))
                content = temporary.with_suffix("").read_bytes()
                check_written(len(content) == NIFTI_HEADER_BYTES + sitk.GetArrayViewFromImage(image).nbytes, path)
                temporary.write_bytes(gzip.compress(content, 1, mtime=0))
            else:
                sitk.WriteImage(image, str(temporary), useCompression=True)
                found = sitk.ReadImage(str(temporary))  # ITK says nothing of a disk that is full
                numbers = [sitk.GetArrayViewFromImage(each).ravel() for each in (found, image)]
                check_written(np.array_equal(*numbers), path)
        except RuntimeError as error:
            raise BadInput(f"cannot write {path}: is the disk full?") from error


# A cine on disk: a file of four axes (NIfTI, MHA, NRRD), of three for one slice over time, or DICOM.

MIN_CYCLE_MS, MAX_CYCLE_MS = 200.0, 4000.0  # a heart beats between 300 and 15 times a minute
MAX_STEP_S = 0.3  # a third step below is the time between frames, in seconds
MAX_CHANGE = 0.45  # the part of a cine's variance that is change over time: at most .37 of hearts, of brains .57


def read_cine(path: str | PathLike[str], series: str | None = None) -> Cine:
    """A cine from a file or a folder of DICOM. Of a study, `series` chooses, by a number or a part of a description."""
    path = Path(path)
    check_name(path)
    if path.is_dir() or is_dicom(first_bytes(path)):
        with refuse_errors(path):
            seen, told = read_study(path, series)
            return Cine(*read_cine_frames(seen, path), str(path), study=told)
    if series is not None:
        raise BadInput(f"{path} is no DICOM study, and has no series to choose from: leave `series` out")
    voxels = read_voxels(path)
    if voxels.is_sequence:  # as 3D Slicer saves it, which leaves no doubt
        return Cine(voxels.array, voxels.grid, None, str(path))
    if voxels.is_vector:
        raise BadInput(f"{path} holds several values per voxel (colours, or a transform): give a cine of grey images")
    frames, grid, doubt = frames_of_axes(voxels.array, voxels.grid, path)
    times = times_of(voxels.frame_ms, len(frames), path) if voxels.array.ndim == 4 else None
    return Cine(frames, grid, times, str(path), doubt)


def frames_of_axes(array: Shaped[ndarray, "..."], grid: Grid, path: Path) -> tuple[Shaped[ndarray, "..."], Grid, str]:
    """The frames along the last axis, the grid of the others, and why they may be no frames: of a file of three axes,
    which the user is told is taken for a slice over time; BadInput for a volume."""
    while array.ndim > 4 and array.shape[-1] == 1:
        array, grid = array[..., 0], grid_in_space(grid, path)
    if array.ndim not in (3, 4):
        raise BadInput(f"{path} has {array.ndim} dimensions: a cine has four, or three for one slice over time")
    frames, doubt = np.moveaxis(array, -1, 0), ""
    if array.ndim == 3:
        steps = " x ".join(f"{h:.4g}" for h in grid.spacing)
        # A third step is the time between frames, in seconds; or the 1 of a header that says nothing of it.
        has_steps = grid.spacing[2] >= MAX_STEP_S and (grid.spacing[2] != 1 or 1 in grid.spacing[:2])
        is_number, is_stack = frames.dtype.kind in "iufb", grid.stacked_across == 2
        changes = is_number and frames.var(0, dtype=np.float64).mean() > MAX_CHANGE * frames.var(dtype=np.float64)
        if is_stack or (has_steps and changes):
            held = f"one frame only, a {'stack of slices' if is_stack else 'volume'} with steps of {steps} mm"
            raise BadInput(f"{path} holds {held}: give a cine of four axes; that of one slice is (x, y, 1, t)")
        reason = f"steps of {steps} mm, as a volume has" if has_steps else "frames that differ as slices of a volume do"
        if has_steps or changes:
            doubt = f"BEWARE: it has {reason}; of a volume no motion can be found. A cine of one slice is (x, y, 1, t)"
        told = f"{path} has three axes: the third is taken for time, and a frame is one slice. {doubt}"
        warn_of_input(told.rstrip(". "))
    return frames, grid_in_space(grid, path), doubt


def grid_in_space(grid: Grid, path: Path) -> Grid:
    """A grid without its last axis, time. A slice tilted out of the plane of its first axes lies along the axes."""
    d = len(grid.shape) - 1
    axes = grid.axes[:d, :d]
    is_apart = np.allclose(axes.T @ axes, np.eye(d), atol=ORTHONORMAL_TOLERANCE)
    if not is_apart and d == 3:
        raise unreadable(path, "its header mixes time with the axes of space")
    return Grid.of(grid.shape[:d], grid.spacing[:d], grid.origin[:d], axes if is_apart else np.eye(d))


def times_of(step: float | None, frames: int, path: Path) -> Times:
    """When each frame was taken, by the step in a header; None where it does not say, or says what no heart does."""
    if not step:
        return None
    told = f"the header of {path} has frames {step:g} ms apart"
    if step < 0:
        raise BadInput(f"{told}: time runs forward; mend pixdim[4]")
    if MIN_CYCLE_MS <= frames * step <= MAX_CYCLE_MS:
        return tuple(k * step for k in range(frames))
    warn_of_input(f"{told}, which is no heart beat: its times are not used")
    return None


File = str | PathLike[str]
ImageLike: TypeAlias = Image | File | sitk.Image | SpatialImage  # all that an image may be given as
CineLike: TypeAlias = Cine | File | sitk.Image | SpatialImage  # images of libraries have time as their last axis


def given_image(name: str, given: object) -> Image:
    """The image that was given, under its own name if it has one; `name` is that of the argument."""
    if isinstance(given, Image):
        return replace(given, name=name) if given.name == Image.name else given
    if isinstance(given, (str, PathLike)):
        return read_image(given)
    if isinstance(given, sitk.Image):
        return Image.from_sitk(given, name)
    if isinstance(given, SpatialImage):
        return Image.from_nibabel(given, name)
    if isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"{name} is an array: give an Image or a file, or register arrays by vrnet.register")
    raise BadInput(f"{name} is {type_name(given)}: give an Image (vrnet.read_image) or a file")


def given_cine(given: object) -> Cine:
    if isinstance(given, Cine):
        return given
    if isinstance(given, (str, PathLike)):
        return read_cine(given)
    if isinstance(given, sitk.Image):
        frames, grid, doubt = frames_of_axes(sitk.GetArrayFromImage(given).T, grid_of(given), Path("the cine"))
        return Cine(frames, grid, doubt=doubt)
    if isinstance(given, SpatialImage):
        array = np.asanyarray(given.dataobj)
        if array.ndim != 4:
            raise BadInput(f"the cine has {array.ndim} dimensions: give four, (x, y, z, t)")
        times = times_of(frame_step(given.header), array.shape[3], Path("the cine"))
        return Cine(np.moveaxis(array, -1, 0), grid_of_nibabel(given, array.shape[:3], "the cine"), times)
    raise BadInput(f"the cine is {type_name(given)}: give a Cine (vrnet.read_cine), a file or a 4D image")


# Points in the world, as CSV files: a header with x, y (and z), one row per point, in millimetres.

SIGNS = {"LPS": (1.0, 1.0, 1.0), "RAS": (-1.0, -1.0, 1.0)}  # what takes positions in a space to LPS, and back


@dataclass(frozen=True, eq=False)
class Points:
    """Points in LPS millimetres, with the table they came from, whose other columns are kept."""

    lps: Float[ndarray, "n d"]
    header: list[str]
    rows: list[list[str]]
    columns: list[int]  # the positions of x, y (and z) in a row


def read_points(path: Path, space: Space) -> Points:
    """The points of a table whose numbers are in this space; BadInput if it has no x and y."""
    lines = read_lines(path, "a header x,y,z and one row per point")
    header, rows = next(lines, []), list(lines)
    names = [name.strip().lower() for name in header]
    columns, found = [names.index(axis) for axis in "xyz" if axis in names], []
    if names.count("x") != 1 or names.count("y") != 1 or names.count("z") > 1:
        raise BadInput(f"{path} has no columns x and y, or one twice: its first line must name them, such as x,y,z")
    for count, row in enumerate(rows, start=1):
        try:
            found.append([float(row[column]) for column in columns])
        except (ValueError, IndexError):
            found.append([np.nan])
        if not np.isfinite(found[-1]).all():
            raise BadInput(f"point {count} of {path} is no finite number (its row: {shown(','.join(row))}): mend it")
    numbers = np.array(found).reshape(-1, len(columns))
    return Points(numbers * SIGNS[space][: len(columns)], header, rows, columns)


def write_points(points: Points, path: Path, space: Space) -> None:
    """Write the table of the points with their positions in this space, to a millionth of a millimetre."""
    if not np.isfinite(points.lps).all():
        raise BadInput(f"some points go to places that are NaN or infinite: {path} is not written")
    rows = [list(row) for row in points.rows]
    for row, numbers in zip(rows, points.lps * SIGNS[space][: points.lps.shape[1]], strict=True):
        for column, number in zip(points.columns, numbers, strict=True):
            row[column] = f"{number:.6f}"
    write_table(points.header, rows, path)
