"""What the labels of a reference are: which are the ventricles and the wall, and what a wall encloses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.errors import BadInput, warn_of_input
from vrnet.evaluation.label_names import LabelNames
from vrnet.evaluation.strain import NO_STRAIN, NO_WALL
from vrnet.evaluation.surfaces import fill_holes
from vrnet.evaluation.volumes import open_wall_text
from vrnet.evaluation.wall import HeartLabels, largest_part
from vrnet.images.cine import Cine
from vrnet.images.cine_files import grid_in_space
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_labels

PARTS = {"RV": "rv", "Myo": "wall", "LV": "lv"}
"""What parts of the heart are called in names of labels, and in HeartLabels."""
ALSO_CALLED = {"wall": "wall", "myocardium": "wall", "cavity": "lv"}
"""Other names that people give, as pages do."""
CAVITY = 3
"""What the inside of the wall is labelled where a map has the wall alone."""
OPEN_WALL = 1.2
"""How many times as large as a wall that encloses nothing its convex hull is, where the wall is an open arc: that of
the apex, a disc, is no larger than it."""
SMALLEST_CAVITY = 0.05
"""Of the wall: less is a pit in it."""
SMALLEST_CAVITY_OF_A_THREE = 0.25
"""Of a wall whose label is 3, which is the cavity in ACDC: less is a papillary muscle left out of the cavity."""
Array = NDArray[Any]


def heart_of(names: LabelNames) -> HeartLabels:
    """Which labels are the parts of the heart, by what they are called; what is not named is not labelled."""
    known = {name.casefold(): part for name, part in PARTS.items()} | ALSO_CALLED
    parts = [(known[name.casefold()], label) for label, name in names.items() if name.casefold() in known]
    found = dict(parts)
    if len(found) < len(parts):
        raise BadInput(f"the names of labels are {shown(names)}: a part of the heart is named twice; give each once")
    if not found:
        raise BadInput(f"the names of labels are {shown(names)}: name a part of the heart too, as in 1=RV,2=Myo,3=LV")
    return HeartLabels(found.get("rv"), found.get("wall"), found.get("lv"))


def names_of(heart: HeartLabels, labels: Image) -> LabelNames:
    """What the labels that are there are called, by which are the parts of the heart."""
    there = set(np.unique(labels.array).tolist())
    return {label: name for label, name in names_by_part(heart).items() if label in there}


def names_by_part(heart: HeartLabels) -> LabelNames:
    """What the labels of the parts of the heart are called."""
    found = {getattr(heart, part): name for name, part in PARTS.items()}
    return {label: name for label, name in found.items() if label is not None}


def shown(names: LabelNames) -> str:
    """As they are given: 1=RV,2=Myo."""
    return ",".join(f"{label}={name}" for label, name in names.items())


def check_labels(labels: Image, cine: Cine) -> Image:
    """The labels of a frame; BadInput unless they are a label map on its grid that shows something."""
    labels = without_third_axis(labels) if len(cine.grid.shape) == 2 else labels
    if not labels.grid.matches(cine.grid):
        said = f"{labels.name} is not on the grid of the frames of {cine.name}: labels must match their image"
        raise BadInput(f"{said}; it has {size_text(labels.grid)}, they have {size_text(cine.grid)}")
    found = as_labels(labels)
    if not found.array.any():
        raise BadInput(f"{labels.name} is 0 everywhere: give the label map of the reference frame")
    return replace(found, grid=cine.grid)


def without_third_axis(labels: Image) -> Image:
    """One slice that was saved as a stack, where a cine of one slice with that header lies."""
    if labels.grid.shape[2:] != (1,):
        return labels
    return replace(labels, array=labels.array[..., 0], grid=grid_in_space(labels.grid, Path(labels.name)))


def size_text(grid: Grid) -> str:
    """The size of a grid in words, with where it lies."""
    size, spacing = " x ".join(map(str, grid.shape)), " x ".join(f"{h:.4g}" for h in grid.spacing)
    return f"{size} voxels of {spacing} mm at {', '.join(f'{x:.4g}' for x in grid.origin)}"


def check_parts(labels: Image, heart: HeartLabels, names: LabelNames) -> None:
    """BadInput if no part of the heart is labelled; a warning where names are given to labels that are not there, where
    there is no wall, and where LV and RV seem to be exchanged, before a minute is spent."""
    there = sorted(np.unique(labels.array[labels.array != 0]).tolist())
    if not {heart.rv, heart.wall, heart.lv} & {*there}:
        said = f"{labels.name} has the labels {', '.join(map(str, there))}, and none of {shown(names_by_part(heart))}"
        raise BadInput(f"{said}: say which is which by `label_names`, as in 1=RV,2=Myo,3=LV")
    if absent := {label: name for label, name in names.items() if label not in there}:
        warn_of_input(f"{labels.name} has no label {shown(absent)}")
    if heart.wall not in there:
        said = f"{NO_STRAIN.format(reason=NO_WALL)}; the verdict looks neither at the wall nor for muscle in the cavity"
        warn_of_input(said)
    elif is_rv_enclosed(labels, heart):
        other = shown(names_by_part(exchanged(heart)))
        said = f"in {labels.name} the wall encloses label {heart.rv}, taken for the RV, and not {heart.lv}, for the LV"
        warn_of_input(f'{said}: if they are exchanged, give `label_names="{other}"`')


def is_rv_enclosed(labels: Image, heart: HeartLabels) -> bool:
    """Whether what the wall goes all round, slice by slice, is the RV rather than the LV, both being labelled."""
    if heart.rv is None or heart.lv is None:
        return False
    inside = np.stack([enclosed(plane) for plane in in_planes(labels.array == heart.wall, labels)])
    found = in_planes(labels.array, labels)[inside]
    return bool((found == heart.rv).sum() > (found == heart.lv).sum())


def exchanged(heart: HeartLabels) -> HeartLabels:
    """The labels of the parts, with that of the RV for the LV."""
    return HeartLabels(heart.lv, heart.wall, heart.rv)


def interpret_labels(labels: Image) -> tuple[Image, HeartLabels]:
    """The labels with what they mean: as in ACDC; a lone value is the wall, and what it encloses is labelled too. A
    lone 3 that encloses little is the cavity, as in ACDC."""
    values = np.unique(labels.array[labels.array != 0])
    if len(values) > 1:
        return labels, HeartLabels()
    lone = int(values[0])
    inside = np.stack([enclosed(plane) for plane in in_planes(labels.array != 0, labels)])
    least = SMALLEST_CAVITY_OF_A_THREE if lone == CAVITY else SMALLEST_CAVITY
    is_solid = bool(inside.sum() <= least * np.count_nonzero(labels.array))
    if is_solid and lone == CAVITY:
        said = f"{labels.name} has one label, {lone}: it is taken for the cavity of the LV, since it encloses little"
        warn_of_input(said)
        return labels, HeartLabels(rv=None, wall=None, lv=lone)
    return label_inside(labels, lone, inside, is_solid)


def label_inside(labels: Image, wall: int, inside: Bool[ndarray, "k x y"], is_solid: bool) -> tuple[Image, HeartLabels]:
    """The labels with the inside of the wall as the cavity; a warning says so, and how to say what a disc is."""
    cavity = CAVITY if wall != CAVITY else CAVITY + 1
    array = labels.array.astype(np.int32)
    if not is_solid:
        in_planes(array, labels)[inside] = cavity
    closed = f"and what it encloses is labelled {cavity}"
    disc = f'but encloses next to nothing; if it is the cavity, give `label_names="{wall}=LV"`'
    said = f"{labels.name} has one label, {wall}: it is taken for the wall, {disc if is_solid else closed}"
    warn_of_input(said)
    return labels.with_array(array), HeartLabels(rv=None, wall=wall, lv=cavity)


def in_planes(array: Array, labels: Image) -> Array:
    """A view of what is on the grid of labels: its slices first; an image of two axes is one slice."""
    return array[None] if array.ndim == 2 else np.moveaxis(array, labels.grid.across, 0)


def enclosed(wall: Bool[ndarray, "x y"]) -> Bool[ndarray, "x y"]:
    """The largest part of a slice that the wall encloses, where that is its cavity: pits within the wall are none. A
    hole that is small and beside the middle of the wall is a pit, too, as those of an open wall are."""
    found = largest_part(fill_holes(wall[None])[0] & ~wall, diagonal=False)
    if found.sum() > SMALLEST_CAVITY * wall.sum():
        return found
    is_in_the_middle = found.any() and found[tuple(np.argwhere(wall).mean(0).round().astype(int))]
    return found if is_in_the_middle else np.zeros_like(wall)


def open_slices(labels: Image, heart: HeartLabels) -> tuple[int, ...]:
    """The slices whose wall is an open arc, as at the outflow: the LV has no volume there, though the wall has; none
    where the LV is not labelled at all."""
    walls, cavities = (in_planes(labels.array == part, labels) for part in (heart.wall, heart.lv))
    pairs = zip(walls, cavities, strict=True) if cavities.any() else ()
    return tuple(k for k, (wall, cavity) in enumerate(pairs) if is_open(wall, cavity | enclosed(wall)))


def warn_of_open_slices(labels: Image, heart: HeartLabels) -> None:
    """Warn where no cavity can be counted, before a minute is spent."""
    if slices := open_slices(labels, heart):
        said = f"{labels.name}: {open_wall_text(slices)}; to count it, label the cavity too"
        warn_of_input(said)


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
