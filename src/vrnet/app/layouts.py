"""Folders of subjects in a layout that is known, as a list: ACDC (patient001/Info.cfg) and BIDS (sub-01/…).

In BIDS, a pair is what one file name has as ED and another as ES, such as phase-ED and phase-ES; or, of a subject with
two sessions, the same image of either, the first one fixed. A cine is PATIENT_4d.nii.gz in ACDC, and in BIDS an image
of four axes whose name ends in _cine."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vrnet.app.pair_files import AFFINE, METRICS, TRANSFORM, WARPED
from vrnet.app.pair_files import LABELS as WARPED_LABELS
from vrnet.app.track import LABELS, SEEN, SLICES, STRAIN, SUMMARY, TRANSFORMS, VOLUMES, transform_name
from vrnet.cohort.results import FAILURES
from vrnet.cohort.table import CINES, PAIRS, CohortTable, Subject, check_subjects, refuse
from vrnet.data.dataset import frame_numbers, read_info
from vrnet.errors import BadInput
from vrnet.files import Row, exists, write_rows
from vrnet.images.grid import Grid
from vrnet.images.io import read_voxels
from vrnet.images.transforms import Transform
from vrnet.provenance import __version__
from vrnet.report import CURVES, GIF, OVERVIEW, REPORT, THUMBNAIL

GROUP = "group"
"""The column of ACDC's groups, which pages compare."""


def scan_folder(folder: Path, cines: bool = False) -> list[Row]:
    """The subjects of a folder, as rows with absolute paths: pairs; cines if asked for, or where there are no pairs."""
    pairs = [] if cines else scan_acdc(folder) or [*scan_bids(folder)]
    if found := pairs or [*scan_acdc_cines(folder)] or [*scan_bids(folder, cines=True)]:
        return found
    raise BadInput(
        f"no {'cines' if cines else 'pairs or cines'} are found in the folder {folder}: neither patients as in ACDC "
        "(patient001/Info.cfg, patient001_4d.nii.gz), nor sub-… with images of ED and ES, of two sessions, or "
        "…_cine.nii.gz of four axes, as in BIDS"
    )


def scan_acdc(folder: Path) -> list[Row]:
    """Each patient, also without images, so that it is missed: end-diastole fixed, end-systole moving, with labels if
    there are any. None where nobody has images, but cines."""
    rows: list[Row] = []
    for place in sorted(path.parent for path in folder.glob("*/Info.cfg")):
        frames = [place / f"{place.name}_frame{number:02d}" for number in frame_numbers(place)]
        files = {part: Path(f"{frame}.nii.gz") for part, frame in zip(PAIRS.needed, frames, strict=True)}
        labels = {f"{part}_labels": Path(f"{frame}_gt.nii.gz") for part, frame in zip(files, frames, strict=True)}
        labels = labels if all(map(exists, labels.values())) else {}
        rows.append({"subject": place.name, **files, **labels, GROUP: read_info(place).get("Group")})
    return rows if any(exists(row[part]) for row in rows for part in PAIRS.needed) else []


def scan_acdc_cines(folder: Path) -> Iterator[Row]:
    """Each patient's cine; with the labels of end-diastole, where Info.cfg and these are there."""
    for path in sorted(folder.glob("*/*_4d.nii.gz")):
        row: Row = {"subject": path.parent.name, "cine": path}
        if exists(path.parent / "Info.cfg"):
            number = frame_numbers(path.parent)[0]
            labels = path.with_name(f"{path.parent.name}_frame{number:02d}_gt.nii.gz")
            row |= {"labels": labels} if exists(labels) else {}
            row |= {"frame": number - 1, GROUP: read_info(path.parent).get("Group")}
        yield row


def scan_bids(folder: Path, cines: bool = False) -> Iterator[Row]:
    """The pairs, or the cines, of each subject, by its name; where it has more, by the names of the files."""
    for subject in sorted(path for path in folder.glob("sub-*") if path.is_dir()):
        images = [path for path in sorted(subject.rglob("*")) if path.name.endswith((".nii.gz", ".nii"))]
        by_name = {path.name: path for path in images}
        found: dict[str, tuple[Path, ...]] = {}
        if cines:
            for path in (path for path in images if stem(path).endswith("_cine")):
                with suppress(BadInput):
                    if len(read_voxels(path, with_voxels=False).grid.shape) == 4:
                        found[stem(path)] = (path,)
        else:
            for path in images:  # whose names differ in that an entity, such as phase, is ED here and ES there
                for entity in re.findall("([a-zA-Z0-9]+)-ED(?![a-zA-Z0-9])", path.name):
                    other = by_name.get(path.name.replace(f"{entity}-ED", f"{entity}-ES", 1))
                    if other is not None:
                        found[stem(path).replace(f"_{entity}-ED", "")] = path, other
        if not cines and not found:
            for path in images:  # that are there in exactly two sessions
                if "ses-" in path.name:
                    name = re.sub("_ses-[a-zA-Z0-9]+", "", stem(path))
                    found[name] = *found.get(name, ()), path
            found = {name: files for name, files in found.items() if len(files) == 2}
        for name, files in found.items():
            columns = CINES.needed if cines else PAIRS.needed
            yield {"subject": name if len(found) > 1 else subject.name, **dict(zip(columns, files, strict=True))}


def stem(path: Path) -> str:
    """The name of a file without the endings of NIfTI."""
    return path.name.removesuffix(".gz").removesuffix(".nii")


def write_scanned(rows: list[Row], folder: Path) -> Path:
    """Write the list in a folder, with paths relative to it; BadInput where there is one, which may be edited."""
    kind = CINES if "cine" in rows[0] else PAIRS
    path, base = folder / f"{kind.noun}.csv", folder.absolute()
    if exists(path):
        raise BadInput(f"{path} is there, and may have been edited: move it away, or choose another folder")
    columns = [column for column in (*kind.columns, GROUP) if any(row.get(column) is not None for row in rows)]
    lines = [{column: row.get(column) for column in columns} for row in rows]
    for line in lines:
        line |= {key: os.path.relpath(cell.absolute(), base) for key, cell in line.items() if isinstance(cell, Path)}
    write_rows(lines, path)
    return path


# A cohort as BIDS derivatives: DIR/sub-X/sub-X_from-ES_to-ED_mode-image_xfm.nii.gz, and a description of the data set.
#
# `from` and `to` are those of images, as `mode-image` says and as fMRIPrep has it: given to antsApplyTransforms, the
# file brings an image of the space `from` to the space `to`. A pair comes with both directions, a cine with that to
# the reference frame.

DESCRIPTION, IGNORE = "dataset_description.json", ".bidsignore"
DESCRIBED = {
    "Name": "Registrations by vrnet",
    "BIDSVersion": "1.9.0",
    "DatasetType": "derivative",
    "GeneratedBy": [{"Name": "vrnet", "Version": __version__}],
}
"""What dataset_description.json holds."""
IGNORED = (
    "cohort.csv", "summary.json", "index.html", f"{FAILURES}/", "**/done.json", "**/*_report.html",
    "**/*_metrics.json", "**/*_metrics.csv", "**/*.png", "**/*.gif",
)  # fmt: skip
"""What a validator need not know."""
LABEL = "sub-"
"""How the names of subjects begin."""
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
}
"""Of each file but the transforms, whether it is of a pair or of a cine."""


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
    """Give a file the name that a form makes, if it is there."""
    if (folder / name).exists():
        (folder / name).rename(folder / form.format(subject=subject.name, **spaces))
