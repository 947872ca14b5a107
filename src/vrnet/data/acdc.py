"""ACDC in its official folders: end-systole (moving) to end-diastole (fixed), by the paper's 2D protocol or in 3D.

Which slices are trained on and measured on is chosen in protocols.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True)
class PatientFolder(SubjectFolder):
    """One folder per patient: Info.cfg, which names two frames, and these frames with their masks."""

    structures = HEART

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """Info.cfg, both frames and both masks, whatever the purpose: a folder that lacks one is a damaged copy."""
        folder = self.root / subject
        frames = [folder / f"{subject}_frame{number:02d}" for number in frame_numbers(folder)]
        return [folder / "Info.cfg", *(Path(f"{frame}{end}.nii.gz") for frame in frames for end in ("", "_gt"))]

    def read(self, subject: str) -> tuple[list[Image], list[Image]]:
        """The images of a patient and their masks, end-diastole first."""
        _, ed, ed_mask, es, es_mask = self.sources(subject, "evaluation")
        images = read_phases([ed, es])
        return images, [read_labels(*pair) for pair in zip((ed_mask, es_mask), images, strict=True)]


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
    ed, es = read_info(folder, int, "the frames ED and ES", "ED", "ES")
    return ed, es


def group_of(folder: Path) -> str:
    """What a patient suffers from: NOR, DCM, HCM, MINF or RV."""
    return read_info(folder, str, "the Group", "Group")[0]


def read_info(folder: Path, kind: Callable[[str], T], called: str, *keys: str) -> list[T]:
    """Values of Info.cfg, in which a line is `KEY: VALUE`; BadInput if the folder is no patient's."""
    try:
        lines = (folder / "Info.cfg").read_text(encoding="utf-8").splitlines()
        info = {key: value.strip() for key, value in (line.split(":", 1) for line in lines if ":" in line)}
        return [kind(info[key]) for key in keys]
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no Info.cfg that names {called}: is it a patient of ACDC?") from error
