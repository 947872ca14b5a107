"""No registration: the row that others are measured against."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vrnet.fields import zeros
from vrnet.methods.method import CPU, Method
from vrnet.variational.cascade import Initializer, Spacing


@dataclass(frozen=True)
class Identity(Method):
    """u = 0."""

    @property
    def summary(self) -> str:
        return "no registration: what there was before"

    def __str__(self) -> str:
        return "identity"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return no_motion


def no_motion(I0: Tensor, I1: Tensor, spacing: Spacing) -> Tensor:
    return zeros(I0)
