"""`vrnet register`, the deformation between two images; `vrnet demo`, that of a made-up heart; `vrnet report`, the page
of a transform by any tool."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vrnet.app import arguments as args
from vrnet.app.console import print_result, stage_progress
from vrnet.errors import BadInput
from vrnet.vocabulary import RegistrationOptions


@dataclass(frozen=True, kw_only=True)
class Register:
    """Find the deformation that takes FIXED to MOVING, and bring MOVING to FIXED.

    Images are NIfTI, MHA, NRRD, a folder with one DICOM series, or PNG/JPEG; 2D or 3D, on any grids that overlap in
    space; with --affine, on any grids.

    Writes in DIR: warped.nii.gz, MOVING on the grid of FIXED; transform.nii.gz, an ITK displacement field that
    SimpleITK, ANTs and 3D Slicer read; metrics.json; affine.tfm, an affine start, which transform.nii.gz includes;
    warped_labels.nii.gz, given moving labels; with --report, report.html and overview.png. Results of an earlier run
    are replaced, other files never.

    Ends with a verdict: good, look or failed (exit status 3), the reasons, and what to try.
    """

    fixed: args.FixedFile
    """The reference image, such as end-diastole."""
    moving: args.MovingFile
    """The image to be brought to it, such as end-systole."""
    out: args.Folder
    """Folder for the results; made if it is not there."""
    method: args.Name = "default"
    """Any name that `vrnet methods` lists. default: the bundled model short-axis for 2D images and slices that show a
    short-axis heart; Gaussian-LNCC for the rest."""
    labels: args.Group[args.LabelOptions]
    masks: args.Group[args.MaskOptions]
    options: args.Group[RegistrationOptions]
    report: bool = False
    """Write report.html and overview.png; with short-axis also volumes and ejection fractions, by a network unless
    there are labels."""
    method_options: args.Group[args.MethodOptions]

    def run(self) -> None:
        from vrnet.app.pair_files import notes_on, read_pair, register_files

        method = self.method_options.spec(self.method).load()
        maps = self.labels.files | vars(self.masks)
        with stage_progress() as stage:
            stage("reading")
            pair = read_pair(self.fixed, self.moving, **maps).with_label_names(self.labels.label_names)
            inputs = self.fixed, self.moving, *maps.values(), self.method_options.weights
            result, metrics, written = register_files(
                stage, pair, method, self.out, self.options, report=self.report, inputs=inputs
            )
        files_written = ", ".join(path.name for path in written)
        print_result(metrics, notes_on(result), f"Wrote {files_written} in {self.out}.")


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Register a made-up beating heart, and show how well that went.

    A phantom's end-systole is registered to its end-diastole; the true motion is known. Writes the images and what
    `vrnet register --report` writes.
    """

    out: args.Folder = Path("demo")
    """Folder for the results; made if it is not there."""
    method: args.Name = "default"
    """Any name that `vrnet methods` lists."""
    seed: int = 7
    """Which phantom patient."""
    method_options: args.Group[args.MethodOptions]

    def run(self) -> None:
        from vrnet.app.pair_files import phantom_pair, register_files
        from vrnet.phantom import phantom

        method, pair = self.method_options.spec(self.method).load(), phantom_pair(phantom(self.seed))
        with stage_progress() as stage:
            _, metrics, _ = register_files(stage, pair, method, self.out, report=True, images=True)
        before, after = (metrics["known_motion"][f"end_point_error_mm_{when}"] for when in ("before", "after"))
        print_result(
            metrics,
            [],
            f"Distance from the true motion, in the heart: {before:.2f} mm before, {after:.2f} mm after.",
            f"Look at {self.out / 'report.html'}; the transform and the images are beside it.",
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make the page of a transform by any tool: vrnet, ANTs, SimpleITK, elastix, 3D Slicer.

    The page is what `vrnet register --report` writes. A transform.nii.gz of `vrnet register` is judged as it was found:
    inside the masks, after the affine start and in the matched intensities that metrics.json beside it records.

    Ends with a verdict, as `vrnet register` does.
    """

    transform: args.TransformFile
    """A displacement field, or any ITK transform, from FIXED to MOVING."""
    fixed: args.File
    """The reference image."""
    moving: args.File
    """The image brought to it, as it is on disk."""
    out: Annotated[Path, tyro.conf.arg(metavar="PAGE.html|DIR")]
    """The page to write; or a folder for the page, metrics.json and overview.png."""
    then: args.NextTransforms = ()
    """A transform that points of FIXED go through next; may be repeated."""
    labels: args.Group[args.LabelOptions]
    conditions: args.Group[args.EvaluationOptions]

    def run(self) -> None:
        from vrnet.app.pair_files import METRICS, TRANSFORM, PairRecord, metrics_of, notes_on, read_pair
        from vrnet.files import check_file, check_not_input, check_set, own_files, replace_set, write_json
        from vrnet.images.transforms import load_chain
        from vrnet.registration.images import check_pair
        from vrnet.report import OVERVIEW, REPORT
        from vrnet.report.figures import write_overview
        from vrnet.report.page import write_report

        record = PairRecord()
        if not (self.then or self.conditions.ignore_recorded):
            record = PairRecord.beside(self.transform, self.fixed, self.moving)
        maps = self.labels.files | record.masks(vars(self.conditions.masks))
        transforms, is_page = (self.transform, *self.then), self.out.suffix == ".html"
        written = [self.out] if is_page else [self.out / name for name in (REPORT, OVERVIEW, METRICS)]
        names = [path.name for path in written]
        check_not_input(written, (*transforms, self.fixed, self.moving, *maps.values()))
        if is_page:
            check_file(self.out, (".html",))
        else:
            check_set(self.out, names)
            if TRANSFORM in own_files(self.out):
                raise BadInput(f"{self.out} holds a registration, whose files stay as they are: name a page, such as "
                               f"{self.out}.html")  # fmt: skip
        with stage_progress() as stage:
            stage("reading")
            pair = read_pair(self.fixed, self.moving, **maps).with_label_names(self.labels.label_names)
            check_pair(pair.fixed, pair.moving, must_overlap=False)
            transform = load_chain(transforms, pair.fixed.grid)
            stage("measuring")
            name = ", then ".join(path.name for path in transforms)
            result = record.result(pair, transform, name, self.transform)
            metrics = metrics_of(result, "report")
            stage("writing")
            if is_page:
                write_report(self.out, result, metrics)
            else:
                with replace_set(self.out, names) as staged:
                    write_json(metrics, staged / METRICS)
                    write_report(staged / REPORT, result, metrics)
                    write_overview(staged / OVERVIEW, result)
        print_result(metrics, notes_on(result, "report"), f"Wrote {', '.join(map(str, written))}.")
