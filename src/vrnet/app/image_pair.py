"""Two images, with all that comes with them, as they are read from files."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.app.heart_labels import warn_of_exchanged_ventricles
from vrnet.errors import BadInput, warn_of_input
from vrnet.evaluation.label_names import LabelNames, check_labels_are_there, names_told_by_files, read_label_names
from vrnet.files import exists
from vrnet.images.image import Image, as_labels
from vrnet.images.io import read_image
from vrnet.images.same_grid import check_same_grid
from vrnet.registration.masks import ImageMasks


@dataclass(frozen=True)
class ImagePair:
    """Two images, and the labels and masks of either, each on its image's grid."""

    fixed: Image
    moving: Image
    fixed_labels: Image | None = None
    moving_labels: Image | None = None
    fixed_mask: Image | None = None
    moving_mask: Image | None = None
    label_names: LabelNames = field(default_factory=dict, kw_only=True)
    """What labels are called."""
    are_names_told_by_files: bool = field(default=False, kw_only=True)
    """Whether nobody gave these names, but the label maps are called as a data set calls its own."""
    true_motion: Float[ndarray, "d *s"] | None = field(default=None, kw_only=True)
    """The displacement from fixed to moving, in voxels of fixed, where it is known: that of a phantom."""

    def __post_init__(self) -> None:
        maps = (self.fixed_labels, self.fixed, self.moving), (self.moving_labels, self.moving, self.fixed)
        for labels, image, other in maps:
            if labels is not None:
                check_same_grid(labels.name, labels.grid, image.name, image.grid, {other.name: other.grid})

    @property
    def images(self) -> dict[str, Image]:
        """All images that are given, by their names here."""
        return {name: image for name, image in vars(self).items() if isinstance(image, Image)}

    @property
    def masks(self) -> ImageMasks:
        return ImageMasks.read(self.fixed_mask, self.moving_mask, self.fixed, self.moving)

    def with_label_names(self, given: str | LabelNames | None) -> "ImagePair":
        """The pair with names for its labels; BadInput unless both images have labels, and these are among them.

        Given none, those of the data set that has such names of files, if the labels are among its own."""
        if given is None:
            return self if self.label_names else self.named_by_files()
        if self.fixed_labels is None or self.moving_labels is None:
            raise BadInput("names of labels are given, but not the labels: give `fixed_labels` and `moving_labels` too")
        check_labels_are_there(given, self.labels_there())
        return self.named(read_label_names(given))

    def named_by_files(self) -> "ImagePair":
        """The pair with the names that the files of its labels tell; the pair itself where they tell none."""
        maps = [map_ for map_ in (self.fixed_labels, self.moving_labels) if map_ is not None]
        names = names_told_by_files(map_.name for map_ in maps)
        if len(maps) < 2 or not names or not self.labels_there() <= {0, *names}:
            return self
        return replace(self.named(names), are_names_told_by_files=True)

    def named(self, names: LabelNames) -> "ImagePair":
        """The pair with these names, whether or not every label is there; a warning where LV and RV seem exchanged."""
        warn_of_exchanged_ventricles([map_ for map_ in (self.fixed_labels, self.moving_labels) if map_], names)
        return replace(self, label_names=names)

    @property
    def naming(self) -> str:
        """Where the names of structures come from, where nobody gave any: for a reader who wonders at them."""
        if self.fixed_labels is None or self.moving_labels is None:
            return ""
        if not self.label_names:
            return "called by their numbers; --label-names names them, as in 1=RV,2=Myo"
        if not self.are_names_told_by_files:
            return ""
        names = ", ".join(f"{label} {name}" for label, name in self.label_names.items())
        return f"called as in ACDC, whose names the files of the labels have: {names}"

    def labels_there(self) -> set[int]:
        """Every label that a voxel of either label map has."""
        maps = [map_.array for map_ in (self.fixed_labels, self.moving_labels) if map_ is not None]
        return {label for map_ in maps for label in np.unique(map_).tolist()}


def read_pair(
    fixed: Path,
    moving: Path,
    fixed_labels: Path | None = None,
    moving_labels: Path | None = None,
    fixed_mask: Path | None = None,
    moving_mask: Path | None = None,
) -> ImagePair:
    """Read two images, and the label maps and masks that are given; a warning where the two are the same."""
    labels = [None if path is None else as_labels(read_image(path)) for path in (fixed_labels, moving_labels)]
    masks = [None if path is None else read_image(path) for path in (fixed_mask, moving_mask)]
    pair = ImagePair(read_image(fixed), read_image(moving), *labels, *masks)
    if pair.fixed.grid.matches(pair.moving.grid) and np.array_equal(pair.fixed.array, pair.moving.array):
        warn_of_input(f"{pair.fixed.name} and {pair.moving.name} are the same image: nothing is to be found")
    return pair


def name_of(image: Image | None) -> str | None:
    """The name of the file that an image came from, without its folder."""
    return None if image is None else Path(image.name).name


def path_of(image: Image | None) -> str | None:
    """Where the file is that an image came from, so that it is found again; None if it came from none."""
    return str(Path(image.name).absolute()) if image is not None and exists(Path(image.name)) else None
