"""A cine on disk: a file of four axes (NIfTI, MHA, NRRD), of three for one slice over time, or DICOM."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput, warn_of_input
from vrnet.images.checks import ORTHONORMAL_TOLERANCE, unreadable
from vrnet.images.cine import Cine
from vrnet.images.dicom import is_dicom
from vrnet.images.dicom_cine import read_dicom_cine
from vrnet.images.exchange import grid_of
from vrnet.images.grid import Grid
from vrnet.images.io import check_name, read_sitk, refuse_itk_errors
from vrnet.images.nifti import first_bytes, header_of_pair, is_nifti, parse_header
from vrnet.images.nrrd import counts_frames, is_nrrd

if TYPE_CHECKING:
    import SimpleITK as sitk

MIN_CYCLE_MS, MAX_CYCLE_MS = 200.0, 4000.0
"""A heart beats between 300 and 15 times a minute. A header that says otherwise means something else by its number."""
MAX_STEP_S = 0.3
"""A third step below is the time between frames, in seconds; one of 1 is what a header has that says nothing."""
MAX_CHANGE = 0.45
"""Of the variance of a cine, the part that is change over time. Of a volunteer's slices it was 0.21 at most, and 0.37
where they were cut to the heart; from slice to slice of brains and hippocampi 0.57 at least."""
LOOKED_AT = 1e6
"""How many voxels tell how much a cine changes."""


def read_cine(path: str | PathLike[str]) -> Cine:
    """A cine from a file, or from a folder of DICOM with all slices and frames of it."""
    path = Path(path)
    check_name(path)
    with refuse_itk_errors(path):
        head = b"" if path.is_dir() else first_bytes(path)
        if path.is_dir() or is_dicom(head):
            return read_dicom_cine(path)
    image = read_sitk(path)
    frames, grid, doubt = frames_of_vectors(image, path, head) or frames_of_axes(image, path)
    if frames.dtype.kind == "c":
        raise BadInput(f"{path} holds complex numbers: give an image of real ones, such as their magnitude")
    times = nifti_times(path, len(frames)) if is_nifti(head) and image.GetDimension() == 4 else None
    return Cine(frames, grid, times, str(path), doubt)


def frames_of_vectors(image: "sitk.Image", path: Path, head: bytes) -> tuple[Shaped[ndarray, "..."], Grid, str] | None:
    """The frames of a sequence as 3D Slicer saves it, where the first axis of an NRRD file counts them, which leaves no
    doubt; None of others.

    Other values of a voxel, such as colours, are refused."""
    import SimpleITK as sitk

    if image.GetNumberOfComponentsPerPixel() == 1:
        return None
    if not (is_nrrd(head) and counts_frames(path)):
        raise BadInput(f"{path} holds several values per voxel (colours, or a transform): give a cine of grey images")
    return sitk.GetArrayFromImage(image).T, grid_of(image), ""


def frames_of_axes(image: "sitk.Image", path: Path) -> tuple[Shaped[ndarray, "..."], Grid, str]:
    """The frames along the last axis, the grid of the others, and why they may be no frames."""
    import SimpleITK as sitk

    while image.GetDimension() > 4 and image.GetSize()[-1] == 1:
        image = image[..., 0]
    d = image.GetDimension()
    if d not in (3, 4):
        raise BadInput(f"{path} has {d} dimensions: a cine has four, or three for one slice over time")
    grid = grid_of(image)
    frames = np.moveaxis(sitk.GetArrayFromImage(image).T, -1, 0)
    return frames, grid_in_space(grid, path), check_slice_over_time(frames, grid, path) if d == 3 else ""


def check_slice_over_time(frames: Shaped[ndarray, "t x y"], grid: Grid, path: Path) -> str:
    """Tell the user that the third axis is taken for time, and return what speaks against it, if anything; BadInput
    where it evidently counts the slices of a stack or of a volume."""
    steps = " x ".join(f"{h:.4g}" for h in grid.spacing)
    has_steps, changes = has_steps_of_volume(grid), change_over_time(frames) > MAX_CHANGE
    if grid.stacked_across == 2 or (has_steps and changes):
        what = f"a {'stack of slices' if grid.stacked_across == 2 else 'volume'} with steps of {steps} mm"
        said = f"{path} holds one frame only, {what}: give a cine of four axes; one of a single slice is saved as"
        raise BadInput(f"{said} (x, y, 1, t)")
    reason = f"steps of {steps} mm, as a volume has" if has_steps else "frames that differ as slices of a volume do"
    beware = f"BEWARE: the file has {reason}; of a volume no motion can be found. A cine of one slice is (x, y, 1, t)"
    doubt = beware if has_steps or changes else ""
    said = f"{path} has three axes: the third is taken for time, and a frame is one slice"
    warn_of_input(f"{said}. {doubt}" if doubt else said)
    return doubt


def has_steps_of_volume(grid: Grid) -> bool:
    """Whether a third step is neither the time between frames nor the 1 of a header that says nothing of it."""
    return grid.spacing[2] >= MAX_STEP_S and (grid.spacing[2] != 1 or 1 in grid.spacing[:2])


def change_over_time(frames: Shaped[ndarray, "t x y"]) -> float:
    """The part of the variance of all voxels that is change over time; 0 if there is none."""
    stride = max(1, round((frames.size / LOOKED_AT) ** 0.5))
    seen = frames[:, ::stride, ::stride]
    whole = float(seen.var(dtype=np.float64)) if seen.dtype.kind in "iufb" else 0.0
    return float(seen.var(0, dtype=np.float64).mean()) / whole if whole > 0 else 0.0


def grid_in_space(grid: Grid, path: Path) -> Grid:
    """A grid without its last axis, which is time.

    A slice that is tilted out of the plane of its first axes has no place in 2D: it lies along the axes."""
    d = len(grid.shape) - 1
    axes = grid.axes[:d, :d]
    is_apart = np.allclose(axes.T @ axes, np.eye(d), atol=ORTHONORMAL_TOLERANCE)
    if not is_apart and d == 3:
        raise unreadable(path, "its header mixes time with the axes of space")
    within = axes if is_apart else np.eye(d)
    return Grid(grid.shape[:d], grid.spacing[:d], grid.origin[:d], tuple(within.ravel().tolist()))


def nifti_times(path: Path, frames: int) -> tuple[float, ...] | None:
    """When each frame of a NIfTI file was taken; None where its header does not say, or says what no heart does."""
    step = parse_header(first_bytes(header_of_pair(path) or path), path).frame_ms
    if step is None or step == 0:
        return None
    if step < 0:
        raise BadInput(f"the header of {path} has frames {step:g} ms apart: time runs forward; mend pixdim[4]")
    if not MIN_CYCLE_MS <= frames * step <= MAX_CYCLE_MS:
        said = f"the header of {path} has frames {step:g} ms apart, which is no heart beat: its times are not used"
        warn_of_input(said)
        return None
    return tuple(k * step for k in range(frames))
