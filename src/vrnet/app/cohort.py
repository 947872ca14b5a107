"""`vrnet cohort`: many subjects, on this machine or on a cluster."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vrnet.app import arguments as args
from vrnet.app.console import print_line
from vrnet.errors import BadInput, counted, some
from vrnet.vocabulary import RegistrationOptions

if TYPE_CHECKING:
    from vrnet.files import Row

WHOLE = "1/1"  # the shard that is all of a list


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Register, or track, every subject of a list, and say which to look at.

    LIST.csv has one row per subject. Pairs: columns subject, fixed and moving, optionally fixed_labels, moving_labels,
    fixed_mask and moving_mask. Cines: columns subject and cine, optionally labels, which the network finds otherwise,
    and their frame, from 0. Further columns, such as group, are kept. Paths are relative to the file.

    Writes in DIR: subjects/NAME, as `vrnet register` or `vrnet track` does; failures/NAME.json and NAME.txt, with the
    traceback; cohort.csv, one row per subject; summary.json; and index.html, which ranks the subjects by how much they
    need a look.

    It may be stopped at any moment and started again: what is done is not repeated, unless its method, parameters,
    version or inputs changed. The exit status is 0 if every subject is done, whatever the verdicts; 3 if not.
    """

    list_file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="LIST.csv")] = None
    """The list of subjects."""
    out: args.Folder
    """Folder for the results; made if it is not there."""
    scan: args.OptionalFolder = None
    """Only write the list of a folder in the layout of ACDC or BIDS: DIR/pairs.csv or DIR/cines.csv."""
    cines: bool = False
    """With --scan: list the cines, also where there are pairs of ED and ES."""
    dry_run: bool = False
    """Say what is done, what would be done and what is missing; do nothing."""
    retry: bool = False
    """Try failed subjects again."""
    keep: bool = False
    """Replace no result: end with status 2 if one would be."""
    skip_broken: bool = False
    """Go on if files of the list are missing: those subjects fail. Otherwise nothing is done."""
    jobs: args.Jobs = 1
    """So many subjects at a time, each in a process with one thread (needs vrnet[cluster])."""
    scheduler: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS|FILE")] = None
    """A Dask scheduler, such as tcp://host:8786, or the file that it wrote; workers must see the images and DIR."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N")] = WHOLE
    """Do every N-th subject from the I-th on, for array jobs that share a list without Dask."""
    bids: bool = False
    """Name results as BIDS derivatives. Pairs also get the transform back."""
    method: args.Name = "default"
    """Any name that `vrnet methods` lists."""
    label_names: args.LabelNamesText = None
    """What the labels are called; SET: acdc, ukbb, hippocampus or freesurfer. For cines, which are RV, Myo and LV."""
    options: args.Group[RegistrationOptions]
    report: bool = False
    """Write the page and the pictures of each subject."""
    method_options: args.Group[args.MethodOptions]

    def run(self) -> None:
        from vrnet.files import is_folder

        if self.scan is not None:
            if self.list_file is not None:
                raise BadInput("a list and a folder to be scanned cannot be given at once: leave out one")
            others = {*args.changed_fields(self)} - {"out", "scan", "cines"}
            args.refuse_options(self, others, "on a folder that is listed: give that with the list")
            write_list(scan_folder(self.scan, self.cines), self.out)
        elif self.list_file is None:
            raise BadInput("there is no list of subjects: give LIST.csv, or --scan FOLDER to have one written")
        elif is_folder(self.list_file):
            raise BadInput(f"{self.list_file} is a folder: --scan {self.list_file} writes the list of its subjects")
        elif self.cines:
            raise BadInput("`cines` is for a folder that is scanned: whether a list is of cines, its columns say")
        else:
            from vrnet.app.subject import run_list

            run_list(self, self.list_file)


def scan_folder(folder: Path, cines: bool = False) -> "list[Row]":
    """The subjects of a folder as rows with absolute paths: pairs; cines if asked for, or where nobody has pairs."""
    ways = [scan_acdc, scan_bids]
    found = (way(folder, is_cine) for is_cine in ([True] if cines else [False, True]) for way in ways)
    if rows := next(filter(None, found), None):
        return rows
    raise BadInput(
        f"no {'cines' if cines else 'pairs or cines'} are found in the folder {folder}: neither patients as in ACDC "
        "(patient001/Info.cfg, patient001_4d.nii.gz), nor sub-… with images of ED and ES, of two sessions, or "
        "…_cine.nii.gz of four axes, as in BIDS"
    )


def scan_acdc(folder: Path, cines: bool) -> "list[Row]":
    """In ACDC's layout, patient001/Info.cfg: pairs of ED, fixed, and ES, moving, also without images, so that these are
    missed; none where nobody has images. Or cines, with the labels of ED."""
    from vrnet.data.dataset import frame_numbers, read_info
    from vrnet.files import exists

    pairs, found = [], []
    for place in sorted({path.parent for path in (*folder.glob("*/Info.cfg"), *folder.glob("*/*_4d.nii.gz"))}):
        row: Row = {"subject": place.name}
        cine, frames = place / f"{place.name}_4d.nii.gz", [1]
        if info := read_info(place):
            frames, row["group"] = [*frame_numbers(place)], info.get("Group")
            images, labels = (
                [place / f"{place.name}_frame{number:02d}{end}.nii.gz" for number in frames] for end in ("", "_gt")
            )
            maps = zip(("fixed_labels", "moving_labels"), labels, strict=True) if all(map(exists, labels)) else ()
            pairs.append({**row, **dict(zip(("fixed", "moving"), images, strict=True)), **dict(maps)})
            row |= {"frame": frames[0] - 1} | ({"labels": labels[0]} if exists(labels[0]) else {})
        if exists(cine):
            found.append({**row, "cine": cine})
    return found if cines else pairs if any(exists(row[part]) for row in pairs for part in ("fixed", "moving")) else []


def scan_bids(folder: Path, cines: bool) -> "list[Row]":
    """In BIDS: two files whose names differ in that an entity is ED here and ES there, or else the same image of two
    sessions. Or cines: images of four axes whose names end in _cine."""
    from vrnet.cohort.table import CINES, PAIRS
    from vrnet.images.io import read_voxels

    rows: list[Row] = []
    for subject in sorted(path for path in folder.glob("sub-*") if path.is_dir()):
        images = {path: path.name.removesuffix(".gz").removesuffix(".nii") for path in sorted(subject.rglob("*.nii*"))}
        found: dict[str, tuple[Path, ...]] = {}
        for path, name in images.items():
            if cines and name.endswith("_cine"):
                with suppress(BadInput):
                    if len(read_voxels(path, with_voxels=False).grid.shape) == 4:
                        found[name] = (path,)
            for entity in [] if cines else re.findall("([a-zA-Z0-9]+)-ED(?![a-zA-Z0-9])", name):
                for other in (
                    other for other in images if images[other] == name.replace(f"{entity}-ED", f"{entity}-ES", 1)
                ):
                    found[name.replace(f"_{entity}-ED", "")] = path, other
        if not cines and not found:
            for path, name in images.items():
                key = re.sub("_ses-[a-zA-Z0-9]+", "", name)
                found[key] = (*found.get(key, ()), *([path] if "ses-" in name else []))
            found = {name: files for name, files in found.items() if len(files) == 2}
        for name, files in found.items():
            columns = (CINES if cines else PAIRS).needed
            rows.append({"subject": name if len(found) > 1 else subject.name, **dict(zip(columns, files, strict=True))})
    return rows


def write_list(rows: "list[Row]", folder: Path) -> None:
    """Write the list in a folder, with paths relative to it; BadInput where there is one, which may be edited."""
    from vrnet.cohort.table import CINES, PAIRS, find_missing, read_table
    from vrnet.files import exists, write_rows

    kind = CINES if "cine" in rows[0] else PAIRS
    path, base = folder / f"{kind.noun}.csv", folder.absolute()
    if exists(path):
        raise BadInput(f"{path} is there, and may have been edited: move it away, or choose another folder")
    columns = [column for column in (*kind.columns, "group") if any(row.get(column) is not None for row in rows)]
    cells = ({column: row.get(column) for column in columns} for row in rows)
    write_rows([
        {key: os.path.relpath(cell.absolute(), base) if isinstance(cell, Path) else cell for key, cell in line.items()}
        for line in cells
    ], path)  # fmt: skip
    print_line(f"Wrote {path}: {counted(len(rows), 'subject')}. Look at it, then: vrnet cohort {path} --out {folder}")
    print_line(*missing_lines(find_missing(read_table(path).subjects), skip_broken=False))


def missing_lines(missing: Mapping[str, str], skip_broken: bool) -> Iterator[str]:
    """The files of a list that are not there, and what to do about them unless they are skipped."""
    if missing:
        yield f"Missing, of {some([f'{name}: {file}' for name, file in missing.items()])}"
    if missing and not skip_broken:
        yield "Correct the list, or give --skip-broken with it, which makes failures of them."
