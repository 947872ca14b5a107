"""A registered pair as it is judged: on the grid of fixed, by what the field does beyond an affine start."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real
from numpy import ndarray

from vrnet.attributes import cached_property
from vrnet.evaluation.blocks import Inside, in_shape
from vrnet.evaluation.evidence import Evidence, gather
from vrnet.evaluation.pair import regularity
from vrnet.images.affine import Affine
from vrnet.images.grid import Grid


@dataclass(frozen=True, eq=False)
class RegisteredPair:
    """Images on the grid of fixed, before and after, with the transform between them."""

    fixed: Real[ndarray, "*s"]
    moving: Real[ndarray, "*s"]
    """As the headers place it."""
    warped: Real[ndarray, "*s"]
    field: Float[ndarray, "d *s"]
    """The whole transform, in voxels of fixed."""
    grid: Grid
    moving_grid: Grid
    """The one that moving came on."""
    affine: Affine | None = None
    """The start that the transform holds, if there was one."""
    compared: Bool[ndarray, "*s"] | None = None
    """The voxels inside the masks; None for all."""
    started: Real[ndarray, "*s"] | None = None
    """Moving as the affine start places it, if there was one."""

    @cached_property
    def deformation(self) -> Float[ndarray, "d *s"]:
        """The field beyond the affine start."""
        return deformation(self.field, self.grid, self.affine)

    @cached_property
    def regularity(self) -> dict[str, float]:
        """Folds and smoothness of the deformation: of a stack registered slice by slice, within its slices."""
        return regularity(self.deformation, self.grid)

    def evidence(
        self, dice: tuple[float, float] | None = None, distance: tuple[float, float] | None = None
    ) -> Evidence:
        """The grounds of the verdict; where there are labels, with the means over the structures of Dice and surface
        distance, before and after."""
        return gather(
            self.fixed,
            self.moving,
            self.warped,
            self.deformation,
            self.grid.spacing,
            self.regularity["folding_strict_percent"],
            inside(self.moving_grid, self.grid, self.affine),
            self.compared,
            dice,
            distance,
            self.started,
        )


def deformation(field: Float[ndarray, "d *s"], grid: Grid, affine: Affine | None) -> Float[ndarray, "d *s"]:
    """What a field in voxels does beyond the affine map that it holds: x ↦ A⁻¹(x + u(x))."""
    if affine is None:
        return field
    places = np.indices(grid.shape, dtype=np.float64)  # single precision would seem to move far slices
    ends = grid.points((places + field).reshape(len(field), -1).T)
    return (grid.index(affine.inverse().points(ends)).T.reshape(field.shape) - places).astype(np.float32)


def inside(own: Grid, grid: Grid, affine: Affine | None = None) -> Inside:
    """Says which points, in voxels of a grid, lie, or are taken by an affine map, within an image of its own grid."""
    place = affine.points if affine else (lambda points: points)
    return lambda index: in_shape(own.shape)(own.index(place(grid.points(index))))
