"""Where the 16 segments of the AHA lie in a label map: from the anterior insertion of the RV along the septum.

Angles are in degrees about the LV centre of a slice, from the first axis within the slice to the second.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vrnet.cardiac.wall import Ring, ring_angles
from vrnet.images.grid import Grid

CONTACT_MM = 3.0
"""The RV touches the septum where its cavity is this close to the epicardium of the LV."""
SMALLEST_CONTACT_DEG = 90.0
"""Towards the apex the RV shrinks, and where it ends says no more where the anterior wall begins."""
LARGEST_CONTACT_DEG = 220.0
"""What surrounds more of the LV has no two insertions."""
ANTERIOR_WORLD = (0.0, -1.0, 1.0)
"""In LPS, from the LV centre to its anterior wall: to the front and to the head."""
SMALLEST_COSINE = 0.2
"""A slice that the direction to the front is more nearly perpendicular to does not say which insertion is anterior."""


@dataclass(frozen=True)
class Insertions:
    """Where the RV meets the LV in a slice, in degrees; the septum is the shorter way from one to the other."""

    anterior_deg: float
    inferior_deg: float

    def along_septum(self, angle_deg: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
        """ψ in [0, 360): the angle from the anterior insertion, growing along the septum."""
        sense = 1 if (self.inferior_deg - self.anterior_deg) % 360 < 180 else -1
        return (sense * (angle_deg - self.anterior_deg)) % 360


def anterior_direction(grid: Grid) -> tuple[float, ...]:
    """The direction of the anterior wall along the axes of a grid's array, as `strain` takes it."""
    world = ANTERIOR_WORLD[: len(grid.shape)]
    return tuple((grid.axes.T @ world / np.linalg.norm(world)).tolist())


def find_insertions(
    ring: Ring, rv: Bool[ndarray, "x y"], spacing: tuple[float, float], anterior: tuple[float, float]
) -> Insertions | None:
    """The ends of the arc along which the RV touches the LV; None where it does not, or where the direction to the
    front does not tell the ends apart."""
    radius, angle = ring.polar(np.argwhere(rv) * np.array(spacing))
    epi = np.interp(angle, ring_angles(), ring.epi, period=2 * np.pi)
    arc = covered_arc(np.degrees(angle[radius - epi < CONTACT_MM]))
    if arc is None or np.hypot(*anterior) < SMALLEST_COSINE:
        return None
    ends = sorted(arc, key=lambda end: np.cos(np.radians(end)) * anterior[0] + np.sin(np.radians(end)) * anterior[1])
    return Insertions(anterior_deg=ends[1], inferior_deg=ends[0])


def covered_arc(angles_deg: Float[ndarray, " n"]) -> tuple[float, float] | None:
    """The ends of the arc that angles cover: all but the largest gap between them; None if it is no septum."""
    if not len(angles_deg):
        return None
    angles = np.sort(angles_deg % 360)
    gaps = np.diff(angles, append=angles[0] + 360)
    last = int(gaps.argmax())
    is_septum = SMALLEST_CONTACT_DEG <= 360 - gaps[last] <= LARGEST_CONTACT_DEG
    return (float(angles[(last + 1) % len(angles)]), float(angles[last])) if is_septum else None


def insertions_of_rings(
    rings: list[Ring], rv: Bool[ndarray, "x y z"], spacing: tuple[float, float], anterior: tuple[float, float]
) -> list[Insertions] | None:
    """The insertions of each ring; where the RV is not seen, those of the nearest slice. None if it is in no slice."""
    found = {ring.slice: find_insertions(ring, rv[:, :, ring.slice], spacing, anterior) for ring in rings}
    known = {k: insertions for k, insertions in found.items() if insertions}
    return [known[min(known, key=lambda k: abs(k - ring.slice))] for ring in rings] if known else None
