"""`vrnet track`: the motion of a beating heart, from one frame of a cine to all others."""

from dataclasses import dataclass

from vrnet.app.arguments import (
    CineFile,
    DeviceOptions,
    Folder,
    Group,
    LabelNamesText,
    MethodOptions,
    Name,
    OptionalFile,
)
from vrnet.app.console import STOPPED, end_if_failed, print_line, print_verdict, screen, stage_progress, tracking_table
from vrnet.errors import counted
from vrnet.vocabulary import Slices


@dataclass(frozen=True, kw_only=True)
class Track:
    """Follow a beating heart: find the deformation from one frame of CINE, the reference, to every other.

    Writes in DIR transforms/frame_00.nii.gz and so on, and summary.json; given labels, also labels.nii.gz, volumes.csv,
    strain.csv and slices.csv. Results of an earlier run are replaced, other files never. Interrupted, it goes on where
    it stopped.

    Ends with a verdict: good, look or failed, the reasons, and what to try. Where it is failed, the exit status is 3.

    docs/cine.md says more of inputs, labels, methods and files.
    """

    cine: CineFile
    """One whole cycle: NIfTI, MHA, NRRD or DICOM."""
    out: Folder
    """Folder for the results; made if it is not there."""
    labels: OptionalFile = None
    """Label map of the reference: 1 RV, 2 wall, 3 cavity."""
    report: bool = False
    """Write a page on which the heart beats, and pictures."""
    frame: int = 0
    """The reference, from 0: best end-diastole."""
    label_names: LabelNamesText = None
    """What the labels are, if not as above; SET: acdc, ukbb."""
    method: Name = "default"
    """Any name that `vrnet methods` lists."""
    slices: Slices = "auto"
    """Track each slice by itself, or all together."""
    method_options: Group[MethodOptions]
    device_options: Group[DeviceOptions]

    def run(self) -> None:
        from vrnet.app.cine import has_kept_steps, notes_on_tracking, prepare_tracking, track_to_folder, verdict_of
        from vrnet.devices import find_device

        method, device = self.method_options.choose(self.method), self.device_options.device
        find_device(device)  # which fails at once where there is none
        with stage_progress() as stage:
            stage("reading")
            request = prepare_tracking(
                self.cine, method, self.labels, self.frame, self.slices, None, device, self.label_names
            )
            inputs = self.cine, self.labels, self.method_options.weights
            try:
                tracking, written = track_to_folder(stage, request, self.out, inputs, report=self.report)
            except KeyboardInterrupt:
                if has_kept_steps(self.out):
                    print_line(STOPPED)
                raise
        screen.print(tracking_table(tracking))
        for note in notes_on_tracking(tracking):
            print_line(f"Note: {note}")
        verdict = verdict_of(tracking)
        print_verdict(verdict)
        transforms = sum(name.startswith("transforms/") for name in written)
        others = ", ".join(name for name in written if not name.startswith("transforms/"))
        print_line(f"Wrote {counted(transforms, 'transform')}, {others} in {self.out}.")
        end_if_failed(verdict)
