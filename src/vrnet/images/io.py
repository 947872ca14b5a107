"""Images and transforms on disk, by SimpleITK. Nothing is left half-written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.grid import Grid

if TYPE_CHECKING:
    import SimpleITK as sitk


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name beside path, of the same kind; it takes path's place if the writing succeeds."""
    temporary = path.with_name(f".partial-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def made_folder(folder: Path) -> Path:
    """The folder, there and open for writing, or BadInput: asked before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}): choose another folder") from error


def to_sitk(array: Shaped[ndarray, "..."], grid: Grid, is_vector: bool = False) -> "sitk.Image":
    """A SimpleITK image of an array whose axes are the grid's; a vector image has its components first."""
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(array.T, isVector=is_vector)
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin)
    image.SetDirection(grid.direction)
    return image


def write(image: "sitk.Image", path: Path) -> None:
    """Write in the format of the file's ending."""
    import SimpleITK as sitk

    with written_whole(path) as temporary:
        sitk.WriteImage(image, str(temporary), useCompression=True)


def write_image(array: Shaped[ndarray, "*s"], grid: Grid, path: Path) -> None:
    """Write an image or a label map; its number type is kept."""
    write(to_sitk(array, grid), path)


def write_transform(u: Float[ndarray, "d *s"], grid: Grid, path: Path) -> None:
    """Write a field in voxels as an ITK displacement field: LPS millimetres on the fixed grid, fixed to moving.

    An `.h5` or `.tfm` file is an ITK transform; any other format is a vector image."""
    import SimpleITK as sitk

    in_world: ndarray[Any, Any] = np.einsum("ij,j...->i...", grid.to_world, u.astype(np.float64))
    image = to_sitk(in_world, grid, is_vector=True)
    if path.suffix in (".h5", ".tfm"):
        with written_whole(path) as temporary:
            sitk.WriteTransform(sitk.DisplacementFieldTransform(image), str(temporary))
    else:
        write(image, path)
