"""What makes a network a part of Algorithm 1: an initialiser (I0, I1, spacing) -> u, or a denoiser State -> State.
Displacements reach tens of voxels, images 1: fields are scaled down into a network and up out of it."""

from collections.abc import Iterator
from functools import lru_cache
from math import log
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.fields.calculus import compose, exp, smooth, warp
from vrnet.variational.cascade import Cascade, DataStep, Initializer, Spacing, State
from vrnet.variational.linearize import Field, Images, Masks
from vrnet.variational.regularizers import Memory

FIELD_SCALE = 10.0  # voxels that count as 1 to a network
START_WEIGHT = 0.3  # β of further channels before training


class Predict(nn.Module):
    """u = 10 net(I0, I1), and, alone, VoxelMorph or Siamese. Outside its mask each image is shown as the other is."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        I0, I1 = masks.fill(I0, I1) if masks else (I0, I1)
        return FIELD_SCALE * apply_padded(self.net, torch.cat([I0, I1], dim=1))


class Plain(nn.Module):
    """v = 10 net(u / 10): the paper's U."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, state: State) -> State:
        return state.move_to(FIELD_SCALE * apply_padded(self.net, state.v / FIELD_SCALE))


class Residual(Plain):
    """v = u + 10 net(u / 10): the paper's R."""

    def forward(self, state: State) -> State:
        return state.move_to(state.v + super().forward(state).v)


class Recurse(nn.Module):
    """v = u ∘ 10 net(I0, I1(x + u)), along a flow u ∘ exp(G₁ ∗ 10 net(I0, I1(x + u))); without a data step, RC-Net. The
    network sees how well the images agree; where they are not to be compared, they are shown equal."""

    def __init__(self, net: nn.Module, along_flow: bool = False) -> None:
        super().__init__()
        self.net, self.along_flow = net, along_flow

    def forward(self, state: State) -> State:
        lin = state.lin
        I1w = lin.I1w if state.is_fresh else warp(lin.I1, state.v)
        I1w = I1w if lin.weight is None else lin.I0.lerp(I1w, lin.weight)
        move = FIELD_SCALE * apply_padded(self.net, torch.cat([lin.I0, I1w], dim=1))
        return state.move_to(compose(state.v, flow(move) if self.along_flow else move))


class Noise(nn.Module):
    """Independent normal displacements, one voxel wide: others each time in training, always the same in use, where
    they are drawn on the CPU, since every kind of device draws others."""

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        b, _, *s = I0.shape
        if self.training:
            return torch.randn(b, len(s), *s, device=I0.device, dtype=I0.dtype)
        one = torch.randn(len(s), *s, generator=torch.Generator().manual_seed(0))
        return one.to(I0).expand(b, -1, *s)


def apply_padded(
    net: nn.Module, x: Float[Tensor, "b c *s"], window: tuple[slice, ...] | None = None
) -> Float[Tensor, "b k *t"]:
    """net(x) for x of any size: the border is repeated up to the multiple that the net needs, and cropped after it; of
    a U-Net, as much as is in a window.

    What comes out is as precise a type as what went in, whatever the net itself computes with."""
    sizes, multiple = x.shape[2:], cast(int, net.multiple)
    extra = [-n % multiple for n in sizes]
    before = [e // 2 for e in extra]
    sides = [side for e, b in zip(reversed(extra), reversed(before), strict=True) for side in (b, e - b)]
    parts = window or tuple(slice(0, n) for n in sizes)
    inside = tuple(slice(b + part.start, b + part.stop) for b, part in zip(before, parts, strict=True))
    padded = functional.pad(x, sides, mode="replicate") if any(extra) else x
    return (net(padded)[:, :, *inside] if window is None else net(padded, inside)).to(x.dtype)


# Further channels p of images count with weights of their own: all parts see [image, β p], and β is learned.


class Weighed(nn.Module):
    """init([I0, β p0], [I1, β p1])."""

    def __init__(self, init: Initializer, channels: int) -> None:
        super().__init__()
        self.init = init
        self.log_beta = nn.Parameter(torch.full((channels,), log(START_WEIGHT)))

    def weigh(self, I: Images) -> Images:
        beta = functional.pad(self.log_beta, (1, 0)).exp()  # 1 of the image
        return I * beta.view(-1, *[1] * (I.dim() - 2))

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        return self.init(self.weigh(I0), self.weigh(I1), spacing, masks)


class WeighedCascade(Cascade):
    """A cascade of images with further channels, which its initialiser, a `Weighed`, weighs."""

    def linearize_and_step(
        self, row: int, v: Field, memory: Memory, I0: Images, I1: Images, spacing: Spacing = None,
        masks: Masks | None = None, move: Field | None = None,
    ) -> Iterator[State]:  # fmt: skip
        weigh = cast(Weighed, self.init).weigh
        return super().linearize_and_step(row, v, memory, weigh(I0), weigh(I1), spacing, masks, move)


# The parts of D move everything along a flow, which does not fold: u = exp(G₁ ∗ velocity). A velocity is smoothed by a
# Gaussian of one voxel and followed for one unit of time; moves are composed, not added. The flow of a rough velocity
# may still fold a little between voxels.


def flow(velocity: Field) -> Field:
    """exp(G₁ ∗ velocity): where the smoothed velocity, in voxels, carries each voxel within one unit of time."""
    with torch.autocast(velocity.device.type, enabled=False):  # products need single precision
        for n in velocity.shape[2:]:  # one product along each axis takes fewer kernels than `smooth` on a GPU
            matrix = smoothing_matrix(n, velocity.dtype, velocity.device)
            velocity = torch.tensordot(velocity, matrix, dims=([2], [1]))  # the axis goes last: after all, all are back
    return exp(velocity)


@lru_cache
def smoothing_matrix(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "n n"]:
    """G₁ along an axis of n voxels. Kept: it takes longer to make than to use."""
    with torch.inference_mode(False):  # what is cached must serve autograd too
        ones = torch.eye(n, dtype=dtype, device=device)
        return smooth(ones[None, None], (1.0, 0.0))[0, 0]


class InitialFlow(nn.Module):
    """u = exp(G₁ ∗ init(I0, I1)): the field of an initialiser is taken for a velocity."""

    def __init__(self, init: Initializer) -> None:
        super().__init__()
        self.init = init

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        return flow(self.init(I0, I1, spacing, masks))


class FlowDataStep(nn.Module):
    """u = v ∘ exp(G₁ ∗ δ), where δ is the move of a data step at v."""

    def __init__(self, data: DataStep) -> None:
        super().__init__()
        self.data = data

    def forward(self, state: State) -> State:
        delta = self.data(state).v - state.v
        return state.move_to(compose(state.v, flow(delta)))
