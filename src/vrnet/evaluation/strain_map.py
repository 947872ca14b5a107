"""E = ½(FᵀF − I) at every voxel of the wall: strain as a picture, where `strain` has means over regions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from numpy import ndarray

from vrnet.evaluation.deformation import green_strain, wall_voxels
from vrnet.evaluation.short_axis import SliceAxes, box_around
from vrnet.evaluation.strain import check_fields
from vrnet.evaluation.wall import HeartLabels, find_rings


@dataclass(frozen=True)
class StrainMap:
    """Green strain of the voxels of the reference's wall, in the slices where it is a closed ring."""

    index: Integer[ndarray, "3 n"]
    """Of the voxels, within slices and then across them."""
    radial: Float[ndarray, "t n"]
    """Away from the centre of the slice, in percent."""
    circumferential: Float[ndarray, "t n"]
    """Around the centre of the slice, in percent."""


def strain_map(
    fields: Float[ndarray, "t d *s"],
    labels: Integer[ndarray, "*s"],
    spacing: tuple[float, ...],
    *,
    across: int | None = None,
    heart: HeartLabels | None = None,
) -> StrainMap | None:
    """The strain at each voxel; the arguments are those of `strain`. None where no slice shows a ring of wall."""
    heart, axes = heart or HeartLabels(), SliceAxes.of(labels.shape, spacing, across)
    check_fields(fields, labels)
    wall = axes.stack(labels) == heart.wall
    box = box_around(wall)
    rings, _ = find_rings(wall[box], axes.within)
    if not rings:
        return None
    voxels = wall_voxels(rings, axes.within)
    radial, circumferential = green_strain(axes.motion_mm(fields, box), voxels, axes.within)
    start = [[side.start or 0] for side in box]
    return StrainMap(voxels.index + np.array([*start, [0]]), radial, circumferential)
