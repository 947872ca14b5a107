"""`vrnet apply`, `vrnet invert` and `vrnet points`: what is done with a transform once it is there."""

from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import SimpleITK as sitk
import tyro
from jaxtyping import Float
from numpy import ndarray

from vrnet.app import arguments as args
from vrnet.app.console import print_line, stage_progress
from vrnet.errors import BadInput, counted, percent
from vrnet.images.grid import Affine, Grid
from vrnet.vocabulary import Interpolation, Space

if TYPE_CHECKING:
    from vrnet.images.transforms import Transform


@dataclass(frozen=True, kw_only=True)
class Apply:
    """Bring an image, or a label map, to FIXED through a transform, or through several at once.

    A point of FIXED goes through TRANSFORM first, then through each --then in the order given, and ends in MOVING:
    `vrnet apply a_to_b.nii.gz C --then b_to_c.nii.gz --reference A`. MOVING is interpolated once. (antsApplyTransforms
    lists the same transforms the other way round.)
    """

    transform: args.TransformFile
    """A displacement field, or any ITK transform: by vrnet, ANTs, SimpleITK, elastix, 3D Slicer."""
    moving: args.MovingFile
    """The image, as it is on disk, at its own resolution."""
    reference: args.File
    """The image on whose grid the result is to be: FIXED."""
    out: args.File
    """The file to write: .nii.gz, .nii, .mha or .nrrd."""
    then: args.NextTransforms = ()
    """A transform that points go through next; may be repeated."""
    labels: bool = False
    """MOVING is a label map: take the nearest label, and keep its number type."""
    smooth: bool = False
    """With --labels: take the label of greatest weight, for smoother outlines."""
    interpolation: Interpolation = "linear"
    """For an image."""

    def run(self) -> None:
        from vrnet.files import check_file, check_not_input
        from vrnet.images.image import segment_count
        from vrnet.images.io import IMAGE_SUFFIXES, read_image, write_image
        from vrnet.images.transforms import load_chain

        check_not_input([self.out], (self.transform, *self.then, self.moving, self.reference))
        check_file(self.out, IMAGE_SUFFIXES)
        if self.smooth and not self.labels:
            raise BadInput("--smooth is for label maps: add --labels")
        if self.labels and self.interpolation != "linear":
            raise BadInput("labels are not interpolated: leave out --interpolation, or --labels")
        grid, image = read_image(self.reference).grid, read_image(self.moving)
        transform = load_chain([self.transform, *self.then], grid)
        if self.labels:
            warped = transform.apply_labels(image, grid, self.smooth)
        else:
            warped = transform.apply(image, grid, self.interpolation)
        write_image(warped, self.out)
        print_line(f"Wrote {self.out}.")
        is_empty = np.ptp(warped.array) == 0 < np.ptp(image.array)
        if is_empty and image.grid.holds(transform.on(grid).ends()).any():
            print_line(f"Note: {self.out} is empty: what {image.name} shows lies elsewhere. Check what each file is, "
                       "and the order of transforms.")  # fmt: skip
        if not self.labels and (count := segment_count(image)):
            print_line(f"Note: {image.name} holds {count} whole numbers only. If they are labels, add --labels.")


@dataclass(frozen=True, kw_only=True)
class Invert:
    """Write the transform from MOVING to FIXED, and say how exact it is.

    The inverse of an affine map, such as affine.tfm, is one too: write it as .tfm or .h5. Of another, random points of
    the region that moves are taken to MOVING and back to FIXED. Where the transform folds it has no inverse; the
    distance left there tells.
    """

    transform: args.TransformFile
    """From fixed to moving: a displacement field, or any ITK transform."""
    out: args.File
    """The file to write: .nii.gz, .nii, .mha, .nrrd, .h5 or .tfm."""
    reference: args.OptionalFile = None
    """The image on whose grid the inverse is to be: MOVING. Without it, a grid that holds all the transform reaches."""

    def run(self) -> None:
        from vrnet.files import check_file, check_not_input
        from vrnet.images.io import read_image
        from vrnet.images.transforms import ITK_SUFFIXES, TRANSFORM_SUFFIXES, read_itk, sample_transform, write_itk

        check_not_input([self.out], (self.transform, self.reference))
        check_file(self.out, TRANSFORM_SUFFIXES)
        moving = None if self.reference is None else read_image(self.reference).grid
        with stage_progress() as stage:
            stage("inverting")
            itk = read_itk(self.transform)
            if itk is not None and moving is not None and itk.GetDimension() != len(moving.shape):
                raise BadInput(f"{self.transform} is {itk.GetDimension()}D and {self.reference} is not: give MOVING")
            if itk is None or not itk.IsLinear():
                told = self.invert_field(itk, moving)
            else:
                told, back = ["The inverse of an affine map is exact."], Affine.from_sitk(itk).inverse().itk
                if self.out.suffix in ITK_SUFFIXES:
                    write_itk(back, self.out)
                elif moving is not None:
                    sample_transform(back, moving).save(self.out)
                else:
                    raise BadInput(f"{self.transform} is an affine map, which has no grid: give a name that ends in "
                                   ".tfm or .h5, or --reference MOVING")  # fmt: skip
        print_line(f"Wrote {self.out}, from MOVING to FIXED.", *told)

    def invert_field(self, itk: "sitk.Transform | None", moving: Grid | None) -> list[str]:
        """Write the inverse of a transform that is not linear; returns what is to be said of it."""
        from vrnet.images.transforms import Transform, field_grid, sample_transform

        if itk is None or field_grid(itk) is not None:
            there = Transform.load(self.transform)
        elif moving is not None:
            there = sample_transform(itk, turned(linear_part(itk).inverse(), moving))  # from where it leads to moving
        else:
            raise BadInput(f"{self.transform} has no grid of its own: give --reference MOVING")
        if moving is not None and not moving.holds(there.ends()).any():
            raise BadInput(f"{self.transform} leads to no place in {self.reference}: give --reference MOVING, the "
                           "image that it leads to")  # fmt: skip
        back = there.inverse(moving or grid_of_range(there)).transform
        back.save(self.out)
        moved, error, outside = round_trip(there, back)
        who = f"random points that move by more than {moved:.2g} mm"
        if not len(error):
            return [f"Warning: none of {who} leads into the grid of the inverse. Is --reference MOVING?"]
        median, p95, worst = np.percentile(error, (50, 95, 100))
        told = [
            f"From FIXED to MOVING and back, half of {who} end within {median:.3f} mm of where they began, 95 % within "
            f"{p95:.3f} mm, and the farthest {worst:.2f} mm away, where the transform squeezes or folds."
        ]
        if outside >= 0.005:
            said = "of these points are not counted: they lead out of the grid of the inverse."
            told.append(f"{percent(outside)} {said}")
        return told


def grid_of_range(there: "Transform") -> Grid:
    """A grid that holds every place that a transform leads to: its own, turned and shifted by a large affine part, and
    grown by as many voxels as it takes. BadInput if that is more than eightfold, where a few lead far away."""
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
    is_linear = transform.IsLinear()
    return Affine.from_sitk(transform if is_linear else sitk.Transform(transform.GetDimension(), sitk.sitkIdentity))


def round_trip(there: "Transform", back: "Transform") -> tuple[float, Float[ndarray, " n"], float]:
    """(threshold, |back(there(x)) − x| at 10,000 random points x that move by more, in mm, the part of them that leads
    out of the grid of the inverse and is not counted).

    They lie between voxels, where an inverse is least exact, and move by more than the shortest edge of a voxel; or, if
    nothing does, by more than half of the longest motion."""
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


@dataclass(frozen=True, kw_only=True)
class Points:
    """Take points of FIXED to where they are in MOVING.

    Points go through TRANSFORM first, then through each --then in the order given. `vrnet invert` writes the transform
    for points of MOVING. Other columns of the table are kept.
    """

    transform: args.TransformFile
    """A displacement field, from fixed to moving, or any ITK transform."""
    points: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN.csv")]
    """A CSV file with columns x, y and, in 3D, z: world millimetres."""
    out: args.File
    """The CSV file to write."""
    then: args.NextTransforms = ()
    """A transform that points go through next; may be repeated."""
    space: Space = "LPS"
    """Which way x and y run, in both files: LPS as in ITK, ANTs and DICOM, or RAS as in nibabel and Slicer."""

    def run(self) -> None:
        from vrnet.files import check_file, check_not_input
        from vrnet.images.io import read_points, write_points
        from vrnet.images.transforms import map_points, read_point_map

        if self.transform.suffix.lower() == ".csv" != self.points.suffix.lower():
            raise BadInput(f"{self.transform} and {self.points} look exchanged: give the transform, then the points")
        check_not_input([self.out], (self.transform, *self.then, self.points))
        check_file(self.out, (".csv",))
        table = read_points(self.points, self.space)
        moved = map_points(read_point_map(self.transform, *self.then), table.lps)
        write_points(replace(table, lps=moved), self.out, self.space)
        print_line(f"Wrote {self.out}: {counted(len(moved), 'point')} in {self.space} millimetres.")
        unmoved = int((moved == table.lps).all(1).sum())
        if unmoved:
            print_line(f"Note: {unmoved} did not move at all. Do they lie outside the transform? Is --space right?")
