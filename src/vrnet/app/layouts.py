"""Folders of subjects in a layout that is known, as a list: ACDC (patient001/Info.cfg) and BIDS (sub-01/…).

In BIDS, a pair is what one file name has as ED and another as ES, such as phase-ED and phase-ES; or, of a subject with
two sessions, the same image of either, the first one fixed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from vrnet.cohort.table import FILES
from vrnet.data.acdc import frame_numbers
from vrnet.errors import BadInput
from vrnet.files import Row, exists, is_folder, write_rows

LIST = "pairs.csv"
ENTITY = re.compile(r"([a-zA-Z0-9]+)-([a-zA-Z0-9]+)")
SUFFIXES = ".nii.gz", ".nii"


def scan_folder(folder: Path) -> list[Row]:
    """The subjects of a folder, as rows of a list with absolute paths."""
    if not is_folder(folder):
        raise BadInput(f"{folder} is no folder: give one in the layout of ACDC or BIDS")
    found = [*scan_acdc(folder)] or [*scan_bids(folder)]
    if not found:
        raise BadInput(
            f"no pairs are found in {folder}: neither patients with an Info.cfg, as in ACDC, nor sub-… with images of "
            "ED and ES, or of two sessions, as in BIDS"
        )
    return found


def scan_acdc(folder: Path) -> Iterator[Row]:
    """Each patient: end-diastole fixed, end-systole moving, with their labels where there are any."""
    for place in sorted(path.parent for path in folder.glob("*/Info.cfg")):
        frames = [place / f"{place.name}_frame{number:02d}" for number in frame_numbers(place)]
        files = {part: Path(f"{frame}.nii.gz") for part, frame in zip(("fixed", "moving"), frames, strict=True)}
        labels = {f"{part}_labels": Path(f"{frame}_gt.nii.gz") for part, frame in zip(files, frames, strict=True)}
        given = labels if all(map(exists, labels.values())) else {}
        yield {"subject": place.name, **files, **given}


def scan_bids(folder: Path) -> Iterator[Row]:
    """Each subject, with its session in the name where pairs lie within sessions."""
    for subject in sorted(path for path in folder.glob("sub-*") if path.is_dir()):
        images = [path for path in sorted(subject.rglob("*")) if path.name.endswith(SUFFIXES)]
        pairs = [*pairs_of_phases(images)] or [*pairs_of_sessions(images)]
        for name, fixed, moving in pairs:
            yield {"subject": name if len(pairs) > 1 else subject.name, "fixed": fixed, "moving": moving}


def pairs_of_phases(images: list[Path]) -> Iterator[tuple[str, Path, Path]]:
    """(name, fixed, moving) of images whose names differ in that an entity is ED here and ES there."""
    by_name = {path.name: path for path in images}
    for path in images:
        for entity, value in ENTITY.findall(path.name):
            other = by_name.get(path.name.replace(f"{entity}-{value}", f"{entity}-ES", 1))
            if value == "ED" and other is not None:
                yield stem(path).replace(f"_{entity}-{value}", ""), path, other


def pairs_of_sessions(images: list[Path]) -> Iterator[tuple[str, Path, Path]]:
    """(name, fixed, moving) of images that are there in exactly two sessions."""
    kinds: dict[str, list[Path]] = {}
    for path in images:
        kinds.setdefault(re.sub("_ses-[a-zA-Z0-9]+", "", stem(path)), []).append(path)
    for name, found in kinds.items():
        if len(found) == 2 and all("ses-" in path.name for path in found):
            yield name, found[0], found[1]


def stem(path: Path) -> str:
    """The name of a file without the endings of NIfTI."""
    return path.name.removesuffix(".gz").removesuffix(".nii")


def write_pairs(rows: list[Row], folder: Path) -> Path:
    """Write the list in a folder, with paths relative to it; BadInput where there is one, which may be edited."""
    path = folder / LIST
    if exists(path):
        raise BadInput(f"{path} is there, and may have been edited: move it away, or choose another folder")
    parts = [part for part in FILES if any(part in row for row in rows)]
    base = folder.absolute()
    lines = [
        {
            "subject": row["subject"],
            **{part: os.path.relpath(row[part].absolute(), base) for part in parts if part in row},
        }
        for row in rows
    ]
    write_rows(lines, path)
    return path
