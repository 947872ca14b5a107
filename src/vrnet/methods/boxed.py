"""The models in the box: learned methods that come with their weights, by names of their own."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vrnet.file_sets import sha256
from vrnet.methods.trained import Trained, load_method

FOLDER = Path(__file__).parents[1] / "weights"
SHORT_AXIS, SHORT_AXIS_CINE = "short-axis", "short-axis-cine"


@dataclass(frozen=True)
class Boxed:
    """A model in the box: known without reading its weights."""

    file: Path
    summary: str


BOXED = {
    SHORT_AXIS: Boxed(
        FOLDER / "short_axis.safetensors",
        "learned, in the box: VR-Net for short-axis cine MR, ED and ES of a heart, in 2D",
    ),
    SHORT_AXIS_CINE: Boxed(
        FOLDER / "short_axis_cine.safetensors",
        "learned, in the box: VR-Net for the frames of short-axis cine MR, in 2D; the default of `vrnet track`",
    ),
    "hippocampus": Boxed(
        FOLDER / "hippocampus.safetensors",
        "learned, in the box: VR-Net for T1 images cut to the hippocampus, of two people, in 3D",
    ),
    "hippocampus-template": Boxed(
        FOLDER / "hippocampus_template.safetensors",
        "in the box: through a template of 140 T1 images cut to the hippocampus, made without labels, in 3D",
    ),
}
"""Every model in the box by its name."""


def is_boxed(name: str) -> bool:
    """Whether a model in the box has this name."""
    return name.casefold() in BOXED


@cache
def read_boxed(name: str) -> Trained:
    """The model of a name, read when it is first asked for; all who ask share it."""
    return load_method(BOXED[name].file, name=name)


@cache
def digest_of_boxed(name: str) -> str:
    """The SHA-256 of the weights of a model, as this process found them first."""
    return sha256(BOXED[name].file)


def boxed(name: str) -> Trained:
    """The model of a name, in whatever case."""
    return read_boxed(name.casefold())
