"""A DICOM series as one volume."""

from pathlib import Path

import numpy as np

from vrnet.errors import BadInput
from vrnet.files import exists
from vrnet.images.checks import Voxels
from vrnet.images.grid import Grid
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
