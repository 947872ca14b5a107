"""Hippocampi of the Medical Segmentation Decathlon (task 4): images/NAME.nii.gz, labels/NAME.nii.gz, registered across
subjects, each (fixed) with the next of its split (moving), the last with the first."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.data import protocols
from vrnet.data.protocols import Purpose, Sample
from vrnet.data.splits import SubjectFolder
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import rescale_images_jointly
from vrnet.vocabulary import HIPPOCAMPUS


@dataclass(frozen=True)
class Hippocampus(SubjectFolder):
    """One 3D pair per subject. Each image has its own scaling, its own centre, and axes that run as the world's do."""

    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    shape: tuple[int, ...] = (48, 64, 48)
    """Room for every image of the data set."""

    name = "hippocampus"
    structures = HIPPOCAMPUS
    pairs_across_subjects = True

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The images of the subject and of the next, and their labels; to be trained on, these if they are there."""
        pair = subject, self.partner(subject)
        images, labels = ([self.root / folder / f"{name}.nii.gz" for name in pair] for folder in ("images", "labels"))
        return images + protocols.labels_for(purpose, labels)

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One pair: read, scale each, bring both to one grid."""
        files = self.sources(subject, purpose)
        images = [protocols.read_volume(path) for path in files[:2]]
        masks = [protocols.read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        grids = [self.grid(image.grid) for image in images]
        fixed, moving = map(protocols.image_on, [rescale_images_jointly(image)[0] for image in images], grids)
        return Sample(subject, fixed, moving, self.spacing, *map(protocols.labels_on, masks, grids))

    def grid(self, own: Grid) -> Grid:
        """The common grid about the centre of an image."""
        return protocols.snap_to_voxels(protocols.centred_grid(own, self.shape, self.spacing, np.eye(3)), own)

    def partner(self, subject: str) -> str:
        """The next subject of the split, cyclically."""
        names = next(names for names in self.splits.values() if subject in names)
        if len(names) == 1:
            raise BadInput(f"{subject} is alone in the split that it is in: pairs are made of two subjects")
        return names[(names.index(subject) + 1) % len(names)]
