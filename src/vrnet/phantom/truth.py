"""What is exactly known of a beat: E = ½(FᵀF − I) with F = ∂φ/∂x of the closed form φ, the lengths of contours that
move with φ, and how much of each voxel a ventricle fills.

Strains are in percent, lengths in mm, areas in mm², volumes in ml.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.phantom.anatomy import MYO, Heart
from vrnet.phantom.motion import Motion

CONTOUR_POINTS = 720
STEP_MM = 1e-3
"""Of the central differences of φ, in double precision: exact to eight digits."""


@dataclass(frozen=True)
class ExactStrain:
    """Green's strain, in percent, at each voxel of the reference's wall (NaN elsewhere), away from the LV axis and
    around it; and of the wall in each slice (z) the lengths of its contours in mm and its area in mm². A slice without
    a cavity has NaN."""

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
    """The strain of a heart at every frame; p are the voxels of the reference in the frame of the heart, in slices at
    these levels."""
    inside = labels == MYO
    wall, maps = p[:, inside].double(), torch.full((2, len(beat), *labels.shape), torch.nan)
    for t, motion in enumerate(beat):
        maps[0, t, inside], maps[1, t, inside] = (E.float() for E in green_strain(motion, wall))
    rings = contours(beat[0].heart, levels.double())
    found = [measured(torch.stack([motion.forward(ring) for ring in rings])) for motion in beat]
    return ExactStrain(maps[0], maps[1], *(torch.stack(values).float() for values in zip(*found, strict=True)))


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


def measured(rings: Float[Tensor, "3 3 n z"]) -> tuple[Float[Tensor, " z"], ...]:
    """Lengths of three closed contours in mm, and the area between the first and the last in mm²."""
    lengths = torch.linalg.vector_norm(rings - rings.roll(1, 2), dim=1).sum(1)
    endo, epi = rings[0], rings[2]
    diagonals = epi - endo.roll(1, 1), epi.roll(1, 1) - endo
    area = torch.linalg.vector_norm(torch.linalg.cross(*diagonals, dim=0), dim=0).sum(0) / 2
    return lengths[0], lengths[1], lengths[2], area


def volumes_of_frame(heart: Heart, origin: Float[Tensor, "3 *s"], voxel_ml: float) -> tuple[float, float, float]:
    """Volumes of LV cavity, RV cavity and LV wall in ml, of tissue that came from these points of the reference."""
    (endo, epi), rv = heart.left_ventricle(origin), heart.right_ventricle(origin)
    cavity, whole, right = (share_inside(d) for d in (endo, epi, torch.maximum(rv, -epi)))
    below_valves = origin[2] > heart.base
    lv, other, wall = (float((share * below_valves).sum()) * voxel_ml for share in (cavity, right, whole - cavity))
    return lv, other, wall


def share_inside(distance: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """How much of each voxel lies where the distance is negative, its zero set taken as straight within the voxel."""
    slope = torch.stack(torch.gradient(distance, dim=(0, 1)))
    return (0.5 - distance / torch.linalg.vector_norm(slope, dim=0).clamp(min=1e-6)).clamp(0, 1)
