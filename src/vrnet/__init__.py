"""Deformable image registration: a variational solver, and the networks unrolled from it.

result = vrnet.register(fixed, moving)                      # arrays: moving(x + result.field(x)) ≈ fixed(x)

fixed, moving = vrnet.read_image("ed.nii.gz"), vrnet.read_image("es.nii.gz")
result = vrnet.register_images(fixed, moving)               # images in space: result.transform, result.warped
result.transform.save("transform.nii.gz")                   # as ITK, ANTs and 3D Slicer read it
result.verdict, result.metrics(fixed_labels, moving_labels) # good, look or failed; Dice, distances, folds
result.show(), result.report("page.html")                   # a figure; a page to look at. In notebooks: a card

result = vrnet.register(fixed, moving, "TV-L1(lam=0.15)")   # any name of vrnet.names(), with other parameters
vrnet.parameters(vrnet.parse("TV-L1"))                      # those that it has, with their values and meanings

tracked = vrnet.track("cine.nii.gz", labels="frame0.nii.gz")  # a beating heart: tracked.transforms, .strain, .volumes

vrnet.judge(fixed, moving, result.field)                    # good, look or failed, why, and what to try

The calculus of fields, on batches of tensors, is in `vrnet.fields`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vrnet.views import connect as _connect

if TYPE_CHECKING:
    from vrnet.app.tracking import Tracking, track
    from vrnet.errors import BadInput, InputWarning
    from vrnet.evaluation.verdict import Verdict, judge, judge_images
    from vrnet.images.affine import Affine
    from vrnet.images.chain import compose
    from vrnet.images.cine import Cine
    from vrnet.images.cine_files import read_cine
    from vrnet.images.grid import Grid
    from vrnet.images.image import Image
    from vrnet.images.io import read_image, write_image
    from vrnet.images.transform import Transform
    from vrnet.methods.method import Method
    from vrnet.methods.names import names, parameters, parse, with_parameters
    from vrnet.methods.network import network, save_network
    from vrnet.methods.trained import Trained, load_method
    from vrnet.methods.variational import Variational
    from vrnet.provenance import __version__
    from vrnet.registration.arrays import Registration, register
    from vrnet.registration.images import ImageRegistration, register_images

__all__ = [
    "Affine",
    "BadInput",
    "Cine",
    "Grid",
    "Image",
    "ImageRegistration",
    "InputWarning",
    "Method",
    "Registration",
    "Tracking",
    "Trained",
    "Transform",
    "Variational",
    "Verdict",
    "__version__",
    "compose",
    "judge",
    "judge_images",
    "load_method",
    "names",
    "network",
    "parameters",
    "parse",
    "read_cine",
    "read_image",
    "register",
    "register_images",
    "save_network",
    "track",
    "with_parameters",
    "write_image",
]
PLACES = {
    "app.tracking": ["Tracking", "track"],
    "errors": ["BadInput", "InputWarning"],
    "evaluation.verdict": ["Verdict", "judge", "judge_images"],
    "images.affine": ["Affine"],
    "images.chain": ["compose"],
    "images.cine": ["Cine"],
    "images.cine_files": ["read_cine"],
    "images.grid": ["Grid"],
    "images.image": ["Image"],
    "images.io": ["read_image", "write_image"],
    "images.transform": ["Transform"],
    "methods.method": ["Method"],
    "methods.names": ["names", "parameters", "parse", "with_parameters"],
    "methods.network": ["network", "save_network"],
    "methods.trained": ["Trained", "load_method"],
    "methods.variational": ["Variational"],
    "provenance": ["__version__"],
    "registration.arrays": ["Registration", "register"],
    "registration.images": ["ImageRegistration", "register_images"],
}
"""Where each name is defined. It is imported when it is first asked for, so that the command line is loaded without
PyTorch, and can answer Ctrl-C, and lack of memory, while that is loaded."""


_connect(lambda: import_module("vrnet.app.viewer"))  # results are shown by a layer above the one that makes them


def __getattr__(name: str) -> Any:
    """A name of the public face, or a part of the package."""
    place = next((place for place, held in PLACES.items() if name in held), None)
    if place is not None:
        globals()[name] = getattr(import_module(f"vrnet.{place}"), name)
        return globals()[name]
    if not name.startswith("_") and find_spec(f"vrnet.{name}") is not None:
        return import_module(f"vrnet.{name}")
    raise AttributeError(f"module 'vrnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
