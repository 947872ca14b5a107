"""What the labels of a reference mean: whether they fit the cine, what a lone one is, and where the wall is open."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from vrnet.app.heart_labels import names_by_part, shown, warn_of_exchanged_ventricles
from vrnet.errors import BadInput, warn_of_input
from vrnet.evaluation.label_names import LabelNames
from vrnet.evaluation.strain import NO_STRAIN, NO_WALL
from vrnet.evaluation.volumes import open_wall_text
from vrnet.evaluation.wall import HeartLabels
from vrnet.images.cine import Cine
from vrnet.images.cine_files import grid_in_space
from vrnet.images.enclosed import SMALLEST_CAVITY, enclosed, in_planes
from vrnet.images.image import Image, as_labels
from vrnet.images.same_grid import check_same_grid

CAVITY = 3
"""What the inside of the wall is labelled where a map has the wall alone."""
OPEN_WALL = 1.2
"""How many times as large as a wall that encloses nothing its convex hull is, where the wall is an open arc: that of
the apex, a disc, is no larger than it."""
SMALLEST_CAVITY_OF_A_THREE = 0.25
"""Of a wall whose label is 3, which is the cavity in ACDC: less is a papillary muscle left out of the cavity."""


def check_labels(labels: Image, cine: Cine) -> Image:
    """The labels of a frame; BadInput unless they are a label map on its grid that shows something."""
    labels = without_third_axis(labels) if len(cine.grid.shape) == 2 else labels
    check_same_grid(labels.name, labels.grid, f"the frames of {cine.name}", cine.grid)
    found = as_labels(labels)
    if not found.array.any():
        raise BadInput(f"{labels.name} is 0 everywhere: give the label map of the reference frame")
    return replace(found, grid=cine.grid)


def without_third_axis(labels: Image) -> Image:
    """One slice that was saved as a stack, where a cine of one slice with that header lies."""
    if labels.grid.shape[2:] != (1,):
        return labels
    return replace(labels, array=labels.array[..., 0], grid=grid_in_space(labels.grid, Path(labels.name)))


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
    warn_of_exchanged_ventricles([labels], names or names_by_part(heart))


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
