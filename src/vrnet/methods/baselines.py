"""The networks that VR-Net is compared with: VoxelMorph, Siamese, 4xRC-Net.

Each is a cascade like any other: VoxelMorph and Siamese are empty ones, RC-Net has no data step.
"""

import re
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from vrnet.errors import check_range
from vrnet.methods.method import COUNT, CPU, MAX_CASCADES, PAPER_WIDTH, LossTerms, Method, Trainable, suffix
from vrnet.networks import unet as siamese
from vrnet.networks.denoisers import Predict, Recurse
from vrnet.networks.unet import half_unet, unet
from vrnet.variational.cascade import Cascade, Initializer, Step, no_motion


@dataclass(frozen=True)
class VoxelMorph(Trainable):
    """One U-Net: the empty cascade."""

    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""

    summary = "learned: one U-Net"

    def __str__(self) -> str:
        return f"VoxelMorph{suffix(self.width)}"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(Predict(unet(d, 2, self.width or PAPER_WIDTH[d])), []).to(device)


@dataclass(frozen=True)
class Siamese(Trainable):
    """Two encoders that share weights: the empty cascade."""

    width: int | None = None
    """Channels of the first level; 64 where not given."""

    summary = "learned: two encoders that share weights"
    loss = LossTerms("L2", "Huber", alpha=0.02)

    def __str__(self) -> str:
        return f"Siamese{suffix(self.width)}"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(Predict(siamese.Siamese(d, self.width or 64)), []).to(device)


@dataclass(frozen=True)
class RCNet(Trainable):
    """Recursive cascades: each U-Net sees the images as the ones before it left them."""

    cascades: int = 3
    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""
    resolution: Literal["full", "half"] = "full"
    """half: networks see each block of 2x2 pixels (2x2x2 voxels) as one, as those of VR-Net can."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range({"the number of cascades": self.cascades}, 1, MAX_CASCADES)

    def __str__(self) -> str:
        half = "-half" if self.resolution == "half" else ""
        return f"{self.cascades}xRC-Net{half}{suffix(self.width)}"

    @property
    def summary(self) -> str:
        return f"learned: {self.cascades} recursive U-Nets"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        make = half_unet if self.resolution == "half" else unet
        nets = [make(d, 2, self.width or PAPER_WIDTH[d]) for _ in range(self.cascades)]
        return Cascade(no_motion, [[Step(nn.Identity(), Recurse(net))] for net in nets]).to(device)


def parse_baseline(name: str) -> Trainable | None:
    """VoxelMorph, Siamese, 3xRC-Net or 3xRC-Net-half, each also with a width, as VoxelMorph-w32."""
    form = rf"(?:(VoxelMorph)|(Siamese)|{COUNT}xRC-Net(-half)?)(?:-w{COUNT})?"
    found = re.fullmatch(form, name, flags=re.IGNORECASE)
    if not found:
        return None
    width = int(found[5]) if found[5] else None
    if found[3]:
        return RCNet(int(found[3]), width, "half" if found[4] else "full")
    return VoxelMorph(width) if found[1] else Siamese(width)


@dataclass(frozen=True)
class Identity(Method):
    """u = 0: the row that others are measured against."""

    summary = "no registration: what there was before"

    def __str__(self) -> str:
        return "identity"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return no_motion
