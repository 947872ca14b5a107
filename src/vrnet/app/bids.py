"""A cohort as BIDS derivatives: DIR/sub-X/sub-X_from-ES_to-ED_mode-image_xfm.nii.gz, and a description of the data set.

`from` and `to` are those of images, as `mode-image` says and as fMRIPrep has it: given to antsApplyTransforms, the
file brings an image of the space `from` to the space `to`. A pair comes with both directions, a cine with that to the
reference frame."""

import re
from dataclasses import replace
from pathlib import Path

from vrnet.app.pair_files import AFFINE, METRICS, TRANSFORM, WARPED
from vrnet.app.pair_files import LABELS as WARPED_LABELS
from vrnet.app.track import LABELS, SEEN, SLICES, STRAIN, SUMMARY, TRANSFORMS, VOLUMES, transform_name
from vrnet.cohort.results import FAILURES
from vrnet.cohort.table import PAIRS, CohortTable, Subject, check_subjects, refuse
from vrnet.images.grid import Grid
from vrnet.images.transforms import Transform
from vrnet.provenance import __version__
from vrnet.report import CURVES, GIF, OVERVIEW, REPORT, THUMBNAIL

DESCRIPTION, IGNORE = "dataset_description.json", ".bidsignore"
DESCRIBED = {
    "Name": "Registrations by vrnet",
    "BIDSVersion": "1.9.0",
    "DatasetType": "derivative",
    "GeneratedBy": [{"Name": "vrnet", "Version": __version__}],
}  # what dataset_description.json holds
IGNORED = (
    "cohort.csv", "summary.json", "index.html", f"{FAILURES}/", "**/done.json", "**/*_report.html",
    "**/*_metrics.json", "**/*_metrics.csv", "**/*.png", "**/*.gif",
)  # fmt: skip
"""What a validator need not know."""
LABEL = "sub-"  # how the names of subjects begin
XFM = "{subject}_from-{start}_to-{end}_mode-image_xfm.nii.gz"
NAMES = {
    AFFINE: "{subject}_from-{moving}_to-{fixed}_mode-image_desc-affine_xfm.tfm",
    WARPED: "{subject}_space-{fixed}_desc-warped_image.nii.gz",
    WARPED_LABELS: "{subject}_space-{fixed}_desc-warped_dseg.nii.gz",
    METRICS: "{subject}_desc-registration_metrics.json",
    OVERVIEW: "{subject}_overview.png",
    LABELS: "{subject}_desc-tracked_dseg.nii.gz",
    SEEN: "{subject}_desc-segmented_dseg.nii.gz",
    VOLUMES: "{subject}_desc-volumes_metrics.csv",
    STRAIN: "{subject}_desc-strain_metrics.csv",
    SLICES: "{subject}_desc-slices_metrics.csv",
    SUMMARY: "{subject}_desc-tracking_metrics.json",
    CURVES: "{subject}_strain.png",
    GIF: "{subject}_cine.gif",
    REPORT: "{subject}_report.html",
    THUMBNAIL: "{subject}_thumbnail.png",
}  # of each file but the transforms, whether it is of a pair or of a cine


def as_bids(table: CohortTable) -> CohortTable:
    """The list with subjects named sub-X, of letters and digits; BadInput if two are the same, or one is empty."""
    fault = "whose subject has none of the letters A to Z, a to z and digits that names in BIDS are made of"
    refuse(table, lambda one: label(one.name) == LABEL, fault, "name them otherwise, or leave out `bids`")
    table = replace(table, subjects=tuple(replace(one, name=label(one.name)) for one in table.subjects))
    check_subjects(table)
    return table


def label(name: str) -> str:
    """sub-patient01 of patient_01, and of sub-patient01."""
    return LABEL + re.sub("[^A-Za-z0-9]", "", name.removeprefix(LABEL))


def name_pair(folder: Path, subject: Subject, transform: Transform, moving: Grid) -> None:
    """Give the files of a registration the names of BIDS, and add the transform back, on the grid of moving."""
    phase = re.compile("(?<![A-Za-z0-9])(ED|ES)(?![A-Za-z0-9])")
    told = [found[1] for part in PAIRS.needed if (found := phase.search(Path(subject.files[part]).name))]
    fixed, other = told if len({*told}) == 2 else PAIRS.needed
    rename(folder, subject, TRANSFORM, XFM, start=other, end=fixed)
    back = XFM.format(subject=subject.name, start=fixed, end=other)
    transform.inverse(moving).transform.save(folder / back)
    for name, form in NAMES.items():
        rename(folder, subject, name, form, fixed=fixed, moving=other)


def name_tracking(folder: Path, subject: Subject, reference: int, frames: int) -> None:
    """Give the files of a tracked cine the names of BIDS; a frame is a space, such as frame07."""
    labels = [Path(transform_name(k, frames)).name.partition(".")[0].replace("_", "") for k in range(frames)]
    for k, label in enumerate(labels):
        rename(folder, subject, transform_name(k, frames), XFM, start=label, end=labels[reference])
    (folder / TRANSFORMS).rmdir()
    for name, form in NAMES.items():
        rename(folder, subject, name, form)


def rename(folder: Path, subject: Subject, name: str, form: str, **spaces: str) -> None:
    if (folder / name).exists():
        (folder / name).rename(folder / form.format(subject=subject.name, **spaces))
