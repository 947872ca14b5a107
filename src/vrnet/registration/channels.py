"""Further channels of two images, by which they are matched beside their intensities: where labels are, and how
likely each structure is at each voxel."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vrnet.errors import BadInput
from vrnet.fields.calculus import RelativeSpacing, resize, smooth
from vrnet.methods.weights import Trained, shape_at
from vrnet.networks.denoisers import apply_padded
from vrnet.variational.cascade import Spacing

MAX_CHANNELS = 8
"""More labels than these share channels."""
LABEL_WEIGHT = 2.0
"""How much a label counts beside the image, whose intensities range over 1: chosen on validation subjects of ACDC and
hippocampus, by Dice and strict folds."""
SOFTNESS = 1.0
"""The standard deviation of the Gaussian that makes labels soft, in shortest edges of a voxel."""


def label_channels(
    fixed: Shaped[Tensor, "b 1 *s"], moving: Shaped[Tensor, "b 1 *s"], h: RelativeSpacing
) -> tuple[Float[Tensor, "b k *s"], Float[Tensor, "b k *s"]]:
    """Where the labels are that both maps have, softly: a channel for each, or, of more than eight, a direction in
    eight channels for each. Other labels are background."""
    common = sorted(set(np.unique(fixed.cpu())) & set(np.unique(moving.cpu())) - {0})
    if not common:
        raise BadInput("fixed_labels and moving_labels have no label in common: there is nothing to match")
    labels, count = torch.tensor(common, device=fixed.device), min(len(common), MAX_CHANNELS)
    codes = torch.eye(count)
    if len(common) > count:
        drawn = torch.randn(len(common), count, generator=torch.Generator().manual_seed(0))
        codes = drawn / drawn.norm(dim=1, keepdim=True)
    codes = LABEL_WEIGHT * torch.cat([torch.zeros(1, count), codes]).to(fixed.device)

    def make(L: Tensor) -> Tensor:
        place = torch.bucketize(L[:, 0], labels).clamp(max=len(labels) - 1)
        row = torch.where(labels[place] == L[:, 0], place + 1, 0)
        return smooth(codes[row].movedim(-1, 1), tuple(SOFTNESS / edge for edge in h))

    return make(fixed), make(moving)


@dataclass(frozen=True)
class Anatomy:
    """A trained segmenter, which sees images at its own spacing."""

    segmenter: Trained

    def probabilities(self, I: Float[Tensor, "b 1 *s"], spacing: Spacing) -> Float[Tensor, "b k *s"]:
        """How likely the background, and then each structure, is at each voxel of images in [0, 1]."""
        net, own, shape = self.segmenter.models.on(I.device).net, self.segmenter.card.spacing_mm, tuple(I.shape[2:])
        assert isinstance(net, nn.Module)
        seen = shape_at(own, shape, spacing or own)
        found = [apply_padded(net, resize(one, seen)).float().softmax(1) for one in I[:, None]]
        return torch.cat([resize(one, shape) for one in found])
