"""ACDC in its official folders, under the paper's 2D protocol: end-systole (moving) to end-diastole (fixed)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from vrnet.data.reading import read_labels, read_phases
from vrnet.data.sample import Purpose, Sample
from vrnet.data.short_axis import SIZE, SPACING, STRUCTURES, Plane, all_slices, three_slices
from vrnet.data.splits import listed
from vrnet.errors import BadInput
from vrnet.images.image import Image

__all__ = ["ACDC", "SIZE", "STRUCTURES", "prepare", "subjects"]


@dataclass(frozen=True)
class ACDC:
    """2D pairs: of three slices to be measured on, of all to be trained on."""

    root: Path
    split_file: Path | None = None
    slices: Literal["all", "three"] = "all"
    """Those that are trained on."""
    spacing: float = SPACING
    size: int = SIZE

    name = "acdc"
    structures = STRUCTURES
    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        """The patients of a split."""
        return listed(self.split_file or self.root / "split.csv", split)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The masks too, whatever the purpose: the official folders have them, so one that lacks is a damaged copy."""
        return official(self.root / subject)

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One patient: read, resample, choose slices, scale."""
        images, masks = read_patient(self.root / subject)
        plane = Plane(self.spacing, self.size)
        if purpose == "training" and self.slices == "all":
            return all_slices(subject, images, plane)
        chosen = three_slices(subject, images, masks, plane)
        return chosen if purpose == "evaluation" else Sample(subject, chosen.fixed, chosen.moving, chosen.spacing)


class Patient(NamedTuple):
    """End-diastole first."""

    images: list[Image]
    masks: list[Image]


def read_patient(folder: Path) -> Patient:
    """Both phases of a patient, with their masks."""
    frames = [folder / f"{folder.name}_frame{number:02d}" for number in phases(folder)]
    images = read_phases([Path(f"{frame}.nii.gz") for frame in frames])
    pairs = zip(frames, images, strict=True)
    return Patient(images, [read_labels(Path(f"{frame}_gt.nii.gz"), image) for frame, image in pairs])


def official(folder: Path) -> list[Path]:
    """The files of a patient's folder that are used."""
    frames = [folder / f"{folder.name}_frame{number:02d}" for number in phases(folder)]
    return [folder / "Info.cfg", *(Path(f"{frame}{end}.nii.gz") for frame in frames for end in ("", "_gt"))]


def phases(folder: Path) -> tuple[int, int]:
    """The numbers of the end-diastolic and of the end-systolic frame."""
    try:
        lines = (folder / "Info.cfg").read_text(encoding="utf-8").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(info["ED"]), int(info["ES"])
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no Info.cfg that names the frames ED and ES: is it a patient of ACDC?") from error


def subjects(root: Path, split: str) -> list[Path]:
    """The folders of the patients of a split."""
    return [root / name for name in ACDC(root).subjects(split)]


def prepare(folder: Path) -> Sample:
    """One patient, to be measured on."""
    return ACDC(folder.parent).prepare(folder.name, "evaluation")
