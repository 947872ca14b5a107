"""A DICOM series as one volume."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vrnet.errors import BadInput

if TYPE_CHECKING:
    import SimpleITK as sitk

POSITION, ORIENTATION = "0020|0032", "0020|0037"
UNEVEN = 0.02


def read_series(folder: Path) -> "sitk.Image":
    """The one DICOM series of a folder, or BadInput."""
    import SimpleITK as sitk

    series = sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
    if len(series) != 1:
        found = f"{len(series)} DICOM series" if series else "no DICOM series"
        raise BadInput(f"{folder} holds {found}: name a folder with one, or an image file")
    names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), series[0])
    check_slices(folder, [depth(name) for name in names])
    return sitk.ReadImage(names)


def depth(name: str) -> float:
    """How far along the normal of its plane a slice lies, in mm; NaN if it does not say."""
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(name)
    reader.ReadImageInformation()
    if not (reader.HasMetaDataKey(POSITION) and reader.HasMetaDataKey(ORIENTATION)):
        return np.nan
    position, axes = (np.array(reader.GetMetaData(key).split("\\"), float) for key in (POSITION, ORIENTATION))
    return float(position @ np.cross(axes[:3], axes[3:]))


def check_slices(folder: Path, depths: list[float]) -> None:
    """BadInput unless slices lie one behind another at equal distances: ITK would take time frames for slices."""
    steps = np.diff(depths)
    if len(steps) == 0 or np.isnan(steps).any():
        return
    if (np.abs(steps) < 1e-3).any() or len(set(np.sign(steps))) > 1:
        raise BadInput(f"{folder} holds several images at one place (time frames?): give a folder with one frame")
    if np.ptp(steps) > UNEVEN * np.abs(steps).max():
        raise BadInput(f"{folder} has slices at unequal distances, {np.abs(steps).min():.3g} to "
                       f"{np.abs(steps).max():.3g} mm: are some missing?")  # fmt: skip
