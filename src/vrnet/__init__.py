"""Deformable image registration: a variational solver, and the networks unrolled from it.

result = vrnet.register(fixed, moving)      # moving(x + result.field(x)) ≈ fixed(x)

The calculus of fields, on batches of tensors, is in `vrnet.fields`.
"""

from vrnet.errors import BadInput
from vrnet.methods.names import names, parse
from vrnet.methods.variational import Variational
from vrnet.registration import Registration, register

__version__ = "0.1.0"
__all__ = ["BadInput", "Registration", "Variational", "names", "parse", "register"]
