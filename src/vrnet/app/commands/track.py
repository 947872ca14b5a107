"""`vrnet track`: the motion of a beating heart, from one frame of a cine to all others."""

from dataclasses import dataclass

from vrnet.app.commands.options import (
    CineFile,
    DeviceOptions,
    Folder,
    Group,
    LabelNamesText,
    MethodOptions,
    Name,
    OptionalFile,
)
from vrnet.app.console import print_line, print_verdict, screen, stage_progress, tracking_table
from vrnet.app.endings import end_if_failed
from vrnet.choices import Slices


@dataclass(frozen=True, kw_only=True)
class Track:
    """Follow a beating heart: find the deformation from one frame of CINE, the reference, to every other.

    CINE is a file of four axes (NIfTI, MHA, NRRD; of three for one slice over time), a sequence of 3D Slicer, or a
    folder with DICOM: a series per slice or one for all, or enhanced multi-frame files.

    Writes in DIR: transforms/frame_00.nii.gz and so on, ITK displacement fields from the reference to each frame;
    summary.json; given labels, those of every frame (labels.nii.gz), volumes.csv, strain.csv and slices.csv; and, if
    asked for a report, a page on which the heart beats (report.html) and pictures. They replace those of an earlier run
    all at once; other files are never replaced. Interrupted, it goes on where it stopped.

    Ends with a verdict: good, look or failed, the reasons, and what to try. Where it is failed, the exit status is 3.
    """

    cine: CineFile
    """The cine: one whole cycle, of which the last frame is followed by the first."""
    out: Folder
    """Folder for the results; made if it is not there."""
    labels: OptionalFile = None
    """Label map of the reference frame: 1 RV, 2 wall of the LV, 3 its cavity, unless --label-names says otherwise; a
    lone label is the wall."""
    frame: int = 0
    """The reference, counted from 0: the frame that the labels belong to. End-diastole is best."""
    label_names: LabelNamesText = None
    """What the labels are, where they are not numbered as in ACDC: RV, Myo (or wall) and LV (or cavity) are known, and
    others are shown under their names; or a known set of names: acdc or ukbb."""
    method: Name = "default"
    """Any name that `vrnet methods` lists. default: short-axis-cine, a model that comes with vrnet, for single slices
    and for stacks tracked slice by slice; Gaussian-LNCC for volumes."""
    slices: Slices = "auto"
    """Of a stack, track each slice within itself, or all together as a volume. auto: each, where slices are at least
    two and a half times as far apart as the voxels within them, or where a 2D model is named."""
    report: bool = False
    """Write a page to look at (report.html), and for slides cine.gif and, given labels, strain.png."""
    method_options: Group[MethodOptions]
    device_options: Group[DeviceOptions]

    def run(self) -> None:
        from vrnet.app.track_files import track_to_folder
        from vrnet.app.track_report import notes_on_tracking, verdict_of
        from vrnet.app.tracking import prepare_tracking
        from vrnet.devices import find_device

        method, device = self.method_options.choose(self.method), self.device_options.device
        find_device(device)  # which fails at once where there is none
        with stage_progress() as stage:
            stage("reading")
            request = prepare_tracking(
                self.cine, method, self.labels, self.frame, self.slices, None, device, self.label_names
            )
            inputs = self.cine, self.labels, self.method_options.weights
            tracking, written = track_to_folder(stage, request, self.out, inputs, report=self.report)
        screen.print(tracking_table(tracking))
        for note in notes_on_tracking(tracking):
            print_line(f"Note: {note}")
        verdict = verdict_of(tracking)
        print_verdict(verdict)
        transforms = sum(name.startswith("transforms/") for name in written)
        others = ", ".join(name for name in written if not name.startswith("transforms/"))
        print_line(f"Wrote {transforms} transforms, {others} in {self.out}.")
        end_if_failed(verdict)
