"""`vrnet register`: the deformation between two images."""

from dataclasses import dataclass
from pathlib import Path

from vrnet.app.commands.options import (
    FixedFile,
    Folder,
    Group,
    LabelNamesText,
    MaskOptions,
    MethodOptions,
    MovingFile,
    Name,
    OptionalFile,
)
from vrnet.app.console import print_line, print_metrics, print_verdict, stage_progress
from vrnet.app.endings import end_if_failed
from vrnet.registration.options import RegistrationOptions


@dataclass(frozen=True, kw_only=True)
class Register:
    """Find the deformation that takes FIXED to MOVING, and bring MOVING to FIXED.

    Images are NIfTI, MHA, NRRD, a folder with one DICOM series, or PNG/JPEG; 2D or 3D, on any grids that overlap in
    space; with --affine, on any grids.

    Writes in DIR: warped.nii.gz, MOVING on the grid of FIXED; transform.nii.gz, an ITK displacement field that
    SimpleITK, ANTs and 3D Slicer read as it is; metrics.json; affine.tfm, given an affine start, which transform.nii.gz
    holds too; warped_labels.nii.gz, given moving labels; and, if asked for a report, a page to look at (report.html)
    and a picture (overview.png). They replace those of an earlier run all at once; other files are never replaced.

    Ends with a verdict: good, look or failed, the reasons, and what to try. Where it is failed, the exit status is 3.
    """

    fixed: FixedFile
    """The reference image. For the beating heart: end-diastole."""
    moving: MovingFile
    """The image to be brought to it. For the beating heart: end-systole."""
    out: Folder
    """Folder for the results; made if it is not there."""
    method: Name = "default"
    """Any name that `vrnet methods` lists. default: short-axis, a model that comes with vrnet, for 2D images and for
    stacks registered slice by slice; Gaussian-LNCC for volumes. For T1 images cut to the hippocampus: hippocampus, or
    hippocampus-template."""
    fixed_labels: OptionalFile = None
    """Label map on the grid of FIXED; with both label maps, Dice and distances are measured."""
    moving_labels: OptionalFile = None
    """Label map on the grid of MOVING, to be brought to FIXED."""
    label_names: LabelNamesText = None
    """What the labels are called in tables, pictures and pages; or a known set of names: acdc, ukbb, hippocampus or
    freesurfer."""
    masks: Group[MaskOptions]
    options: Group[RegistrationOptions]
    report: bool = False
    """Write report.html and overview.png too."""
    method_options: Group[MethodOptions]

    @property
    def images(self) -> tuple[Path, Path, Path | None, Path | None, Path | None, Path | None]:
        """The files of the pair."""
        return self.fixed, self.moving, self.fixed_labels, self.moving_labels, *self.masks.files

    def run(self) -> None:
        from vrnet.app.image_pair import read_pair
        from vrnet.app.notes import notes_on
        from vrnet.app.pair import register_pair
        from vrnet.devices import find_device

        method = self.method_options.choose(self.method)
        find_device(self.options.device)  # which fails at once where there is none
        with stage_progress() as stage:
            stage("reading")
            pair = read_pair(*self.images).with_label_names(self.label_names)
            result, written = register_pair(
                stage,
                pair,
                method,
                self.out,
                self.options,
                report=self.report,
                inputs=(*self.images, self.method_options.weights),
            )
        print_metrics(result.metrics)
        for note in notes_on(pair, result.metrics, result.affine):
            print_line(f"Note: {note}")
        print_verdict(result.metrics["verdict"])
        print_line(f"Wrote {', '.join(path.name for path in written)} in {self.out}.")
        end_if_failed(result.metrics["verdict"])
