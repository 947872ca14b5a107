"""`vrnet report`: the page of a transform by any tool."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vrnet.app.commands.options import (
    File,
    Group,
    JudgedOptions,
    LabelNamesText,
    NextTransforms,
    OptionalFile,
    TransformFile,
)
from vrnet.app.console import print_line, print_metrics, print_verdict, stage_progress
from vrnet.app.endings import end_if_failed


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make the page of a transform by any tool: vrnet, ANTs, SimpleITK, elastix, 3D Slicer.

    The page is what `vrnet register --report` writes. It opens from disk, and holds all that it shows. Given a folder,
    metrics.json and overview.png are written beside it.

    Inside masks it judges as `vrnet register` does. Those that a transform.nii.gz of `vrnet register` was found with
    need not be given again: metrics.json beside it says where they are. It also says whether there was an affine start,
    and whether intensities were matched: the page is then made as `vrnet register` made it. --ignore-recorded uses
    nothing of this.

    Ends with a verdict, as `vrnet register` does: where it is failed, the exit status is 3.
    """

    transform: TransformFile
    """A displacement field, or any ITK transform, from FIXED to MOVING."""
    fixed: File
    """The reference image."""
    moving: File
    """The image brought to it, as it is on disk."""
    out: Annotated[Path, tyro.conf.arg(metavar="PAGE.html|DIR")]
    """The page to write; or a folder for the page, metrics.json and overview.png, made if it is not there."""
    then: NextTransforms = ()
    """A transform that points of FIXED go through next; may be repeated. (antsApplyTransforms lists the same ones the
    other way round.)"""
    fixed_labels: OptionalFile = None
    """Label map on the grid of FIXED; with both label maps, Dice and distances are measured."""
    moving_labels: OptionalFile = None
    """Label map on the grid of MOVING."""
    label_names: LabelNamesText = None
    """What the labels are called; or a known set of names: acdc, ukbb, hippocampus or freesurfer."""
    judged: Group[JudgedOptions]

    def run(self) -> None:
        from vrnet.app.conditions import NOTHING_KNOWN
        from vrnet.app.image_pair import read_pair
        from vrnet.app.notes import notes_on, unmatched_notes
        from vrnet.app.reported import check_place, report_transform

        masks = self.judged.mask_files(self.transform, self.fixed, self.moving)
        images = self.fixed, self.moving, self.fixed_labels, self.moving_labels, *masks
        check_place(self.out, (self.transform, *self.then, *images))
        with stage_progress() as stage:
            stage("reading")
            pair = read_pair(*images).with_label_names(self.label_names)
            known = NOTHING_KNOWN
            if not self.then:
                known = self.judged.conditions(self.transform, self.fixed, self.moving, pair.fixed.grid)
            result, written = report_transform(stage, pair, (self.transform, *self.then), self.out, known)
        print_metrics(result.metrics)
        notes = notes_on(pair, result.metrics, known.affine, command="report")
        for note in notes + unmatched_notes(pair, result.unmatched):
            print_line(f"Note: {note}")
        print_verdict(result.metrics["verdict"])
        print_line(f"Wrote {', '.join(map(str, written))}.")
        end_if_failed(result.metrics["verdict"])
