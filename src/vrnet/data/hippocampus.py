"""Hippocampi of the Medical Segmentation Decathlon (task 4): images/NAME.nii.gz, labels/NAME.nii.gz, registered between
subjects, each (fixed) with the next of its split (moving), the last with the first."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.data.centred import centred, on_voxels
from vrnet.data.reading import read_labels, read_volume
from vrnet.data.sample import Purpose, Sample
from vrnet.data.splits import listed, read_splits
from vrnet.data.volumes import labels_on, on_grid, scaled
from vrnet.errors import BadInput
from vrnet.images.grid import Grid

STRUCTURES = {"anterior": 1, "posterior": 2}


@dataclass(frozen=True)
class Hippocampus:
    """One 3D pair a subject. Each image has its own scaling, its own centre, and axes that run as the world's do."""

    root: Path
    split_file: Path | None = None
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    shape: tuple[int, ...] = (48, 64, 48)
    """Room for all of the 200 images at hand, of up to 42x58x46 voxels."""

    name = "hippocampus"
    structures = STRUCTURES
    pairs_across_subjects = True

    def subjects(self, split: str) -> list[str]:
        """The subjects of a split."""
        return listed(self.splits, split)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The image of the subject and that of the next; and their labels, to be measured on."""
        folders = ("images", "labels") if purpose == "evaluation" else ("images",)
        pair = subject, self.partner(subject)
        return [self.root / folder / f"{name}.nii.gz" for folder in folders for name in pair]

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One pair: read, scale each, bring both to one grid."""
        files = self.sources(subject, purpose)
        images = [read_volume(path) for path in files[:2]]
        masks = [read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        grids = [self.grid(image.grid) for image in images]
        fixed, moving = (on_grid(scaled(image)[0], grid) for image, grid in zip(images, grids, strict=True))
        labels = [labels_on(mask, grid) for mask, grid in zip(masks, grids, strict=False)]
        return Sample(subject, fixed, moving, self.spacing, *labels)

    def grid(self, own: Grid) -> Grid:
        """The common grid about the centre of an image."""
        return on_voxels(centred(own, self.shape, self.spacing, np.eye(3)), own)

    def partner(self, subject: str) -> str:
        """The next of the split, cyclically."""
        split = read_splits(self.splits)[subject]
        others = listed(self.splits, split)
        if len(others) < 2:
            raise BadInput(f'{subject} is alone in the split "{split}": pairs are made of two subjects')
        return others[(others.index(subject) + 1) % len(others)]

    @property
    def splits(self) -> Path:
        return self.split_file or self.root / "split.csv"
