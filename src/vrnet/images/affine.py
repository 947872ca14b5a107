"""Affine maps of the world: x ↦ M (x − c) + c + t, from a point of fixed to one of moving, in LPS millimetres."""

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.attributes import cached_property
from vrnet.errors import BadInput
from vrnet.images.grid import Grid

if TYPE_CHECKING:
    import SimpleITK as sitk

AffineKind = Literal["rigid", "affine"]
"""A rotation and a shift; or scaling and shear, too."""
LARGEST_CONDITION = 1e6
"""How much more a map may stretch one direction than another."""
ORTHONORMAL = 1e-9
"""How far the products of the columns of a rotation may be from 0 and 1."""


@dataclass(frozen=True, repr=False, eq=False)
class Affine:
    """x ↦ matrix (x − centre) + centre + translation."""

    kind: AffineKind
    matrix: Float[ndarray, "d d"]
    translation: Float[ndarray, " d"]
    """How the centre moves."""
    centre: Float[ndarray, " d"]
    """The centre of fixed."""

    def __repr__(self) -> str:
        parts = self.summary()
        return "Affine({kind}: {rotation_deg:.3g}°, {translation_mm:.3g} mm, scale {scale:.3g})".format(**parts)

    def checked(self, d: int) -> "Affine":
        """The map itself; BadInput unless it maps images of d dimensions, and neither mirrors nor flattens them."""
        shapes = [np.shape(part) for part in (self.matrix, self.translation, self.centre)]
        if shapes != [(d, d), (d,), (d,)]:
            raise BadInput(f"the affine map is {len(self.centre)}D and the images are {d}D: give one of their kind")
        if not all(np.isfinite(part).all() for part in (self.matrix, self.translation, self.centre)):
            raise BadInput("the affine map has NaN or infinite numbers: give one that was found")
        if np.linalg.cond(self.matrix) > LARGEST_CONDITION:
            raise BadInput("the affine map takes space onto a plane or a line, or nearly so: give one with an inverse")
        if np.linalg.det(self.matrix) < 0:
            raise BadInput("the affine map mirrors, by its determinant: give one that does not, and moving flipped")
        return self

    @classmethod
    def from_sitk(cls, transform: "sitk.Transform") -> "Affine":
        """A linear transform of SimpleITK of any kind, about the origin; it is rigid if it keeps all distances."""
        d = transform.GetDimension()
        zero, *ends = (np.array(transform.TransformPoint(point.tolist())) for point in np.eye(d + 1, d, -1))
        matrix = (np.array(ends) - zero).T
        is_rigid = np.allclose(matrix.T @ matrix, np.eye(d), atol=ORTHONORMAL) and np.linalg.det(matrix) > 0
        return cls("rigid" if is_rigid else "affine", matrix, zero, np.zeros(d))

    def points(self, x: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Where points of fixed are in moving."""
        return (x - self.centre) @ self.matrix.T + self.centre + self.translation

    def compose(self, first: "Affine") -> "Affine":
        """x ↦ self(first(x)), of the kind and about the centre of `first`."""
        moved = self.points((first.centre + first.translation)[None])[0]
        return Affine(first.kind, self.matrix @ first.matrix, moved - first.centre, first.centre)

    def about(self, centre: Float[ndarray, " d"]) -> "Affine":
        """The same map, written about another centre."""
        if np.array_equal(centre, self.centre):
            return self
        return replace(self, translation=self.points(centre[None])[0] - centre, centre=centre)

    def inverse(self) -> "Affine":
        """From a point of moving to one of fixed, about the same centre."""
        matrix = np.linalg.inv(self.matrix)
        return Affine(self.kind, matrix, -matrix @ self.translation, self.centre)

    def reach(self, grid: Grid) -> float:
        """How far the corners of a grid move at most, as a part of its diagonal."""
        corners = grid.points(np.array(list(product(*((0.0, n - 1.0) for n in grid.shape)))))
        diagonal = np.linalg.norm(np.multiply(grid.shape, grid.spacing))
        return float(np.linalg.norm(self.points(corners) - corners, axis=1).max() / diagonal)

    def image_of(self, grid: Grid) -> Grid:
        """A grid as it lies in moving; where the map shears, its axes are not at right angles there."""
        steps = self.matrix @ grid.to_world
        lengths = np.linalg.norm(steps, axis=0)
        origin = self.points(np.array([grid.origin]))[0].tolist()
        return Grid(grid.shape, tuple(lengths.tolist()), tuple(origin), tuple((steps / lengths).ravel().tolist()))

    @cached_property
    def itk(self) -> "sitk.Transform":
        """The map as an object of SimpleITK."""
        import SimpleITK as sitk

        made = sitk.AffineTransform(len(self.centre))
        made.SetCenter(self.centre.tolist())
        made.SetMatrix(self.matrix.ravel().tolist())
        made.SetTranslation(self.translation.tolist())
        return made

    def to_sitk(self) -> "sitk.Transform":
        """The map as an object of SimpleITK: `itk`, named as that of images is."""
        return self.itk

    @property
    def rotation(self) -> Float[ndarray, "d d"]:
        """R in M = R S, where R is orthogonal and S symmetric and positive."""
        U, _, V = np.linalg.svd(self.matrix)
        return U @ V

    def summary(self) -> dict[str, Any]:
        """What metrics.json says: the angle of R, how far the centre of fixed moves, and the d-th root of det M."""
        return {
            "kind": self.kind,
            "rotation_deg": rotation_angle(self.rotation),
            "translation_mm": float(np.linalg.norm(self.translation)),
            "scale": float(np.linalg.det(self.matrix) ** (1 / len(self.centre))),
        }


def fit_affine(displacement: Float[ndarray, "d *s"], grid: Grid) -> Affine:
    """The affine map nearest to displacements in millimetres on a grid, in the sense of least squares."""
    d, centre = len(grid.shape), grid.centre
    places = np.indices(grid.shape).reshape(d, -1).astype(np.float64)
    x, v = grid.points(places.T) - centre, displacement.reshape(d, -1).T
    slope = np.linalg.lstsq(x.T @ x, x.T @ (v - v.mean(0)), rcond=None)[0].T
    return Affine("affine", np.eye(d) + slope, v.mean(0), centre)


def rotation_angle(R: Float[ndarray, "d d"]) -> float:
    """The angle by which a rotation turns, in degrees from 0 to 180."""
    sine, cosine = np.linalg.norm(R - R.T) / 8**0.5, (np.trace(R) - (len(R) - 2)) / 2
    return float(np.degrees(np.arctan2(sine, cosine)))
