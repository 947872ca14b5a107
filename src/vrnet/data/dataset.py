"""Data sets by name: where subjects are found, and how each becomes a sample; hippocampi and phantoms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vrnet.data import protocols
from vrnet.data.hearts import ACDC, ACDC3D, CMR3D, UKBB, ACDCCycles
from vrnet.data.manifest import Manifest, SubjectFolder
from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput
from vrnet.files import exists, is_folder
from vrnet.images.image import rescale_images_jointly
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


@dataclass(frozen=True)
class Hippocampus(SubjectFolder):
    """Task 4 of the Medical Segmentation Decathlon: images/NAME.nii.gz, labels/NAME.nii.gz, in 3D.

    Subjects are registered with each other, each (fixed) with the next of its split (moving), the last with the first.
    Each image has its own scaling, its own centre, and axes that run as the world's do."""

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
    spacing: float = 1.8
    """Edge of a voxel along every axis, in mm."""
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
"""Volumes of the size of 3D cardiac MR; fewer patients, since each takes longer to make."""


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
        lacking = "none" if root is None else f"no {root}"
        raise BadInput(f"{name} is read from a {reads}, and there is {lacking}: name it with `root`")
    if split_file is not None and reads != "folder":
        raise BadInput(f"{name} takes no file of splits: leave it out")
    return build(*{"folder": (root, split_file), "file": (root,), None: ()}[reads])
