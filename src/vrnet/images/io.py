"""Images on disk, by SimpleITK: NIfTI, MHA, NRRD, DICOM folders, PNG, JPEG."""

import gzip
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from os import PathLike
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from jaxtyping import Float, Shaped
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput, InputWarning, type_name, warn_of_input
from vrnet.files import atomic_write, check_file, check_written, exists
from vrnet.images.checks import ORTHONORMAL_TOLERANCE, Voxels, check_grid, reason_of, unreadable
from vrnet.images.dicom import DICOM_READER, is_dicom, read_dicom_cine, read_isolated, read_series
from vrnet.images.grid import Grid
from vrnet.images.image import (
    Cine,
    Image,
    NibabelImage,
    SimpleITKImage,
    frame_ms_of,
    grid_of,
    grid_of_nibabel,
    move_to,
    to_sitk,
)
from vrnet.images.nifti import (
    Header,
    checked_nifti,
    counts_frames,
    first_bytes,
    header_of_pair,
    is_metaimage,
    is_nifti,
    is_nrrd,
    may_warn,
    metaimage_place,
    nrrd_place,
    parse_header,
    read_metaimage,
    read_nrrd,
)
from vrnet.images.sandbox import silence_warnings

# Where a NIfTI header puts an image: x = form · (i, j, k, 1), in LPS millimetres.
#
# A header may have two such forms, sform and qform, which need not agree. nibabel takes the sform if there is one. ITK
# takes the sform if its code is 1, else the qform if there is one; of the sform it takes directions alone, and the sizes
# of voxels from another field. Here an image is where nibabel puts it; if others put it elsewhere, the user is told.

Form = Float[ndarray, "4 4"]
RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
NOTE_ABOVE_VOXELS = 0.1
REFUSE_ABOVE_VOXELS = 1.0
"""In edges of a voxel, the shortest. Beyond it, the transform that is found here would move other tissue in a tool that
takes the other form; below, it is off by less than what an image can show."""
NO_FORM = (
    "the header of {} does not say where it lies (sform and qform are 0): its first voxel is put at the origin, as ITK "
    "does it (nibabel puts its middle there)"
)
PIXDIM = "voxel size (pixdim)"
REPAIRS = {
    "qform": "in nibabel, image.set_qform(image.affine) keeps the sform, image.set_sform(image.get_qform()) the qform",
    PIXDIM: "in nibabel, image.set_qform(image.affine) takes the voxel size from the sform",
}
"""How to make the sform and this agree, before the image is saved."""


def place_as_nibabel(header: Header, by_itk: Grid, path: Path) -> Grid:
    """The grid where nibabel puts the image, which is ITK's if that is there too; BadInput if tools are far apart."""
    check_grid(by_itk, path)
    forms = forms_of(header)
    if not forms:
        warn_of_input(NO_FORM.format(path))
        return by_itk
    check_agreement(forms, header, path)
    found = grid_of_form(next(iter(forms.values())), by_itk)
    if found is None:
        return by_itk
    check_grid(found, path)
    return by_itk if by_itk.matches(found) else found


def forms_of(header: Header) -> dict[str, Form]:
    """The forms that a header has, by name, the one that nibabel takes first; an sform alone has sizes beside it."""
    forms = {}
    if header.has_rows:
        forms["sform"] = in_lps_mm(np.vstack([np.reshape(header.rows, (3, 4)), [0, 0, 0, 1]]), header)
    if header.has_rotation:
        forms["qform"] = in_lps_mm(qform(header), header)
    elif header.has_rows:
        forms[PIXDIM] = in_lps_mm(resized(header), header)
    return forms


def in_lps_mm(form: Form, header: Header) -> Form:
    """A form of a header, which is RAS in units of its own, in LPS millimetres."""
    return RAS_TO_LPS @ np.diag([header.unit_mm] * 3 + [1.0]) @ form


def voxel_sizes(header: Header) -> Float[ndarray, "3"]:
    """The edges of a voxel by the field pixdim, in the units of the header; of a picture, the third is 1."""
    return np.array([*header.spacing[:3], 1.0, 1.0])[:3]


def qform(header: Header) -> Form:
    """The rotation by the unit quaternion (a, b, c, d), of which b, c and d are in the header, and the shift."""
    b, c, d, *shift = header.rotation
    a = max(0.0, 1 - (b * b + c * c + d * d)) ** 0.5
    a, b, c, d = np.array([a, b, c, d]) / np.linalg.norm([a, b, c, d])
    turn = np.array([
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b],
    ])  # fmt: skip
    return as_form(turn * voxel_sizes(header) * [1, 1, header.handedness], shift)


def resized(header: Header) -> Form:
    """The sform with voxels of the size that the field pixdim has."""
    rows = np.reshape(header.rows, (3, 4))
    with np.errstate(invalid="ignore", divide="ignore"):
        axes = rows[:, :3] / np.linalg.norm(rows[:, :3], axis=0)
    return as_form(axes * voxel_sizes(header), rows[:, 3])


def as_form(matrix: Float[ndarray, "3 3"], shift: Float[ndarray, "3"] | list[float]) -> Form:
    return np.vstack([np.column_stack([matrix, shift]), [0, 0, 0, 1]])


def check_agreement(forms: dict[str, Form], header: Header, path: Path) -> None:
    """Tell the user how far apart two forms put a corner of the image; BadInput if that is more than a voxel."""
    corners = np.array([(*index, 1.0) for index in product(*((0.0, n - 1.0) for n in (*header.shape, 1, 1)[:3]))])
    used, other = (*forms, *forms)[:2]
    gap = float(np.linalg.norm((forms[used] - forms[other]) @ corners.T, axis=0).max())
    edge = header.unit_mm * float(voxel_sizes(header)[: len(header.shape)].min())
    if gap <= NOTE_ABOVE_VOXELS * edge:
        return
    said = f"the {used} and the {other} of its header put it up to {gap:.2g} mm apart"
    if not gap <= REFUSE_ABOVE_VOXELS * edge:  # also where a form is not a number
        raise unreadable(path, f"{said}, and tools differ in which they take; {REPAIRS[other]}")
    said = f"{path}: {said}; the {used} is taken, as by nibabel ({REPAIRS[other]})"
    warn_of_input(said)


def grid_of_form(form: Form, like: Grid) -> Grid | None:
    """The grid of a form; its axes beyond the third, such as time, are those of a grid that is like it.

    None for a picture that is tilted out of the plane in which ITK puts it: it has no other place in 2D."""
    d, k = len(like.shape), min(3, len(like.shape))
    spacing = np.linalg.norm(form[:3, :k], axis=0)
    axes, origin = np.eye(d), np.array(like.origin)
    with np.errstate(invalid="ignore", divide="ignore"):
        axes[:k, :k], origin[:k] = form[:k, :k] / spacing, form[:k, 3]
    if k == 2 and not np.allclose(axes.T @ axes, np.eye(2), atol=ORTHONORMAL_TOLERANCE):
        return None
    return Grid(
        like.shape, (*spacing.tolist(), *like.spacing[k:]), tuple(origin.tolist()), tuple(axes.ravel().tolist())
    )


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


# A cine on disk: a file of four axes (NIfTI, MHA, NRRD), of three for one slice over time, or DICOM.

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


# Images as a caller gives them: our own, a file, or an image of SimpleITK or nibabel.

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
