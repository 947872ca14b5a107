"""What is read from CSV files: the splits of a data set in a folder, and anyone's images, one row per pair with paths
relative to the file: columns fixed and moving; fixed_labels and moving_labels, split and name where wanted. Without a
column split every pair is in "train". The list of a cohort is such a file, too: pairs without a name have that of their
subject, if each has its own. Opening the file reads no image."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from vrnet.data import protocols
from vrnet.data.protocols import Purpose, Sample
from vrnet.errors import BadInput, shown
from vrnet.files import read_rows, refuse_misspelt
from vrnet.images.grid import Grid
from vrnet.images.image import rescale_images_jointly
from vrnet.images.io import read_grid

SPLIT_FORMAT = 'two columns, the lines "subject,split", "patient001,train", "patient002,test" and so on'
Splits = Mapping[str, list[str]]  # {split: its subjects, in the order of the file}


@dataclass(frozen=True)
class SubjectFolder:
    """What data sets in a folder share: the folder, and the file that lists the subjects of each split."""

    root: Path
    split_file: Path | None = None  # split.csv in the folder if None

    pairs_across_subjects = False

    def subjects(self, split: str) -> list[str]:
        return choose_split(self.splits, split, self.split_file or self.root / "split.csv")

    @cached_property
    def splits(self) -> Splits:
        """All splits of the file; BadInput unless it lists every subject once, with its split."""
        path = self.split_file or self.root / "split.csv"
        rows = read_rows(path, SPLIT_FORMAT)
        column = next((name for name in ("subject", "patient") if rows and name in rows[0]), None)
        if column is None or "split" not in rows[0]:
            raise BadInput(f"{path} does not say who is in which split: give it {SPLIT_FORMAT}")
        return group_by_split([(row[column], row["split"]) for row in rows], path)


def group_by_split(members: Sequence[tuple[str, str]], path: Path) -> Splits:
    """Collect (subject, split) by split; a name that comes twice might be both trained on and measured."""
    name, count = Counter(subject for subject, _ in members).most_common(1)[0]
    if count > 1:
        raise BadInput(f'{path} lists "{shown(name)}" {count} times: list each once')
    splits: dict[str, list[str]] = {}
    for subject, split in members:
        splits.setdefault(split, []).append(subject)
    if "" in splits:
        raise BadInput(f"{path} does not say in which split {shown(splits[''][0])} is: fill the column in")
    return splits


def choose_split(splits: Splits, split: str, path: Path) -> list[str]:
    if split not in splits:
        known = shown(", ".join(sorted(splits))) or "none"
        raise BadInput(f'nothing is in the split "{split}" of {path}: choose one of those there ({known})')
    return splits[split]


FORMAT = 'one row per pair, "fixed,moving,split", "a_ED.nii.gz,a_ES.nii.gz,train" and so on'
IMAGES, LABELS = ("fixed", "moving"), ("fixed_labels", "moving_labels")
COLUMNS = (*IMAGES, *LABELS, "split", "name")
MAX_HEADERS = 1000  # images, spread evenly over the file, whose headers are read to find the common shape
SHAPE_MULTIPLE = 16  # voxels: networks halve their images up to four times
SPACING_TOLERANCE = 1e-3  # relative: headers round spacings


@dataclass(frozen=True, eq=False)
class Manifest:
    """One sample per pair: a volume, or the slices of a stack, or a 2D image; all of one spacing and shape."""

    root: Path
    pairs: Mapping[str, Mapping[str, str]] = field(repr=False)  # {name: its row}, in the order of the file
    splits: Splits = field(repr=False)

    name = "manifest"
    structures = None
    pairs_across_subjects = False

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """The pairs of a CSV file; BadInput if columns, names or splits are wrong."""
        rows = read_rows(path, FORMAT)
        if not rows or not set(IMAGES) <= rows[0].keys():
            columns = f" in the columns {shown(', '.join(rows[0]))}" if rows else ""
            raise BadInput(f"{path} lists no pairs of images{columns}: give it {FORMAT}")
        refuse_misspelt(rows[0], COLUMNS, path)
        names = [row.get("name") or f"pair{number:03d}" for number, row in enumerate(rows, start=1)]
        subjects = [row.get("subject", "") for row in rows]
        if "name" not in rows[0] and all(subjects) and len({*subjects}) == len(rows):
            names = subjects
        members = [(name, row.get("split", "train")) for name, row in zip(names, rows, strict=True)]
        return cls(path, dict(zip(names, rows, strict=True)), group_by_split(members, path))

    def subjects(self, split: str) -> list[str]:
        if split not in self.splits and not any("split" in row for row in self.pairs.values()):
            advice = f'add one to have a "{split}" too' + ("" if split == "val" else ', or give `split="train"`')
            raise BadInput(f'{self.root} has no column split, so all is in "train": {advice}')
        return choose_split(self.splits, split, self.root)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The images of a pair, and their labels if both images have them."""
        files = [self.pairs[subject].get(part, "") for part in (*IMAGES, *LABELS)]
        if "" in files[:2]:
            raise BadInput(f"its {IMAGES[files.index('')]} image is not named in {self.root.name}")
        return [self.root.parent / path for path in (files if all(files) else files[:2])]

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One pair, scaled, on the grid of fixed at the common spacing, about its centre."""
        files = self.sources(subject, purpose)
        images = fixed, moving = [protocols.read_shown(path) for path in files[:2]]
        d, axes = len(registered_axes(fixed.grid)), [image.array.ndim for image in images]
        if d != len(self.shape):
            raise BadInput(
                f"{fixed.name} is registered in {d}D, and the first pair in {len(self.shape)}D: part the list"
            )
        if axes[0] != axes[1]:
            raise BadInput(f"{fixed.name} is {axes[0]}D and {moving.name} {axes[1]}D: give two images of one kind")
        protocols.check_overlap(fixed, moving)
        masks = [protocols.read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        own, across = fixed.grid, fixed.grid.stacked_across
        shape, spacing = self.shape, self.spacing
        if across is not None:  # slices stay where they are
            shape = (*shape[:across], own.shape[across], *shape[across:])
            spacing = (*spacing[:across], own.spacing[across], *spacing[across:])
        grid = protocols.centred_grid(own, shape, spacing, own.forward_axes)
        I0, I1 = (protocols.image_on(image, grid, across) for image in rescale_images_jointly(*images))
        shown = protocols.not_constant(I0) & protocols.not_constant(I1)
        if not shown.any():
            raise BadInput("no slice shows something in both images: there is nothing to register")
        labels = [protocols.labels_on(mask, grid, across)[shown] for mask in masks]
        return Sample(subject, I0[shown], I1[shown], self.spacing, *labels)

    @cached_property
    def spacing(self) -> tuple[float, ...]:
        """The spacing of the first fixed image in mm, to three digits; for a stack, within its slices."""
        own = self.grids[0]
        return tuple(float(f"{own.spacing[axis]:.3g}") for axis in registered_axes(own))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """In voxels, in multiples of 16, with room for the largest fixed image of those whose headers are read."""
        extents = [[own.shape[axis] * own.spacing[axis] for axis in registered_axes(own)] for own in self.grids]
        voxels = np.max([extent for extent in extents if len(extent) == len(extents[0])], axis=0) / self.spacing
        return tuple(SHAPE_MULTIPLE * ceil(n * (1 - SPACING_TOLERANCE) / SHAPE_MULTIPLE) for n in voxels.tolist())

    @property
    def parameters(self) -> dict[str, Any]:
        return {"spacing": self.spacing, "shape": self.shape}

    @cached_property
    def grids(self) -> list[Grid]:
        """The grids of the fixed images, their axes in the order of the world's; what cannot be read is told later."""
        names = [row["fixed"] for row in self.pairs.values() if row["fixed"]]
        names, found = names[:: ceil(len(names) / MAX_HEADERS) or 1], []
        for name in names:
            with suppress(BadInput):
                own = read_grid(self.root.parent / name)
                found.append(own.reordered(own.order))
        if not found:
            told = f"no fixed image that {self.root} lists (tried: {len(names)}) can be read"
            raise BadInput(f"{told}: its paths are relative to {self.root.parent}")
        return found


def registered_axes(own: Grid) -> list[int]:
    """The axes along which an image is registered: not across slices too far apart to be a volume."""
    return [axis for axis in range(len(own.shape)) if axis != own.stacked_across]
