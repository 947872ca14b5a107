"""Short-axis cines in the UK Biobank's folders, one a subject, under the paper's 2D protocol.

sa_ED, sa_ES, label_sa_ED and label_sa_ES (.nii.gz) to be measured on; to be trained on, every frame of sa.nii.gz to its
first, which is end-diastole, or where there is no such file end-systole to end-diastole. Training needs no labels.
Labels are 1 RV, 2 Myo, 3 LV, or 1 LV, 2 Myo, 3 RV.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from vrnet.data.reading import LARGEST_LABEL, read_frames, read_labels, read_phases
from vrnet.data.sample import Purpose, Sample
from vrnet.data.short_axis import SIZE, SPACING, STRUCTURES, Plane, all_slices, three_slices
from vrnet.data.splits import listed
from vrnet.files import exists
from vrnet.images.image import Image

PHASES = "ED", "ES"


@dataclass(frozen=True)
class UKBB:
    """2D pairs: of three slices to be measured on, of all slices and frames to be trained on."""

    root: Path
    split_file: Path | None = None
    spacing: float = SPACING
    size: int = SIZE

    name = "ukbb"
    structures = STRUCTURES
    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        """The subjects of a split."""
        return listed(self.split_file or self.root / "split.csv", split)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The cine, or both phases; and their labels, to be measured on."""
        folder = self.root / subject
        if purpose == "evaluation":
            return [*image_files(folder), *label_files(folder)]
        return [cine] if exists(cine := folder / "sa.nii.gz") else image_files(folder)

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One subject: read, resample, choose slices, scale."""
        plane, files = Plane(self.spacing, self.size), self.sources(subject, purpose)
        if purpose == "evaluation":
            images, masks = read_both(self.root / subject)
            return three_slices(subject, images, masks, plane)
        return all_slices(subject, read_frames(files[0]) if len(files) == 1 else read_phases(files), plane)


def image_files(folder: Path) -> list[Path]:
    return [folder / f"sa_{phase}.nii.gz" for phase in PHASES]


def label_files(folder: Path) -> list[Path]:
    return [folder / f"label_sa_{phase}.nii.gz" for phase in PHASES]


def read_both(folder: Path) -> tuple[list[Image], list[Image]]:
    """The images of both phases, and their labels, numbered as STRUCTURES says."""
    images = read_phases(image_files(folder))
    masks = [read_labels(path, image) for path, image in zip(label_files(folder), images, strict=True)]
    return images, [exchanged(mask) for mask in masks] if are_exchanged(masks) else masks


def are_exchanged(masks: Sequence[Image]) -> bool:
    """Whether LV and RV have each other's numbers, as in some segmentations: what Myo encloses is the LV."""
    inside = np.concatenate([enclosed(mask) for mask in masks])
    return bool((inside == STRUCTURES["RV"]).sum() > (inside == STRUCTURES["LV"]).sum())


def enclosed(mask: Image) -> UInt8[ndarray, " n"]:
    """The labels of the voxels that Myo goes all round, slice by slice."""
    from scipy.ndimage import binary_fill_holes

    wall = mask.array == STRUCTURES["Myo"]
    filled = np.stack([binary_fill_holes(wall[..., k]) for k in range(wall.shape[2])], axis=2)
    return mask.array[filled & ~wall]


def exchanged(mask: Image) -> Image:
    """LV for RV, and RV for LV."""
    lv, rv, numbers = STRUCTURES["LV"], STRUCTURES["RV"], np.arange(LARGEST_LABEL + 1, dtype=np.uint8)
    numbers[[lv, rv]] = rv, lv
    return mask.with_array(numbers[mask.array])
