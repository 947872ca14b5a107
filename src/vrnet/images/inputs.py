"""Images as a caller gives them: our own, a file, or an image of SimpleITK or nibabel."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.images.checks import check_grid
from vrnet.images.cine import Cine
from vrnet.images.cine_files import MAX_CYCLE_MS, MIN_CYCLE_MS, frames_of_axes, read_cine
from vrnet.images.exchange import NibabelImage, SimpleITKImage, frame_ms_of, grid_of_nibabel
from vrnet.images.image import Image
from vrnet.images.io import read_image
from vrnet.wording import type_name

File = str | PathLike[str]
ImageLike = Image | File | SimpleITKImage | NibabelImage
"""All that an image may be given as."""
CineLike = Cine | File | SimpleITKImage | NibabelImage
"""All that a cine may be given as; an image of SimpleITK or nibabel has time as its last axis."""


def given_image(name: str, given: object) -> Image:
    """The image that was given, under its own name if it has one; `name` is that of the argument."""
    if isinstance(given, Image):
        return replace(given, name=name) if given.name == Image.name else given
    if isinstance(given, (str, PathLike)):
        return read_image(given)
    if isinstance(given, SimpleITKImage):
        return Image.from_sitk(given, name)
    if isinstance(given, NibabelImage):
        return Image.from_nibabel(given, name)
    if isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"{name} is an array: give an Image or a file, or register arrays by vrnet.register")
    raise BadInput(f"{name} is {type_name(given)}: give an Image (vrnet.read_image) or a file")


def given_cine(given: object) -> Cine:
    """The cine that was given."""
    if isinstance(given, Cine):
        return given
    if isinstance(given, (str, PathLike)):
        return read_cine(given)
    if isinstance(given, SimpleITKImage):
        frames, grid, doubt = frames_of_axes(given, Path("the cine"))
        return Cine(frames, grid, doubt=doubt)
    if isinstance(given, NibabelImage):
        return cine_of_nibabel(given)
    raise BadInput(f"the cine is {type_name(given)}: give a Cine (vrnet.read_cine), a file or a 4D image")


def cine_of_nibabel(image: NibabelImage) -> Cine:
    """The cine of an image of nibabel that has four axes, the last of them time."""
    array = np.asanyarray(image.dataobj)
    if array.ndim != 4:
        raise BadInput(f"the cine has {array.ndim} dimensions: give four, (x, y, z, t)")
    grid, step = grid_of_nibabel(image, array.shape[:3], "the cine"), frame_ms_of(image)
    check_grid(grid, Path("the cine"))
    frames = np.moveaxis(array, -1, 0)
    is_known = step is not None and MIN_CYCLE_MS <= len(frames) * step <= MAX_CYCLE_MS
    return Cine(frames, grid, tuple(k * step for k in range(len(frames))) if step and is_known else None)
