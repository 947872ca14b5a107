"""Where a NIfTI header puts an image: x = form · (i, j, k, 1), in LPS millimetres.

A header may have two such forms, sform and qform, which need not agree. nibabel takes the sform if there is one. ITK
takes the sform if its code is 1, else the qform if there is one; of the sform it takes directions alone, and the sizes
of voxels from another field. Here an image is where nibabel puts it; if others put it elsewhere, the user is told."""

from itertools import product
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import warn_of_input
from vrnet.images.checks import ORTHONORMAL_TOLERANCE, check_grid, unreadable
from vrnet.images.grid import Grid
from vrnet.images.nifti import Header

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
