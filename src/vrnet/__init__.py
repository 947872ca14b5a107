"""Deformable image registration: a variational solver, and the networks unrolled from it.

result = vrnet.register(fixed, moving)      # moving(x + result.field(x)) ≈ fixed(x)
"""

from vrnet.errors import BadInput
from vrnet.fields import compose, determinant, invert, jacobian, warp, warp_labels
from vrnet.methods.names import names, parse
from vrnet.methods.variational import Variational
from vrnet.registration import Registration, register

__version__ = "0.1.0"
__all__ = [
    "BadInput",
    "Registration",
    "Variational",
    "compose",
    "determinant",
    "invert",
    "jacobian",
    "names",
    "parse",
    "register",
    "warp",
    "warp_labels",
]
