"""The wall of the left ventricle in short-axis slices: rings about a centre, r_endo(θ) ≤ r ≤ r_epi(θ), and segments.

Label maps are (x, y, z) with slices across z; x, y and radii are in mm, angles in radians from x to y. A slice whose
wall is no closed ring has no cavity to look from, and is left out."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vrnet.data.labels import fill_holes, largest_part
from vrnet.images.grid import Grid

ANGLES = 144  # directions in which a contour is known
HARMONICS = 4  # of a contour's radius: finer ones are the raster of voxels, which thickening would take for length
SAMPLES_PER_VOXEL = 4  # along the rays that find a contour
SMALLEST_CAVITY_MM2 = 30.0  # below, at the apex, voxels are too coarse to tell radial from circumferential


@dataclass(frozen=True)
class HeartLabels:
    """Cavity of the right ventricle, wall and cavity of the left in a label map, as in ACDC; None: not labelled."""

    rv: int | None = 1
    wall: int | None = 2
    lv: int | None = 3


@dataclass(frozen=True)
class LeftOut:
    """A slice, counted as in the array, that no strain is measured in, and why."""

    slice: int
    reason: str


@dataclass(frozen=True)
class Ring:
    """The wall in one slice; mm and radians."""

    slice: int
    mask: Bool[ndarray, "x y"]
    centre: Float[ndarray, " 2"]
    endo: Float[ndarray, " a"]  # radius at the angles 0, 2π/a, …
    epi: Float[ndarray, " a"]

    def polar(self, points: Float[ndarray, "n 2"]) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
        """Distance from the centre and angle of points in mm."""
        x, y = (points - self.centre).T
        return np.hypot(x, y), np.arctan2(y, x) % (2 * np.pi)

    def depth(self, radius: Float[ndarray, " n"], angle: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
        """How far points are on the way through the wall: 0 at the endocardium, 1 at the epicardium."""
        endo, epi = (np.interp(angle, ring_angles(), r, period=2 * np.pi) for r in (self.endo, self.epi))
        return (radius - endo) / (epi - endo)

    def contours(self) -> Float[ndarray, "3 a 2"]:
        """Points in mm around the endocardium, the middle of the wall and the epicardium."""
        directions = np.stack([np.cos(ring_angles()), np.sin(ring_angles())], 1)
        radii = np.stack([self.endo, (self.endo + self.epi) / 2, self.epi])
        return self.centre + radii[..., None] * directions


def ring_angles() -> Float[ndarray, " a"]:
    """The angles at which the radii of rings are given, in radians."""
    return np.arange(ANGLES) * (2 * np.pi / ANGLES)


def find_rings(wall: Bool[ndarray, "x y z"], spacing: tuple[float, float]) -> tuple[list[Ring], list[LeftOut]]:
    """The rings of the slices that show one, and the other slices; the spacing is that within slices, in mm."""
    found = [find_ring(k, wall[:, :, k], spacing) for k in range(wall.shape[2])]
    return [ring for ring in found if isinstance(ring, Ring)], [left for left in found if isinstance(left, LeftOut)]


def find_ring(k: int, wall: Bool[ndarray, "x y"], spacing: tuple[float, float]) -> Ring | LeftOut:
    """The ring in slice k, or why there is none."""
    if not wall.any():
        return LeftOut(k, "no wall is labelled")
    mask = largest_part(wall, diagonal=True)
    cavity = largest_part(fill_holes(mask[None])[0] & ~mask, diagonal=False)
    if not cavity[tuple(np.argwhere(mask).mean(0).round().astype(int))]:  # a hole elsewhere is a flaw of an open wall
        return LeftOut(k, "the wall is not a closed ring")
    if cavity.sum() * np.prod(spacing) < SMALLEST_CAVITY_MM2:
        return LeftOut(k, f"the cavity inside the wall is smaller than {SMALLEST_CAVITY_MM2:g} mm²")
    if mask[[0, -1]].any() or mask[:, [0, -1]].any():
        return LeftOut(k, "the wall reaches the border of the image")
    centre = np.argwhere(cavity).mean(0) * spacing
    endo, epi = (contour_radii(region, centre, spacing) for region in (cavity, cavity | mask))
    return Ring(k, mask, centre, endo, epi)


def contour_radii(
    region: Bool[ndarray, "x y"], centre: Float[ndarray, " 2"], spacing: tuple[float, float]
) -> Float[ndarray, " a"]:
    """r(θ) of the border of a region around the centre, in mm: how much of each ray lies inside."""
    from scipy import ndimage

    step = min(spacing) / SAMPLES_PER_VOXEL
    reach = np.hypot(*(np.array(region.shape) * spacing))
    radius = (np.arange(int(reach / step)) + 0.5) * step
    rays = np.stack([np.cos(ring_angles()), np.sin(ring_angles())])[..., None] * radius
    index = (rays + centre[:, None, None]) / np.reshape(spacing, (2, 1, 1))
    inside = ndimage.map_coordinates(region.astype(np.float32), index, order=1)
    spectrum = np.fft.rfft(inside.sum(1, dtype=float) * step)
    spectrum[HARMONICS + 1 :] = 0
    return np.fft.irfft(spectrum, ANGLES)


def base_to_apex(rings: list[Ring]) -> list[Ring]:
    """The rings from the base to the apex: the end with the smaller rings is the apex."""
    size = [float(np.square(ring.epi).mean()) for ring in rings]
    half = len(size) // 2
    is_reversed = half > 0 and np.mean(size[:half]) < np.mean(size[-half:])
    return rings[::-1] if is_reversed else rings


# Where the 16 segments of the AHA lie: from the anterior insertion of the RV along the septum. Angles are in degrees
# about the LV centre of a slice, from the first axis within the slice to the second.

CONTACT_MM = 3.0  # the RV touches the septum where its cavity is this close to the epicardium of the LV
SMALLEST_CONTACT_DEG = 90.0  # the RV shrinks towards the apex, where its end is not that of the anterior wall
LARGEST_CONTACT_DEG = 220.0  # what surrounds more of the LV has no two insertions
ANTERIOR_WORLD = (0.0, -1.0, 1.0)  # in LPS, from the LV centre to its anterior wall: to the front and to the head
SMALLEST_COSINE = 0.2  # of the front and the slice: below it, no insertion is the anterior one


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
    """The ends of the arc along which the RV touches the LV; None where it does not, or none of them is anterior."""
    radius, angle = ring.polar(np.argwhere(rv) * np.array(spacing))
    epi = np.interp(angle, ring_angles(), ring.epi, period=2 * np.pi)
    touching = np.sort(np.degrees(angle[radius - epi < CONTACT_MM]))
    if not len(touching) or np.hypot(*anterior) < SMALLEST_COSINE:
        return None
    gaps = np.diff(touching, append=touching[0] + 360)  # the arc is all but the largest of them
    last = int(gaps.argmax())
    if not SMALLEST_CONTACT_DEG <= 360 - gaps[last] <= LARGEST_CONTACT_DEG:
        return None
    arc = float(touching[(last + 1) % len(touching)]), float(touching[last])
    ends = sorted(arc, key=lambda end: np.cos(np.radians(end)) * anterior[0] + np.sin(np.radians(end)) * anterior[1])
    return Insertions(anterior_deg=ends[1], inferior_deg=ends[0])


def insertions_of_rings(
    rings: list[Ring], rv: Bool[ndarray, "x y z"], spacing: tuple[float, float], anterior: tuple[float, float]
) -> list[Insertions] | None:
    """The insertions of each ring; where the RV is not seen, those of the nearest slice. None if it is in no slice."""
    found = {ring.slice: find_insertions(ring, rv[:, :, ring.slice], spacing, anterior) for ring in rings}
    known = {k: insertions for k, insertions in found.items() if insertions}
    return [known[min(known, key=lambda k: abs(k - ring.slice))] for ring in rings] if known else None
