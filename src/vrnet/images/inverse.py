"""How exact an inverse is: where points end that go there and back."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.images.transform import Transform

POINTS, SEED = 10_000, 0


class RoundTrip(NamedTuple):
    """How far points that move by more than a threshold end from where they were, in millimetres."""

    threshold: float
    error: Float[ndarray, " n"]


def round_trip(there: Transform, back: Transform) -> RoundTrip:
    """|back(there(x)) − x| at random points x of the region that moves.

    They lie between voxels, where an inverse is least exact, and move by more than the shortest edge of a voxel; or, if
    nothing does, by more than half of the longest motion."""
    length, random = np.linalg.norm(there.displacement, axis=0), np.random.default_rng(SEED)
    threshold = min(*there.grid.spacing, float(length.max()) / 2)
    region = np.argwhere(length > threshold) if threshold > 0 else np.argwhere(length == 0)
    voxels = region[random.integers(len(region), size=POINTS)]
    index = voxels + random.uniform(-0.5, 0.5, voxels.shape)
    x = there.grid.points(np.clip(index, 0, np.array(there.grid.shape) - 1))
    return RoundTrip(threshold, np.linalg.norm(back.points(there.points(x)) - x, axis=1))
