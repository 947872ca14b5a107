"""A cohort as BIDS derivatives: DIR/sub-X/sub-X_from-ES_to-ED_mode-image_xfm.nii.gz, and a description of the data set.

`from` and `to` are those of images, as `mode-image` says and as fMRIPrep has it: given to antsApplyTransforms, the file
brings an image of the space `from` to the space `to`. A pair comes with both directions, a cine with that to the
reference frame."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vrnet.app.pair import AFFINE, METRICS, OVERVIEW, TRANSFORM, WARPED
from vrnet.app.pair import LABELS as WARPED_LABELS
from vrnet.app.track_files import LABELS, SLICES, STRAIN, SUMMARY, TRANSFORMS, VOLUMES, transform_name
from vrnet.app.track_report import CURVES, FILM, PAGE
from vrnet.cohort.records import FAILURES
from vrnet.cohort.table import CohortTable, Subject, check_subjects, refuse
from vrnet.images.grid import Grid
from vrnet.images.transform import Transform
from vrnet.provenance import __version__
from vrnet.report.thumbnail import THUMBNAIL

BIDS_VERSION = "1.9.0"
DESCRIPTION, IGNORE = "dataset_description.json", ".bidsignore"
IGNORED = f"""\
cohort.csv
summary.json
index.html
{FAILURES}/
**/done.json
**/*_report.html
**/*_metrics.json
**/*_metrics.csv
**/*.png
**/*.gif
"""
"""What a validator need not know."""
LABEL = "sub-"
"""How the names of subjects begin."""
PHASE = re.compile("(?<![A-Za-z0-9])(ED|ES)(?![A-Za-z0-9])")
"""A phase of the heart in a file name."""
XFM = "{subject}_from-{start}_to-{end}_mode-image_xfm.nii.gz"
NAMES = {
    AFFINE: "{subject}_from-{moving}_to-{fixed}_mode-image_desc-affine_xfm.tfm",
    WARPED: "{subject}_space-{fixed}_desc-warped_image.nii.gz",
    WARPED_LABELS: "{subject}_space-{fixed}_desc-warped_dseg.nii.gz",
    METRICS: "{subject}_desc-registration_metrics.json",
    OVERVIEW: "{subject}_overview.png",
    LABELS: "{subject}_desc-tracked_dseg.nii.gz",
    VOLUMES: "{subject}_desc-volumes_metrics.csv",
    STRAIN: "{subject}_desc-strain_metrics.csv",
    SLICES: "{subject}_desc-slices_metrics.csv",
    SUMMARY: "{subject}_desc-tracking_metrics.json",
    CURVES: "{subject}_strain.png",
    FILM: "{subject}_cine.gif",
    PAGE: "{subject}_report.html",
    THUMBNAIL: "{subject}_thumbnail.png",
}
"""Of each file but the transforms, whether it is of a pair or of a cine."""


def as_bids(table: CohortTable) -> CohortTable:
    """The list with its subjects named as BIDS has them, sub-X, where X is letters and digits; BadInput if two are then
    the same, or one has neither."""
    refuse(
        table.subjects,
        lambda one: label(one.name) == LABEL,
        table.path,
        "whose subject has none of the letters A to Z, a to z and digits that names in BIDS are made of",
        "name them otherwise, or leave out `bids`",
    )
    subjects = tuple(replace(one, name=label(one.name)) for one in table.subjects)
    check_subjects(subjects, table.path, table.kind)
    return replace(table, subjects=subjects)


def label(name: str) -> str:
    """sub-patient01 of patient_01, and of sub-patient01."""
    return LABEL + re.sub("[^A-Za-z0-9]", "", name.removeprefix(LABEL))


def name_pair(folder: Path, subject: Subject, transform: Transform, moving: Grid) -> None:
    """Give the files of a registration the names of BIDS, and add the transform back, on the grid of moving."""
    ends = spaces_of(subject)
    rename(folder, subject, TRANSFORM, XFM, start=ends[1], end=ends[0])
    back = XFM.format(subject=subject.name, start=ends[0], end=ends[1])
    transform.inverse(moving).transform.save(folder / back)
    for name, form in NAMES.items():
        rename(folder, subject, name, form, fixed=ends[0], moving=ends[1])


def name_tracking(folder: Path, subject: Subject, reference: int, frames: int) -> None:
    """Give the files of a tracked cine the names of BIDS; a frame is a space, such as frame07."""
    labels = [Path(transform_name(k, frames)).name.partition(".")[0].replace("_", "") for k in range(frames)]
    for k, label in enumerate(labels):
        rename(folder, subject, transform_name(k, frames), XFM, start=label, end=labels[reference])
    (folder / TRANSFORMS).rmdir()
    for name, form in NAMES.items():
        rename(folder, subject, name, form)


def rename(folder: Path, subject: Subject, name: str, form: str, **spaces: str) -> None:
    """Give a file the name that a form makes, if it is there."""
    if (folder / name).exists():
        (folder / name).rename(folder / form.format(subject=subject.name, **spaces))


def spaces_of(subject: Subject) -> tuple[str, str]:
    """ED and ES where the names of the files say so; else fixed and moving."""
    found = [PHASE.search(Path(subject.files[part]).name) for part in ("fixed", "moving")]
    phases = tuple(match[1] for match in found if match)
    return (phases[0], phases[1]) if len(set(phases)) == 2 else ("fixed", "moving")


def description() -> dict[str, Any]:
    """What dataset_description.json holds."""
    made_by = {"Name": "vrnet", "Version": __version__}
    return {
        "Name": "Registrations by vrnet",
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [made_by],
    }
