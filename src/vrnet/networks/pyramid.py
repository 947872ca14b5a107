"""P: from the coarsest level of a pyramid to the finest, a step of Algorithm 1 on images and learned features: the data
step, u = v ∘ exp(G₁ ∗ δ), δ being the move of the prox on [image, 0.2 tanh(A F)] with features F of one encoder for
both images; the denoiser, v = u ∘ exp(G₁ ∗ 2 net(F0, F1(x + u), how they correlate, u / 4, I0, I1(x + u))); then twice
the resolution."""

from itertools import pairwise, product
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.fields.calculus import LINEAR_MODE, compose, repeat_border, warp, zeros
from vrnet.networks.denoisers import FIELD_SCALE, START_WEIGHT, FlowDataStep, flow
from vrnet.networks.unet import CONVOLUTIONS, convolutions, near_zero
from vrnet.variational.cascade import DataStep, State
from vrnet.variational.data_terms import DataTerm
from vrnet.variational.linearize import Field, Images

GROWTH = (1, 4, 6, 8, 10)  # channels of the encoder at strides 1, 2, 4, 8 and 16, as multiples of the width
COMPARED_FEATURES, FEATURE_WEIGHT = 4, 0.2  # by the data step; how much one weighs beside an image at most
MOVE_SCALE, SEEN_SCALE = 2.0, 4.0  # voxels of a level that count as 1 in what its network finds, and in what it sees
Features = Float[Tensor, "b f *s"]


class PyramidNet(nn.Module):
    """Both images, side by side, to their field, as `Predict` takes it."""

    multiple = 2 ** (len(GROWTH) - 1)

    def __init__(
        self, d: int, channels: int, width: int, term: DataTerm[Any] | None, theta: float,
        without: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        super().__init__()
        counts = [width * k for k in GROWTH]
        # log β: how much each further channel weighs beside the image
        self.log_beta = nn.Parameter(torch.full((channels,), log(START_WEIGHT))) if channels else None
        first, *others = pairwise([1 + channels, *counts])
        coarser = (convolutions(d, a, b, b, stride=2) for a, b in others)
        self.encoder = nn.ModuleList([convolutions(d, *first, first[1]), *coarser])
        self.levels = nn.ModuleList(Level(d, 1 + channels, n, term, theta, without) for n in counts)

    def forward(self, pair: Float[Tensor, "b c *s"]) -> Field:
        if self.log_beta is not None:
            beta = functional.pad(self.log_beta, (1, 0)).exp()  # 1 of the image
            pair = pair * beta.repeat(2).view(-1, *[1] * (pair.dim() - 2))
        images, features = [torch.cat(pair.chunk(2, dim=1))], list[Tensor]()
        for k, block in enumerate(self.encoder):
            features.append(block(features[-1] if k else images[0]))
            if k:
                images.append(functional.interpolate(images[-1], scale_factor=0.5, mode="area"))
        v = zeros(images[-1].chunk(2)[0])
        for level, I, F in zip(reversed(self.levels), reversed(images), reversed(features), strict=True):
            if v.shape[2:] != I.shape[2:]:
                v = 2 * functional.interpolate(v, scale_factor=2, mode=LINEAR_MODE[v.shape[1]])
            v = level(v, *I.chunk(2), *F.float().chunk(2))
        return v / FIELD_SCALE


class Level(nn.Module):
    """A data step, if there is a term, and a denoiser at one resolution; `without` some of its parts, to see what each
    brings: "features" in the data step, "correlation" in what the network sees, "flows" along which moves are made."""

    def __init__(
        self, d: int, images: int, features: int, term: DataTerm[Any] | None, theta: float, without: frozenset[str]
    ) -> None:
        super().__init__()
        step = None if term is None else DataStep(term, theta)
        self.data = step if step is None or "flows" in without else FlowDataStep(step)
        self.linearize = None if term is None else term.linearize
        compares = term is not None and "features" not in without
        self.compared = CONVOLUTIONS[d](features, COMPARED_FEATURES, 1) if compares else None
        self.without, seen = without, 2 * features + d + 2 * images + (0 if "correlation" in without else 3**d)
        self.net = nn.Sequential(
            convolutions(d, seen, 2 * features, 2 * features),
            CONVOLUTIONS[d](2 * features, 2 * features, 3, padding=1),
            nn.ReLU(inplace=True),
            near_zero(CONVOLUTIONS[d](2 * features, d, 3, padding=1)),
        )

    def forward(self, v: Field, I0: Images, I1: Images, F0: Features, F1: Features) -> Field:
        if self.data is not None and self.linearize is not None:
            A0, A1 = I0, I1
            if self.compared is not None:
                C0, C1 = (FEATURE_WEIGHT * self.compared(F).float().tanh() for F in (F0, F1))
                A0, A1 = torch.cat([I0, C0], dim=1), torch.cat([I1, C1], dim=1)
            v = self.data(State(v, self.linearize(A0, A1, v, (1.0,) * v.shape[1]))).v
        F1w, I1w = warp(F1, v), warp(I1, v)
        seen = [F0, F1w, v / SEEN_SCALE, I0, I1w]
        if "correlation" not in self.without:
            seen.append(correlate(F0, F1w))
        move = MOVE_SCALE * self.net(torch.cat(seen, dim=1)).float()
        return v + move if "flows" in self.without else compose(v, flow(move))


def correlate(F0: Features, F1: Features) -> Float[Tensor, "b k *s"]:
    """⟨F0(x), F1(x + k)⟩ of features of length 1, for the 3^d offsets k of at most a voxel along each axis."""
    for axis in range(2, F1.dim()):
        F1 = repeat_border(F1, axis, 1, 1)
    scale0, scale1 = (F.square().sum(1).clamp(min=1e-12).rsqrt() for F in (F0, F1))
    found = []
    for offset in product(range(3), repeat=F0.dim() - 2):
        near = (slice(None), *(slice(start, start + n) for start, n in zip(offset, F0.shape[2:], strict=True)))
        found.append((F0 * F1[near[0], :, *near[1:]]).sum(1) * scale0 * scale1[near])
    return torch.stack(found, dim=1)
