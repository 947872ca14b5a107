"""Images on disk, by SimpleITK: NIfTI, MHA, NRRD, DICOM folders, PNG, JPEG."""

import gzip
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput, InputWarning
from vrnet.files import atomic_write, check_file, check_written, exists
from vrnet.images.checks import Voxels, check_grid, reason_of, unreadable
from vrnet.images.dicom import DICOM_READER, is_dicom, read_isolated, read_series
from vrnet.images.exchange import grid_of, move_to, to_sitk
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.itk_settings import silence_warnings
from vrnet.images.metaimage import is_metaimage, metaimage_place, read_metaimage
from vrnet.images.nifti import checked_nifti, first_bytes, is_nifti, may_warn
from vrnet.images.nifti_forms import place_as_nibabel
from vrnet.images.nrrd import is_nrrd, nrrd_place, read_nrrd

if TYPE_CHECKING:
    import SimpleITK as sitk

NIFTI_SUFFIXES = (".nii", ".nii.gz")
NIFTI_HEADER_BYTES = 352
IMAGE_SUFFIXES = (*NIFTI_SUFFIXES, ".mha", ".nrrd")
"""The formats that images are written in."""
PICTURE_READERS = {
    b"\x89PNG": "PNGImageIO", b"\xff\xd8\xff": "JPEGImageIO", b"BM": "BMPImageIO",
    b"II*\0": "TIFFImageIO", b"MM\0*": "TIFFImageIO", b"II+\0": "TIFFImageIO", b"MM\0+": "TIFFImageIO",
}  # fmt: skip
"""The first bytes of a picture, and ITK's reader for it."""


def read_image(path: str | PathLike[str]) -> Image:
    """One 2D or 3D image, from a file or from a folder that holds one DICOM series."""
    path = Path(path)
    image = read_sitk(path)
    if image.GetNumberOfComponentsPerPixel() > 1:
        image = select_grey_channel(image, path)
    return Image.from_sitk(image, str(path))


def read_sitk(path: Path) -> "sitk.Image":
    """The image in a file or in a folder of DICOM, as SimpleITK has it; or BadInput."""
    check_name(path)
    with refuse_itk_errors(path):
        image = as_sitk(read_series(path)) if path.is_dir() else read_file(path)
        check_grid(grid_of(image), path)
        return image


@contextmanager
def refuse_itk_errors(path: Path) -> Iterator[None]:
    """What ITK and the system raise while a file is read, as BadInput."""
    try:
        yield
    except MemoryError as error:
        raise BadInput(f"{path} needs more memory than is free: use a smaller image, or more memory") from error
    except (RuntimeError, OSError) as error:
        raise unreadable(path, reason_of(str(error).replace(str(path), ""))) from error


def check_name(path: Path) -> None:
    """BadInput unless something is there, under a name that can be passed to ITK."""
    if not str(path).isprintable():
        raise BadInput(f"the name {str(path)!a} has characters that cannot be written: rename the file")
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")


def read_file(path: Path) -> "sitk.Image":
    """An image file of any format: its first bytes say which, not its ending."""
    head = first_bytes(path)
    if is_nrrd(head):
        return as_sitk(read_nrrd(path))
    if is_metaimage(head):
        return as_sitk(read_metaimage(path))
    for magic, reader in PICTURE_READERS.items():
        if head.startswith(magic):
            return with_unit_spacing(as_sitk(read_isolated(path, [path], reader)))
    if is_dicom(head):
        return as_sitk(read_isolated(path, [path], DICOM_READER))
    return read_nifti(path)


def read_nifti(path: Path) -> "sitk.Image":
    """A NIfTI file that has been checked, as ITK reads it, where nibabel puts it."""
    import SimpleITK as sitk

    with checked_nifti(path) as (name, header), silence_warnings(may_warn(header)):
        image = sitk.ReadImage(str(name), imageIO="NiftiImageIO")
    return move_to(image, place_as_nibabel(header, grid_of(image), path))


def read_grid(path: Path) -> Grid:
    """Where the voxels of an image are; their values are not read where the format allows."""
    check_name(path)
    if path.is_dir():
        return read_image(path).grid
    with refuse_itk_errors(path):
        head = first_bytes(path)
        places = {is_nrrd: nrrd_place, is_metaimage: metaimage_place, is_nifti: nifti_place}
        grid = next((place(path) for is_kind, place in places.items() if is_kind(head)), None)
    return grid if grid is not None and len(grid.shape) in (2, 3) else read_image(path).grid


def nifti_place(path: Path) -> Grid:
    """Where the voxels of a NIfTI file are, which are not read."""
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    with checked_nifti(path, with_voxels=False) as (name, header), silence_warnings(may_warn(header)):
        reader.SetFileName(str(name))
        reader.ReadImageInformation()
    by_itk = Grid(reader.GetSize(), reader.GetSpacing(), reader.GetOrigin(), reader.GetDirection())
    return place_as_nibabel(header, by_itk, path)


def as_sitk(voxels: Voxels) -> "sitk.Image":
    """What was read without ITK, or in another process, as an image of SimpleITK."""
    check_grid(voxels.grid, voxels.path)
    return to_sitk(voxels.array, voxels.grid, voxels.is_vector)


def with_unit_spacing(image: "sitk.Image") -> "sitk.Image":
    """A picture with pixels of 1 mm: the dots per inch in its header are those of a screen or a printer."""
    image.SetSpacing([1.0] * image.GetDimension())
    return image


def select_grey_channel(image: "sitk.Image", path: Path) -> "sitk.Image":
    """The one channel of a picture whose channels are alike, as in a grey JPEG saved in colour; else BadInput."""
    import SimpleITK as sitk

    channels = np.moveaxis(sitk.GetArrayViewFromImage(image), -1, 0)
    if image.GetDimension() == 2 and len(channels) >= 3 and (channels[1:3] == channels[0]).all():
        warnings.warn(f"{path} is saved in colour, and grey: its channels are alike, and one is used", InputWarning, 1)
        return sitk.VectorIndexSelectionCast(image, 0)
    raise BadInput(f"{path} holds {len(channels)} values per voxel (colours, or a transform): give a grey image")


def write_image(image: Image, path: str | PathLike[str]) -> None:
    """Write an image or a label map in the format of the file's ending; its number type is kept."""
    path = Path(path)
    check_file(path, IMAGE_SUFFIXES)
    check_finite(image.array, path)
    write_sitk(to_sitk(image.array, image.grid), path)


def check_finite(array: Shaped[ndarray, "..."], path: Path) -> None:
    """BadInput if any number that is to be written is NaN or infinite."""
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise BadInput(f"some of its numbers are NaN or infinite: {path} is not written")


def write_sitk(image: "sitk.Image", path: Path) -> None:
    """Write a SimpleITK image in the format of the file's ending, whole or not at all."""
    import SimpleITK as sitk

    with atomic_write(path) as temporary:
        try:
            if path.name.endswith(".nii.gz"):
                is_whole = write_zipped_nifti(image, temporary)
            else:
                sitk.WriteImage(image, str(temporary), useCompression=True)
                is_whole = is_image(temporary, image)
        except RuntimeError as error:
            raise BadInput(f"cannot write {path}: is the disk full?") from error
        check_written(is_whole, path)


def write_zipped_nifti(image: "sitk.Image", path: Path) -> bool:
    """Write .nii.gz with the quickest compression, which costs little room; ITK would use a slower one.

    Returns whether all of it arrived."""
    import SimpleITK as sitk

    bare = path.with_suffix("")
    sitk.WriteImage(image, str(bare))
    size = NIFTI_HEADER_BYTES + sitk.GetArrayViewFromImage(image).nbytes
    if bare.stat().st_size != size:
        return False
    with bare.open("rb") as source, path.open("wb") as file:
        with gzip.GzipFile("", "wb", 1, file, mtime=0) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        length = file.tell()
    return path.stat().st_size == length and unzipped_bytes(path) == size % (1 << 32)


def unzipped_bytes(path: Path) -> int:
    """How long a gzip file says at its end that its content is, up to multiples of 2³²."""
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def is_image(path: Path, image: "sitk.Image") -> bool:
    """Whether a file that ITK wrote holds every voxel of the image: ITK says nothing of a disk that is full."""
    import SimpleITK as sitk

    found = sitk.ReadImage(str(path))
    if found.GetNumberOfComponentsPerPixel() != image.GetNumberOfComponentsPerPixel():
        return False
    written, meant = (sitk.GetArrayViewFromImage(each).ravel() for each in (found, image))
    return np.array_equal(written, meant)
