"""ACDC in its official folders, as volumes: end-systole (moving) to end-diastole (fixed)."""

from dataclasses import dataclass
from pathlib import Path

from vrnet.data.acdc import official, read_patient
from vrnet.data.centred import centred, forward_axes
from vrnet.data.sample import Purpose, Sample
from vrnet.data.short_axis import STRUCTURES
from vrnet.data.splits import listed
from vrnet.data.volumes import volume_pair


@dataclass(frozen=True)
class ACDC3D:
    """One 3D pair a patient, about the centre of the stack."""

    root: Path
    split_file: Path | None = None
    spacing: tuple[float, ...] = (1.5, 1.5, 3.15)
    shape: tuple[int, ...] = (128, 128, 32)

    name = "acdc3d"
    structures = STRUCTURES
    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        """The patients of a split."""
        return listed(self.split_file or self.root / "split.csv", split)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """Those of the 2D protocol."""
        return official(self.root / subject)

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One patient: read, scale, resample."""
        images, masks = read_patient(self.root / subject)
        own = images[0].grid
        grid = centred(own, self.shape, self.spacing, forward_axes(own))
        return volume_pair(subject, images, masks if purpose == "evaluation" else [], grid)
