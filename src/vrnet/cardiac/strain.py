"""E = ½(FᵀF − I), F = I + ∇u, and (L − L₀)/L₀: how the wall of the left ventricle deforms, in percent.

u takes the reference to a frame, in mm. Derivatives are taken within slices alone: what moves across slices counts,
what differs between them does not. Directions are those away from the LV centre of each slice and around it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Shaped
from numpy import ndarray

from vrnet.cardiac import wall as walls
from vrnet.cardiac.wall import ANGLES, HeartLabels, Insertions, LeftOut, Ring, ring_angles
from vrnet.errors import BadInput
from vrnet.evaluation.metrics import widest_axis
from vrnet.vocabulary import LEVELS, SEGMENTS

# What a motion u does to a wall. Motions are (t, c, x, y, z) in mm with slices across z: components along x and y and,
# where there is one, along z. Derivatives are those of the cubic spline through the voxels of a slice.


@dataclass(frozen=True)
class WallVoxels:
    """The voxels of all rings, one after the other."""

    index: Integer[ndarray, "3 n"]
    ring: Integer[ndarray, " n"]  # which ring it is of, from base to apex
    away: Float[ndarray, "2 n"]  # unit vector from the centre of the ring
    angle_deg: Float[ndarray, " n"]
    depth: Float[ndarray, " n"]  # from 0 at the endocardium to 1 at the epicardium


def wall_voxels(rings: list[Ring], spacing: tuple[float, float]) -> WallVoxels:
    parts = []
    for number, ring in enumerate(rings):
        at = np.argwhere(ring.mask)
        radius, angle = ring.polar(at * np.array(spacing))
        parts.append((at, np.full(len(at), ring.slice), np.full(len(at), number), angle, ring.depth(radius, angle)))
    at, of_slice, of_ring, angle, depth = (np.concatenate(part) for part in zip(*parts, strict=True))
    away = np.stack([np.cos(angle), np.sin(angle)])
    return WallVoxels(np.column_stack([at, of_slice]).T, of_ring, away, np.degrees(angle), depth)


def green_strain(
    u: Float[ndarray, "t c x y z"], voxels: WallVoxels, spacing: tuple[float, float]
) -> Float[ndarray, "2 t n"]:
    """½(|e + ∂u/∂e|² − 1) in percent at voxels of the wall, for e away from the centre and e around it."""
    from scipy import ndimage

    slopes, found = [], []
    for axis in (0, 1):
        coefficients = ndimage.spline_filter1d(u, 3, axis=2 + axis, output=np.float64)
        step = np.eye(3, dtype=int)[:, axis, None]
        ahead, behind = (coefficients[:, :, *at] for at in (voxels.index + step, voxels.index - step))
        slopes.append((ahead - behind) / 2 / spacing[axis])
    for e in (voxels.away, np.stack([-voxels.away[1], voxels.away[0]])):
        stretched = slopes[0] * e[0] + slopes[1] * e[1]
        stretched[:, :2] += e
        found.append(50 * (np.square(stretched).sum(1) - 1))
    return np.stack(found)


def moved_contours(
    u: Float[ndarray, "t c x y z"], rings: list[Ring], spacing: tuple[float, float]
) -> Float[ndarray, "t+1 3 k r a"]:
    """Where each ring's contours (k: inner, middle, outer) are in the reference and then in every frame, in mm."""
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


MARGIN_VOXELS = 12  # around the wall: what lies farther away has no influence on a cubic spline, to seven digits


@dataclass(frozen=True)
class ShortAxis:
    """A label map and motion as short-axis slices, across z, cut to the part around the wall, and its rings."""

    labels: Integer[ndarray, "x y z"]
    motion_mm: Float[ndarray, "t c x y z"]
    rings: list[Ring]
    left_out: list[LeftOut]
    spacing: tuple[float, float]  # within slices, in mm
    order: tuple[int, ...]  # which axes of the array lie within slices and, last, which across
    start: tuple[int, int]  # where within slices the part around the wall begins

    @classmethod
    def of(
        cls,
        fields: Float[ndarray, "t d *s"],
        labels: Integer[ndarray, "*s"],
        spacing: tuple[float, ...],
        across: int | None,
        wall: int | None,
    ) -> "ShortAxis":
        """Slices across this axis, or across that of widest spacing if none is given; a 2D array is one slice."""
        d = labels.ndim
        if d not in (2, 3) or len(spacing) != d:
            raise BadInput(f"slices have 2 or 3 axes with a spacing each, not the shape {labels.shape} and {spacing}")
        if fields.shape[1:] != (d, *labels.shape):
            expected = f"(t, {d}, {', '.join(map(str, labels.shape))})"
            raise BadInput(f"fields of shape {fields.shape} are not those of the labels: {expected} is expected")
        order: tuple[int, ...] = (0, 1)
        if d == 3:
            last = widest_axis(labels.shape, spacing) if across is None else across
            order = (*(axis for axis in range(3) if axis != last), last)

        def as_slices(array: Shaped[ndarray, "*s"]) -> Shaped[ndarray, "x y z"]:
            turned = array.transpose(order)
            return turned if d == 3 else turned[..., None]

        stack = as_slices(labels)
        box, start = [slice(None)] * 2, [0, 0]
        if (stack == wall).any():
            for axis in (0, 1):
                at = np.flatnonzero((stack == wall).any((1 - axis, 2)))
                start[axis] = max(int(at[0]) - MARGIN_VOXELS, 0)
                box[axis] = slice(start[axis], int(at[-1]) + MARGIN_VOXELS + 1)
        motion = [np.stack([spacing[axis] * as_slices(u[axis])[*box] for axis in order]) for u in fields]
        within = spacing[order[0]], spacing[order[1]]
        rings, left_out = walls.find_rings(stack[*box] == wall, within)
        return cls(stack[*box], np.stack(motion), rings, left_out, within, order, (start[0], start[1]))


# A wall that keeps its area. At end-systole a slice shows muscle that came in from nearer the base, so that its wall is
# larger, by 26 % in experts' outlines of normal hearts; that is no strain within the slice. What is beyond
# MAX_AREA_GROWTH is taken from the motion at the epicardium, which images show less well than the endocardium: by one
# distance s per frame and slice, so that the outer contour O + s n, n being away from the centre, encloses less.

MAX_AREA_GROWTH = 0.04  # of the wall in a slice, from the reference
LINEAR_TO, REACH = 1.15, 1.5  # in thicknesses of the wall: s grows from the endocardium to there, and fades over REACH


class KeptWall(NamedTuple):
    """A motion, in voxels, in which no ring of wall grows by more than MAX_AREA_GROWTH."""

    fields: Float[ndarray, "t d *s"]
    area_mm2: dict[int, Float[ndarray, " t"]]  # of each ring, by slice, as the motion had it before


def keep_wall_area(
    fields: Float[ndarray, "t d *s"], labels: Integer[ndarray, "*s"], spacing: tuple[float, ...],
    across: int | None, wall: int | None, growth: float = MAX_AREA_GROWTH,
) -> KeptWall:  # fmt: skip
    """The motion u + s n(θ) g(depth), with g from 0 at the endocardium to 1 at the epicardium, and 0 farther out."""
    stack, found, areas = ShortAxis.of(fields, labels, spacing, across, wall), fields.copy(), {}
    points = moved_contours(stack.motion_mm, stack.rings, stack.spacing)[:, :2] if stack.rings else None
    shown, at = stack.labels.shape[:2], np.argwhere(np.ones(stack.labels.shape[:2], bool))
    places = [slice(first, first + n) for first, n in zip(stack.start, shown, strict=True)]
    for r, ring in enumerate(stack.rings):
        assert points is not None
        endo, epi = points[:, :, 0, r], points[:, :, 2, r]
        away = epi - endo.mean(-1, keepdims=True)
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        first, *area = enclosed(epi, epi) - enclosed(endo, endo)
        areas[ring.slice] = np.array(area)

        # area(O + s n) = area(O) + b s + a s²; less the excess, by the smaller root
        excess = np.maximum(areas[ring.slice] - (1 + growth) * first, 0)
        a, b = enclosed(away, away)[1:], 2 * enclosed(epi, away)[1:]
        s = (np.sqrt(np.maximum(b**2 - 4 * a * excess, 0)) - b) / (2 * a)
        if not excess.any():
            continue
        radius, angle = ring.polar(at * np.array(stack.spacing))
        depth = ring.depth(radius, angle)
        fade = np.clip(1 - (depth - LINEAR_TO) / REACH, 0, 1)
        shift = (s[:, None, None] * away[1:]).reshape(-1, ANGLES)
        along = np.stack([np.interp(angle, ring_angles(), each, period=2 * np.pi) for each in shift])
        added = (along * depth.clip(0, LINEAR_TO) * fade**2 * (3 - 2 * fade)).reshape(len(fields), 2, *shown)
        for c, axis in enumerate(stack.order[:2]):
            plane: ndarray = np.moveaxis(found[:, axis], [1 + a for a in stack.order], range(1, 1 + labels.ndim))
            place: tuple[Any, ...] = (slice(None), *places, *([ring.slice] if labels.ndim == 3 else []))
            plane[place] += added[:, c] / spacing[axis]
    return KeptWall(found, areas)


def enclosed(a: Float[ndarray, "f 2 a"], b: Float[ndarray, "f 2 a"]) -> Float[ndarray, " f"]:
    """½ ∮ a × db, symmetric in closed lines a and b: of a line with itself the area inside."""

    def half(p: Float[ndarray, "f 2 a"], q: Float[ndarray, "f 2 a"]) -> Float[ndarray, " f"]:
        ahead = np.roll(q, -1, -1)
        return (p[:, 0] * ahead[:, 1] - p[:, 1] * ahead[:, 0]).sum(-1) / 4

    return half(a, b) + half(b, a)


MIDDLE_LAYER = (1 / 3, 2 / 3)  # of the way from the endocardium to the epicardium
GLOBAL = "global"
DIGITS = 9  # of percentages: what follows is noise, of which a heart that rests would be full
NO_STRAIN = "no strain is measured: {reason}"
NO_WALL = "the wall of the left ventricle is not labelled, and strain needs it"
SHORT_STACK_MM = 40.0  # slices that cover less are a part of a ventricle: they do not show its base, middle and apex
NO_SEGMENTS = "not known: no right ventricle is labelled, or it does not show where the septum begins"
SIXTH_DEG, SIXTH_STEP_DEG = 60, 15  # how wide sixths of the wall are around the ventricle, and how far apart they begin


class Measure(NamedTuple):
    """A way to say how much the wall deforms."""

    name: str  # in files
    definition: str
    falls: bool  # whether a heartbeat lowers it
    title: str  # what people call it


GREEN = "Lagrangian Green strain E = 1/2 (F'F - I), F = I + grad u in mm within the slice,"
AVERAGED = "averaged over the voxels of the reference's myocardium"
LENGTH = "engineering strain (L - L0)/L0 of the length L of the contour that moves with"
MEASURES = (
    Measure("green_circumferential", f"{GREEN} around the LV centre of the slice, {AVERAGED}", True,
            "circumferential strain (Green)"),
    Measure("green_radial", f"{GREEN} away from the LV centre of the slice, {AVERAGED}", False,
            "radial strain (Green)"),
    Measure("green_circumferential_middle", f"green_circumferential, {AVERAGED} in the middle third of the wall", True,
            "circumferential strain (Green), middle third"),
    Measure("green_radial_middle", f"green_radial, {AVERAGED} in the middle third of the wall", False,
            "radial strain (Green), middle third"),
    Measure("endocardial_length", f"{LENGTH} the endocardium", True, "endocardial strain (length)"),
    Measure("midwall_length", f"{LENGTH} the middle of the wall", True, "mid-wall strain (length)"),
    Measure("epicardial_length", f"{LENGTH} the epicardium", True, "epicardial strain (length)"),
    Measure("wall_thickness", "(T - T0)/T0 of the thickness T, the wall's area over the length of its middle", False,
            "thickening of the wall"),
)  # fmt: skip
TITLES = {measure.name: measure.title for measure in MEASURES}


TWIST = (
    "rotation of the slice nearest to the apex minus that of the slice nearest to the base, in degrees, "
    "counterclockwise as seen from the apex; rotation: mean angle by which the middle of the wall turns about its "
    "centre in a slice; tracking finds too little of it (docs/cine.md)"
)
TORSION = "twist over the distance of these two slices, in degrees per cm"
STRAIN_RATE = (
    "derivative of the circumferential strain (Green) over time, by central differences, in percent per second: the "
    "most negative (shortening), and the largest (lengthening)"
)
DYSSYNCHRONY = "standard deviation, over the segments, of the time to the peak of the circumferential strain (Green)"


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
    rotation_deg: Float[ndarray, "k t"]
    """Of the wall in each of `slices`, counterclockwise as seen from the apex: see TWIST."""
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

    def peak(self, measure: str, region: str = GLOBAL) -> Peak | None:
        """Where the curve is lowest, or highest if it is one that a heartbeat raises; None if there is no curve."""
        curve = self.curve(measure, region)
        if np.isnan(curve).any():
            return None
        falls = next(m.falls for m in MEASURES if m.name == measure)
        frame = int(curve.argmin() if falls else curve.argmax())
        return Peak(float(curve[frame]), frame, self.times_ms[frame] if self.times_ms else None)

    @property
    def twist_deg(self) -> Float[ndarray, " t"] | None:
        """Of the cycle; None of a single slice."""
        return None if len(self.slices) < 2 else self.rotation_deg[-1] - self.rotation_deg[0]

    @property
    def twist(self) -> dict[str, Any] | None:
        """The largest twist of the cycle, its frame, and the torsion that it is."""
        if self.twist_deg is None or self.covered_mm is None:
            return None
        frame = int(np.abs(self.twist_deg).argmax())
        apart = abs(self.slices[-1] - self.slices[0]) * self.covered_mm / len(self.slices) / 10
        degrees = float(self.twist_deg[frame])
        return {"degrees": degrees, "frame": frame, "torsion_degrees_per_cm": degrees / apart}

    def strain_rate(self, region: str = GLOBAL) -> Float[ndarray, " t"] | None:
        """STRAIN_RATE at every frame, in percent per second; None where no times are known."""
        curve = self.curve("green_circumferential", region)
        if self.times_ms is None or np.isnan(curve).any() or len(curve) < 3:
            return None
        times = np.asarray(self.times_ms) / 1000
        period = len(times) / (len(times) - 1) * (times[-1] - times[0])
        around = np.concatenate([times[-1:] - period, times, times[:1] + period])
        return (np.roll(curve, -1) - np.roll(curve, 1)) / (around[2:] - around[:-2])

    @property
    def strain_rates(self) -> dict[str, float] | None:
        """{shortening, lengthening} of the whole wall, in percent per second; None where no times are known."""
        rates = self.strain_rate()
        return None if rates is None else {"shortening": float(rates.min()), "lengthening": float(rates.max())}

    @property
    def dyssynchrony(self) -> float | None:
        """DYSSYNCHRONY, in ms or, without times, in frames; None without segments."""
        names = [name for name in self.regions if name.startswith("segment")]
        peaks = [peak for name in names if (peak := self.peak("green_circumferential", name)) is not None]
        if len(peaks) < 2:
            return None
        return float(np.std([peak.frame if peak.time_ms is None else peak.time_ms for peak in peaks]))

    def as_json(self) -> dict[str, Any]:
        """Peaks of every region by every measure, what these mean, and which slices they come from."""

        def peak(name: str, region: str) -> dict[str, Any] | None:
            return found._asdict() if (found := self.peak(name, region)) else None

        return {
            "definitions": {m.name: m.definition for m in MEASURES},
            "peaks": {region: {name: peak(name, region) for name in TITLES} for region in self.regions},
            "slices": self.slices,
            "slices_left_out": [vars(left) for left in self.left_out],
            "levels": self.doubt_about_levels or "thirds of the slices, from base to apex",
            "segments": "by the insertion of the RV" if self.insertions else NO_SEGMENTS,
            "twist": {"definition": f"{TWIST}; torsion: {TORSION}", **(self.twist or {})},
            "strain_rate_percent_per_s": {"definition": STRAIN_RATE, **(self.strain_rates or {})},
            "dyssynchrony": {
                "definition": DYSSYNCHRONY, "unit": "ms" if self.times_ms else "frames", "value": self.dyssynchrony
            },
        }  # fmt: skip


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
    is_mirrored: bool = False,
) -> Strain:
    """Strain of the wall of the LV from the displacements, in voxels, of the reference to every frame.

    The labels are those of the reference; the spacing is in mm. Slices lie across the axis of widest spacing unless
    `across` is given. `anterior` points to the front of the patient, along the axes of the array: `anterior_direction`
    of a grid, or against the second axis if not given. It tells the two insertions of the RV apart; `insertions` that
    are given hold in all slices. Without them and without an RV there are no segments. The axes of the array are
    right-handed, unless `is_mirrored`, which matters for the sense of rotations."""
    heart = heart or HeartLabels()
    stack = ShortAxis.of(fields, labels, spacing, across, heart.wall)
    if not (labels == heart.wall).any():
        raise BadInput(NO_WALL)
    if not stack.rings:
        raise BadInput(f"no slice has a closed ring of wall, label {heart.wall}: strain needs at least one")
    rings = walls.base_to_apex(stack.rings)
    front = anterior or (0.0, -1.0, 0.0)
    in_plane = front[stack.order[0]], front[stack.order[1]]
    of_rv = walls.insertions_of_rings(rings, stack.labels == heart.rv, stack.spacing, in_plane)
    found = of_rv if insertions is None else [insertions] * len(rings)

    # The strain of the regions, and then of each ring: Green's of its voxels, and that of the contours' steps.
    voxels = wall_voxels(rings, stack.spacing)
    E = green_strain(stack.motion_mm, voxels, stack.spacing)[::-1]  # circumferential, then radial
    names, weights = regions_and_rings(voxels.ring, voxels.angle_deg, found, len(rings))
    middle = weights * ((MIDDLE_LAYER[0] <= voxels.depth) & (voxels.depth <= MIDDLE_LAYER[1]))
    around = np.tile(np.degrees(ring_angles() + ring_angles()[1] / 2), len(rings))
    _, steps = regions_and_rings(np.repeat(np.arange(len(rings)), len(ring_angles())), around, found, len(rings))
    points = moved_contours(stack.motion_mm, rings, stack.spacing)
    odd = list(stack.order) in ([0, 2, 1], [1, 0, 2], [2, 1, 0])
    sense = (-1) ** (is_mirrored + odd + (rings[-1].slice < rings[0].slice))
    following = np.roll(points, -1, axis=-1)
    lengths = np.linalg.norm(following - points, axis=1)
    diagonals = following[:, :, 2] - points[:, :, 0], points[:, :, 2] - following[:, :, 0]
    areas = np.linalg.norm(np.cross(*diagonals, axis=1), axis=1) / 2
    measured = [*averages(E, weights), *averages(E, middle), *engineering_strain(lengths, areas, steps)]
    percent = np.stack(measured, 1).round(DIGITS) + 0.0  # which is no -0

    # What becomes of the length of the middle, and of the area, of every sixth of the wall at a level.
    starts = np.arange(0, 360, SIXTH_STEP_DEG)
    is_in_sixth = (around - starts[:, None]) % 360 < SIXTH_DEG
    of_sixths = (steps[1 : 1 + len(LEVELS), None] * is_in_sixth).reshape(-1, len(around))
    _, midwall, _, thickness = engineering_strain(lengths, areas, of_sixths)
    area = 100 * ((1 + midwall / 100) * (1 + thickness / 100) - 1)
    return Strain(
        percent[: len(names)],
        names,
        times_ms,
        slices=tuple(ring.slice for ring in rings),
        left_out=tuple(stack.left_out),
        insertions=tuple(found) if found else None,
        sixths=np.stack([midwall, area]).reshape(2, len(LEVELS), len(starts), -1),
        by_slice=percent[len(names) :],
        rotation_deg=sense * rotation_deg(points[:, :2, 1]),
        covered_mm=len(rings) * spacing[stack.order[2]] if labels.ndim == 3 else None,
    )


def rotation_deg(points: Float[ndarray, "f 2 r a"]) -> Float[ndarray, "r t"]:
    """The mean angle by which the points of each contour turn about their centre, from the first axis to the second;
    frame 0 of the points is the reference."""
    arms = points - points.mean(-1, keepdims=True)
    still = arms[:1]
    across, along = still[:, 0] * arms[:, 1] - still[:, 1] * arms[:, 0], (still * arms).sum(1)
    return np.degrees(np.arctan2(across, along)).mean(-1).T[:, 1:].round(DIGITS) + 0.0


def regions_and_rings(
    ring: Integer[ndarray, " n"], angle_deg: Float[ndarray, " n"], insertions: list[Insertions] | None, rings: int
) -> tuple[tuple[str, ...], Float[ndarray, "r n"]]:
    """The names of regions; and which parts of rings, from base to apex, are in each region, and then in each ring."""
    level = (3 * (2 * ring + 1)) // (2 * rings)  # thirds of the slices; a single one is mid-ventricular
    found = {GLOBAL: np.ones(len(ring), bool)} | {name: level == k for k, name in enumerate(LEVELS)}
    if insertions is not None:
        psi = np.empty(len(ring))
        for k, of_slice in enumerate(insertions):
            psi[ring == k] = of_slice.along_septum(angle_deg[ring == k])
        for segment in SEGMENTS:
            off = (psi - segment.centre_deg + 180) % 360 - 180
            is_inside = (-segment.half_width_deg <= off) & (off < segment.half_width_deg)
            found[f"segment {segment.number}"] = is_inside & (level == segment.level)
    return tuple(found), np.stack([*found.values(), *(ring == k for k in range(rings))]).astype(float)


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


@dataclass(frozen=True)
class StrainMap:
    """Green strain of each voxel of the reference's wall, in the slices where it is a closed ring."""

    index: Integer[ndarray, "3 n"]  # of the voxels, within slices and then across them
    radial: Float[ndarray, "t n"]  # away from the centre of the slice, in percent
    circumferential: Float[ndarray, "t n"]  # around it


def strain_map(
    fields: Float[ndarray, "t d *s"],
    labels: Integer[ndarray, "*s"],
    spacing: tuple[float, ...],
    *,
    across: int | None = None,
    heart: HeartLabels | None = None,
) -> StrainMap | None:
    """The strain at each voxel; the arguments are those of `strain`. None where no slice shows a ring of wall."""
    stack = ShortAxis.of(fields, labels, spacing, across, (heart or HeartLabels()).wall)
    if not stack.rings:
        return None
    voxels = wall_voxels(stack.rings, stack.spacing)
    radial, circumferential = green_strain(stack.motion_mm, voxels, stack.spacing)
    return StrainMap(voxels.index + np.reshape([*stack.start, 0], (3, 1)), radial, circumferential)
