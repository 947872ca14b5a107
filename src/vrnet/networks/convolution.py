"""Convolutions that are quick on ARM: in 3D, and for transposed ones, PyTorch has no good kernels there.

Other processors and GPUs are faster by the plain way. `benchmarks/convolution.py` measures both.
"""

import platform
from math import ceil
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
FULL_CHANNELS = 16
"""A 2D convolution on ARM takes as long for fewer channels of its result."""
HALF_INPUTS, HALF_OUTPUTS = 16, 32
"""Convolutions of fewer channels are not quicker in half precision, or see images, which are more precise."""


def has_half_precision(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor is an ARM that computes with 16 bits, on Linux: nowhere else was it measured."""
    return IS_ARM and cpuinfo.exists() and "asimdhp" in cpuinfo.read_text().split()


HAS_HALF_PRECISION = has_half_precision()


class Conv2d(nn.Conv2d):
    """torch's Conv2d, with the same parameters.

    In use, not in training, wide ones compute in half precision where the processor is twice as fast so, and leave what
    they find in it for the next; a narrow one, such as the last, returns to single precision. A field changes by less
    than .01 voxel."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
        is_wide = self.in_channels >= HALF_INPUTS and self.out_channels >= HALF_OUTPUTS
        return super().forward(x) if not is_rounded(x) else self.convolve(x.half() if is_wide else x.float())

    def convolve(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
        """With the parameters as precise as x."""
        return self._conv_forward(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class ConvTranspose2d(nn.ConvTranspose2d):
    """torch's ConvTranspose2d, with the same parameters, for a kernel as long as its stride. It is as precise as what
    it sees."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:  # type: ignore[override]
        return expand_blocks(self, x) if IS_ARM and x.device.type == "cpu" else super().forward(x)


class Conv3d(nn.Conv3d):
    """torch's Conv3d, with the same parameters."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
        return convolve_slices(self, x) if IS_ARM and x.device.type == "cpu" else super().forward(x)


class ConvTranspose3d(nn.ConvTranspose3d):
    """torch's ConvTranspose3d, with the same parameters, for a kernel as long as its stride."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:  # type: ignore[override]
        return expand_blocks(self, x) if IS_ARM and x.device.type == "cpu" else super().forward(x)


def is_rounded(x: Tensor) -> bool:
    """Whether a network that sees this may compute in half precision: in use on a CPU, for those who want single."""
    is_in_use = x.device.type == "cpu" and not torch.is_grad_enabled()
    return HAS_HALF_PRECISION and is_in_use and x.dtype in (torch.float32, torch.float16)


def convolve_slices(conv: nn.Conv3d, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """The slices that a 3D kernel sees at once are channels of a 2D one; so are the slices that it makes at once.

    Channels lie together in memory, where a 2D convolution is as fast as a product of matrices."""
    k, stride, padding, together = conv.kernel_size[0], conv.stride[0], int(conv.padding[0]), slices_at_once(conv)
    n = (x.shape[2] + 2 * padding - k) // stride + 1
    blocks, step = ceil(n / together), together * stride
    seen, begins = k + step - stride, (blocks - 1) * step + 1
    x = functional.pad(x.movedim(1, -1), (0, 0, 0, 0, 0, 0, padding, begins - 1 + seen - padding - x.shape[2]))
    stacked = torch.cat([x[:, i : i + begins : step] for i in range(seen)], dim=-1)
    bias = None if conv.bias is None else conv.bias.repeat(together)
    weight = weight_of_slices(conv.weight, together, stride)
    y = functional.conv2d(stacked.flatten(0, 1).movedim(-1, 1), weight, bias, stride, padding)
    y = y.view(len(x), blocks, together, conv.out_channels, *y.shape[2:])
    return y.movedim(3, 1).flatten(2, 3)[:, :, :n]


def slices_at_once(conv: nn.Conv3d) -> int:
    """How many slices of the result are quickest made at once: more fill the processor, but each sees more slices."""
    k, stride, out = conv.kernel_size[0], conv.stride[0], conv.out_channels

    def cost(together: int) -> float:
        return (k + (together - 1) * stride) / min(1.0, together * out / FULL_CHANNELS)

    return min(range(1, FULL_CHANNELS + 1), key=cost)


def weight_of_slices(weight: Float[Tensor, "k c a b d"], together: int, stride: int) -> Float[Tensor, "rk sc b d"]:
    """The kernel that makes several slices: the same for each, moved on by the stride."""
    last = (together - 1) * stride
    moved = [functional.pad(weight, (0, 0, 0, 0, r * stride, last - r * stride)) for r in range(together)]
    return torch.cat(moved).transpose(1, 2).flatten(1, 2).contiguous(memory_format=torch.channels_last)


def expand_blocks(conv: nn.ConvTranspose2d | nn.ConvTranspose3d, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """A voxel's block is a product of a matrix with its channels: a convolution that sees one voxel."""
    d, sizes = x.ndim - 2, (n * k for n, k in zip(x.shape[2:], conv.kernel_size, strict=True))
    weight = conv.weight.to(x.dtype).movedim(1, -1).flatten(1).t()[..., None, None]
    y = functional.conv2d(x.flatten(2, -2), weight).movedim(1, -1)
    y = y.reshape(len(x), *x.shape[2:], *conv.kernel_size, conv.out_channels)
    y = y.permute(0, *(axis for i in range(1, d + 1) for axis in (i, i + d)), -1).reshape(len(x), *sizes, -1)
    return (y if conv.bias is None else y + conv.bias.to(x.dtype)).movedim(-1, 1)
