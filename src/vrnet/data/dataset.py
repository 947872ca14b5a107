"""Data sets by name: where subjects are found, and how each becomes a sample."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from vrnet.data.acdc import ACDC, ACDC3D
from vrnet.data.hippocampus import Hippocampus
from vrnet.data.manifest import Manifest
from vrnet.data.phantoms import Phantoms, phantoms3d
from vrnet.data.protocols import Purpose, Sample
from vrnet.data.ukbb import CMR3D, UKBB
from vrnet.errors import BadInput
from vrnet.files import exists, is_folder


@runtime_checkable
class Dataset(Protocol):
    """Implemented by frozen dataclasses. Their fields but the paths are the protocol's parameters, on which the cache
    depends; a data set that finds its parameters in its files says them in a property `parameters`."""

    @property
    def name(self) -> str: ...
    @property
    def structures(self) -> Mapping[str, int] | None:
        """{"LV": 3, ...}: what the labels mean; None if they are called by their numbers, as these are met."""
        ...

    @property
    def pairs_across_subjects(self) -> bool:
        """Whether images of any two subjects make a pair to train on, or only those of one subject."""
        ...

    def subjects(self, split: str) -> list[str]:
        """The subjects of a split, in order; BadInput if there is no such split."""
        ...

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The files that the subject's sample is made from."""
        ...

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """The subject's pairs; or BadInput, which says what is wrong with it."""
        ...


class Entry(NamedTuple):
    """A data set that can be asked for."""

    summary: str
    reads: Literal["folder", "file"] | None
    """What its root is, if it has any."""
    build: Callable[..., Dataset]
    """Called with the root and, if that is a folder, the file of splits or None."""


DATASETS = {
    "acdc": Entry("ACDC in its official folders: 2D (1.8 mm, 160x160)", "folder", ACDC),
    "acdc3d": Entry("ACDC in its official folders: 3D (1.5x1.5x3.15 mm, 128x128x32)", "folder", ACDC3D),
    "ukbb": Entry("short-axis cines in the UK Biobank's folders: 2D (1.8 mm, 160x160)", "folder", UKBB),
    "cmr3d": Entry("cardiac MR in the UK Biobank's folders: 3D (1.2 mm, 128x128x96)", "folder", CMR3D),
    "hippocampus": Entry("MSD hippocampi, across subjects: 3D (1 mm, 48x64x48)", "folder", Hippocampus),
    "phantom": Entry("beating hearts made on the spot, motion known: 2D (1.8 mm, 160x160)", None, Phantoms),
    "phantom3d": Entry("beating hearts made on the spot, motion known: 3D (1.2 mm, 128x128x96)", None, phantoms3d),
    "manifest": Entry("your own pairs, listed in a CSV file: 2D images, stacks or volumes", "file", Manifest.read),
}


def find_dataset(name: str, root: Path | None, split_file: Path | None = None) -> Dataset:
    """The data set of a name, in the folder (or, of a manifest, the file) where it needs one; or BadInput."""
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        if name.endswith(".csv"):
            way = f"if it lists your own pairs, give `data=manifest` `root={name}`"
        elif is_folder(Path(name)):
            way = f"name the folder with `root={name}`, and what it holds with `data`, one of {known}"
        else:
            way = f"choose one of {known}"
        raise BadInput(f'there is no data set "{name}": {way}')
    _, reads, build = DATASETS[name]
    if reads is None and root is not None:
        raise BadInput(f"{name} is made on the spot: leave `root` out")
    if reads is not None and root is None:
        raise BadInput(f"{name} is read from a {reads}: name it with `root`")
    if root is not None and not (is_folder(root) if reads == "folder" else exists(root) and root.is_file()):
        raise BadInput(f"there is no {reads} {root}: name that of {name} with `root`")
    if split_file is not None and reads != "folder":
        raise BadInput(f"{name} takes no file of splits: leave it out")
    return build(*{"folder": (root, split_file), "file": (root,), None: ()}[reads])
