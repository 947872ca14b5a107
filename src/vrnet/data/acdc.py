"""ACDC in its official folders: end-systole (moving) to end-diastole (fixed), by the paper's 2D protocol or in 3D.

Which slices are trained on and measured on is chosen in protocols.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from vrnet.data.protocols import (
    SIZE,
    SPACING_MM,
    Plane,
    Purpose,
    Sample,
    all_slices,
    centred_grid,
    read_labels,
    read_phases,
    three_slices,
    volume_pair,
)
from vrnet.data.splits import SubjectFolder
from vrnet.errors import BadInput
from vrnet.images.image import Image
from vrnet.vocabulary import HEART


@dataclass(frozen=True)
class PatientFolder(SubjectFolder):
    """One folder per patient: Info.cfg, which names two frames, and these frames with their masks."""

    structures = HEART

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """Info.cfg, both frames and both masks, whatever the purpose: a folder that lacks one is a damaged copy."""
        folder = self.root / subject
        frames = [folder / f"{subject}_frame{number:02d}" for number in frame_numbers(folder)]
        return [folder / "Info.cfg", *(Path(f"{frame}{end}.nii.gz") for frame in frames for end in ("", "_gt"))]

    def read(self, subject: str) -> "Patient":
        """Both phases of a patient, with their masks."""
        _, ed, ed_mask, es, es_mask = self.sources(subject, "evaluation")
        images = read_phases([ed, es])
        return Patient(images, [read_labels(*pair) for pair in zip((ed_mask, es_mask), images, strict=True)])


class Patient(NamedTuple):
    """Images and masks of a patient, end-diastole first."""

    images: list[Image]
    masks: list[Image]


@dataclass(frozen=True)
class ACDC(PatientFolder):
    """2D pairs: of three slices to be measured on, of all to be trained on."""

    slices: Literal["all", "three"] = "all"
    """The slices that are trained on."""
    spacing: float = SPACING_MM
    size: int = SIZE

    name = "acdc"

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One patient: read, resample, choose slices, scale."""
        images, masks = self.read(subject)
        plane = Plane(self.spacing, self.size)
        if purpose == "training" and self.slices == "all":
            return all_slices(subject, images, plane, masks)
        return three_slices(subject, images, masks, plane)


@dataclass(frozen=True)
class ACDC3D(PatientFolder):
    """One 3D pair per patient, about the centre of the stack."""

    spacing: tuple[float, ...] = (1.5, 1.5, 3.15)
    shape: tuple[int, ...] = (128, 128, 32)

    name = "acdc3d"

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One patient: read, scale, resample."""
        images, masks = self.read(subject)
        own = images[0].grid
        grid = centred_grid(own, self.shape, self.spacing, own.forward_axes)
        return volume_pair(subject, images, masks, grid)


def frame_numbers(folder: Path) -> tuple[int, int]:
    """The numbers of the end-diastolic and of the end-systolic frame of a patient."""
    try:
        info = read_info(folder)
        return int(info["ED"]), int(info["ES"])
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no Info.cfg that names the frames ED and ES: is it a patient of ACDC?") from error


def group_of(folder: Path) -> str:
    """What a patient suffers from: NOR, DCM, HCM, MINF or RV."""
    try:
        return read_info(folder)["Group"]
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no Info.cfg that names the Group: is it a patient of ACDC?") from error


def read_info(folder: Path) -> dict[str, str]:
    """What Info.cfg says of a patient."""
    lines = (folder / "Info.cfg").read_text(encoding="utf-8").splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines if ":" in line)}
