"""Signed volumes of the cells of a mesh, from the places of their corners alone: folds counted without the package."""

import numpy as np

CUTS = {
    2: [[((0, 0), (1, 0), (0, 1)), ((1, 1), (0, 1), (1, 0))], [((1, 0), (1, 1), (0, 0)), ((0, 1), (0, 0), (1, 1))]],
    3: [
        [
            ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)),
            ((1, 1, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)),
            ((1, 0, 1), (0, 0, 1), (1, 1, 1), (1, 0, 0)),
            ((0, 1, 1), (1, 1, 1), (0, 0, 1), (0, 1, 0)),
            ((1, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0)),
        ],
        [
            ((1, 0, 0), (0, 0, 0), (1, 0, 1), (1, 1, 0)),
            ((0, 1, 0), (1, 1, 0), (0, 1, 1), (0, 0, 0)),
            ((0, 0, 1), (1, 0, 1), (0, 0, 0), (0, 1, 1)),
            ((1, 1, 1), (0, 1, 1), (1, 1, 0), (1, 0, 1)),
            ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)),
        ],
    ],
}
"""The two ways to cut a square into two triangles, and a cube into five tetrahedra."""


def vertices(u, simplex):
    """Where the corners of this simplex of every cell are after the motion u (d, *s): (cells, d + 1, d)."""
    shape = u.shape[1:]
    x = np.indices(shape) + u.astype(np.float64)
    parts = [x[(slice(None), *(slice(c, n - 1 + c) for c, n in zip(at, shape, strict=True)))] for at in simplex]
    return np.stack(parts).reshape(len(simplex), len(u), -1).transpose(2, 0, 1)


def signed_volumes(places):
    edges = places[:, 1:] - places[:, :1]
    return np.linalg.det(edges)


def relative_volumes(u):
    """Volume after the motion over that before, (simplices of both cuts, cells)."""
    still = np.zeros_like(u, dtype=np.float64)
    simplices = [simplex for cut in CUTS[len(u)] for simplex in cut]
    return np.stack([signed_volumes(vertices(u, s)) / signed_volumes(vertices(still, s)) for s in simplices])


def checkerboard(u, first):
    """The simplices (n, d + 1, d) of a mesh without gaps: neighbouring cells are cut in the two ways by turns."""
    cells = np.indices([n - 1 for n in u.shape[1:]]).sum(0).ravel() % 2
    return np.concatenate([vertices(u, s)[cells == (k != first)] for k, cut in enumerate(CUTS[len(u)]) for s in cut])


def times_covered(mesh, points):
    """How many simplices of a mesh each point lies in."""
    edges = (mesh[:, 1:] - mesh[:, :1]).transpose(0, 2, 1)
    local = np.linalg.solve(edges[None], (points[:, None] - mesh[None, :, 0])[..., None])[..., 0]
    return ((local > 0).all(-1) & (local.sum(-1) < 1)).sum(1)
