"""Words that people choose among, in Python and on the command line. Here, below all that computes, since the command
line is shown before any of that is loaded."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vrnet.errors import BadInput

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


@dataclass(frozen=True, kw_only=True)
class RegistrationOptions:
    """What can be asked of a registration beside its images and its method.

    Each field is an argument of `register_images`, and an option of the commands, which show its docstring as help."""

    affine: AffineStart = "none"
    """Align misaligned images first, by mutual information: rotation and shift (rigid), or also scaling and shear
    (affine). The headers need not be right."""
    slices: Slices = "auto"
    """Register a stack slice by slice (each) or as a volume (together). auto: each, if the slice distance is at least
    2.5 times the pixel size, or if a 2D model is named."""
    brightness: Brightness = "match"
    """Correct a global intensity difference (factor and offset) for methods that compare intensities, such as TV-L1
    and short-axis (match), or not (keep). warped.nii.gz keeps its own intensities."""
    match_intensities: bool = False
    """Match the histogram of MOVING to FIXED while registering, for larger intensity differences. Not for the beating
    heart."""
    folds: Folds = "repair"
    """Repair folds of the field with the smallest change that removes them, or keep the field as it is."""
    device: DeviceChoice = "auto"
    """Where to compute; auto takes CUDA where there is one."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            check_choice(field.name, getattr(self, field.name), hints[field.name])

    def as_json(self) -> dict[str, Any]:
        """The options by name, as strings and truth values."""
        return asdict(self)


def check_choice(name: str, value: object, hint: Any) -> None:
    """BadInput unless a value is one of those that the type of an option lists; a truth value, where it is a bool."""
    choices = get_args(hint) if get_origin(hint) is Literal else (True, False)
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        *others, last = (repr(choice) for choice in choices)
        raise BadInput(f"{name} is {value!r}: give {', '.join(others)} or {last}")


# The labels that data sets give to structures.

HEART = {"LV": 3, "Myo": 2, "RV": 1}
"""As ACDC numbers them, and phantoms; labels of UK Biobank are brought to these numbers."""
HIPPOCAMPUS = {"anterior": 1, "posterior": 2}
"""Those of the Medical Segmentation Decathlon."""


# The 16 segments of the left ventricle of the American Heart Association (Cerqueira et al., Circulation 2002).
#
# An angle ψ is in degrees about the LV centre: 0 where the RV's anterior wall meets the septum, growing along the
# septum, which has 120 degrees, whatever the distance between the two insertions of the RV.

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
