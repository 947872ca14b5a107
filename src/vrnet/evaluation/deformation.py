"""What a motion u does to a wall: ½(|e + ∂u/∂e|² − 1) at its voxels, and where its contours go.

Motions are (t, c, x, y, z) in mm with slices across z: components along x and y and, where there is one, along z.
Derivatives are those of the cubic spline through the voxels of a slice: exact to the fourth order of the spacing.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from numpy import ndarray

from vrnet.evaluation.wall import Ring


@dataclass(frozen=True)
class WallVoxels:
    """The voxels of all rings, one after the other."""

    index: Integer[ndarray, "3 n"]
    ring: Integer[ndarray, " n"]  # which ring it is of, from base to apex
    away: Float[ndarray, "2 n"]  # unit vector from the centre of the ring
    angle_deg: Float[ndarray, " n"]
    depth: Float[ndarray, " n"]  # from 0 at the endocardium to 1 at the epicardium


def wall_voxels(rings: list[Ring], spacing: tuple[float, float]) -> WallVoxels:
    """The voxels of rings, with what strain needs to know of them."""
    index, angles, depths = [], [], []
    for ring in rings:
        at = np.argwhere(ring.mask)
        radius, angle = ring.polar(at * np.array(spacing))
        index.append(np.column_stack([at, np.full(len(at), ring.slice)]))
        angles.append(angle)
        depths.append(ring.depth(radius, angle))
    of_ring = np.repeat(np.arange(len(rings)), [len(angle) for angle in angles])
    angle = np.concatenate(angles)
    away = np.stack([np.cos(angle), np.sin(angle)])
    return WallVoxels(np.concatenate(index).T, of_ring, away, np.degrees(angle), np.concatenate(depths))


def green_strain(
    u: Float[ndarray, "t c x y z"], voxels: WallVoxels, spacing: tuple[float, float]
) -> Float[ndarray, "2 t n"]:
    """½(|e + ∂u/∂e|² − 1) in percent at voxels of the wall, for e away from the centre and e around it."""
    slopes = [spline_slope(u, axis, voxels.index) / spacing[axis] for axis in (0, 1)]
    found = []
    for e in (voxels.away, np.stack([-voxels.away[1], voxels.away[0]])):
        stretched = slopes[0] * e[0] + slopes[1] * e[1]
        stretched[:, :2] += e
        found.append(50 * (np.square(stretched).sum(1) - 1))
    return np.stack(found)


def spline_slope(u: Float[ndarray, "t c x y z"], axis: int, index: Integer[ndarray, "3 n"]) -> Float[ndarray, "t c n"]:
    """Derivative per voxel along x or y of the cubic spline through u, at voxels: half the difference of the
    coefficients of the spline on both sides."""
    from scipy import ndimage

    coefficients = ndimage.spline_filter1d(u, 3, axis=2 + axis, output=np.float64)
    step = np.eye(3, dtype=int)[:, axis, None]
    ahead, behind = (coefficients[(slice(None), slice(None), *at)] for at in (index + step, index - step))
    return (ahead - behind) / 2


def moved_contours(
    u: Float[ndarray, "t c x y z"], rings: list[Ring], spacing: tuple[float, float]
) -> Float[ndarray, "t+1 3 k r a"]:
    """Where each ring's contours (k: endocardium, middle of the wall, epicardium) are in every frame, in mm within and
    across slices; the reference itself comes before the frames."""
    from scipy import ndimage

    still = np.stack([ring.contours() for ring in rings], 1)
    points = np.zeros((1 + len(u), 3, *still.shape[:3]))
    points[:, :2] = np.moveaxis(still, -1, 0)
    index = np.moveaxis(still / np.array(spacing), -1, 0)
    for r, ring in enumerate(rings):
        moved = u[..., ring.slice]
        for axis in (2, 3):
            moved = ndimage.spline_filter1d(moved, 3, axis=axis, output=np.float64)
        for t, c in np.ndindex(*moved.shape[:2]):
            points[1 + t, c, :, r] += ndimage.map_coordinates(
                moved[t, c], index[:, :, r], prefilter=False, mode="mirror"
            )
    return points


def contour_steps(points: Float[ndarray, "t 3 k r a"]) -> tuple[Float[ndarray, "t k r a"], Float[ndarray, "t r a"]]:
    """From each point of the contours to the next: the length in mm, and the area of the wall in mm² between
    endocardium and epicardium, as half the product of the diagonals."""
    following = np.roll(points, -1, axis=-1)
    lengths = np.linalg.norm(following - points, axis=1)
    diagonals = following[:, :, 2] - points[:, :, 0], points[:, :, 2] - following[:, :, 0]
    return lengths, np.linalg.norm(np.cross(*diagonals, axis=1), axis=1) / 2
