"""The network that knows where structures are: what a file of weights may hold instead of one that registers."""

import re
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.methods.method import COUNT, CPU, Trainable, suffix
from vrnet.networks.denoisers import apply_padded
from vrnet.networks.unet import segmenter
from vrnet.variational.cascade import Spacing
from vrnet.variational.linearize import Images

WIDTH, STRUCTURES = {2: 32, 3: 16}, 3
REGISTERS_NOTHING = "finds structures in one image, and registers none: use `vrnet segment IMAGE --out LABELS`"


@dataclass(frozen=True)
class Segmenter(Trainable):
    """A U-Net of one image. It is trained on pairs as those that register are, on both images of each."""

    structures: int = STRUCTURES
    """How many there are beside the background."""
    width: int | None = None
    """Channels of the first level; 32 in 2D and 16 in 3D where not given."""

    summary = "learned: a U-Net that finds structures in one image"
    segments = True

    def __str__(self) -> str:
        return "Segmenter" + ("" if self.structures == STRUCTURES else f"-k{self.structures}") + suffix(self.width)

    def build(self, d: int, device: torch.device = CPU) -> "SegmentPairs":
        return SegmentPairs(segmenter(d, 1, 1 + self.structures, self.width or WIDTH[d])).to(device)


class SegmentPairs(nn.Module):
    """The scores of background and structures in each image of a pair, the moving ones after the fixed ones."""

    steps = ()

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None) -> Float[Tensor, "b2 k *s"]:
        return apply_padded(self.net, torch.cat([I0, I1]))


def parse_segmenter(name: str) -> Segmenter | None:
    """The segmenter of a name such as Segmenter-k2-w16, if it is one."""
    found = re.fullmatch(rf"Segmenter(?:-k{COUNT})?(?:-w{COUNT})?", name, flags=re.IGNORECASE)
    return found and Segmenter(int(found[1] or STRUCTURES), int(found[2]) if found[2] else None)
