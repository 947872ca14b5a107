"""How two images in the world are to be registered: one place for Python, the commands, and all between them."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vrnet.errors import BadInput
from vrnet.vocabulary import AffineStart, Brightness, DeviceChoice, Folds, Slices


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
