"""What a heart suffers from: the sizes and the motion that are drawn, and where its wall does not contract."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, radians

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.aha import LEVELS, SEGMENTS, Segment
from vrnet.errors import BadInput
from vrnet.phantom.anatomy import Heart, RandomSource
from vrnet.phantom.motion import Motion

INNER_SHARE = 0.88
"""Blood beyond this share of the cavity's radius moves as the wall does: the motion is smooth across the endocardium,
and its derivative there is that of the wall."""
EDGE_RAD = 0.15
"""How softly an infarct ends around the ventricle: from a tenth to nine tenths it takes 4.4 times as much."""
EDGE_MM = 2.0
"""How softly it ends along the ventricle."""
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
        heart = self.draw_heart(random)
        motion = Motion.draw(heart, random)
        return replace(
            motion,
            ejection=random.uniform(*self.ejection),
            twist=(motion.twist[0], random.uniform(*self.twist)),
            descent=motion.descent if through_plane else 0.0,
            inner=INNER_SHARE,
        )

    def draw_heart(self, random: RandomSource) -> Heart:
        """The ventricles."""
        drawn, endo, wall = Heart.draw(random), random.uniform(*self.endo), random.uniform(*self.wall)
        return replace(drawn, endo=endo, wall=wall, rv_height=(endo + wall) * random.uniform(0.9, 1.1))


NORMAL = Pathology(endo=(20.5, 23.0), wall=(10.5, 12.0), ejection=(0.58, 0.61), twist=(0.14, 0.22))
PATHOLOGIES = {
    "normal": NORMAL,
    "dilated": Pathology(endo=(29.0, 33.0), wall=(7.5, 9.0), ejection=(0.2, 0.32), twist=(0.03, 0.08)),
    "hypertrophic": Pathology(endo=(18.0, 20.5), wall=(14.0, 17.0), ejection=(0.62, 0.68), twist=(0.18, 0.26)),
    "infarct": replace(NORMAL, remaining=(0.1, 0.3)),
}


def find_pathology(name: str) -> Pathology:
    """The pathology of this name."""
    if name not in PATHOLOGIES:
        raise BadInput(f"there is no pathology {name}: choose one of {', '.join(PATHOLOGIES)}")
    return PATHOLOGIES[name]


@dataclass(frozen=True)
class Infarct:
    """Segments whose wall contracts by a share of what the rest does. Angles count from the anterior insertion of the
    RV; levels lie between two z each, in mm."""

    segments: tuple[Segment, ...]
    remaining: float
    insertion: float  # angle of the anterior insertion from a to b, in radians
    levels: tuple[Range, Range, Range]

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
        return cls(found, remaining, anterior_insertion(heart), levels)

    def __call__(self, direction: Float[Tensor, "2 *s"], z: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """The share of the contraction that is left, in a direction from the LV axis and at a level z."""
        angle = self.insertion - torch.atan2(direction[1], direction[0])
        return 1 - (1 - self.remaining) * sum((self.inside(s, angle, z) for s in self.segments), torch.zeros_like(z))

    def inside(self, segment: Segment, angle: Tensor, z: Tensor) -> Tensor:
        """1 within a segment, 0 outside, across soft edges at which neighbours add up to 1."""
        low, high = self.levels[segment.level]
        off = torch.remainder(angle - radians(segment.centre_deg) + torch.pi, 2 * torch.pi) - torch.pi
        around = torch.sigmoid((radians(segment.half_width_deg) - off.abs()) / EDGE_RAD)
        return around * torch.sigmoid((z - low) / EDGE_MM) * torch.sigmoid((high - z) / EDGE_MM)


def anterior_insertion(heart: Heart) -> float:
    """The angle from a to b at which the RV ends, anteriorly, on the epicardium of the LV at the belly; in radians."""
    angle = torch.linspace(0, torch.pi, 3601, dtype=torch.float64)
    epi = heart.radii(angle.cos())[1]
    rim = torch.stack([epi * angle.cos(), epi * angle.sin(), torch.full_like(epi, heart.belly)])
    return float(angle[heart.right_ventricle(rim) < 0].max())
