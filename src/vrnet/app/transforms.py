"""`vrnet apply`, `invert`, `points` and `jacobian`: what is done with a transform once it is there."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from vrnet.app import arguments as args
from vrnet.app.console import print_line, stage_progress
from vrnet.errors import BadInput, counted, percent
from vrnet.vocabulary import Interpolation, Space


@dataclass(frozen=True, kw_only=True)
class Apply:
    """Bring an image, or a label map, to FIXED through a transform, or through several at once.

    A point of FIXED goes through TRANSFORM first, then through each --then in the order given (the reverse of
    antsApplyTransforms): `vrnet apply a_to_b.nii.gz C --then b_to_c.nii.gz --reference A`. MOVING is interpolated once.
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
        ignored, where = ("interpolation", "with --labels") if self.labels else ("smooth", "on an image: add --labels")
        args.refuse_options(self, (ignored,), where)
        grid, image = read_image(self.reference).grid, read_image(self.moving)
        transform = load_chain([self.transform, *self.then], grid)
        if self.labels:
            warped = transform.apply_labels(image, grid, self.smooth)
        else:
            warped = transform.apply(image, grid, self.interpolation)
        write_image(warped, self.out)
        print_line(f"Wrote {self.out}.")
        is_empty = warped.array.min() == warped.array.max() and image.array.min() < image.array.max()
        if is_empty and image.grid.holds(transform.on(grid).ends()).any():
            print_line(f"Note: {self.out} is empty: what {image.name} shows lies elsewhere. Check what each file is, "
                       "and the order of transforms.")  # fmt: skip
        if not self.labels and (count := segment_count(image)):
            print_line(f"Note: {image.name} holds {count} whole numbers only. If they are labels, add --labels.")


@dataclass(frozen=True, kw_only=True)
class Invert:
    """Write the transform from MOVING to FIXED, and say how exact it is.

    The inverse of an affine map, such as affine.tfm, is one too: write it as .tfm or .h5. For others the error is that
    of random points of the region that moves, taken to MOVING and back; it is large where the transform folds.
    """

    transform: args.TransformFile
    """From fixed to moving: a displacement field, or any ITK transform."""
    out: args.File
    """The file to write: .nii.gz, .nii, .mha, .nrrd, .h5 or .tfm."""
    reference: args.OptionalFile = None
    """The image on whose grid the inverse is to be: MOVING. Without it, a grid that holds all the transform reaches."""

    def run(self) -> None:
        from numpy import percentile

        from vrnet.files import check_file, check_not_input
        from vrnet.images import transforms
        from vrnet.images.grid import Affine
        from vrnet.images.io import read_image

        check_not_input([self.out], (self.transform, self.reference))
        check_file(self.out, transforms.TRANSFORM_SUFFIXES)
        moving = None if self.reference is None else read_image(self.reference).grid
        with stage_progress() as stage:
            stage("inverting")
            itk = transforms.read_itk(self.transform)
            if itk is not None and moving is not None and itk.GetDimension() != len(moving.shape):
                raise BadInput(f"{self.transform} is {itk.GetDimension()}D and {self.reference} is not: give MOVING")
            if itk is not None and itk.IsLinear():
                affine = Affine.from_sitk(itk).inverse()
                if self.out.suffix in transforms.ITK_SUFFIXES:
                    transforms.write_itk(affine.itk, self.out)
                elif moving is not None:
                    transforms.sample_transform(affine.itk, moving).save(self.out)
                else:
                    raise BadInput(f"{self.transform} is an affine map, which has no grid: give a name that ends in "
                                   ".tfm or .h5, or --reference MOVING")  # fmt: skip
                print_line(f"Wrote {self.out}, from MOVING to FIXED.", "The inverse of an affine map is exact.")
                return
            if itk is None or transforms.field_grid(itk) is not None:
                there = transforms.Transform.load(self.transform)
            elif moving is not None:
                frame = transforms.turned(transforms.linear_part(itk).inverse(), moving)
                there = transforms.sample_transform(itk, frame)  # from where it leads to moving
            else:
                raise BadInput(f"{self.transform} has no grid of its own: give --reference MOVING")
            if moving is not None and not moving.holds(there.ends()).any():
                raise BadInput(f"{self.transform} leads to no place in {self.reference}: give --reference MOVING, the "
                               "image that it leads to")  # fmt: skip
            back = there.inverse(moving or transforms.grid_of_range(there)).transform
            back.save(self.out)
            moved, error, outside = transforms.round_trip(there, back)
        print_line(f"Wrote {self.out}, from MOVING to FIXED.")
        who = f"random points that move by more than {moved:.2g} mm"
        if not len(error):
            print_line(f"Warning: none of {who} leads into the grid of the inverse. Is --reference MOVING?")
            return
        median, p95, worst = percentile(error, (50, 95, 100))
        print_line(
            f"From FIXED to MOVING and back, half of {who} end within {median:.3f} mm of where they began, 95 % within "
            f"{p95:.3f} mm, and the farthest {worst:.2f} mm away, where the transform squeezes or folds."
        )
        if outside >= 0.005:
            print_line(f"{percent(outside)} of these points are not counted: they lead out of the grid of the inverse.")


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


@dataclass(frozen=True, kw_only=True)
class Jacobian:
    """Map how much each place of FIXED shrinks or grows: the Jacobian determinant of a transform.

    Above 1 the tissue is larger in MOVING than in FIXED, below 1 smaller; at 0 and below the transform folds.
    """

    transform: args.TransformFile
    """From fixed to moving: a displacement field, or any ITK transform that has a grid."""
    out: args.File
    """The image to write: .nii.gz, .nii, .mha or .nrrd."""

    def run(self) -> None:
        from vrnet.files import check_file, check_not_input
        from vrnet.images.image import Image
        from vrnet.images.io import IMAGE_SUFFIXES, write_image
        from vrnet.images.transforms import Transform

        check_not_input([self.out], (self.transform,))
        check_file(self.out, IMAGE_SUFFIXES)
        transform = Transform.load(self.transform)
        det = transform.jacobian()
        write_image(Image(det, transform.grid), self.out)
        print_line(f"Wrote {self.out}: the determinant is {det.mean():.3f} on average, {det.min():.3f} at least, "
                   f"{det.max():.3f} at most, and negative at {percent((det < 0).mean())} of the voxels.")  # fmt: skip
