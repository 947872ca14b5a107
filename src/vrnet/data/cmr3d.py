"""3D cardiac MR of high resolution, in the UK Biobank's folders: end-systole (moving) to end-diastole (fixed).

sa_ED and sa_ES (.nii.gz); to be measured on, label_sa_ED and label_sa_ES too.
"""

from dataclasses import dataclass
from pathlib import Path

from vrnet.data.centred import centred, forward_axes, on_voxels
from vrnet.data.reading import read_phases
from vrnet.data.sample import Purpose, Sample
from vrnet.data.short_axis import STRUCTURES
from vrnet.data.splits import listed
from vrnet.data.ukbb import image_files, label_files, read_both
from vrnet.data.volumes import volume_pair


@dataclass(frozen=True)
class CMR3D:
    """One 3D pair a subject, cropped or padded about its centre."""

    root: Path
    split_file: Path | None = None
    spacing: tuple[float, ...] = (1.2, 1.2, 1.2)
    shape: tuple[int, ...] = (128, 128, 96)

    name = "cmr3d"
    structures = STRUCTURES
    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        """The subjects of a split."""
        return listed(self.split_file or self.root / "split.csv", split)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """Both phases; and their labels, to be measured on."""
        folder = self.root / subject
        return [*image_files(folder), *(label_files(folder) if purpose == "evaluation" else [])]

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One subject: read, scale, resample."""
        folder = self.root / subject
        images, masks = read_both(folder) if purpose == "evaluation" else (read_phases(image_files(folder)), [])
        own = images[0].grid
        grid = on_voxels(centred(own, self.shape, self.spacing, forward_axes(own)), own)
        return volume_pair(subject, images, masks, grid)
