"""E = ½(FᵀF − I), F = I + ∇u, and (L − L₀)/L₀: how the wall of the left ventricle deforms, in percent.

u takes the reference to a frame, in mm. Derivatives are taken within slices alone: what moves across slices counts,
what differs between them does not. Directions are those away from the LV centre of each slice and around it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from numpy import ndarray

from vrnet.cardiac.segments import Insertions, insertions_of_rings
from vrnet.cardiac.wall import HeartLabels, LeftOut, Ring, base_to_apex, find_rings, ring_angles
from vrnet.errors import BadInput
from vrnet.evaluation.metrics import slice_axis
from vrnet.vocabulary import LEVELS, SEGMENTS, level_of_slice

# What a motion u does to a wall: ½(|e + ∂u/∂e|² − 1) at its voxels, and where its contours go.
#
# Motions are (t, c, x, y, z) in mm with slices across z: components along x and y and, where there is one, along z.
# Derivatives are those of the cubic spline through the voxels of a slice: exact to the fourth order of the spacing.


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


# Arrays as short-axis slices: (x, y, z) with slices across z, cut to the part around the heart.

Box = tuple[slice, slice]
MARGIN_VOXELS = 12
"""Around the wall: what lies farther away has no influence on a cubic spline, to seven digits."""


@dataclass(frozen=True)
class SliceAxes:
    """Which axes of an array lie within slices and, last, which across; a 2D array has two, and is one slice."""

    order: tuple[int, ...]
    spacing: tuple[float, ...]  # in mm, along the axes of the array

    @classmethod
    def of(cls, shape: tuple[int, ...], spacing: tuple[float, ...], across: int | None) -> "SliceAxes":
        """Slices across this axis, or across that of widest spacing if none is given."""
        if len(shape) not in (2, 3) or len(spacing) != len(shape):
            raise BadInput(f"slices have 2 or 3 axes with a spacing each, not the shape {shape} and spacing {spacing}")
        if len(shape) == 2:
            return cls((0, 1), spacing)
        last = slice_axis(shape, spacing) if across is None else across
        return cls((*(axis for axis in range(3) if axis != last), last), spacing)

    @property
    def within(self) -> tuple[float, float]:
        """The spacing within slices, in mm."""
        return self.spacing[self.order[0]], self.spacing[self.order[1]]

    def stack(self, labels: Shaped[ndarray, "*s"]) -> Shaped[ndarray, "x y z"]:
        """A map as a stack of slices."""
        turned = labels.transpose(self.order)
        return turned if turned.ndim == 3 else turned[..., None]

    def motion_mm(self, fields: Float[ndarray, "t d *s"], box: Box) -> Float[ndarray, "t d x y z"]:
        """Displacements in voxels as those of a stack in mm, first within and then across slices, cut to a box."""
        components = (
            self.spacing[axis] * fields[:, axis].transpose(0, *(1 + i for i in self.order)) for axis in self.order
        )
        turned = [component if component.ndim == 4 else component[..., None] for component in components]
        return np.stack([component[:, *box] for component in turned], 1)


def box_around(wall: Bool[ndarray, "x y z"]) -> Box:
    """The part of slices that the strain of a wall depends on; everything if there is none."""
    if not wall.any():
        return slice(None), slice(None)
    sides = (np.flatnonzero(wall.any(others)) for others in ((1, 2), (0, 2)))
    x, y = (slice(max(int(side[0]) - MARGIN_VOXELS, 0), int(side[-1]) + MARGIN_VOXELS + 1) for side in sides)
    return x, y


MIDDLE_LAYER = (1 / 3, 2 / 3)
"""Of the way from the endocardium to the epicardium."""
GLOBAL = "global"
DIGITS = 9
"""Of percentages: what follows is noise, of which a heart that rests would be full."""
NO_STRAIN = "no strain is measured: {reason}"
NO_WALL = "the wall of the left ventricle is not labelled, and strain needs it"
SHORT_STACK_MM = 40.0
"""Slices that cover less are a part of a ventricle: they do not show its base, middle and apex."""
NO_SEGMENTS = "not known: no right ventricle is labelled, or it does not show where the septum begins"
SIXTH_DEG, SIXTH_STEP_DEG = 60, 15
"""How wide a sixth of the wall is around the ventricle, and how far apart sixths begin."""


class Measure(NamedTuple):
    """A way to say how much the wall deforms: its name in files, what it means, whether a heartbeat lowers it, and what
    people call it."""

    name: str
    definition: str
    falls: bool
    title: str


GREEN = "Lagrangian Green strain E = 1/2 (F'F - I), F = I + grad u in mm within the slice,"
AVERAGED = "averaged over the voxels of the reference's myocardium"
LENGTH = "engineering strain (L - L0)/L0 of the length L of the contour that moves with"
MEASURES = (
    Measure(
        "green_circumferential",
        f"{GREEN} around the LV centre of the slice, {AVERAGED}",
        True,
        "circumferential strain (Green)",
    ),
    Measure(
        "green_radial", f"{GREEN} away from the LV centre of the slice, {AVERAGED}", False, "radial strain (Green)"
    ),
    Measure(
        "green_circumferential_middle",
        f"green_circumferential, {AVERAGED} in the middle third of the wall",
        True,
        "circumferential strain (Green), middle third",
    ),
    Measure(
        "green_radial_middle",
        f"green_radial, {AVERAGED} in the middle third of the wall",
        False,
        "radial strain (Green), middle third",
    ),
    Measure("endocardial_length", f"{LENGTH} the endocardium", True, "endocardial strain (length)"),
    Measure("midwall_length", f"{LENGTH} the middle of the wall", True, "mid-wall strain (length)"),
    Measure("epicardial_length", f"{LENGTH} the epicardium", True, "epicardial strain (length)"),
    Measure(
        "wall_thickness",
        "(T - T0)/T0 of the thickness T, the wall's area over the length of its middle",
        False,
        "thickening of the wall",
    ),
)
TITLES = {measure.name: measure.title for measure in MEASURES}


class Peak(NamedTuple):
    """The largest deformation of a cycle: how much, at which frame, and when, if the times of frames are known."""

    percent: float
    frame: int
    time_ms: float | None


@dataclass(frozen=True)
class Strain:
    """Curves over the frames of a cycle, in percent: of each region, by each measure of MEASURES.

    Regions are global, basal, mid, apical and, where the insertions of the RV are known, segment 1 to segment 16; one
    that no slice shows has NaN. Slices are counted as in the array, those used from base to apex."""

    percent: Float[ndarray, "r m t"]
    regions: tuple[str, ...]
    times_ms: tuple[float, ...] | None
    slices: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    insertions: tuple[Insertions, ...] | None
    sixths: Float[ndarray, "2 level p t"]
    """Of every sixth of the wall at a level, wherever it begins: the change of the length of its middle, and of its
    area, in percent. Unlike segments they need no insertions of the RV."""
    by_slice: Float[ndarray, "k m t"]
    """Of the wall in each of `slices`, in percent."""
    covered_mm: float | None = None
    """The number of `slices` times their distance; None of an image of two axes."""

    def curve(self, measure: str, region: str = GLOBAL) -> Float[ndarray, " t"]:
        """Strain at every frame, in percent; BadInput if there is no such measure or region."""
        for word, known in ((measure, [*TITLES]), (region, self.regions)):
            if word not in known:
                raise BadInput(f'no strain "{word}": choose one of {", ".join(known)}')
        return self.percent[self.regions.index(region), [*TITLES].index(measure)]

    @property
    def doubt_about_levels(self) -> str | None:
        """Why basal, mid and apical, and so segments, may be others than of the ventricle; None where they are not."""
        if len(self.slices) == 1:
            return "The level of the one slice is not known: it is taken for a mid-ventricular one"
        if self.covered_mm is None or self.covered_mm >= SHORT_STACK_MM:
            return None
        covered = f"these {len(self.slices)} cover {self.covered_mm:.0f} mm, less than a ventricle"
        return f"Levels, and so segments, are thirds of the slices that strain is of: {covered}"

    def of_slices(self, measure: str) -> dict[int, Float[ndarray, " t"]]:
        """{slice: strain at every frame, in percent}, from base to apex."""
        curves = self.by_slice[:, [m.name for m in MEASURES].index(measure)]
        return dict(zip(self.slices, curves, strict=True))

    def peak(self, measure: str, region: str = GLOBAL) -> Peak | None:
        """Where the curve is lowest, or highest if it is one that a heartbeat raises; None if there is no curve."""
        curve = self.curve(measure, region)
        if np.isnan(curve).any():
            return None
        falls = next(m.falls for m in MEASURES if m.name == measure)
        frame = int(curve.argmin() if falls else curve.argmax())
        return Peak(float(curve[frame]), frame, self.times_ms[frame] if self.times_ms else None)

    def as_json(self) -> dict[str, Any]:
        """Peaks of every region by every measure, what these mean, and which slices they come from."""
        peaks = {region: {m.name: self.peak(m.name, region) for m in MEASURES} for region in self.regions}
        return {
            "definitions": {m.name: m.definition for m in MEASURES},
            "peaks": {
                region: {name: None if peak is None else peak._asdict() for name, peak in found.items()}
                for region, found in peaks.items()
            },
            "slices": self.slices,
            "slices_left_out": [vars(left) for left in self.left_out],
            "levels": self.doubt_about_levels or "thirds of the slices, from base to apex",
            "segments": "by the insertion of the RV" if self.insertions else NO_SEGMENTS,
        }


@dataclass(frozen=True)
class Place:
    """Where parts of the wall are: their level, and their angle ψ along the septum, where that is known."""

    level: Integer[ndarray, " n"]
    psi: Float[ndarray, " n"] | None

    def regions(self) -> dict[str, Bool[ndarray, " n"]]:
        """Which parts are in which region."""
        found = {GLOBAL: np.ones(len(self.level), bool)}
        found |= {name: self.level == level for level, name in enumerate(LEVELS)}
        if self.psi is not None:
            for segment in SEGMENTS:
                off = (self.psi - segment.centre_deg + 180) % 360 - 180
                around = (-segment.half_width_deg <= off) & (off < segment.half_width_deg)
                found[f"segment {segment.number}"] = around & (self.level == segment.level)
        return found


def strain(
    fields: Float[ndarray, "t d *s"],
    labels: Integer[ndarray, "*s"],
    spacing: tuple[float, ...],
    *,
    across: int | None = None,
    anterior: tuple[float, ...] | None = None,
    insertions: Insertions | None = None,
    times_ms: tuple[float, ...] | None = None,
    heart: HeartLabels | None = None,
) -> Strain:
    """Strain of the wall of the LV from the displacements, in voxels, of the reference to every frame.

    The labels are those of the reference; the spacing is in mm. Slices lie across the axis of widest spacing unless
    `across` is given. `anterior` points to the front of the patient, along the axes of the array: `anterior_direction`
    of a grid, or against the second axis if not given. It tells the two insertions of the RV apart; `insertions` that
    are given hold in all slices. Without them and without an RV there are no segments."""
    heart, axes = heart or HeartLabels(), SliceAxes.of(labels.shape, spacing, across)
    check_fields(fields, labels)
    stack = axes.stack(labels)
    if not (stack == heart.wall).any():
        raise BadInput(NO_WALL)
    box = box_around(stack == heart.wall)
    stack, u = stack[box], axes.motion_mm(fields, box)
    rings, left_out = find_rings(stack == heart.wall, axes.within)
    if not rings:
        raise BadInput(f"no slice has a closed ring of wall, label {heart.wall}: strain needs at least one")
    rings = base_to_apex(rings)
    front = in_plane(anterior or (0.0, -1.0, 0.0), axes)
    found = (
        [insertions] * len(rings) if insertions else insertions_of_rings(rings, stack == heart.rv, axes.within, front)
    )
    names, percent, sixths = curves(u, rings, found, axes.within)
    percent = percent.round(DIGITS) + 0.0  # which is no -0
    of_regions, by_slice = percent[: len(names)], percent[len(names) :]
    slices, where = tuple(ring.slice for ring in rings), tuple(found) if found else None
    covered = len(slices) * spacing[axes.order[2]] if len(axes.order) == 3 else None
    return Strain(of_regions, names, times_ms, slices, tuple(left_out), where, sixths, by_slice, covered)


def check_fields(fields: Float[ndarray, "t d *s"], labels: Integer[ndarray, "*t"]) -> None:
    """BadInput if the fields are not those of the label map's grid."""
    if fields.shape[1:] != (labels.ndim, *labels.shape):
        expected = f"(t, {labels.ndim}, {', '.join(map(str, labels.shape))})"
        raise BadInput(f"fields of shape {fields.shape} are not those of the labels: {expected} is expected")


def in_plane(direction: tuple[float, ...], axes: SliceAxes) -> tuple[float, float]:
    """The part of a direction that lies within slices."""
    return direction[axes.order[0]], direction[axes.order[1]]


def curves(
    u: Float[ndarray, "t d x y z"], rings: list[Ring], insertions: list[Insertions] | None, spacing: tuple[float, float]
) -> tuple[tuple[str, ...], Float[ndarray, "n m t"], Float[ndarray, "2 level p t"]]:
    """The regions, the strain of each and then of each ring by every measure, in percent, and of sixths of the wall."""
    voxels = wall_voxels(rings, spacing)
    around = np.tile(np.degrees(ring_angles() + ring_angles()[1] / 2), len(rings))
    of_ring = np.repeat(np.arange(len(rings)), len(ring_angles()))
    regions = place(voxels.ring, voxels.angle_deg, insertions, len(rings)).regions()
    weights = np.stack([*regions.values(), *(voxels.ring == k for k in range(len(rings)))]).astype(float)
    of_contours = place(of_ring, around, insertions, len(rings))
    steps = np.stack([*of_contours.regions().values(), *(of_ring == k for k in range(len(rings)))]).astype(float)
    middle = weights * ((MIDDLE_LAYER[0] <= voxels.depth) & (voxels.depth <= MIDDLE_LAYER[1]))
    E = green_strain(u, voxels, spacing)
    lengths, areas = contour_steps(moved_contours(u, rings, spacing))
    found = [*averages(E[::-1], weights), *averages(E[::-1], middle), *engineering_strain(lengths, areas, steps)]
    return tuple(regions), np.stack(found, 1), sixths_of_wall(lengths, areas, of_contours.level, around)


def sixths_of_wall(
    lengths: Float[ndarray, "f k r a"],
    areas: Float[ndarray, "f r a"],
    level: Integer[ndarray, " n"],
    angle_deg: Float[ndarray, " n"],
) -> Float[ndarray, "2 level p t"]:
    """What becomes of the length of the middle, and of the area, of every sixth of the wall at a level; in percent."""
    starts = np.arange(0, 360, SIXTH_STEP_DEG)
    windows = (angle_deg - starts[:, None]) % 360 < SIXTH_DEG
    steps = np.concatenate([windows & (level == k) for k in range(len(LEVELS))]).astype(float)
    _, middle, _, thickness = engineering_strain(lengths, areas, steps)
    area = 100 * ((1 + middle / 100) * (1 + thickness / 100) - 1)
    return np.stack([middle, area]).reshape(2, len(LEVELS), len(starts), -1)


def place(
    ring: Integer[ndarray, " n"], angle_deg: Float[ndarray, " n"], insertions: list[Insertions] | None, rings: int
) -> Place:
    """Where parts of rings, counted from base to apex, are."""
    level = np.array([level_of_slice(k, rings) for k in range(rings)])[ring]
    if insertions is None:
        return Place(level, None)
    psi = np.empty(len(ring))
    for k, of_slice in enumerate(insertions):
        psi[ring == k] = of_slice.along_septum(angle_deg[ring == k])
    return Place(level, psi)


def averages(E: Float[ndarray, "k t n"], weights: Float[ndarray, "r n"]) -> Float[ndarray, "k r t"]:
    """Means of strains over regions; NaN over one without voxels."""
    with np.errstate(invalid="ignore"):
        return weights @ E.transpose(0, 2, 1) / weights.sum(1)[:, None]


def engineering_strain(
    lengths: Float[ndarray, "f k r a"], areas: Float[ndarray, "f r a"], steps: Float[ndarray, "p n"]
) -> Float[ndarray, "4 p t"]:
    """(L − L₀)/L₀ in percent of each region's contours and of its thickness T = A / L; row 0 of lengths is L₀."""
    L = np.einsum("fkn,pn->kpf", lengths.reshape(*lengths.shape[:2], -1), steps)
    A = np.einsum("fn,pn->pf", areas.reshape(len(areas), -1), steps)
    with np.errstate(invalid="ignore"):
        measured = np.concatenate([L, (A / L[1])[None]])
        return 100 * (measured[..., 1:] / measured[..., :1] - 1)


# E = ½(FᵀF − I) at every voxel of the wall: strain as a picture, where `strain` has means over regions.


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
