"""Words that people choose among, where nothing is loaded: the command line is shown before all that computes."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_type_hints

from vrnet.errors import BadInput, either

AffineStart = Literal["none", "rigid", "affine"]  # how images are aligned before they are registered
Brightness = Literal["match", "keep"]  # what may be done about images of which one is plainly brighter
Channels = Literal["auto", "none", "anatomy", "labels"]  # by what images are matched beside their intensities
DeviceChoice = Literal["auto", "cpu", "cuda"]  # where to compute
Folds = Literal["repair", "keep"]  # what may be done about the folds of a field that a method found
Interpolation = Literal["linear", "bspline"]  # what an image is between its voxels
Slices = Literal["auto", "each", "together"]  # how the slices of a stack are registered
Space = Literal["LPS", "RAS"]  # x and y run to the patient's left and back, or to the right and front


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
    channels: Channels = "auto"
    """Match images also by the probabilities of structures that the bundled segmenter finds (anatomy), or by the labels
    given for both (labels). auto: as the method was trained; none for others."""
    folds: Folds = "repair"
    """Repair folds of the field with the smallest change that removes them, or keep the field as it is."""
    device: DeviceChoice = "auto"
    """Where to compute; auto takes CUDA where there is one."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value, choices = getattr(self, name), get_args(hint) or (True, False)
            if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
                raise BadInput(f"{name} is {value!r}: give {either([repr(choice) for choice in choices])}")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


HEART = {"LV": 3, "Myo": 2, "RV": 1}  # as ACDC and phantoms number them, and UK Biobank in the end
HIPPOCAMPUS = {"anterior": 1, "posterior": 2}  # those of the Medical Segmentation Decathlon


# The 16 segments of the left ventricle of the American Heart Association (Cerqueira et al., Circulation 2002).
#
# An angle ψ is in degrees about the LV centre: 0 where the RV's anterior wall meets the septum, growing along the
# septum, which has 120 degrees, whatever the distance between the two insertions of the RV.

LEVELS = ("basal", "mid", "apical")
SIX_WALLS = ("anterior", "anteroseptal", "inferoseptal", "inferior", "inferolateral", "anterolateral")
FOUR_WALLS = ("anterior", "septal", "inferior", "lateral")


@dataclass(frozen=True)
class Segment:
    """A part of the wall: at a level (0 basal, 1 mid, 2 apical), within half its width of the centre ψ, in degrees."""

    number: int
    name: str
    level: int
    centre_deg: float
    half_width_deg: float


SEGMENTS = tuple(
    Segment(6 * level + i + 1, f"{name} {wall}", level, (i * 360 / len(walls) - 30) % 360, 180 / len(walls))
    for level, (name, walls) in enumerate(zip(LEVELS, (SIX_WALLS, SIX_WALLS, FOUR_WALLS), strict=True))
    for i, wall in enumerate(walls)
)
"""At a level six of 60 degrees, at the apex four of 90; the middle of the anterior wall is at -30 degrees."""
