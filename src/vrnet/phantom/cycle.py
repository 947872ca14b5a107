"""A whole cardiac cycle: frames I_t, and the exact u_t with I_t(x + u_t(x)) = I_0(x). The anatomy A is a function of
end-diastolic position, the motion φ_t a map in closed form: I_t = A ∘ φ_t⁻¹, then blurred and made noisy. Slices lie
across the last axis, from base to apex, and tissue stays in its slice unless asked."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, prod, radians

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.fields.calculus import smooth
from vrnet.images.image import rescale_jointly
from vrnet.phantom.anatomy import MYO, Chest, Heart, Motion, RandomSource, Rhythm, norm
from vrnet.vocabulary import LEVELS, SEGMENTS, Segment

INNER_SHARE = 0.88  # of the cavity's radius: blood beyond moves as the wall does, whose strain is smooth to its border
EDGE_RAD, EDGE_MM = 0.15, 2.0  # of the soft edges of an infarct: a tenth to nine tenths takes 4.4 times as much
Range = tuple[float, float]


@dataclass(frozen=True)
class Pathology:
    """From where to where the numbers of a heart lie; lengths in mm, angles in radians."""

    endo: Range  # radius of the LV cavity
    wall: Range  # thickness
    ejection: Range  # share of the LV cavity that empties
    twist: Range  # from base to apex
    remaining: Range | None = None  # of the contraction within an infarct

    def draw(self, random: RandomSource, through_plane: bool) -> Motion:
        """A heart with this pathology, and how it beats; what moves along its axis is left out if it must."""
        drawn, endo, wall = Heart.draw(random), random.uniform(*self.endo), random.uniform(*self.wall)
        heart = replace(drawn, endo=endo, wall=wall, rv_height=(endo + wall) * random.uniform(0.9, 1.1))
        motion = Motion.draw(heart, random)
        ejection, twist = random.uniform(*self.ejection), (motion.twist[0], random.uniform(*self.twist))
        descent = motion.descent if through_plane else 0.0
        return replace(motion, ejection=ejection, twist=twist, descent=descent, inner=INNER_SHARE)


NORMAL = Pathology(endo=(20.5, 23.0), wall=(10.5, 12.0), ejection=(0.58, 0.61), twist=(0.14, 0.22))
PATHOLOGIES = {
    "normal": NORMAL,
    "dilated": Pathology(endo=(29.0, 33.0), wall=(7.5, 9.0), ejection=(0.2, 0.32), twist=(0.03, 0.08)),
    "hypertrophic": Pathology(endo=(18.0, 20.5), wall=(14.0, 17.0), ejection=(0.62, 0.68), twist=(0.18, 0.26)),
    "infarct": replace(NORMAL, remaining=(0.1, 0.3)),
}


@dataclass(frozen=True)
class Infarct:
    """Segments whose wall contracts by a share of what the rest does."""

    segments: tuple[Segment, ...]
    remaining: float
    insertion: float  # angle of the anterior insertion, on the epicardium at the belly, from a to b, in radians
    levels: tuple[Range, Range, Range]  # from which z to which each lies, in mm

    @classmethod
    def of(cls, heart: Heart, numbers: Iterable[int], remaining: float, is_stack: bool) -> "Infarct":
        """An infarct of these segments; a single slice has the mid-ventricular ones alone, wherever it lies."""
        third = (heart.belly + heart.length - heart.base) / 3
        z = (heart.base + third, heart.base + 2 * third)
        stack = ((-inf, z[0]), z, (z[1], inf))
        levels = stack if is_stack else ((inf, inf), (-inf, inf), (inf, inf))
        found = tuple(segment for segment in SEGMENTS if segment.number in numbers)
        if not any(is_stack or LEVELS[segment.level] == "mid" for segment in found):
            known = "1 to 16" if is_stack else "7 to 12, those of a mid-ventricular slice"
            raise BadInput(f"`infarct` names none of the segments {known}")
        angle = torch.linspace(0, torch.pi, 3601, dtype=torch.float64)
        epi = heart.radii(angle.cos())[1]
        rim = torch.stack([epi * angle.cos(), epi * angle.sin(), torch.full_like(epi, heart.belly)])
        insertion = float(angle[heart.right_ventricle(rim) < 0].max())  # where the RV ends, anteriorly
        return cls(found, remaining, insertion, levels)

    def __call__(self, direction: Float[Tensor, "2 *s"], z: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """The share of the contraction that is left, in a direction from the LV axis and at a level z."""
        angle, inside = self.insertion - torch.atan2(direction[1], direction[0]), torch.zeros_like(z)
        for segment in self.segments:  # across soft edges, at which neighbours add up to 1
            low, high = self.levels[segment.level]
            off = torch.remainder(angle - radians(segment.centre_deg) + torch.pi, 2 * torch.pi) - torch.pi
            around = torch.sigmoid((radians(segment.half_width_deg) - off.abs()) / EDGE_RAD)
            inside = inside + around * torch.sigmoid((z - low) / EDGE_MM) * torch.sigmoid((high - z) / EDGE_MM)
        return 1 - (1 - self.remaining) * inside


BLUR_VOXELS = 0.45  # standard deviation


@dataclass(frozen=True)
class Scanner:
    """The coil's sensitivity exp(g·x), a slight blur, Rician noise."""

    random: RandomSource
    gradient: tuple[float, float]  # g along x and y, per mm
    noise: float  # standard deviation, where blood has a signal of about 1

    @classmethod
    def draw(cls, random: RandomSource) -> "Scanner":
        """A scanner whose coil lies on the chest: what is anterior is brighter."""
        gradient = (random.uniform(-0.002, 0.002), random.uniform(-0.004, -0.0005))
        return cls(random, gradient, noise=random.uniform(0.012, 0.035))

    def image(self, signal: Float[Tensor, "*s"], x: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """The signal on the grid x as an image, with new noise at each call."""
        coil = (self.gradient[0] * x[0] + self.gradient[1] * x[1]).exp()
        seen = smooth((signal * coil)[None, None], BLUR_VOXELS)[0, 0]
        real, imaginary = self.noise * self.random.normal(2, *seen.shape)
        return norm(seen + real, imaginary)


# Pairs: end-diastole I0 = A, end-systole I1 = A ∘ φ⁻¹, and the exact u with I1(x + u(x)) = I0(x). A 2D phantom is a cut
# of a 3D one across the long axis, without the motion along it.


@dataclass(frozen=True)
class Phantom:
    """A pair on one grid: fixed is end-diastole (I0), moving is end-systole (I1). They share one scaling to [0, 1];
    labels are 0 background, 1 RV, 2 Myo, 3 LV. What lies at x in fixed lies at x + field(x), in voxels, in moving. The
    spacing is in mm."""

    fixed: Float[Tensor, "1 1 *s"]
    moving: Float[Tensor, "1 1 *s"]
    fixed_labels: UInt8[Tensor, "1 1 *s"]
    moving_labels: UInt8[Tensor, "1 1 *s"]
    field: Float[Tensor, "1 d *s"]
    spacing: tuple[float, ...]


def phantom(seed: int, shape: tuple[int, ...] = (160, 160), spacing: float = 1.8) -> Phantom:
    """The patient of this seed, on a grid of any shape and spacing in mm; a third axis runs from base to apex."""
    random, d = RandomSource(seed), len(shape)
    chest = Chest.draw(random)
    heart, motion = chest.heart, Motion.draw(chest.heart, random)
    if d == 2:  # tissue would leave the plane
        motion = replace(motion, descent=0.0)
    x = voxel_positions(shape, (spacing,) * d, level=heart.belly + random.uniform(-8.0, 16.0))
    origin = heart.to_picture(motion.inverse(heart.to_heart(x)))
    scanner = Scanner.draw(random)
    images = (scanner.image(chest.brightness(p), x) for p in (x, origin))
    I0, I1 = (image[None, None] for image in rescale_jointly(*images))
    labels_0, labels_1 = (heart.labels(heart.to_heart(p))[None, None] for p in (x, origin))
    u = (heart.to_picture(motion.forward(heart.to_heart(x))) - x)[None, :d] / spacing
    return Phantom(I0, I1, labels_0, labels_1, u, (spacing,) * d)


def voxel_positions(shape: tuple[int, ...], spacing: tuple[float, ...], level: float) -> Float[Tensor, "3 *s"]:
    """Position of each voxel in mm from the middle of the grid; a 2D grid lies across the long axis at a level."""
    axes = [(torch.arange(n, dtype=torch.float32) - (n - 1) / 2) * h for n, h in zip(shape, spacing, strict=True)]
    p = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    return torch.cat([p, p.new_full((3 - len(shape), *shape), level)])


# What is exactly known of a beat: E = ½(FᵀF − I) with F = ∂φ/∂x of the closed form φ, the lengths of contours that
# move with φ, and how much of each voxel a ventricle fills.
#
# Strains are in percent, lengths in mm, areas in mm², volumes in ml.

CONTOUR_POINTS = 720
STEP_MM = 1e-3  # of the central differences of φ, in double precision: exact to eight digits


@dataclass(frozen=True)
class ExactStrain:
    """Green's strain at each voxel of the reference's wall (NaN elsewhere), away from the LV axis and around it; and of
    the wall in each slice (z) the lengths of its contours and its area, NaN without a cavity."""

    radial: Float[Tensor, "t *s"]
    circumferential: Float[Tensor, "t *s"]
    endo_mm: Float[Tensor, "t z"]
    midwall_mm: Float[Tensor, "t z"]
    epi_mm: Float[Tensor, "t z"]
    wall_mm2: Float[Tensor, "t z"]


@dataclass(frozen=True)
class ExactVolumes:
    """What perfect contours in every slice hold at every frame: area times the distance of slices, in ml."""

    lv_ml: Float[Tensor, " t"]
    rv_ml: Float[Tensor, " t"]
    wall_ml: Float[Tensor, " t"]

    @property
    def ejection_fraction_percent(self) -> float:
        """(largest − smallest) / largest volume of the LV."""
        return float(100 * (1 - self.lv_ml.min() / self.lv_ml.max()))


def exact_strain(
    beat: list[Motion], p: Float[Tensor, "3 *s"], labels: UInt8[Tensor, "*s"], levels: Float[Tensor, " z"]
) -> ExactStrain:
    """The strain of a heart at every frame, whose voxels in the reference are at p, in slices at these levels."""
    inside = labels == MYO
    wall, maps = p[:, inside].double(), torch.full((2, len(beat), *labels.shape), torch.nan)
    rings, measured = contours(beat[0].heart, levels.double()), []
    for t, motion in enumerate(beat):
        maps[:, t, inside] = torch.stack(green_strain(motion, wall)).float()
        moved = torch.stack([motion.forward(ring) for ring in rings])
        lengths = torch.linalg.vector_norm(moved - moved.roll(1, 2), dim=1).sum(1)
        endo, epi = moved[0], moved[2]
        diagonals = epi - endo.roll(1, 1), epi.roll(1, 1) - endo
        area = torch.linalg.vector_norm(torch.linalg.cross(*diagonals, dim=0), dim=0).sum(0) / 2
        measured.append([*lengths, area])
    return ExactStrain(maps[0], maps[1], *(torch.stack(values).float() for values in zip(*measured, strict=True)))


def green_strain(motion: Motion, p: Float[Tensor, "3 n"]) -> list[Float[Tensor, " n"]]:
    """½(|F e|² − 1) in percent, for e away from the LV axis and e around it."""
    away = torch.cat([p[:2] / torch.linalg.vector_norm(p[:2], dim=0), torch.zeros_like(p[:1])])
    around = torch.stack([-away[1], away[0], away[2]])
    ends = ((motion.forward(p + STEP_MM * e), motion.forward(p - STEP_MM * e)) for e in (away, around))
    return [50 * (((ahead - behind) / (2 * STEP_MM)).square().sum(0) - 1) for ahead, behind in ends]


def contours(heart: Heart, levels: Float[Tensor, " z"]) -> list[Float[Tensor, "3 n z"]]:
    """Points around the endocardium, the middle of the wall and the epicardium at each level."""
    angle = torch.arange(CONTOUR_POINTS, dtype=levels.dtype)[:, None] * (2 * torch.pi / CONTOUR_POINTS)
    z = levels.expand(CONTOUR_POINTS, -1)
    endo, epi = heart.radii(angle.cos())
    endo = endo * heart.narrowing(z, heart.length).sqrt()
    epi = epi * heart.narrowing(z, heart.length + heart.wall).sqrt()
    radii = [torch.where(endo > 0, r, torch.nan) for r in (endo, (endo + epi) / 2, epi)]
    return [torch.stack([r * angle.cos(), r * angle.sin(), z]) for r in radii]


def exact_volumes(heart: Heart, origins: list[Float[Tensor, "3 *s"]], spacing: tuple[float, ...]) -> ExactVolumes:
    """Volumes at every frame, of tissue that came from these points of the reference; a single slice is 1 mm thick."""
    found = []
    for origin in origins:
        (endo, epi), rv = heart.left_ventricle(origin), heart.right_ventricle(origin)
        cavity, whole, right = (share_inside(d) for d in (endo, epi, torch.maximum(rv, -epi)))
        below_valves = origin[2] > heart.base
        shares = (cavity, right, whole - cavity)
        found.append([float((share * below_valves).sum()) * prod(spacing) / 1000 for share in shares])
    return ExactVolumes(*torch.tensor(found).T)


def share_inside(distance: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """How much of each voxel lies where the distance is negative, its zero set taken as straight within the voxel."""
    slope = torch.stack(torch.gradient(distance, dim=(0, 1)))
    return (0.5 - distance / torch.linalg.vector_norm(slope, dim=0).clamp(min=1e-6)).clamp(0, 1)


ANTERIOR_SEGMENTS = (1, 2, 7, 8, 13, 14)  # what the left anterior descending artery supplies


@dataclass(frozen=True)
class Cycle:
    """Frames of one beat on one grid; frame 0, end-diastole, is the reference. They share one scaling to [0, 1]; labels
    are 0 background, 1 RV, 2 Myo, 3 LV. What lies at x in the reference lies at x + u(x) in frame t, u being fields[t],
    in voxels. The spacing is in mm, times are in ms from the reference."""

    frames: Float[Tensor, "t *s"]
    labels: UInt8[Tensor, "*s"]
    frame_labels: UInt8[Tensor, "t *s"]
    fields: Float[Tensor, "t d *s"]
    spacing: tuple[float, ...]
    times_ms: tuple[float, ...]
    strain: ExactStrain
    volumes: ExactVolumes

    @property
    def end_systole(self) -> int:
        """The frame at which the LV is smallest."""
        return int(self.volumes.lv_ml.argmin())


def cycle(
    seed: int, shape: tuple[int, ...] = (128, 128), spacing: tuple[float, ...] = (1.4, 1.4), pathology: str = "normal",
    *, frames: int = 30, heart_rate: float = 65.0, through_plane: bool = False,
    infarct: Iterable[int] = ANTERIOR_SEGMENTS,
) -> Cycle:  # fmt: skip
    """The beat of the patient of this seed: one slice across the long axis, or a stack such as (128, 128, 10) voxels of
    (1.4, 1.4, 8) mm.

    `infarct` are the AHA segments that move less if the pathology is an infarct. With `through_plane` the valves
    descend and the heart shortens along its axis, through the slices of a stack."""
    if len(shape) not in (2, 3) or len(spacing) != len(shape):
        raise BadInput("a cycle is a slice or a stack: give two or three numbers as `shape`, and as many as `spacing`")
    if frames < 2:
        raise BadInput("a cycle has at least two frames: give more `frames`")
    if through_plane and len(shape) == 2:
        raise BadInput("a single slice shows nothing of motion `through_plane`: give the `shape` of a stack")
    if pathology not in PATHOLOGIES:
        raise BadInput(f"there is no pathology {pathology}: choose one of {', '.join(PATHOLOGIES)}")
    random, rhythm, suffered = RandomSource(seed), Rhythm.at(heart_rate), PATHOLOGIES[pathology]
    chest, motion = Chest.draw(random), suffered.draw(random, through_plane)
    heart = motion.heart
    if suffered.remaining is not None:
        scar = Infarct.of(heart, tuple(infarct), random.uniform(*suffered.remaining), is_stack=len(shape) == 3)
        motion = replace(motion, contractility=scar)
    chest = replace(chest, heart=heart)
    x = voxel_positions(shape, spacing, level=heart.belly + random.uniform(-8.0, 16.0))
    times = tuple(rhythm.cycle * t / frames for t in range(frames))
    beat = [motion.part_way(rhythm.contraction(t), rhythm.torsion(t)) for t in times]
    scanner, p, edges = Scanner.draw(random), heart.to_heart(x), torch.tensor(spacing).view(-1, *[1] * len(shape))
    origins = [motion.inverse(p) for motion in beat]
    labels = torch.stack([heart.labels(origin) for origin in origins])
    images = [scanner.image(chest.brightness(heart.to_picture(origin)), x) for origin in origins]
    moved = [(heart.to_picture(motion.forward(p)) - x)[: len(shape)] / edges for motion in beat]
    known = exact_strain(beat, p, labels[0], x[2, 0, 0].reshape(-1)), exact_volumes(heart, origins, spacing)
    scaled = torch.stack(rescale_jointly(*images))
    return Cycle(scaled, labels[0], labels, torch.stack(moved), spacing, times, *known)
