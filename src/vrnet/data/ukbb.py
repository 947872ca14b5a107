"""Cardiac MR in the UK Biobank's folders, one per subject: end-systole (moving) to end-diastole (fixed).

sa_ED, sa_ES, label_sa_ED and label_sa_ES (.nii.gz) to be measured on; training needs no labels. In 2D it takes every
frame of sa.nii.gz to the first, which is end-diastole, or without that file end-systole to end-diastole; only the
latter has labels.
Labels are 1 RV, 2 Myo, 3 LV; those with LV and RV exchanged (1 LV, 2 Myo, 3 RV) are recognised and renumbered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.data import protocols
from vrnet.data.labels import label_in_cavity
from vrnet.data.protocols import Purpose, Sample
from vrnet.data.splits import SubjectFolder
from vrnet.files import exists
from vrnet.images.image import Image
from vrnet.vocabulary import HEART

PHASES = "ED", "ES"


@dataclass(frozen=True)
class PhaseFolder(SubjectFolder):
    """One folder per subject: the images of both phases and their labels; to be trained on, these may be missing."""

    structures = HEART

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The images of both phases, and their labels; to be trained on, these if they are there."""
        folder = self.root / subject
        images, labels = ([folder / f"{kind}_{phase}.nii.gz" for phase in PHASES] for kind in ("sa", "label_sa"))
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
