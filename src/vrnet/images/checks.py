"""What every image file must satisfy before its voxels are read: it is a file, it fits in memory, its grid is sane."""

import os
import resource
import stat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.grid import Grid

SHEARED = "its header's axes are sheared or coincide"
BAD_SPACING = "its header has a spacing that is not positive"
UNKNOWN_KIND = "it is not an image, or of a kind that is not known"
DAMAGED = "it is damaged or incomplete"
NO_MEMORY = "there is too little memory for it; use a smaller image, or a machine with more memory"
ITK_REASONS = {
    "allocate memory": NO_MEMORY,
    "bad_alloc": NO_MEMORY,
    "Multithreader": NO_MEMORY,
    "MultiThreader": NO_MEMORY,
    "orthonormal": SHEARED,
    "Bad direction": SHEARED,
    "spacing": BAD_SPACING,
    "Unable to determine": UNKNOWN_KIND,
}
"""Words in a message of ITK, and what they mean to the reader."""
MIN_SPACING_MM, MAX_SPACING_MM = 1e-6, 1e6
MAX_ORIGIN_MM = 1e9
ORTHONORMAL_TOLERANCE = 1e-3
COPIES_WHILE_READING = 2
"""How many times the voxels are held at once: as bytes of the file, and as an image."""


class Voxels(NamedTuple):
    """The content of an image file: an array whose axes are the grid's, after that of the components of a vector."""

    array: Shaped[ndarray, "..."]
    grid: Grid
    is_vector: bool
    path: Path


def unreadable(path: Path, reason: str) -> BadInput:
    """The refusal of a file, in one line."""
    return BadInput(f"cannot read {path}: {reason}")


def reason_of(said: str) -> str:
    """What a message of ITK means."""
    return next((text for words, text in ITK_REASONS.items() if words in said), DAMAGED)


def check_regular(path: Path) -> None:
    """BadInput for a pipe, a socket or a device, which could block for ever or never end."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise unreadable(path, f"{error.strerror}; check its name and your permission") from error
    if not stat.S_ISREG(mode):
        raise BadInput(f"{path} is not an ordinary file (a pipe, a device or a folder): give a file")
    if not os.access(path, os.R_OK):
        raise unreadable(path, "you may not read it; change its permissions")


def check_grid(grid: Grid, path: Path) -> None:
    """BadInput unless the voxels of a grid lie at different, finite places along orthogonal axes."""
    spacing = np.array(grid.spacing[:3])
    if not (spacing > 0).all():
        raise unreadable(path, BAD_SPACING)
    if spacing.min() < MIN_SPACING_MM or spacing.max() > MAX_SPACING_MM:
        raise unreadable(path, f"its spacing is {spacing.min():.3g} to {spacing.max():.3g} mm; check its header")
    if not (np.abs(grid.origin) <= MAX_ORIGIN_MM).all() or not np.isfinite(grid.spacing).all():
        raise unreadable(path, "its header puts it at no finite place; check its origin")
    if not np.abs(grid.direction).max() < 2:  # also where it is NaN; a product of such numbers could overflow
        raise unreadable(path, SHEARED)
    if not np.allclose(grid.axes.T @ grid.axes, np.eye(len(grid.shape)), atol=ORTHONORMAL_TOLERANCE):
        raise unreadable(path, SHEARED)


def check_memory(path: Path, voxel_bytes: int) -> None:
    """BadInput if an image's voxels need more memory than is there."""
    need, free = COPIES_WHILE_READING * voxel_bytes, available_memory()
    if need > free:
        raise BadInput(f"{path} needs {need / 1e9:.3g} GB of memory to be read, and {free / 1e9:.3g} GB are free: "
                       "use a smaller one, or a machine with more memory")  # fmt: skip


def available_memory() -> float:
    """Bytes that may still be allocated: what the machine has, the container allows and the process is allowed."""
    return max(0.0, min(machine_memory(), container_memory(), process_memory()))


def machine_memory() -> float:
    """Bytes that the machine has left; where it does not say, all it has."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def container_memory() -> float:
    """Bytes that the container allows beyond what it uses."""
    try:
        limit, used = (
            Path("/sys/fs/cgroup", name).read_text(encoding="ascii") for name in ("memory.max", "memory.current")
        )
        return float(limit) - float(used)
    except (OSError, ValueError):  # no container, or "max"
        return float("inf")


def process_memory() -> float:
    """Bytes that `ulimit -v` allows beyond what the process uses."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    try:
        return limit - int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return float(limit)


def beside(header: Path, name: str) -> Path:
    """The file of voxels that a header names: in its own folder or below, and nowhere else."""
    folder = header.parent.resolve()
    try:
        found = (folder / name).resolve()
        is_below = not Path(name).is_absolute() and ".." not in Path(name).parts and found.is_relative_to(folder)
    except (OSError, ValueError, RuntimeError):  # a name that no file can have; links in a circle
        is_below = False
    if not is_below:
        raise unreadable(header, "its header names a file of voxels outside its own folder; put that file beside it")
    if not found.is_file():
        raise unreadable(header, "the file of voxels that its header names is not beside it; copy both")
    return found
