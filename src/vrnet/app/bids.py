"""A cohort as BIDS derivatives: DIR/sub-X/sub-X_from-ES_to-ED_mode-image_xfm.nii.gz, and a description of the data set.

`from` and `to` are those of images, as `mode-image` says in BIDS: the transform brings images of moving to fixed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vrnet.app.pair import AFFINE, LABELS, METRICS, OVERVIEW, REPORT, TRANSFORM, WARPED
from vrnet.cohort.table import CohortTable, Subject, check_subjects
from vrnet.provenance import __version__
from vrnet.report.thumbnail import THUMBNAIL

BIDS_VERSION = "1.9.0"
DESCRIPTION, IGNORE = "dataset_description.json", ".bidsignore"
IGNORED = (
    "cohort.csv\nsummary.json\nindex.html\nfailures/\n**/done.json\n**/*_report.html\n**/*.png\n**/*_metrics.json\n"
)
"""What a validator need not know."""
PHASE = re.compile("(?<![A-Za-z0-9])(ED|ES)(?![A-Za-z0-9])")
"""A phase of the heart in a file name."""
NAMES = {
    TRANSFORM: "{subject}_from-{moving}_to-{fixed}_mode-image_xfm.nii.gz",
    AFFINE: "{subject}_from-{moving}_to-{fixed}_mode-image_desc-affine_xfm.tfm",
    WARPED: "{subject}_space-{fixed}_desc-warped_image.nii.gz",
    LABELS: "{subject}_space-{fixed}_desc-warped_dseg.nii.gz",
    METRICS: "{subject}_desc-registration_metrics.json",
    REPORT: "{subject}_report.html",
    OVERVIEW: "{subject}_overview.png",
    THUMBNAIL: "{subject}_thumbnail.png",
}


def as_bids(table: CohortTable) -> CohortTable:
    """The list with its subjects named as BIDS has them, sub-X, where X is letters and digits; BadInput if two are then
    the same."""
    subjects = tuple(replace(one, name=label(one.name)) for one in table.subjects)
    check_subjects(subjects, table.path)
    return replace(table, subjects=subjects)


def label(name: str) -> str:
    """sub-patient01 of patient_01, and of sub-patient01."""
    return f"sub-{re.sub('[^A-Za-z0-9]', '', name.removeprefix('sub-'))}"


def rename_results(folder: Path, subject: Subject) -> None:
    """Give the files of a registration the names of BIDS."""
    spaces = dict(zip(("fixed", "moving"), spaces_of(subject), strict=True))
    for name, form in NAMES.items():
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
