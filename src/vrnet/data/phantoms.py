"""Cohorts of phantoms, one seed per patient: nothing is read, and the true motion is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput
from vrnet.phantom import phantom
from vrnet.vocabulary import HEART

FIRST_SEED = {"train": 0, "val": 1000, "test": 2000}


@dataclass(frozen=True)
class Phantoms:
    """One pair per patient, with labels and field whatever the purpose."""

    name: str = "phantom"
    shape: tuple[int, ...] = (160, 160)
    spacing: float = 1.8
    """Edge of a voxel along every axis, in mm."""
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 40, "val": 10, "test": 20})
    """Patients of each split."""

    structures = HEART
    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        """phantom-SEED of each patient of a split."""
        if split not in self.counts:
            raise BadInput(f'there is no split "{split}" of phantoms: choose one of {", ".join(self.counts)}')
        first = FIRST_SEED[split]
        return [f"phantom-{seed:04d}" for seed in range(first, first + self.counts[split])]

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """No files: phantoms are made of their seeds."""
        return []

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """The patient of the seed in the name."""
        made = phantom(int(subject.rsplit("-", 1)[1]), self.shape, self.spacing)
        return Sample(subject, made.fixed, made.moving, made.spacing, made.fixed_labels, made.moving_labels, made.field)


def phantoms3d() -> Phantoms:
    """Volumes of the size of 3D cardiac MR; fewer patients, since each takes longer to make."""
    return Phantoms("phantom3d", (128, 128, 96), 1.2, {"train": 24, "val": 4, "test": 8})
