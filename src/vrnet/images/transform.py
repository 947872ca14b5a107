"""A transform in the world: x ↦ x + displacement(x), from a point of fixed to the same tissue in moving.

Resampling, formats and the rule that nothing moves outside the grid are ITK's, so that every tool built on it agrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from vrnet.attributes import cached_property
from vrnet.choices import Interpolation
from vrnet.errors import BadInput
from vrnet.fields import determinant, jacobian
from vrnet.files import check_file
from vrnet.images.affine import Affine, fit_affine
from vrnet.images.exchange import grid_of, to_sitk
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_labels
from vrnet.images.inputs import ImageLike, given_image
from vrnet.images.io import NIFTI_SUFFIXES, check_finite, read_sitk, write_sitk
from vrnet.images.itk_transforms import is_itk_transform, map_points, read_itk, write_itk
from vrnet.images.meeting import field_grid, warn_if_apart
from vrnet.images.resample import resample, resample_labels
from vrnet.inversion import describe_residual, invert_at
from vrnet.views import viewer
from vrnet.wording import counted

if TYPE_CHECKING:
    import SimpleITK as sitk
    from matplotlib.figure import Figure

ITK_SUFFIXES = (".h5", ".tfm", ".txt", ".mat", ".xfm")
TRANSFORM_SUFFIXES = (*NIFTI_SUFFIXES, ".mha", ".nrrd", ".h5", ".tfm")
"""The formats that transforms are written in."""
MAX_DISPLACEMENT_MM = 1e9
LARGE_REACH, MAX_CONDITION = 0.05, 100.0
"""An affine part that moves corners by more than this part of the diagonal of the grid is not left to iteration, unless
it draws space nearly together."""
STEPS_PER_MM = 2.0**13
"""Displacements in files are multiples of 1/8192 mm, or of a finer step where voxels are smaller than half a mm."""


@dataclass(frozen=True, repr=False, eq=False)
class Transform:
    """Displacements in LPS millimetres at the voxels of a grid, linear between them, none outside."""

    displacement: Float[ndarray, "d *s"]
    grid: Grid

    def __post_init__(self) -> None:
        if self.displacement.shape != (len(self.grid.shape), *self.grid.shape):
            raise BadInput(
                f"displacements are {self.displacement.shape} on a grid of {self.grid.shape}: give (d, *shape)"
            )

    def __repr__(self) -> str:
        return f"Transform({self.grid.shape}, up to {np.linalg.norm(self.displacement, axis=0).max():.3g} mm)"

    @classmethod
    def from_voxels(cls, u: Float[ndarray, "d *s"], grid: Grid) -> "Transform":
        """The transform of a field in voxels of a grid, u[i] along axis i."""
        return cls(np.einsum("ij,j...->i...", grid.to_world, u.astype(np.float64)), grid)

    def in_voxels(self) -> Float[ndarray, "d *s"]:
        """The displacements as a field in voxels of the grid, float32."""
        return np.einsum("ij,j...->i...", np.linalg.inv(self.grid.to_world), self.displacement).astype(np.float32)

    @cached_property
    def itk(self) -> "sitk.Transform":
        """The transform as an object of SimpleITK."""
        import SimpleITK as sitk

        return sitk.DisplacementFieldTransform(to_sitk(self.displacement.astype(np.float64), self.grid, is_vector=True))

    def to_sitk(self) -> "sitk.Transform":
        """The transform as an object of SimpleITK: `itk`, named as that of images is."""
        return self.itk

    def check_dimension(self, d: int, name: str) -> None:
        """BadInput unless what the transform is applied to has its dimension."""
        if d != len(self.grid.shape):
            raise BadInput(f"the transform is {len(self.grid.shape)}D and {name} {d}D: they do not belong together")

    def ends(self) -> Float[ndarray, "n d"]:
        """Where the voxels of the grid are in moving, in LPS millimetres; the last axis runs fastest."""
        return self.grid.voxels() + self.displacement.reshape(len(self.displacement), -1).T

    def points(self, x: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Where points of fixed are in moving, in LPS millimetres."""
        return map_points(self.itk, x)

    def apply(self, image: ImageLike, reference: Grid | None = None, interpolation: Interpolation = "linear") -> Image:
        """image(x + displacement(x)) on the reference grid (this one, if not given), as float32.

        Outside the image it has the image's least value."""
        import SimpleITK as sitk

        image = given_image("the image", image)
        self.check_dimension(image.array.ndim, image.name)
        grid, method = reference or self.grid, {"linear": sitk.sitkLinear, "bspline": sitk.sitkBSpline3}[interpolation]
        warn_if_apart(image.name, image.grid, grid, self.itk)
        source = to_sitk(image.array.astype(np.float32), image.grid)
        return Image(resample(source, grid, self.itk, method, float(image.array.min())), grid, image.name)

    def apply_labels(self, labels: ImageLike, reference: Grid | None = None, smooth: bool = False) -> Image:
        """The label of the nearest voxel; or, smooth, the label of greatest weight by linear interpolation.

        Outside the map it is 0; every value and type is kept."""
        labels = given_image("the label map", labels)
        self.check_dimension(labels.array.ndim, labels.name)
        grid, labels = reference or self.grid, as_labels(labels)
        warn_if_apart(labels.name, labels.grid, grid, self.itk)
        return resample_labels(labels, grid, self.itk, smooth)

    def on(self, grid: Grid) -> "Transform":
        """The transform at the voxels of another grid."""
        self.check_dimension(len(grid.shape), "the reference")
        return self if grid == self.grid else sample_transform(self.itk, grid)

    def reordered(self, order: Sequence[int]) -> "Transform":
        """The same transform, with axis order[i] of its grid as axis i; displacements are along the world's axes."""
        axes = 0, *(1 + axis for axis in order)
        return Transform(self.displacement.transpose(axes), self.grid.reordered(order))

    def compose(self, first: "Transform") -> "Transform":
        """x ↦ self(first(x)), on the grid of `first`."""
        import SimpleITK as sitk

        self.check_dimension(len(first.grid.shape), "the first")
        return sample_transform(sitk.CompositeTransform([self.itk, first.itk]), first.grid)

    def followed_by(self, affine: Affine) -> "Transform":
        """x ↦ affine(self(x)), on this grid."""
        moved = affine.points(self.ends()) - self.grid.voxels()
        return Transform(moved.T.reshape(self.displacement.shape), self.grid)

    def affine_part(self) -> Affine | None:
        """The affine map nearest to the transform, where that is large; None where it is not, or has no inverse."""
        affine = fit_affine(self.displacement, self.grid)
        is_small = affine.reach(self.grid) < LARGE_REACH or np.linalg.cond(affine.matrix) > MAX_CONDITION
        return None if is_small else affine

    def inverse(self, grid: Grid | None = None) -> "Inverse":
        """The transform from moving to fixed, and its residual: it takes points of moving to fixed, and brings fixed to
        the grid of moving. It is on the grid given, such as that of moving, or on this one.

        Outside its grid the transform is taken to go on: its affine part as such, where that is large, and the rest of
        the motion as at the border."""
        target = grid or self.grid
        self.check_dimension(len(target.shape), "the reference")
        affine, y = self.affine_part(), target.voxels()
        undo = affine and affine.inverse()
        rest, z = (self.followed_by(undo), undo.points(y)) if undo else (self, y)
        with torch.inference_mode():
            u, x = (torch.from_numpy(part.astype(np.float32)) for part in (rest.in_voxels(), self.grid.index(z).T))
            w, left = (part.numpy().astype(np.float64) for part in invert_at(u[None], x))
        to_world = self.grid.to_world
        back = (z - y).T + to_world @ w
        error = (affine.matrix @ to_world if affine else to_world) @ left
        shape = target.shape
        return Inverse(Transform(back.reshape(-1, *shape), target), np.linalg.norm(error, axis=0).reshape(shape))

    def jacobian(self) -> Float[ndarray, "*s"]:
        """det of the derivative: below 1 where fixed is larger than moving, negative where the transform folds."""
        return determinant(jacobian(torch.from_numpy(self.in_voxels())[None]))[0].numpy()

    def show(self) -> "Figure":
        """A figure of matplotlib: grid, motion and Jacobian determinant of the slice that moves most."""
        return viewer().draw(self)

    def _repr_html_(self) -> str:
        return viewer().card(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write an ITK displacement field; an `.h5` or `.tfm` file is an ITK transform, others are vector images.

        Displacements are rounded to 1/8192 mm, and never to more than 1/4096 of a voxel, which makes files smaller."""
        path = Path(path)
        check_file(path, TRANSFORM_SUFFIXES)
        with np.errstate(over="ignore"):
            steps = np.round(self.displacement.astype(np.float64) * (per_mm := steps_per_mm(self.grid)))
        check_finite(steps, path)
        rounded = Transform(steps / per_mm, self.grid)
        if path.suffix in ITK_SUFFIXES:
            write_itk(rounded.itk, path)
        else:
            is_lone_slice = path.name.endswith(NIFTI_SUFFIXES) and self.grid.shape[2:] == (1,)
            whole = repeat_slice(rounded) if is_lone_slice else rounded
            write_sitk(to_sitk(whole.displacement, whole.grid, is_vector=True), path)

    @classmethod
    def load(cls, path: str | PathLike[str], reference: Grid | None = None) -> "Transform":
        """A displacement field by any tool that follows ITK; or, given a reference grid, any ITK transform on it."""
        path = Path(path)
        transform = load_itk(path, reference) if holds_itk_transform(path) else load_field(path)
        if not np.isfinite(transform.displacement).all():
            raise BadInput(f"{path} contains NaN or infinite displacements: it cannot be applied")
        if np.abs(transform.displacement).max() > MAX_DISPLACEMENT_MM:
            raise BadInput(f"{path} contains displacements above {MAX_DISPLACEMENT_MM:g} mm: it cannot be applied")
        return transform


class Inverse(NamedTuple):
    """A transform T⁻¹, and |T(T⁻¹(y)) − y| at each voxel y of its grid, in millimetres.

    Where T⁻¹(y) is outside the grid of T, T is taken to go on."""

    transform: Transform
    residual: Float[ndarray, "*s"]

    def __repr__(self) -> str:
        return f"Inverse({self.transform}, {describe_residual(self.residual, 'mm')})"


def steps_per_mm(grid: Grid) -> float:
    """How finely the displacements of a file are rounded: a power of 2, so that they are exact as floating point."""
    return STEPS_PER_MM * 2.0 ** max(0, ceil(-1 - log2(min(grid.spacing))))


def repeat_slice(transform: Transform) -> Transform:
    """A transform of one slice as one of two equal slices.

    ITK takes a NIfTI field of a single slice for a 2D one, and forgets where it lies."""
    shape = (*transform.grid.shape[:2], 2)
    return Transform(np.repeat(transform.displacement, 2, axis=3), replace(transform.grid, shape=shape))


def load_field(path: Path) -> Transform:
    """The transform in a vector image, which has one component per axis."""
    image = read_sitk(path)
    components, d = image.GetNumberOfComponentsPerPixel(), image.GetDimension()
    if components != d:
        raise BadInput(
            f"{path} is not a transform: it has {counted(components, 'value')} per voxel in {d} dimensions; give a "
            "displacement field (NIfTI intent 1007, MHA, NRRD) or an ITK transform"
        )
    return from_vector_image(image)


def holds_itk_transform(path: Path) -> bool:
    """Whether a file is an ITK transform, and no image; where its content says neither, its name does."""
    return is_itk_transform(path) or path.suffix.lower() in ITK_SUFFIXES


def read_if_itk(path: Path) -> "sitk.Transform | None":
    """The transform of an ITK transform file; None for another file, such as a vector image."""
    return read_itk(path) if holds_itk_transform(path) else None


def load_itk(path: Path, reference: Grid | None) -> Transform:
    """An ITK transform file: a displacement field as it is, any other sampled on the reference grid."""
    import SimpleITK as sitk

    transform = read_itk(path)
    if field_grid(transform) is not None:
        return from_vector_image(sitk.DisplacementFieldTransform(transform).GetDisplacementField())
    if reference is None or len(reference.shape) != transform.GetDimension():
        raise BadInput(
            f"{path} is {transform.GetDimension()}D and has no grid of its own: give a reference of its kind"
        )
    return sample_transform(transform, reference)


def sample_transform(transform: "sitk.Transform", grid: Grid) -> Transform:
    """A SimpleITK transform of any kind, as displacements on a grid."""
    import SimpleITK as sitk

    place = grid.shape, grid.origin, grid.spacing, grid.direction
    return from_vector_image(sitk.TransformToDisplacementField(transform, sitk.sitkVectorFloat64, *place))


def from_vector_image(image: "sitk.Image") -> Transform:
    """The transform whose displacements are a vector image; SimpleITK's arrays have axes reversed, components last."""
    import SimpleITK as sitk

    return Transform(sitk.GetArrayFromImage(image).T.astype(np.float64), grid_of(image))
