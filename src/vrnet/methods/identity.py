"""No registration: the row that others are measured against."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vrnet.fields import zeros
from vrnet.variational.cascade import Initializer, Spacing


@dataclass(frozen=True)
class Identity:
    """u = 0."""

    what: ClassVar = "no registration: what there was before"

    def __str__(self) -> str:
        return "identity"

    def build(self, d: int) -> Initializer:
        return no_motion


def no_motion(I0: Tensor, I1: Tensor, spacing: Spacing) -> Tensor:
    return zeros(I0)
