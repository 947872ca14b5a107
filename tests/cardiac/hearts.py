"""Hearts drawn on a grid, and motions of them whose strain is known."""

from functools import cache

import numpy as np

from tests.phantoms import cycle

RV, MYO, LV = 1, 2, 3
SPACING = (1.25, 1.25, 8.0)


def polar(shape, spacing, centre=None):
    """Distance in mm and angle of every pixel about a centre, in voxels; the middle if none is given."""
    centre = (np.array(shape) - 1) / 2 if centre is None else np.array(centre)
    x, y = (np.indices(shape) - centre[:, None, None]) * np.array(spacing)[:, None, None]
    return np.hypot(x, y), np.arctan2(y, x)


def ring(shape=(72, 72), spacing=(1.25, 1.25), endo=16.0, epi=25.0):
    """One slice: a ring of wall around the cavity, and an RV that touches 120 degrees of it, where the first axis
    begins. The front of the patient is where the second axis begins."""
    r, angle = polar(shape, spacing)
    off = np.abs((angle - np.pi + np.pi) % (2 * np.pi) - np.pi)
    labels = np.where((r >= epi) & (r < epi + 12) & (off < np.pi / 3), RV, 0)
    labels[r < epi] = MYO
    labels[r < endo] = LV
    return labels.astype(np.uint8)


def stack(slices=3, spacing=SPACING):
    """A stack of rings, smaller towards the last slice, the apex."""
    sizes = np.linspace(1, 0.7, slices)
    return np.stack([ring(spacing=spacing[:2], endo=16 * size, epi=25 * size) for size in sizes], axis=-1)


def moved_by(matrix, shape, spacing, centre=None):
    """The field, in voxels, of x -> M x about a centre, in mm; a stack moves the same in every slice."""
    d = len(spacing)
    centre = (np.array(shape[:2]) - 1) / 2 if centre is None else np.array(centre)
    x = (np.indices(shape[:2]) - centre[:, None, None]) * np.array(spacing[:2])[:, None, None]
    u = np.tensordot(np.array(matrix) - np.eye(2), x, 1) / np.array(spacing[:2])[:, None, None]
    if d == 2:
        return u[None]
    return np.concatenate([np.repeat(u[..., None], shape[2], -1), np.zeros((1, *shape))])[None]


def turned(angle):
    """The matrix of a rotation."""
    return [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]


def contracted_towards(angle, shape, spacing, share=0.1, width=0.35):
    """The field, in voxels, that draws a stack's wall in by a share of its radius about one direction alone."""
    r, around = polar(shape[:2], spacing[:2])
    off = (around - angle + np.pi) % (2 * np.pi) - np.pi
    inward = -share * r * np.exp(-0.5 * (off / width) ** 2)
    u = np.stack([inward * np.cos(around) / spacing[0], inward * np.sin(around) / spacing[1], np.zeros_like(r)])
    return np.repeat(u[None, ..., None], shape[2], -1)


@cache
def phantom_stack(pathology, through_plane=False):
    """A phantom at end-diastole, towards end-systole and in early filling."""
    return cycle(3, (104, 104, 9), (1.4, 1.4, 8.0), pathology, frames=3, through_plane=through_plane)
