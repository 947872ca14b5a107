"""ACDC in its official folders: end-systole (moving) to end-diastole (fixed), by the paper's 2D protocol or in 3D.

Which slices are trained on and measured on is chosen in protocols.py.
"""

from dataclasses import dataclass
from pathlib import Path

from vrnet.data import protocols
from vrnet.data.protocols import Purpose, Sample
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
    """2D pairs of three slices: to be measured on as ACDC, to be trained on every frame of patientNNN_4d.nii.gz to
    end-diastole."""

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
        return protocols.cycle_to_frame(subject, frames, ed - 1, *self.read(subject), self.spacing, self.training_size)


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


def group_of(folder: Path) -> str:
    """What a patient suffers from: NOR, DCM, HCM, MINF or RV."""
    if "Group" not in (info := read_info(folder)):
        raise BadInput(f"{folder} has no Info.cfg that names the Group: is it a patient of ACDC?")
    return info["Group"]


def read_info(folder: Path) -> dict[str, str]:
    """What Info.cfg says, in which a line is `KEY: VALUE`; nothing if it cannot be read."""
    try:
        lines = (folder / "Info.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
