"""The parts of D: whatever they move, they move along a flow, which does not fold. u = exp(G₁ ∗ velocity).

A velocity is smoothed by a Gaussian of one voxel and followed for one unit of time; moves are composed, not added. The
flow of a rough velocity, and what becomes of flows between voxels, may still fold a little.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.fields import compose, exp, smooth
from vrnet.networks.adaptors import FIELD_SCALE, apply_padded, compared_images
from vrnet.variational.cascade import DataStep, Initializer, Spacing, State, initialize
from vrnet.variational.masks import Masks

SMOOTHING_VOXELS = 1.0
"""The standard deviation of the Gaussian that velocities are smoothed by."""


def flow(velocity: Float[Tensor, "b d *s"]) -> Float[Tensor, "b d *s"]:
    """exp(G₁ ∗ velocity): where the smoothed velocity, in voxels, carries each voxel within one unit of time."""
    return exp(smooth_velocity(velocity))


def smooth_velocity(velocity: Float[Tensor, "b d *s"]) -> Float[Tensor, "b d *s"]:
    """G₁ ∗ velocity, the border repeated: by one product with a matrix along each axis, which takes fewer
    kernels than `smooth` on a GPU, and needs single precision."""
    with torch.autocast(velocity.device.type, enabled=False):
        for n in velocity.shape[2:]:
            ones = torch.eye(n, dtype=velocity.dtype, device=velocity.device)
            matrix = smooth(ones[None, None], (SMOOTHING_VOXELS, 0.0))[0, 0]
            velocity = torch.tensordot(velocity, matrix, dims=([2], [1]))  # the axis goes last: after all, all are back
    return velocity


class InitialFlow(nn.Module):
    """u = exp(G₁ ∗ init(I0, I1)): the field of an initialiser is taken for a velocity."""

    def __init__(self, init: Initializer) -> None:
        super().__init__()
        self.init = init

    def forward(
        self,
        I0: Float[Tensor, "b 1 *s"],
        I1: Float[Tensor, "b 1 *s"],
        spacing: Spacing = None,
        masks: Masks | None = None,
    ) -> Float[Tensor, "b d *s"]:
        return flow(initialize(self.init, I0, I1, spacing, masks))


class FlowDataStep(nn.Module):
    """u = v ∘ exp(G₁ ∗ δ), where δ is the move of a data step at v."""

    def __init__(self, data: DataStep) -> None:
        super().__init__()
        self.data = data

    def forward(self, state: State) -> State:
        delta = self.data(state).v - state.v
        return state.move_to(compose(state.v, flow(delta)))


class FlowRecurse(nn.Module):
    """v = u ∘ exp(G₁ ∗ 10 net(I0, I1(x + u))): an image-aware denoiser, as `Recurse`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, state: State) -> State:
        velocity = FIELD_SCALE * apply_padded(self.net, compared_images(state))
        return state.move_to(compose(state.v, flow(velocity)))
