"""A transform in the world: x ↦ x + displacement(x), from a point of fixed to the same tissue in moving. Resampling,
formats and the rule that nothing moves outside the grid are ITK's, as in every tool built on it."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from io import BytesIO
from math import ceil, log2, prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import SimpleITK as sitk
import torch
from jaxtyping import Float
from numpy import ndarray

from vrnet.devices import check_memory
from vrnet.errors import BadInput, counted, warn_of_input
from vrnet.fields.calculus import determinant, jacobian
from vrnet.fields.inverse import describe_residual, invert_at
from vrnet.files import atomic_write, check_file, check_written, exists, unreadable
from vrnet.images.formats import first_bytes, refuse_errors
from vrnet.images.grid import Affine, Grid, checked_grid
from vrnet.images.image import Image, as_float, as_labels, grid_of, to_sitk
from vrnet.images.io import NIFTI_SUFFIXES, ImageLike, check_name, check_numbers, given_image, read_voxels, write_sitk
from vrnet.images.isolated import read_isolated
from vrnet.images.resample import coverage, resample, resample_labels
from vrnet.vocabulary import Interpolation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ITK transform files: text (.tfm, .txt), Matlab 4 (.mat) and HDF5 (.h5), written, and read without trust: numbers are
# parsed and checked here, since a damaged file makes ITK's own readers overwrite memory.

NOT_A_TRANSFORM = "it is not an ITK transform, or damaged"
TEXT_MAGIC, HDF5_MAGIC = b"#Insight Transform File", b"\x89HDF\r\n\x1a\n"
# How a column of numbers begins in Matlab's version 4: of 8 or 4 bytes, in either order.
MATLAB_CODES = {struct.pack(order + "i", code) for order, code in (("<", 0), ("<", 10), (">", 1000), (">", 1010))}
NAME = re.compile(r"([A-Z][A-Za-z0-9]{1,60})_(?:double|float)_([23])_([23])(?:_([0-3]))?")
FIELD, SPLINE = "DisplacementFieldTransform", "BSplineTransform"
OF_ANY_DIMENSION = "AffineTransform", "TranslationTransform", "ScaleTransform"
OF_ONE_DIMENSION = (
    "Euler2DTransform", "Similarity2DTransform", "Euler3DTransform", "Similarity3DTransform", "VersorTransform",
    "VersorRigid3DTransform", "ScaleVersor3DTransform", "ScaleSkewVersor3DTransform",
)  # fmt: skip
RESULT = "transform.nii.gz"  # the transform in the folder of a result
MAX_PARAMETER = 1e9
MAX_PARTS = 64
MIN_DETERMINANT, MAX_DETERMINANT = 1e-9, 1e9
Part = tuple[str, Float[ndarray, "n"], Float[ndarray, "m"]]  # a name, such as AffineTransform_double_3_3, and numbers


def read_itk(path: Path) -> "sitk.Transform | None":
    """The transform of an ITK transform file; None for another file, such as a vector image; BadInput if damaged."""
    check_name(path)
    if exists(path / RESULT):
        raise BadInput(f"{path} is a folder: give its transform, {path / RESULT}")
    head = first_bytes(path, 64)
    is_matlab = head[:4] in MATLAB_CODES and NAME.match(head[20:].decode("latin-1")) is not None
    if not is_matlab and not head.startswith((TEXT_MAGIC, HDF5_MAGIC)):
        if path.suffix.lower() in ITK_SUFFIXES:
            raise unreadable(path, NOT_A_TRANSFORM)
        return None
    check_memory(path, path.stat().st_size)
    with refuse_errors(path, NOT_A_TRANSFORM):
        if is_composite := head.startswith(HDF5_MAGIC):
            found = read_isolated("transform", path, [path])
            count = len(found.files) // 3
            parts = [(str(found[f"name{k}"]), found[f"parameters{k}"], found[f"fixed{k}"]) for k in range(count)]
        elif is_matlab:  # the parameters, under the name of the transform, and then the fixed ones
            from scipy.io import loadmat

            (name, parameters), (_, fixed) = loadmat(BytesIO(path.read_bytes())).items()
            parts = [(name, parameters.astype(np.float64).ravel(), fixed.astype(np.float64).ravel())]
        else:
            parts = parse_text(path.read_text(encoding="ascii"))
            if is_composite := parts[0][0].startswith("CompositeTransform"):
                del parts[0]
        if len(parts) > 1 and not is_composite:
            raise BadInput(f"{path} holds {len(parts)} transforms and does not say how they combine: give one per file")
        transforms = [build(part, path) for part in parts[: MAX_PARTS + 1]]
        if not 1 <= len(transforms) <= MAX_PARTS or len({each.GetDimension() for each in transforms}) != 1:
            raise unreadable(path, NOT_A_TRANSFORM)
    return transforms[0] if len(transforms) == 1 else sitk.CompositeTransform(transforms)


def parse_text(text: str) -> list[Part]:
    """The transforms of ITK's text format, those of a composite one by one."""
    parts = []
    for block in re.split(r"(?m)^Transform:", re.sub(r"(?m)^#.*$", "", text))[1:]:
        name, *lines = block.strip().splitlines()
        found = {key: np.array(values.split(), np.float64) for key, _, values in (s.partition(":") for s in lines if s)}
        parameters, fixed = (found.pop(key, np.zeros(0)) for key in ("Parameters", "FixedParameters"))
        if found:
            raise ValueError("unknown lines")
        parts.append((name.strip(), parameters, fixed))
    return parts


def build(part: Part, path: Path) -> sitk.Transform:
    """One transform as an object of SimpleITK; BadInput if its numbers are absurd, or if it has no inverse."""
    name, parameters, fixed = part
    found = NAME.fullmatch(name)
    if found is None or found[2] != found[3]:
        raise unreadable(path, NOT_A_TRANSFORM)
    kind, d = found[1].replace("MatrixOffsetTransformBase", "AffineTransform"), int(found[2])
    numbers = np.concatenate([parameters, fixed])
    if not (np.abs(numbers) <= MAX_PARAMETER).all():
        raise BadInput(f"{path} contains NaN or infinite numbers, or above {MAX_PARAMETER:g}: it cannot be applied")
    if kind == "IdentityTransform":
        return sitk.Transform(d, sitk.sitkIdentity)
    if kind in (FIELD, SPLINE):  # with the grid of the field, or of the control points
        if len(fixed) != d * (3 + d) or (fixed[:d] < 1).any() or (fixed[:d] % 1).any():
            raise unreadable(path, NOT_A_TRANSFORM)
        axes = fixed[3 * d :].reshape(d, d)
        grid = checked_grid(Grid.of(fixed[:d], fixed[2 * d : 3 * d], fixed[d : 2 * d], axes), path)
        if len(parameters) != d * prod(grid.shape):
            raise unreadable(path, NOT_A_TRANSFORM)
        if kind == FIELD:
            vectors = parameters.reshape(*reversed(grid.shape), d).T
            return sitk.DisplacementFieldTransform(to_sitk(vectors, grid, is_vector=True))
        made = sitk.BSplineTransform(d, int(found[4] or 3))
    elif kind in (*OF_ANY_DIMENSION, *OF_ONE_DIMENSION):
        made = getattr(sitk, kind)(*([d] if kind in OF_ANY_DIMENSION else []))
    else:
        raise unreadable(path, f"it holds a {kind}, a kind of transform that is not known")
    lacking = len(made.GetFixedParameters()) - len(fixed) if kind == "Euler3DTransform" else 0
    made.SetFixedParameters([*fixed.tolist(), *[0.0] * lacking])  # older files lack a flag
    made.SetParameters(parameters.tolist())
    if made.IsLinear() and not MIN_DETERMINANT < abs(np.linalg.det(Affine.from_sitk(made).matrix)) < MAX_DETERMINANT:
        raise BadInput(f"{path} has a matrix without an inverse: it cannot be applied")
    return made


def write_itk(transform: sitk.Transform, path: Path) -> None:
    """Write any ITK transform, such as an affine start, in the format of the file's ending; fields by `save`."""
    with atomic_write(path) as temporary:
        try:
            sitk.WriteTransform(transform, str(temporary))
            found = sitk.ReadTransform(str(temporary))  # ITK says nothing of a disk that is full
        except RuntimeError as error:
            raise BadInput(f"cannot write {path}: is the disk full?") from error
        numbers = [(each.GetFixedParameters(), each.GetParameters()) for each in (found, transform)]
        check_written(all(map(np.array_equal, *numbers)), path)


def map_points(transform: sitk.Transform, x: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
    """Where points of fixed are in moving, in LPS millimetres, by a SimpleITK transform."""
    d = transform.GetDimension()
    if d != x.shape[1]:
        raise BadInput(f"the transform is {d}D and the points {x.shape[1]}D: they do not belong together")
    return np.array([transform.TransformPoint(point) for point in x.tolist()]).reshape(x.shape)


def warn_if_apart(name: str, image: Grid, reference: Grid, transform: sitk.Transform) -> None:
    """An InputWarning where a transform takes nothing of the reference into an image."""
    is_seen = image.holds(map_points(transform, reference.points(reference.lattice()))).any()
    if not is_seen and not coverage(image, reference, transform).any():
        told = f"the transform leads to no place in {name}: the result is empty"
        warn_of_input(f"{told}. Check that it is the moving image, its header, and the order of transforms")


def warn_of_order(names: Sequence[str], maps: "Sequence[sitk.Transform]", reference: Grid) -> None:
    """An InputWarning where points miss the grid of a transform, or a later one, not the first, is on the reference."""
    grids = [field_grid(transform) for transform in maps]
    is_own = [grid is not None and grid.matches(reference) for grid in grids]
    if any(is_own) and grids[0] is not None and not is_own[0]:
        told = f"{names[is_own.index(True)]} is on the grid of the reference, and {names[0]} is not"
        warn_of_input(f"{told}. Check their order: first the one from the reference")
    points = reference.points(reference.lattice())
    for name, grid, transform in zip(names, grids, maps, strict=True):
        if grid is not None and not grid.holds(points).any():
            told = f"no point comes to lie in the grid of {name}, and outside of it nothing moves"
            warn_of_input(f"{told}. Check that it is for this reference, and the order of transforms")
        points = map_points(transform, points)


def field_grid(transform: sitk.Transform) -> Grid | None:
    """The grid of a displacement field; None for a transform of another kind."""
    is_field = transform.GetTransformEnum() == sitk.sitkDisplacementField
    return grid_of(sitk.DisplacementFieldTransform(transform).GetDisplacementField()) if is_field else None


ITK_SUFFIXES = (".h5", ".tfm", ".txt", ".mat")
TRANSFORM_SUFFIXES = (*NIFTI_SUFFIXES, ".mha", ".nrrd", ".h5", ".tfm")  # the formats that transforms are written in
LARGE_REACH, MAX_CONDITION = 0.05, 100.0  # smaller affine parts, and maps that flatten space, are left to iteration
STEPS_PER_MM = 2.0**13  # in files; of voxels smaller than half a mm more; a power of 2, exact as floating point


@dataclass(frozen=True, repr=False, eq=False)
class Transform:
    """Displacements in LPS millimetres at the voxels of a grid, linear between them, none outside."""

    displacement: Float[ndarray, "d *s"]
    grid: Grid

    def __post_init__(self) -> None:
        if self.displacement.shape != (len(self.grid.shape), *self.grid.shape):
            found = self.displacement.shape
            raise BadInput(f"displacements are {found} on a grid of {self.grid.shape}: give (d, *shape)")

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
    def itk(self) -> sitk.Transform:
        """The transform as an object of SimpleITK."""
        return sitk.DisplacementFieldTransform(to_sitk(self.displacement.astype(np.float64), self.grid, is_vector=True))

    def to_sitk(self) -> sitk.Transform:
        """The transform as an object of SimpleITK, as `itk`."""
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
        """image(x + displacement(x)) on the reference grid (or this one), as float32; outside, its least value."""
        image = given_image("the image", image)
        self.check_dimension(image.array.ndim, image.name)
        grid, method = reference or self.grid, {"linear": sitk.sitkLinear, "bspline": sitk.sitkBSpline3}[interpolation]
        warn_if_apart(image.name, image.grid, grid, self.itk)
        source = to_sitk(as_float(image.array), image.grid)
        return Image(resample(source, grid, self.itk, method, float(image.array.min())), grid, image.name)

    def apply_labels(self, labels: ImageLike, reference: Grid | None = None, smooth: bool = False) -> Image:
        """The nearest label; or, smooth, that of greatest weight by linear interpolation; 0 outside. Types are kept."""
        labels, grid = as_labels(given_image("the label map", labels)), reference or self.grid
        self.check_dimension(labels.array.ndim, labels.name)
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
        self.check_dimension(len(first.grid.shape), "the first")
        return sample_transform(sitk.CompositeTransform([self.itk, first.itk]), first.grid)

    def followed_by(self, affine: Affine) -> "Transform":
        """x ↦ affine(self(x)), on this grid."""
        moved = affine.points(self.ends()) - self.grid.voxels()
        return Transform(moved.T.reshape(self.displacement.shape), self.grid)

    def affine_part(self) -> Affine | None:
        """The affine map nearest to the transform, by least squares; None where it is small, or has no inverse."""
        d, centre = len(self.grid.shape), self.grid.centre
        x, v = self.grid.voxels() - centre, self.displacement.reshape(d, -1).T
        slope = np.linalg.lstsq(x.T @ x, x.T @ (v - v.mean(0)), rcond=None)[0].T
        affine = Affine("affine", np.eye(d) + slope, v.mean(0), centre)
        corners = self.grid.points(self.grid.lattice(2))
        moved = np.linalg.norm(affine.points(corners) - corners, axis=1).max()
        reach = moved / np.linalg.norm(np.multiply(self.grid.shape, self.grid.spacing))
        return None if reach < LARGE_REACH or np.linalg.cond(affine.matrix) > MAX_CONDITION else affine

    def inverse(self, grid: Grid | None = None) -> "Inverse":
        """The transform from moving to fixed, which brings fixed to the grid of moving, and its residual; on the grid
        given, or on this one. Outside its grid the transform goes on: by its affine part where that is large, and as at
        the border."""
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
        from vrnet.report.figures import transform_figure

        return transform_figure(self)

    def _repr_html_(self) -> str:
        from vrnet.report.figures import transform_card

        return transform_card(self)

    def rounded(self) -> "Transform":
        """The transform as files have it: in steps of 1/8192 mm, and never of more than 1/4096 of a voxel."""
        per_mm = STEPS_PER_MM * 2.0 ** max(0, ceil(-1 - log2(min(self.grid.spacing))))
        with np.errstate(over="ignore"):
            return Transform(np.round(self.displacement.astype(np.float64) * per_mm) / per_mm, self.grid)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the field, `rounded`, as a vector image; or, by the ending .h5 or .tfm, as an ITK transform."""
        path = Path(path)
        check_file(path, TRANSFORM_SUFFIXES)
        rounded, grid = self.rounded().displacement, self.grid
        check_numbers(rounded, path)
        if path.suffix in ITK_SUFFIXES:
            write_itk(Transform(rounded, grid).itk, path)
            return
        if path.name.endswith(NIFTI_SUFFIXES) and grid.shape[2:] == (1,):
            # ITK takes a NIfTI field of a single slice for a 2D one, and forgets where it lies: two equal slices
            rounded, grid = np.repeat(rounded, 2, axis=3), replace(grid, shape=(*grid.shape[:2], 2))
        write_sitk(to_sitk(rounded, grid, is_vector=True), path)

    @classmethod
    def load(cls, path: str | PathLike[str], reference: Grid | None = None) -> "Transform":
        """A displacement field by any tool that follows ITK; or, given a reference grid, any ITK transform on it."""
        path = Path(path)
        if (itk := read_itk(path)) is None:
            image = read_voxels(path)
            components, d = len(image.array) if image.is_vector else 1, len(image.grid.shape)
            if components != d:
                told = f"it has {counted(components, 'value')} per voxel; give a displacement field (NIfTI intent 1007)"
                raise BadInput(f"{path} is not a transform: {told} or an ITK transform")
            transform = cls(image.array.astype(np.float64), image.grid)
        elif (grid := field_grid(itk)) is not None:
            field = sitk.DisplacementFieldTransform(itk).GetDisplacementField()
            transform = cls(sitk.GetArrayFromImage(field).T, grid)
        elif reference is None or len(reference.shape) != itk.GetDimension():
            raise BadInput(f"{path} is {itk.GetDimension()}D and has no grid of its own: give a reference of its kind")
        else:
            transform = sample_transform(itk, reference)
        if not np.abs(transform.displacement).max() <= MAX_PARAMETER:
            raise BadInput(f"{path} contains NaN or infinite numbers, or above {MAX_PARAMETER:g}: it cannot be applied")
        return transform


class Inverse(NamedTuple):
    """A transform T⁻¹, and |T(T⁻¹(y)) − y| at each voxel y of its grid, in millimetres. Where T⁻¹(y) is outside the
    grid of T, T is taken to go on."""

    transform: Transform
    residual: Float[ndarray, "*s"]

    def __repr__(self) -> str:
        return f"Inverse({self.transform}, {describe_residual(self.residual, 'mm')})"


def sample_transform(transform: sitk.Transform, grid: Grid) -> Transform:
    """A SimpleITK transform of any kind, as displacements on a grid."""
    place = grid.shape, grid.origin, grid.spacing, grid.direction
    image = sitk.TransformToDisplacementField(transform, sitk.sitkVectorFloat64, *place)
    return Transform(sitk.GetArrayFromImage(image).T, grid)  # its arrays have axes reversed, components last


def compose(first: Transform | Affine, *others: Transform | Affine, grid: Grid | None = None) -> Transform:
    """x ↦ last(… second(first(x))): a point goes through the first, then through each in the order given (the reverse
    of SimpleITK's CompositeTransform).

    Of A to B and B to C it is A to C: an image of C comes to A by its `apply`, interpolated once. The result is on the
    grid given, or on that of the first."""
    for given in (first, *others):
        if not isinstance(given, (Transform, Affine)):
            raise BadInput(f"a {type(given).__name__} is no transform: give a Transform, such as that of a result")
    target = grid or getattr(first, "grid", None)
    if target is None:
        raise BadInput("the first of the transforms is affine and has no grid: give the `grid` of its fixed image")
    maps = {f"transform {k}": transform.itk for k, transform in enumerate((first, *others), start=1)}
    return sample_transform(chain([*maps], [*maps.values()], target), target)


def chain(names: Sequence[str | Path], maps: "Sequence[sitk.Transform]", grid: Grid | None = None) -> sitk.Transform:
    """x ↦ last(… second(first(x))); BadInput unless all, and the grid of the points x, if given, have one dimension."""
    d = maps[0].GetDimension()
    for name, found in zip(names, maps, strict=True):
        if found.GetDimension() != d:
            raise BadInput(f"{name} is {found.GetDimension()}D and {names[0]} {d}D: give transforms of one dimension")
    if grid is not None:
        if d != len(grid.shape):
            raise BadInput(f"{names[0]} is {d}D and the reference {len(grid.shape)}D: give one of its kind")
        warn_of_order([str(name) for name in names], maps, grid)
    return maps[0] if len(maps) == 1 else sitk.CompositeTransform(maps[::-1])  # which applies the last one first


def read_point_map(*paths: Path, grid: Grid | None = None) -> sitk.Transform:
    """x ↦ last(… second(first(x))) of the transforms of files; points of no known grid need none."""
    return chain(paths, [read_itk(path) or Transform.load(path).itk for path in paths], grid)


def load_chain(paths: Sequence[Path], grid: Grid) -> Transform:
    """x ↦ last(… second(first(x))), at the voxels of a grid; of one transform that has a grid, on that."""
    if len(paths) > 1:
        return sample_transform(read_point_map(*paths, grid=grid), grid)
    only = Transform.load(paths[0], grid)
    only.check_dimension(len(grid.shape), "the reference")
    warn_of_order([str(paths[0])], [only.itk], grid)
    return only


def grid_of_range(there: Transform) -> Grid:
    """Its own grid, turned and shifted by a large affine part, and grown to hold every end of a transform."""
    affine = there.affine_part()
    frame = turned(affine, there.grid) if affine else there.grid
    index = frame.index(there.ends())
    low = np.minimum(np.floor(index.min(0) + 0.5), 0)
    shape = np.maximum(np.ceil(index.max(0) - 0.5), np.array(frame.shape) - 1) - low + 1
    if shape.prod() > 8 * np.prod(frame.shape):
        raise BadInput("the transform leads to places that lie far apart: give the grid of moving (`reference`)")
    return Grid.of(shape, frame.spacing, frame.points(low[None])[0], frame.axes)


def turned(affine: Affine, grid: Grid) -> Grid:
    """A grid as it lies in moving, with its axes kept at right angles where the map shears."""
    there = affine.image_of(grid)
    return Grid.of(there.shape, there.spacing, there.origin, affine.rotation @ grid.axes)


def linear_part(transform: sitk.Transform) -> Affine:
    """What is left of a transform, which may be made of several, without its fields and splines."""
    if transform.GetTransformEnum() == sitk.sitkComposite:
        chain = sitk.CompositeTransform(transform)
        parts = [linear_part(chain.GetNthTransform(k)) for k in range(chain.GetNumberOfTransforms())]
        return reduce(Affine.compose, parts)
    identity = sitk.Transform(transform.GetDimension(), sitk.sitkIdentity)
    return Affine.from_sitk(transform if transform.IsLinear() else identity)


def round_trip(there: Transform, back: Transform) -> tuple[float, Float[ndarray, " n"], float]:
    """(threshold, |back(there(x)) − x| in mm, the part that leads out of the grid of the inverse and is not counted) of
    10,000 random points x between voxels that move by more than the threshold: the shortest edge of a voxel, or half of
    the longest motion if that is less."""
    length, random = np.linalg.norm(there.displacement, axis=0), np.random.default_rng(0)
    threshold = min(*there.grid.spacing, float(length.max()) / 2)
    region = np.argwhere(length > threshold) if threshold > 0 else np.argwhere(length == 0)
    voxels = region[random.integers(len(region), size=10_000)]
    index = voxels + random.uniform(-0.5, 0.5, voxels.shape)
    x = there.grid.points(np.clip(index, 0, np.array(there.grid.shape) - 1))
    y = there.points(x)
    inside = back.grid.holds(y)
    error = np.linalg.norm(back.points(y[inside]) - x[inside], axis=1)
    return threshold, error, float(1 - inside.mean())
