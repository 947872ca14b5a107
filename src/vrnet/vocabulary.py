"""Words that people choose among, in Python and on the command line. Here, below all that computes, since the command
line is shown before any of that is loaded."""

from dataclasses import dataclass
from typing import Literal

AffineStart = Literal["none", "rigid", "affine"]
"""How images are aligned before they are registered."""
Brightness = Literal["match", "keep"]
"""What may be done about images of which one is plainly brighter."""
DeviceChoice = Literal["auto", "cpu", "cuda"]
"""Where to compute."""
Folds = Literal["repair", "keep"]
"""What may be done about the folds of a field that a method found."""
Interpolation = Literal["linear", "bspline"]
"""What an image is between its voxels."""
Slices = Literal["auto", "each", "together"]
"""How the slices of a stack are registered."""
Space = Literal["LPS", "RAS"]
"""Which way x and y of points run: to the patient's left and back, or to the right and front."""


# The labels that data sets give to structures.

HEART = {"LV": 3, "Myo": 2, "RV": 1}
"""As ACDC numbers them, and phantoms; labels of UK Biobank are brought to these numbers."""
HIPPOCAMPUS = {"anterior": 1, "posterior": 2}
"""Those of the Medical Segmentation Decathlon."""


# The 16 segments of the left ventricle of the American Heart Association (Cerqueira et al., Circulation 2002).
#
# An angle ψ is in degrees about the LV centre: 0 where the RV's anterior wall meets the septum, growing along the septum.
# The septum has 120 degrees of it, whatever the distance between the two insertions of the RV.

LEVELS = ("basal", "mid", "apical")
SIX_WALLS = ("anterior", "anteroseptal", "inferoseptal", "inferior", "inferolateral", "anterolateral")
FOUR_WALLS = ("anterior", "septal", "inferior", "lateral")
ANTERIOR_CENTRE_DEG = -30.0


@dataclass(frozen=True)
class Segment:
    """A part of the wall: at a level (0 basal, 1 mid, 2 apical), within half its width of the centre ψ, in degrees."""

    number: int
    name: str
    level: int
    centre_deg: float
    half_width_deg: float


def segments_of_level(level: int) -> tuple[Segment, ...]:
    """The segments of a level: six of 60 degrees, at the apex four of 90, all from the middle of the anterior wall."""
    walls = FOUR_WALLS if LEVELS[level] == "apical" else SIX_WALLS
    width = 360 / len(walls)
    return tuple(
        Segment(6 * level + i + 1, f"{LEVELS[level]} {wall}", level, (ANTERIOR_CENTRE_DEG + i * width) % 360, width / 2)
        for i, wall in enumerate(walls)
    )


SEGMENTS = tuple(segment for level in range(3) for segment in segments_of_level(level))


def level_of_slice(k: int, n: int) -> int:
    """The level of slice k of n, counted from base to apex: thirds; a single slice is a mid-ventricular one."""
    return 3 * (2 * k + 1) // (2 * n)
