"""A DICOM series as one volume."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vrnet.errors import BadInput

if TYPE_CHECKING:
    import SimpleITK as sitk

POSITION_TAG, ORIENTATION_TAG = "0020|0032", "0020|0037"
MIN_SLICE_DISTANCE_MM = 1e-3
MAX_DISTANCE_VARIATION = 0.02
"""How much the distances between slices may differ, relative to the largest."""


def read_series(folder: Path) -> "sitk.Image":
    """The one DICOM series of a folder, or BadInput."""
    import SimpleITK as sitk

    series = sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
    if len(series) != 1:
        found = f"{len(series)} DICOM series" if series else "no DICOM series"
        raise BadInput(f"{folder} holds {found}: name a folder with one, or an image file")
    names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), series[0])
    check_slices(folder, [slice_position(name) for name in names])
    return sitk.ReadImage(names)


def slice_position(name: str) -> float:
    """Position of a slice along the normal of its plane, in mm; NaN if its file does not say."""
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(name)
    reader.ReadImageInformation()
    if not (reader.HasMetaDataKey(POSITION_TAG) and reader.HasMetaDataKey(ORIENTATION_TAG)):
        return np.nan
    position, axes = (np.array(reader.GetMetaData(key).split("\\"), float) for key in (POSITION_TAG, ORIENTATION_TAG))
    return float(position @ np.cross(axes[:3], axes[3:]))


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
