"""Hearts in their official folders: end-systole (moving) to end-diastole (fixed), by the paper's protocols.

Which slices are trained on and measured on is chosen in protocols.py. Labels are 1 RV, 2 Myo, 3 LV.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.data import protocols
from vrnet.data.labels import label_in_cavity
from vrnet.data.manifest import SubjectFolder
from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput
from vrnet.files import exists
from vrnet.images.image import Image
from vrnet.vocabulary import HEART

# ACDC: one folder per patient.


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
        images = protocols.read_phases([ed, es])
        return images, [protocols.read_labels(*pair) for pair in zip((ed_mask, es_mask), images, strict=True)]


@dataclass(frozen=True)
class ACDC(PatientFolder):
    """2D pairs: of three slices to be measured on, of all to be trained on."""

    spacing: float = protocols.SPACING_MM
    size: int = protocols.SIZE

    name = "acdc"

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        images, masks = self.read(subject)
        make = protocols.all_slices if purpose == "training" else protocols.three_slices
        return make(subject, images, masks, self.spacing, self.size)


@dataclass(frozen=True)
class ACDCCycles(ACDC):
    """2D pairs of three slices: measured on as ACDC, trained on every frame of patientNNN_4d.nii.gz to end-diastole."""

    training_size: int = protocols.SIZE
    """Voxels along either side of the images to be trained on."""

    name = "acdc-cycles"

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """Those of ACDC, and the cine to be trained on."""
        cine = [self.root / subject / f"{subject}_4d.nii.gz"] if purpose == "training" else []
        return super().sources(subject, purpose) + cine

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        if purpose == "evaluation":
            return super().prepare(subject, purpose)
        ed, _ = frame_numbers(self.root / subject)
        frames = protocols.read_frames(self.sources(subject, purpose)[-1])
        if not 1 <= ed <= len(frames):
            raise BadInput(f"{frames[0].name} has {len(frames)} frames, and by Info.cfg number {ed} is end-diastole")
        grid = protocols.grid_of_slices(frames[0].grid, self.spacing, self.training_size)
        return protocols.cycle_to_frame(subject, frames, ed - 1, *self.read(subject), grid)


@dataclass(frozen=True)
class ACDC3D(PatientFolder):
    """One 3D pair per patient, about the centre of the stack."""

    spacing: tuple[float, ...] = (1.5, 1.5, 3.15)
    shape: tuple[int, ...] = (128, 128, 32)

    name = "acdc3d"

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        images, masks = self.read(subject)
        grid = protocols.centred_grid(images[0].grid, self.shape, self.spacing, images[0].grid.forward_axes)
        return protocols.volume_pair(subject, images, masks, grid)


def frame_numbers(folder: Path) -> tuple[int, int]:
    """The numbers of the end-diastolic and of the end-systolic frame of a patient."""
    info = read_info(folder)
    try:
        return int(info["ED"]), int(info["ES"])
    except (KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no Info.cfg that names the frames ED and ES: is it a patient of ACDC?") from error


def read_info(folder: Path) -> dict[str, str]:
    """What Info.cfg says, in which a line is `KEY: VALUE`; nothing if it cannot be read."""
    try:
        lines = (folder / "Info.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


# The UK Biobank: one folder each, with sa_ED, sa_ES, label_sa_ED and label_sa_ES (.nii.gz) to be measured on; training
# needs no labels. In 2D it takes every frame of sa.nii.gz to the first, which is end-diastole, or without that file
# end-systole to end-diastole; only the latter has labels. Labels with LV and RV exchanged are renumbered.


@dataclass(frozen=True)
class PhaseFolder(SubjectFolder):
    """One folder per subject: the images of both phases and their labels; to be trained on, these may be missing."""

    structures = HEART

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        folder = self.root / subject
        images, labels = ([folder / f"{kind}_{phase}.nii.gz" for phase in ("ED", "ES")] for kind in ("sa", "label_sa"))
        return images + protocols.labels_for(purpose, labels)

    def read(self, files: Sequence[Path]) -> tuple[list[Image], list[Image]]:
        """The images of both phases, and their labels where there are any, numbered as HEART says."""
        images = protocols.read_phases(files[:2])
        masks = [protocols.read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        ventricles = HEART["LV"], HEART["RV"]
        is_exchanged = bool(masks) and label_in_cavity(masks, HEART["Myo"], ventricles) == HEART["RV"]
        if is_exchanged:
            numbers = np.arange(protocols.LARGEST_LABEL + 1, dtype=np.uint8)
            numbers[list(ventricles)] = ventricles[::-1]
            masks = [mask.with_array(numbers[mask.array]) for mask in masks]
        return images, masks


@dataclass(frozen=True)
class UKBB(PhaseFolder):
    """2D pairs: of three slices to be measured on, of all slices and frames to be trained on."""

    spacing: float = protocols.SPACING_MM
    size: int = protocols.SIZE

    name = "ukbb"

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The cine to be trained on, where there is one; else both phases with their labels."""
        cine = self.root / subject / "sa.nii.gz"
        return [cine] if purpose == "training" and exists(cine) else super().sources(subject, purpose)

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        files = self.sources(subject, purpose)
        images, masks = (protocols.read_frames(files[0]), []) if len(files) == 1 else self.read(files)
        make = protocols.three_slices if purpose == "evaluation" else protocols.all_slices
        return make(subject, images, masks, self.spacing, self.size)


@dataclass(frozen=True)
class CMR3D(PhaseFolder):
    """One 3D pair of high resolution per subject, cropped or padded about its centre."""

    spacing: tuple[float, ...] = (1.2, 1.2, 1.2)
    shape: tuple[int, ...] = (128, 128, 96)

    name = "cmr3d"

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        images, masks = self.read(self.sources(subject, purpose))
        own = images[0].grid
        grid = protocols.snap_to_voxels(protocols.centred_grid(own, self.shape, self.spacing, own.forward_axes), own)
        return protocols.volume_pair(subject, images, masks, grid)
