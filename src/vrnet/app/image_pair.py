"""Two images, with all that comes with them, as they are read from files."""

from dataclasses import dataclass
from pathlib import Path

from vrnet.errors import BadInput
from vrnet.images.image import Image, as_labels
from vrnet.images.io import read_image
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

    def __post_init__(self) -> None:
        for labels, image in ((self.fixed_labels, self.fixed), (self.moving_labels, self.moving)):
            if labels is not None and not labels.grid.matches(image.grid):
                raise BadInput(f"{labels.name} is not on the grid of {image.name}: labels must match their image")

    @property
    def masks(self) -> ImageMasks:
        return ImageMasks.read(self.fixed_mask, self.moving_mask, self.fixed, self.moving)


def read_pair(
    fixed: Path,
    moving: Path,
    fixed_labels: Path | None = None,
    moving_labels: Path | None = None,
    fixed_mask: Path | None = None,
    moving_mask: Path | None = None,
) -> ImagePair:
    """Read two images, and the label maps and masks that are given."""
    labels = [None if path is None else as_labels(read_image(path)) for path in (fixed_labels, moving_labels)]
    masks = [None if path is None else read_image(path) for path in (fixed_mask, moving_mask)]
    return ImagePair(read_image(fixed), read_image(moving), *labels, *masks)
