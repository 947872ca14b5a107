"""No registration: the row that others are measured against."""

from dataclasses import dataclass

import torch

from vrnet.methods.method import CPU, Method
from vrnet.variational.cascade import Initializer, no_motion


@dataclass(frozen=True)
class Identity(Method):
    """u = 0."""

    def __str__(self) -> str:
        return "identity"

    @property
    def summary(self) -> str:
        return "no registration: what there was before"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return no_motion
