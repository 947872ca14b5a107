"""Anyone's images: a CSV file with a line a pair, and paths relative to it.

Columns fixed and moving; fixed_labels and moving_labels, split and name where wanted. Without a column split every
pair is in "train", and there is none to validate or to test on: which are held back is for their owner to say.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

import numpy as np

from vrnet.data.layout import batched, common_grid, common_shape, common_spacing, dimension
from vrnet.data.reading import check_overlap, read_labels, read_shown
from vrnet.data.sample import Purpose, Sample
from vrnet.data.short_axis import varied
from vrnet.data.splits import check_unique, members
from vrnet.data.volumes import scaled
from vrnet.errors import BadInput
from vrnet.files import read_rows
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import IMAGE_SUFFIXES, read_image, silence_warnings
from vrnet.images.resample import place_labels, resample_image

FORMAT = 'a line a pair, "fixed,moving,split", "a_ED.nii.gz,a_ES.nii.gz,train" and so on'
IMAGES, LABELS = ("fixed", "moving"), ("fixed_labels", "moving_labels")
COLUMNS = (*IMAGES, *LABELS, "split", "name")
ALIKE = 0.8
Row = dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """A sample a pair: a volume, or the slices of a stack, or a 2D image; all of one spacing and shape."""

    root: Path
    spacing: tuple[float, ...]
    """In mm, of what is registered: of a stack, within its slices."""
    shape: tuple[int, ...]

    name = "manifest"
    pairs_across_subjects = False

    @classmethod
    def read(
        cls, root: Path, spacing: tuple[float, ...] | None = None, shape: tuple[int, ...] | None = None
    ) -> "Manifest":
        """The pairs of a CSV file; unless given, the spacing is that of the first fixed image, and the shape has room
        for the largest."""
        first, *others = headers(root)
        alike = [first, *(grid for grid in others if dimension(grid) == dimension(first))]
        spacing = spacing or common_spacing(first)
        return cls(root, spacing, shape or common_shape(alike, spacing))

    @cached_property
    def rows(self) -> dict[str, Row]:
        """{name: {column: value}}."""
        return read_pairs(self.root)

    @cached_property
    def structures(self) -> dict[str, int]:
        """Every label but 0 that any of the files holds, by its number."""
        files = [self.root.parent / row[part] for row in self.rows.values() for part in LABELS if row.get(part)]
        return {str(value): value for value in sorted(set().union(*(label_values(path) for path in files)) - {0})}

    def subjects(self, split: str) -> list[str]:
        """The names of the pairs of a split."""
        splits = {name: row.get("split", "train") for name, row in self.rows.items()}
        if split != "train" and not any("split" in row for row in self.rows.values()):
            raise BadInput(f'{self.root} has no column split, so all is in "train": add one to have a "{split}" too')
        return members(splits, split, self.root)

    def sources(self, subject: str, purpose: Purpose) -> list[Path]:
        """The images of a pair; and their labels where there are any, to be measured on."""
        row = self.rows[subject]
        if lacking := [part for part in IMAGES if not row.get(part)]:
            raise BadInput(f"its {lacking[0]} image is not named in {self.root.name}")
        parts = (*IMAGES, *LABELS) if purpose == "evaluation" and has_labels(row) else IMAGES
        return [self.root.parent / row[part] for part in parts]

    def prepare(self, subject: str, purpose: Purpose) -> Sample:
        """One pair: read, scale, bring both to the grid of fixed at the common spacing."""
        files = self.sources(subject, purpose)
        images = [read_shown(path) for path in files[:2]]
        self.check(*images)
        masks = [read_labels(path, image) for path, image in zip(files[2:], images, strict=False)]
        own = images[0].grid
        grid, across = common_grid(own, self.shape, self.spacing), own.stacked_across
        fixed, moving = (batched(resample_image(image, grid).array, across).clamp(0, 1) for image in scaled(*images))
        shown = varied(fixed) & varied(moving)
        if not shown.any():
            raise BadInput("no slice shows something in both images: there is nothing to register")
        labels = [batched(place_labels(mask, grid).array, across)[shown] for mask in masks]
        return Sample(subject, fixed[shown], moving[shown], self.spacing, *labels)

    def check(self, fixed: Image, moving: Image) -> None:
        """BadInput unless both are of one kind, that of the first pair, and somewhere in one place."""
        if dimension(fixed.grid) != len(self.shape):
            kinds = f"registered in {dimension(fixed.grid)}D, and those of the first pair in {len(self.shape)}D"
            raise BadInput(f"{fixed.name} is {kinds}: list them in a file of their own")
        if len(moving.grid.shape) != len(fixed.grid.shape):
            d = [len(image.grid.shape) for image in (fixed, moving)]
            raise BadInput(f"{fixed.name} is {d[0]}D and {moving.name} {d[1]}D: give two images of one kind")
        check_overlap(fixed, moving)


def read_pairs(path: Path) -> dict[str, Row]:
    """{name: {column: value}}; pairs without a name are numbered from 1."""
    rows = read_rows(path, FORMAT)
    if not rows:
        raise BadInput(f"{path} lists no pairs of images: give it {FORMAT}")
    check_columns(list(rows[0]), path)
    names = [row.get("name") or f"pair{number:03d}" for number, row in enumerate(rows, start=1)]
    check_unique(names, path)
    return dict(zip(names, rows, strict=True))


def check_columns(found: list[str], path: Path) -> None:
    """BadInput if one that is needed is not there, or one that may be there has nearly another name."""
    if not set(IMAGES) <= set(found):
        names = f"fixed and moving and, where wanted, {', '.join(COLUMNS[2:])}"
        raise BadInput(f"{path} has the columns {', '.join(found)}: they should be {names}")
    for name in found:
        close = get_close_matches(name.casefold(), set(COLUMNS) - set(found), n=1, cutoff=ALIKE)
        if close and name not in COLUMNS:
            raise BadInput(f'{path} has a column "{name}": did you mean "{close[0]}"?')


def has_labels(row: Row) -> bool:
    """Of both images: those of one alone cannot be measured."""
    return all(row.get(part) for part in LABELS)


def headers(root: Path) -> list[Grid]:
    """The grids of the fixed images that can be read, the first one first."""
    files = [root.parent / row["fixed"] for row in read_pairs(root).values() if row["fixed"]]
    if not (found := list(readable(files))):
        raise BadInput(f"no fixed image that {root} lists can be read: its paths are relative to {root.parent}")
    return found


def readable(files: list[Path]) -> Iterator[Grid]:
    for path in files:
        with suppress(BadInput):  # told when the pair is prepared
            yield header(path)


def header(path: Path) -> Grid:
    """Where the voxels of an image are, without reading them where the format allows."""
    import SimpleITK as sitk

    if not (path.is_file() and path.name.endswith(IMAGE_SUFFIXES)):
        return read_image(path).grid
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        with silence_warnings():
            reader.ReadImageInformation()
    except RuntimeError as error:
        raise BadInput(f"cannot read {path}") from error
    grid = Grid(reader.GetSize(), reader.GetSpacing(), reader.GetOrigin(), reader.GetDirection())
    return grid if len(grid.shape) in (2, 3) else read_image(path).grid


def label_values(path: Path) -> set[int]:
    """The values in a label file; none if it cannot be read, which is told when the pair is prepared."""
    with suppress(BadInput):
        return set(np.unique(read_image(path).array).astype(int).tolist())
    return set()
