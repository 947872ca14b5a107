"""Further channels of two images, by which they are matched beside their intensities: where labels are, and how
likely each structure is at each voxel. A data term adds their squares; a network was trained with them."""

from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from vrnet.devices import in_batches
from vrnet.errors import BadInput
from vrnet.fields.calculus import RelativeSpacing, relative_spacing, resize, smooth
from vrnet.methods.method import Method, Task
from vrnet.methods.names import SOLVER, load_bundled
from vrnet.methods.vrnet import parse_segmenter
from vrnet.methods.weights import Trained, load_method, shape_at, warn_if_far
from vrnet.networks.denoisers import apply_padded
from vrnet.networks.unet import UNet
from vrnet.registration.masks import Box
from vrnet.variational.cascade import Spacing
from vrnet.vocabulary import Channels

MAX_CHANNELS = 8
"""More labels than these share channels."""
ANATOMY = "anatomy"
"""The segmenter in the box, which solvers use."""
ANATOMY_WEIGHT = 1.0
"""How much a probability counts beside the image to a solver: chosen on validation subjects of ACDC for TV-L1, which
folds more with 2, and Gaussian-LNCC, to which 2 is as good. A network learns its own."""
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
        place = torch.bucketize(L[:, 0].contiguous(), labels).clamp(max=len(labels) - 1)
        row = torch.where(labels[place] == L[:, 0], place + 1, 0)
        return smooth(codes[row].movedim(-1, 1), tuple(SOFTNESS / edge for edge in h))

    return make(fixed), make(moving)


FIELD_MM = 288.0
"""The side of the slices that networks of hearts are trained on. Of images cut to the heart, which would be less, they
lose the heart: these get a black margin."""


@dataclass(frozen=True)
class Anatomy:
    """A trained segmenter, which sees images at its own spacing."""

    segmenter: Trained
    field_mm: float = 0.0
    """Images that are shorter along an axis get a black margin up to this."""

    def probabilities(
        self, I: Float[Tensor, "b 1 *s"], spacing: Spacing, box: Box | None = None
    ) -> Float[Tensor, "b k *s"]:
        """How likely the background, and then each structure, is at each voxel of images in [0, 1]; the images are seen
        whole, but what lies beyond a box, by a few voxels at least, is called background."""
        net, own = self.segmenter.models.on(I.device).eval().net, self.segmenter.card.spacing_mm
        assert isinstance(net, nn.Module)
        sizes, h = I.shape[2:], spacing or own
        margins = [max(0, round((self.field_mm / edge - n) / 2)) for n, edge in zip(sizes, h, strict=True)]
        I = functional.pad(I, [margin for margin in reversed(margins) for _ in range(2)])
        shape = tuple(I.shape[2:])
        seen, window, beyond = shape_at(own, shape, h), list[slice](), list[int]()
        for part, margin, n, m in zip(box or tuple(slice(0, n) for n in sizes), margins, shape, seen, strict=True):
            factor = (m - 1) / (n - 1)  # corner on corner
            first, last = floor(factor * (margin + part.start)) - 2, ceil(factor * (margin + part.stop)) + 2
            window.append(slice(max(0, first), min(m, last)))
            beyond = [window[-1].start, m - window[-1].stop, *beyond]

        def find(part: slice) -> Tensor:
            x = resize(I[part], seen)
            p = apply_padded(net, x, tuple(window)) if isinstance(net, UNet) else apply_padded(net, x)[:, :, *window]
            p = p.float().softmax(1)
            background = functional.pad(p[:, :1], beyond, value=1.0)
            return resize(torch.cat([background, functional.pad(p[:, 1:], beyond)], dim=1), shape)

        inside = (slice(margin, margin + n) for margin, n in zip(margins, sizes, strict=True))
        return torch.cat([*in_batches(find, I)])[:, :, *inside]


LABELS_MATCHED = (
    "Labels of both images were matched: the overlap of these is what was asked for, and no evidence of how well the "
    "motion of tissue was found."
)
Kind = Literal["none", "anatomy", "labels"]
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ImageChannels:
    """By what a method matches images beside their intensities."""

    kind: Kind = "none"
    anatomy: Anatomy | None = None
    weight: float = 1.0
    """That of a probability."""

    @classmethod
    def of(cls, method: Method, asked: Channels, d: int, spacing: Spacing, images: Task = "pair") -> "ImageChannels":
        """What is asked for, of images of d dimensions; BadInput where the method, or what is shown, is not for it."""
        own: Kind = "anatomy" if method.card is not None and method.card.channels else "none"
        kind = own if asked == "auto" else asked
        if own != "none" and kind != own:
            told = f"{method} was trained with probabilities of structures, and needs them"
            raise BadInput(f'{told}: leave out `channels`, or name a solver, such as `method="{SOLVER}"`')
        if kind != own and not method.takes_channels:
            raise BadInput(f'{method} compares intensities alone: name a solver, such as `method="{SOLVER}"`')
        if kind == "labels" and images == "cine":
            raise BadInput('a cine has labels of one frame alone: give `channels="anatomy"`, or none')
        if kind != "anatomy":
            return cls(kind)
        file = method.segmenter or ANATOMY
        segmenter = load_method(file) if isinstance(file, Path) else load_bundled(file)
        card = segmenter.card
        if not segmenter.is_segmenter:
            raise BadInput(f"{method} was trained with {file}, which holds {card.method}: give it its segmenter")
        if card.dimension != d:
            images_of = f"{segmenter} finds structures in images of {card.dimension} dimensions, not {d}"
            raise BadInput(f'{images_of}: register slices one by one (`slices="each"`; of arrays, slice_axis=), or '
                           'leave out `channels="anatomy"`')  # fmt: skip
        warn_if_far(segmenter, spacing)
        anatomy = Anatomy(segmenter, FIELD_MM if file == ANATOMY else 0.0)
        return cls(kind, anatomy, 1.0 if own == kind else ANATOMY_WEIGHT)

    @property
    def count(self) -> int:
        """How many there are, of anatomy."""
        found = self.anatomy and parse_segmenter(self.anatomy.segmenter.card.method)
        return found.structures if found else 0

    def beside(self, I: Float[Tensor, "b 1 *s"], spacing: Spacing) -> Float[Tensor, "b c *s"]:
        """Images in [0, 1], and beside them the channels that they show by themselves."""
        if self.anatomy is None:
            return I
        return torch.cat([I, self.weight * self.anatomy.probabilities(I, spacing)[:, 1:]], dim=1)

    def beside_pair(self, I0: Tensor, I1: Tensor, spacing: Spacing, labels: Pair | None = None) -> Pair:
        """The same of two images (b, 1, *s) in [0, 1], and the channels of their labels."""
        if self.kind == "labels":
            if labels is None:
                both = "labels can be matched only where both images have them"
                raise BadInput(f"{both}: give `fixed_labels` and `moving_labels`")
            L0, L1 = label_channels(*labels, relative_spacing(spacing, I0.dim() - 2))
            return torch.cat([I0, L0], dim=1), torch.cat([I1, L1], dim=1)
        return self.beside(I0, spacing), self.beside(I1, spacing)
