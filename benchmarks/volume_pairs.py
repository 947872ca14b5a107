"""Pairs of volumes that benchmarks/volumes.py compares tools on, prepared alike for all of them."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter

from vrnet import BadInput, read_image
from vrnet.data.prepared import Source
from vrnet.images.image import rescale_images_jointly

SHIFT = 2.0, -1.0, 3.0
"""The motion of `shifted_pair`, in voxels."""


@dataclass(frozen=True, eq=False)
class LabelledPair:
    """Two volumes in [0, 1] on one grid, and what they show."""

    data: str
    name: str
    fixed: np.ndarray
    moving: np.ndarray
    spacing: tuple[float, ...]
    fixed_labels: np.ndarray
    moving_labels: np.ndarray
    labels: tuple[int, ...]
    """Those that Dice is the mean over."""


def hippocampi(root, split, count):
    """(data, name, how to load it) of each pair of a split."""
    pairs = Source("hippocampus", root).split(split, "evaluation", lambda name: lambda done: None, print)
    labels, data = tuple(pairs.structures.values()), f"hippocampus ({split})"

    def load(k):
        sample = pairs.samples[k]
        parts = sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels
        fixed, moving, *maps = (part[0, 0].numpy() for part in parts)
        return LabelledPair(data, sample.name, fixed, moving, sample.spacing, *maps, labels)

    return [(data, name, lambda k=k: load(k)) for k, name in enumerate(pairs.names[:count])]


def brains(folder):
    """(data, name, how to load it) of the one pair of brains."""

    def load():
        images = [read_image(find_file(folder, name)) for name in ("a_t1", "b_t1", "a_seg", "b_seg")]
        if any(image.grid != images[0].grid for image in images):
            raise BadInput(f"the images of {folder} have several grids: resample them to one")
        fixed, moving = (image.array for image in rescale_images_jointly(*images[:2]))
        maps = [image.array for image in images[2:]]
        shared = tuple(label for label in np.intersect1d(*maps).tolist() if label)
        return LabelledPair("brains", "a to b", fixed, moving, images[0].grid.spacing, *maps, shared)

    return [("brains", "a to b", load)]


def find_file(folder, name):
    """The file of this name and any ending; BadInput if there is none."""
    found = next(folder.glob(f"{name}.*"), None)
    if found is None:
        raise BadInput(f"there is no {folder / name}.nii.gz: give the folder of the images a_t1, b_t1, a_seg and b_seg")
    return found


def shifted_pair():
    """A textured ball that moves by SHIFT, on voxels that are no cubes: the label is well inside it."""
    shape, spacing = (36, 40, 44), (1.0, 1.25, 1.5)
    x = np.stack(np.meshgrid(*(np.arange(n) - n / 2 for n in shape), indexing="ij"))
    texture = gaussian_filter(np.random.default_rng(0).standard_normal(shape), 2.5)
    inside = gaussian_filter((np.linalg.norm(x, axis=0) < 14).astype(float), 1.0)
    fixed = (inside * (0.5 + 0.25 * texture / texture.std()).clip(0, 1)).astype(np.float32)
    core = (np.linalg.norm(x, axis=0) < 10).astype(np.uint8)
    moving, moved = (np.roll(image, [int(s) for s in SHIFT], (0, 1, 2)) for image in (fixed, core))
    return LabelledPair("shift", "ball", fixed, moving, spacing, core, moved, (1,))
