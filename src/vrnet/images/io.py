"""Images on disk, by SimpleITK: NIfTI, MHA, NRRD, DICOM folders, PNG, JPEG."""

import gzip
import locale
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.files import atomic_write, check_file, check_written, exists
from vrnet.images.dicom import read_series
from vrnet.images.grid import Grid
from vrnet.images.image import Image

if TYPE_CHECKING:
    import SimpleITK as sitk

NIFTI_SUFFIXES = (".nii", ".nii.gz")
NIFTI_HEADER_BYTES = 352
IMAGE_SUFFIXES = (*NIFTI_SUFFIXES, ".mha", ".nrrd")
"""The formats that images are written in."""
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
ITK_TYPES = {"?": np.uint8, "e": np.float32, "g": np.float64}
"""What stands for the number types of NumPy that ITK does not have: bool, half and extended precision."""
NOT_FINITE = "contains NaN or infinite values: replace them first (numpy.nan_to_num)"
REASONS = {
    "orthonormal": "its header's axes are sheared or coincide",
    "Bad direction": "its header's axes are sheared or coincide",
    "spacing": "its header has a spacing that is not positive",
    "Unable to determine": "it is not an image, or of a kind that is not known",
}
"""Words in a message of ITK, and what they mean to the reader."""


def read_image(path: str | Path) -> Image:
    """One 2D or 3D image, from a file or from a folder that holds one DICOM series."""
    path = Path(path)
    image = read_sitk(path)
    if image.GetNumberOfComponentsPerPixel() > 1:
        image = select_grey_channel(image, path)
    if image.GetDimension() == 4 and image.GetSize()[3] == 1:
        image = image[..., 0]
    if image.GetDimension() not in (2, 3):
        raise BadInput(f"{path} has {image.GetDimension()} dimensions: give one 2D or 3D image, such as one time frame")
    import SimpleITK as sitk

    grid = grid_of(image)
    if not np.allclose(grid.axes.T @ grid.axes, np.eye(len(grid.shape)), atol=1e-3):
        raise BadInput(f"cannot read {path}: {REASONS['orthonormal']}")
    array = sitk.GetArrayFromImage(image).T
    if array.dtype.kind == "c":
        raise BadInput(f"{path} holds complex numbers: give an image of real ones, such as their magnitude")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadInput(f"{path} {NOT_FINITE}")
    return Image(array, grid, name=str(path))


def read_sitk(path: Path) -> "sitk.Image":
    """The image in a file or in a folder of DICOM, as SimpleITK reads it; or BadInput."""
    check_name(path)
    try:
        with keep_locale(), silence_warnings():
            return read_series(path) if path.is_dir() else read_file(path)
    except (RuntimeError, OSError) as error:
        said = str(error).replace(str(path), "")
        reason = next((text for words, text in REASONS.items() if words in said), "it is damaged or incomplete")
        raise BadInput(f"cannot read {path}: {reason}") from error


def check_name(path: Path) -> None:
    """BadInput unless something is there, under a name that can be passed to ITK."""
    if not str(path).isprintable():
        raise BadInput(f"the name {str(path)!a} has characters that cannot be written: rename the file")
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")


def read_file(path: Path) -> "sitk.Image":
    """An image file of any format, as SimpleITK reads it."""
    import SimpleITK as sitk

    if path.suffix.lower() in PICTURE_SUFFIXES:
        return with_unit_spacing(sitk.ReadImage(str(path)))
    if not path.name.endswith(NIFTI_SUFFIXES):
        return sitk.ReadImage(str(path))
    check_nifti(path)
    if not (path.name.endswith(".gz") and path.with_suffix("").exists()):
        return sitk.ReadImage(str(path))
    with TemporaryDirectory() as folder:  # where x.nii lies beside x.nii.gz, ITK would read the voxels of the former
        alone = Path(folder) / path.name
        alone.symlink_to(path.resolve())
        return sitk.ReadImage(str(alone))


def with_unit_spacing(image: "sitk.Image") -> "sitk.Image":
    """A picture with pixels of 1 mm: the dots per inch in its header are those of a screen or a printer."""
    image.SetSpacing([1.0] * image.GetDimension())
    return image


def check_nifti(path: Path) -> None:
    """BadInput where ITK says nothing: it takes missing voxels and NaN for 0, and mends or flips odd spacings."""
    import nibabel

    try:
        with nibabel.openers.Opener(str(path)) as file:
            image: Any = nibabel.load(path)
            voxels = image.dataobj.get_unscaled()
            pixdim = image.header_class.from_fileobj(file, check=False)["pixdim"]  # as it is, where load mends it
    except Exception as error:  # a damaged header makes nibabel raise many kinds
        raise BadInput(f"cannot read {path}: it is not a NIfTI image, or damaged or incomplete") from error
    if not (pixdim[1 : 1 + min(image.ndim, 3)] > 0).all():
        raise BadInput(f"cannot read {path}: {REASONS['spacing']}")
    if voxels.dtype.kind in "fc" and not np.isfinite(voxels).all():
        raise BadInput(f"{path} {NOT_FINITE}")


@contextmanager
def keep_locale() -> Iterator[None]:
    """Restore the locale afterwards: ITK's DICOM reader sets it to C, in which text files are read as ASCII."""
    kept = locale.setlocale(locale.LC_ALL)
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, kept)


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Show no warnings of ITK and nibabel: what they are about ends in BadInput."""
    import nibabel
    import SimpleITK as sitk

    shown, disabled = sitk.ProcessObject.GetGlobalWarningDisplay(), nibabel.imageglobals.logger.disabled
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    nibabel.imageglobals.logger.disabled = True
    try:
        yield
    finally:
        sitk.ProcessObject.SetGlobalWarningDisplay(shown)
        nibabel.imageglobals.logger.disabled = disabled


def select_grey_channel(image: "sitk.Image", path: Path) -> "sitk.Image":
    """The one channel of a picture whose channels are alike, as in a grey JPEG saved in colour; else BadInput."""
    import SimpleITK as sitk

    channels = np.moveaxis(sitk.GetArrayViewFromImage(image), -1, 0)
    if image.GetDimension() == 2 and len(channels) >= 3 and (channels[1:3] == channels[0]).all():
        return sitk.VectorIndexSelectionCast(image, 0)
    raise BadInput(f"{path} holds {len(channels)} values per voxel (colours, or a transform): give a grey image")


def grid_of(image: "sitk.Image") -> Grid:
    """Where the voxels of a SimpleITK image are."""
    return Grid(image.GetSize(), image.GetSpacing(), image.GetOrigin(), image.GetDirection())


def to_sitk(array: Shaped[ndarray, "..."], grid: Grid, is_vector: bool = False) -> "sitk.Image":
    """A SimpleITK image of an array whose axes are the grid's; of a vector image the components come first.

    Numbers of a type that ITK does not have become the nearest type that it has."""
    import SimpleITK as sitk

    dtype: Any = ITK_TYPES.get(array.dtype.char, array.dtype.newbyteorder("="))
    image = sitk.GetImageFromArray(array.astype(dtype, copy=False).T, isVector=is_vector)
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin)
    image.SetDirection(grid.direction)
    return image


def write_image(image: Image, path: str | Path) -> None:
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
