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
    """Align the images first, by mutual information: by a rotation and a shift (rigid), or with scaling and shear
    (affine). For images that lie differently, also where headers put them far apart. With masks, the whole images are
    aligned, unless inside the masks another start makes them plainly more alike."""
    slices: Slices = "auto"
    """Of a stack, register each slice within itself, or all together as a volume. auto: each, where slices are at least
    two and a half times as far apart as the voxels within them, or where a 2D model is named."""
    brightness: Brightness = "match"
    """Where all of MOVING is plainly brighter or darker than FIXED, by a factor or an offset, undo that for methods
    that compare brightness, such as TV-L1 and short-axis; or keep it. Differences are then those of matched
    intensities; warped.nii.gz keeps its own."""
    match_intensities: bool = False
    """Give MOVING the histogram of FIXED while registering: for the same methods, where more than a factor and an
    offset differ. Differences are those of matched intensities, too. Not for the beating heart."""
    folds: Folds = "repair"
    """Where the field folds, which no tissue does, change it until it does not, and as little as that takes; or keep it
    as the method found it."""
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
