"""What the labels of a reference are: which are the ventricles and the wall, and what a wall encloses."""

import warnings
from dataclasses import replace

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from vrnet.errors import BadInput, InputWarning
from vrnet.evaluation.label_names import LabelNames
from vrnet.evaluation.wall import HeartLabels
from vrnet.images.cine import Cine
from vrnet.images.image import Image, as_labels

PARTS = {"rv": "rv", "myo": "wall", "lv": "lv"}
"""What parts of the heart are called in names of labels, and in HeartLabels."""
CAVITY = 3
"""What the inside of the wall is labelled where a map has the wall alone."""
NOWHERE = -1
"""A label that no voxel has."""
OPEN_WALL = 1.2
"""How many times as large as a wall that encloses nothing its convex hull is, where the wall is an open arc: that of
the apex, a disc, is no larger than it."""
SMALLEST_CAVITY = 0.05
"""Of the wall: less is a pit in it."""


def heart_of(names: LabelNames) -> HeartLabels:
    """Which labels are the parts of the heart, by what they are called; what is not named is in no voxel."""
    parts = [(PARTS[name.casefold()], label) for label, name in names.items() if name.casefold() in PARTS]
    found, shown = dict(parts), ", ".join(f"{label}={name}" for label, name in names.items())
    if len(found) < len(parts):
        raise BadInput(f"the names of labels are {shown}: a part of the heart is named twice; give each once")
    if "wall" not in found:
        raise BadInput(f"the names of labels are {shown}: name the wall of the LV too, as in 1=RV,2=Myo,3=LV")
    return HeartLabels(**(dict.fromkeys(PARTS.values(), NOWHERE) | found))


def check_labels(labels: Image, cine: Cine) -> Image:
    """The labels of a frame; BadInput unless they are a label map on its grid that shows something."""
    if not labels.grid.matches(cine.grid):
        raise BadInput(f"{labels.name} is not on the grid of the frames of {cine.name}: labels must match their image")
    found = as_labels(labels)
    if not found.array.any():
        raise BadInput(f"{labels.name} is 0 everywhere: give the label map of the reference frame")
    return replace(found, grid=cine.grid)


def interpret_labels(labels: Image) -> tuple[Image, HeartLabels]:
    """The labels with what they mean: as in ACDC; a lone value is the wall, and what it encloses is labelled too."""
    values = np.unique(labels.array[labels.array != 0])
    if len(values) > 1:
        return labels, HeartLabels()
    wall, across = int(values[0]), labels.grid.across if labels.array.ndim == 3 else None
    planes = labels.array[None] if across is None else np.moveaxis(labels.array, across, 0)
    filled = np.stack([enclosed(plane != 0) for plane in planes])
    inside = filled[0] if across is None else np.moveaxis(filled, 0, across)
    cavity = CAVITY if wall != CAVITY else CAVITY + 1
    array = labels.array.astype(np.int32)
    array[inside] = cavity
    said = f"{labels.name} has one label, {wall}: it is taken for the wall, and what it encloses is labelled {cavity}"
    warnings.warn(said, InputWarning, stacklevel=1)
    warn_of_open_walls(planes != 0, filled, labels.name)
    return labels.with_array(array), HeartLabels(rv=NOWHERE, wall=wall, lv=cavity)


def enclosed(wall: Bool[ndarray, "x y"]) -> Bool[ndarray, "x y"]:
    """The largest part of a slice that the wall encloses: pits within the wall are no cavity."""
    from scipy.ndimage import binary_fill_holes, label

    parts, count = label(binary_fill_holes(wall) & ~wall)
    sizes = np.bincount(parts.ravel(), minlength=count + 1)[1:]
    return parts == 1 + sizes.argmax() if count else np.zeros_like(wall)


def warn_of_open_walls(walls: Bool[ndarray, "k x y"], cavities: Bool[ndarray, "k x y"], name: str) -> None:
    """Warn of slices whose wall is an open arc, as at the outflow: the LV has no volume there, though the wall has."""
    found = [str(k + 1) for k, pair in enumerate(zip(walls, cavities, strict=True)) if is_open(*pair)]
    if found:
        where = f"slice {found[0]}" if len(found) == 1 else f"slices {', '.join(found)}"
        said = f"in {where} of {name} the wall does not close: volumes and the ejection fraction lack the cavity there"
        warnings.warn(f"{said}; to count it, label the cavity too (2 wall, 3 cavity)", InputWarning, stacklevel=1)


def is_open(wall: Bool[ndarray, "x y"], cavity: Bool[ndarray, "x y"]) -> bool:
    """Whether a wall encloses nothing, and is an arc."""
    from scipy.spatial import ConvexHull, QhullError

    if cavity.sum() > SMALLEST_CAVITY * wall.sum():
        return False
    try:
        hull = ConvexHull(np.argwhere(wall)).volume
    except (QhullError, ValueError):  # a line, a few voxels, or none
        return False
    return bool(hull > OPEN_WALL * wall.sum())
