"""3D convolutions that are quick on every processor: PyTorch has no good kernels for them on ARM, but has for 2D ones.

Other processors and GPUs are faster by the plain way.
"""

import platform

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")


class Conv3d(nn.Conv3d):
    """torch's Conv3d, with the same parameters."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
        return convolve_slices(self, x) if IS_ARM and x.device.type == "cpu" else super().forward(x)


class ConvTranspose3d(nn.ConvTranspose3d):
    """torch's ConvTranspose3d, with the same parameters, for a kernel as long as its stride."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:  # type: ignore[override]
        return expand_blocks(self, x) if IS_ARM and x.device.type == "cpu" else super().forward(x)


def convolve_slices(conv: nn.Conv3d, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """The k slices that a 3D kernel sees at once are channels of a 2D one."""
    k, stride, padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])
    x = functional.pad(x, (0, 0, 0, 0, padding, padding))
    n = (x.shape[2] - k) // stride + 1
    seen = torch.cat([x[:, :, i : i + stride * (n - 1) + 1 : stride] for i in range(k)], dim=1)
    weight = conv.weight.transpose(1, 2).flatten(1, 2)
    y = functional.conv2d(seen.transpose(1, 2).flatten(0, 1), weight, conv.bias, stride, padding)
    return y.view(x.shape[0], n, *y.shape[1:]).transpose(1, 2)


def expand_blocks(conv: nn.ConvTranspose3d, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """A voxel's block is a product of a matrix with its channels."""
    (a, b, c), out = conv.kernel_size, conv.out_channels
    y = torch.einsum("bi...,ij->bj...", x, conv.weight.flatten(1))
    y = y.view(len(x), out, a, b, c, *x.shape[2:]).permute(0, 1, 5, 2, 6, 3, 7, 4)
    y = y.flatten(6, 7).flatten(4, 5).flatten(2, 3)
    return y if conv.bias is None else y + conv.bias.view(1, -1, 1, 1, 1)
