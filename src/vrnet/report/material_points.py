"""Points of tissue in one slice, and where they are in every frame: y_t = x + u_t(x).

They make the lines of a grid, the outlines of labels, and the corners of the voxels of the wall: all that a film draws.
Coordinates are in pixels, pixel i from i to i + 1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from numpy import ndarray

from vrnet.report.film import FilmSlices

GRID_LINES = 28
"""Along the longer side of a picture."""
OUTLINE_SMOOTHING = 0.8
"""In pixels, of the Gaussian that takes the steps of voxels from an outline."""


class Outline(NamedTuple):
    """A closed line around a label: which points it goes through."""

    label: int
    first: int
    length: int


@dataclass(frozen=True)
class MaterialPoints:
    """The points of a slice in every frame, and what they make."""

    moved: Float[ndarray, "t 2 m"]
    grid: tuple[int, int]
    """Lines across and down; their crossings are the first points, those of one line down after the other."""
    outlines: list[Outline]
    corners: Integer[ndarray, "n 4"]
    """Of the voxels of the wall, in the order of the strain map."""


def material_points(slices: FilmSlices, k: int) -> MaterialPoints:
    """The points of the k-th slice."""
    lines = grid_lines(slices.frames.shape[1:3])
    still = [np.stack(np.meshgrid(*lines, indexing="ij")).reshape(2, -1)]
    outlines, count = [], still[0].shape[1]
    for label, line in trace_labels(slices.labels, k):
        outlines.append(Outline(label, count, line.shape[1]))
        still.append(line)
        count += line.shape[1]
    squares, corners = voxel_corners(slices, k)
    moved = move_points(np.concatenate([*still, squares], 1), slices.motion[..., k])
    return MaterialPoints(moved, (len(lines[0]), len(lines[1])), outlines, corners + count)


def grid_lines(shape: tuple[int, ...]) -> list[Float[ndarray, " n"]]:
    """Where the lines of a grid cross each axis: through the middles of pixels."""
    step = max(1, round(max(shape) / GRID_LINES))
    return [np.arange(step // 2, n, step) + 0.5 for n in shape]


def trace_labels(labels: Integer[ndarray, "w h n"] | None, k: int) -> list[tuple[int, Float[ndarray, "2 m"]]]:
    """The outlines of every label in a slice."""
    if labels is None:
        return []
    values = np.unique(labels[..., k][labels[..., k] != 0]).tolist()
    return [(value, line) for value in values for line in trace_outlines(labels[..., k] == value)]


def trace_outlines(mask: Bool[ndarray, "w h"]) -> list[Float[ndarray, "2 m"]]:
    """The closed lines around a mask, without the steps of its voxels."""
    from contourpy import contour_generator
    from scipy.ndimage import gaussian_filter

    smooth = gaussian_filter(np.pad(mask, 2).astype(np.float32), OUTLINE_SMOOTHING)
    lines = contour_generator(z=smooth.T).lines(0.5)
    return [np.asarray(line)[:-1].T - 1.5 for line in lines]  # the last point is the first again


def voxel_corners(slices: FilmSlices, k: int) -> tuple[Float[ndarray, "2 m"], Integer[ndarray, "n 4"]]:
    """The corners of the wall's voxels, each once, and which four are those of a voxel, in the order around it."""
    if slices.strain is None:
        return np.empty((2, 0)), np.empty((0, 4), int)
    across, down, at = slices.strain.index
    voxels = np.stack([across, down], 1)[at == k]
    around = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    unique, which = np.unique((voxels[:, None] + around).reshape(-1, 2), axis=0, return_inverse=True)
    return unique.T.astype(float), which.reshape(-1, 4)


def move_points(points: Float[ndarray, "2 m"], motion: Float[ndarray, "t 2 w h"]) -> Float[ndarray, "t 2 m"]:
    """x + u_t(x), u between the middles of pixels by linear interpolation."""
    from scipy.ndimage import map_coordinates

    moved = [[map_coordinates(u, points - 0.5, order=1, mode="nearest") for u in frame] for frame in motion]
    return points + np.array(moved)
