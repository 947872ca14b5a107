"""Data sets by name: where subjects are found, and how each becomes a sample."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vrnet.data import protocols
from vrnet.data.labels import label_in_cavity
from vrnet.data.manifest import Manifest, SubjectFolder
from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput
from vrnet.files import exists, is_folder
from vrnet.images.image import Image, rescale_images_jointly
from vrnet.phantom import phantom
from vrnet.vocabulary import HEART, HIPPOCAMPUS


@runtime_checkable
class Dataset(Protocol):
    """Implemented by frozen dataclasses. Their fields but the paths are the protocol's parameters, on which the cache
    depends; a data set that finds its parameters in its files says them in a property `parameters`."""

    @property
    def name(self) -> str: ...
    @property
    def structures(self) -> Mapping[str, int] | None:
        """{"LV": 3, ...}: what the labels mean; None if they are called by their numbers, as these are met."""

    @property
    def pairs_across_subjects(self) -> bool:
        """Whether images of any two subjects make a pair to train on, or only those of one subject."""

    def subjects(self, split: str) -> list[str]:
        """The subjects of a split, in order; BadInput if there is no such split."""

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The files that the subject's sample is made from."""

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """The subject's pairs; or BadInput, which says what is wrong with it."""


# Hearts in their official folders: end-systole (moving) to end-diastole (fixed), by the paper's protocols. Which slices
# are trained on and measured on is chosen in protocols.py. Labels are 1 RV, 2 Myo, 3 LV.


class HeartFolder(SubjectFolder):
    structures = HEART

    def read(self, subject: str, purpose: Purpose = "evaluation") -> tuple[list[Image], list[Image]]:
        """The images of a subject, end-diastole first, and their masks, if there are any."""
        raise NotImplementedError


@dataclass(frozen=True)
class Slices(HeartFolder):
    """2D pairs: of three slices to be measured on, of all to be trained on."""

    spacing: float = protocols.SPACING_MM
    size: int = protocols.SIZE

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        make = protocols.all_slices if purpose == "training" else protocols.three_slices
        return make(subject, *self.read(subject, purpose), self.spacing, self.size)


@dataclass(frozen=True)
class Volumes(HeartFolder):
    """One 3D pair per subject, cropped or padded about the centre of the first image."""

    spacing: tuple[float, ...] = (1.5, 1.5, 3.15)
    shape: tuple[int, ...] = (128, 128, 32)

    keeps_voxels = False  # whether an image that has the spacing already is not interpolated

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        images, masks = self.read(subject, purpose)
        own = images[0].grid
        grid = protocols.centred_grid(own, self.shape, self.spacing, own.forward_axes)
        grid = protocols.snap_to_voxels(grid, own) if self.keeps_voxels else grid
        return protocols.volume_pair(subject, images, masks, grid)


class PatientFolder(HeartFolder):
    """ACDC: one folder per patient, with Info.cfg, which names two frames, and these frames with their masks."""

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """Info.cfg, both frames and both masks, whatever the purpose: a folder that lacks one is a damaged copy."""
        folder = self.root / subject
        frames = [folder / f"{subject}_frame{number:02d}" for number in frame_numbers(folder)]
        return [folder / "Info.cfg", *(Path(f"{frame}{end}.nii.gz") for frame in frames for end in ("", "_gt"))]

    def read(self, subject: str, purpose: Purpose = "evaluation") -> tuple[list[Image], list[Image]]:
        _, ed, ed_mask, es, es_mask = self.sources(subject, "evaluation")
        images = protocols.read_phases([ed, es])
        return images, [protocols.read_labels(*pair) for pair in zip((ed_mask, es_mask), images, strict=True)]


class ACDC(Slices, PatientFolder):
    name = "acdc"


@dataclass(frozen=True)
class ACDCCycles(ACDC):
    """Measured on as ACDC, trained on every frame of patientNNN_4d.nii.gz to end-diastole, in three slices."""

    training_size: int = protocols.SIZE  # voxels along either side of the images to be trained on

    name = "acdc-cycles"

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
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
        return protocols.cycle_to_frame(subject, frames, ed - 1, *self.read(subject, purpose), grid)


class ACDC3D(Volumes, PatientFolder):
    name = "acdc3d"


def frame_numbers(folder: Path) -> tuple[int, int]:
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


class PhaseFolder(HeartFolder):
    """One folder per subject: the images of both phases and their labels; to be trained on, these may be missing."""

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        folder = self.root / subject
        images, labels = ([folder / f"{kind}_{phase}.nii.gz" for phase in ("ED", "ES")] for kind in ("sa", "label_sa"))
        return images + protocols.labels_for(purpose, labels)

    def read(self, subject: str, purpose: Purpose = "evaluation") -> tuple[list[Image], list[Image]]:
        files = self.sources(subject, purpose)
        if len(files) == 1:
            return protocols.read_frames(files[0]), []
        images = protocols.read_phases(files[:2])
        masks = [protocols.read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        ventricles = HEART["LV"], HEART["RV"]
        if masks and label_in_cavity(masks, HEART["Myo"], ventricles) == HEART["RV"]:
            numbers = np.arange(protocols.LARGEST_LABEL + 1, dtype=np.uint8)
            numbers[list(ventricles)] = ventricles[::-1]
            masks = [mask.with_array(numbers[mask.array]) for mask in masks]
        return images, masks


class UKBB(Slices, PhaseFolder):
    name = "ukbb"

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The cine to be trained on, where there is one; else both phases with their labels."""
        cine = self.root / subject / "sa.nii.gz"
        return [cine] if purpose == "training" and exists(cine) else super().sources(subject, purpose)


@dataclass(frozen=True)
class CMR3D(Volumes, PhaseFolder):
    spacing: tuple[float, ...] = (1.2, 1.2, 1.2)
    shape: tuple[int, ...] = (128, 128, 96)

    name = "cmr3d"
    keeps_voxels = True


@dataclass(frozen=True)
class Hippocampus(SubjectFolder):
    """Task 4 of the Medical Segmentation Decathlon: images/NAME.nii.gz, labels/NAME.nii.gz, in 3D. Each subject (fixed)
    is registered with the next of its split (moving), cyclically; each image has its own scaling and centre, and the
    world's axes."""

    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    shape: tuple[int, ...] = (48, 64, 48)

    name = "hippocampus"
    structures = HIPPOCAMPUS
    pairs_across_subjects = True

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The images of the subject and of the next of its split, cyclically, and their labels."""
        names = next(names for names in self.splits.values() if subject in names)
        if len(names) == 1:
            raise BadInput(f"{subject} is alone in the split that it is in: pairs are made of two subjects")
        pair = subject, names[(names.index(subject) + 1) % len(names)]
        images, labels = ([self.root / folder / f"{name}.nii.gz" for name in pair] for folder in ("images", "labels"))
        return images + protocols.labels_for(purpose, labels)

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        files = self.sources(subject, purpose)
        images = [protocols.read_volume(path) for path in files[:2]]
        masks = [protocols.read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        about = [protocols.centred_grid(image.grid, self.shape, self.spacing, np.eye(3)) for image in images]
        grids = [protocols.snap_to_voxels(grid, image.grid) for grid, image in zip(about, images, strict=True)]
        fixed, moving = map(protocols.image_on, [rescale_images_jointly(image)[0] for image in images], grids)
        return Sample(subject, fixed, moving, self.spacing, *map(protocols.labels_on, masks, grids))


@dataclass(frozen=True)
class Phantoms:
    """Cohorts of phantoms, one seed per patient: one pair each, with labels and true motion whatever the purpose."""

    name: str = "phantom"
    shape: tuple[int, ...] = (160, 160)
    spacing: float = 1.8  # edge of a voxel along every axis, in mm
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 40, "val": 10, "test": 20})

    structures = HEART
    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        if split not in self.counts:
            raise BadInput(f'there is no split "{split}" of phantoms: choose one of {", ".join(self.counts)}')
        first = {"train": 0, "val": 1000, "test": 2000}[split]
        return [f"phantom-{seed:04d}" for seed in range(first, first + self.counts[split])]

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        return []  # phantoms are made of their seeds

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        made = phantom(int(subject.rsplit("-", 1)[1]), self.shape, self.spacing)
        return Sample(subject, made.fixed, made.moving, made.spacing, made.fixed_labels, made.moving_labels, made.field)


PHANTOMS_3D = partial(Phantoms, "phantom3d", (128, 128, 96), 1.2, {"train": 24, "val": 4, "test": 8})


class Entry(NamedTuple):
    """A data set that can be asked for."""

    summary: str
    reads: Literal["folder", "file"] | None
    build: Callable[..., Dataset]
    """Called with the root and, if that is a folder, the file of splits or None."""


DATASETS = {
    "acdc": Entry("ACDC in its official folders: 2D (1.8 mm, 160x160)", "folder", ACDC),
    "acdc-cycles": Entry("ACDC, trained on every frame of the cycle: 2D (1.8 mm, 160x160)", "folder", ACDCCycles),
    "acdc3d": Entry("ACDC in its official folders: 3D (1.5x1.5x3.15 mm, 128x128x32)", "folder", ACDC3D),
    "ukbb": Entry("short-axis cines in the UK Biobank's folders: 2D (1.8 mm, 160x160)", "folder", UKBB),
    "cmr3d": Entry("cardiac MR in the UK Biobank's folders: 3D (1.2 mm, 128x128x96)", "folder", CMR3D),
    "hippocampus": Entry("MSD hippocampi, across subjects: 3D (1 mm, 48x64x48)", "folder", Hippocampus),
    "phantom": Entry("beating hearts made on the spot, motion known: 2D (1.8 mm, 160x160)", None, Phantoms),
    "phantom3d": Entry("beating hearts made on the spot, motion known: 3D (1.2 mm, 128x128x96)", None, PHANTOMS_3D),
    "manifest": Entry("your own pairs, listed in a CSV file: 2D images, stacks or volumes", "file", Manifest.read),
}


def find_dataset(name: str, root: Path | None, split_file: Path | None = None) -> Dataset:
    """The data set of a name, in the folder (or, of a manifest, the file) where it needs one; or BadInput."""
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        if exists(name):
            known = f"{known}, and name the file or folder with `root={name}`"
        raise BadInput(f'there is no data set "{name}": choose one of {known}')
    _, reads, build = DATASETS[name]
    if reads is None and root is not None:
        raise BadInput(f"{name} is made on the spot: leave `root` out")
    if reads is not None and not (root and (is_folder if reads == "folder" else isfile)(root)):
        there = f"there is {f'no {root}' if root else 'none'}"
        raise BadInput(f"{name} is read from a {reads}, and {there}: name it with `root`")
    if split_file is not None and reads != "folder":
        raise BadInput(f"{name} takes no file of splits: leave it out")
    return build(*{"folder": (root, split_file), "file": (root,), None: ()}[reads])
