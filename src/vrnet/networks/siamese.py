"""The Siamese network of Qin et al. and Qiu et al.: two encoders that share weights, all scales joined at full size."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.fields import LINEAR_MODE, scale
from vrnet.networks.adaptors import FIELD_SCALE
from vrnet.networks.convolution import Conv3d
from vrnet.networks.unet import near_zero

DEPTHS = (2, 2, 3, 3, 3)
WIDTHS = (1, 2, 4, 8, 8)
CONVOLUTIONS = {2: nn.Conv2d, 3: Conv3d}
NORMS = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class Siamese(nn.Module):
    """Each image goes through the encoder; at each scale both features are joined to `width` and enlarged.

    The last layer finds displacements as shares of half the image along each axis, which tanh keeps below 1."""

    multiple = 16

    def __init__(self, d: int, width: int = 64) -> None:
        super().__init__()
        channels = [1, *(width * k for k in WIDTHS)]
        levels = zip(channels, channels[1:], DEPTHS, strict=False)
        self.encoder = nn.ModuleList(encoding(d, a, b, n, 1 + (a > 1)) for a, b, n in levels)
        self.join = nn.ModuleList(block(d, 2 * b, width) for b in channels[1:])
        last = CONVOLUTIONS[d](width, d, 1)
        self.mix = nn.Sequential(block(d, 5 * width, width, 1), block(d, width, width, 1))
        self.head = near_zero(last)

    def forward(self, x: Float[Tensor, "b 2 *s"]) -> Float[Tensor, "b d *s"]:
        size, mode = x.shape[2:], LINEAR_MODE[x.dim() - 2]
        features = zip(*(self.encode(image) for image in (x[:, :1], x[:, 1:])), strict=True)
        joined = [join(torch.cat(pair, dim=1)) for join, pair in zip(self.join, features, strict=True)]
        found = self.mix(torch.cat([functional.interpolate(f, size, mode=mode) for f in joined], dim=1))
        return scale(self.head(found).tanh(), tuple(length / (2 * FIELD_SCALE) for length in size))

    def encode(self, image: Float[Tensor, "b 1 *s"]) -> Sequence[Tensor]:
        """The features of one image at every scale, finest first."""
        found = []
        for level in self.encoder:
            image = level(image)
            found.append(image)
        return found


def encoding(d: int, inputs: int, outputs: int, depth: int, stride: int) -> nn.Sequential:
    first = block(d, inputs, outputs, stride=stride)
    return nn.Sequential(first, *(block(d, outputs, outputs) for _ in range(depth - 1)))


def block(d: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, normalisation, ReLU."""
    convolution = CONVOLUTIONS[d](inputs, outputs, kernel, stride=stride, padding=kernel // 2)
    return nn.Sequential(convolution, NORMS[d](outputs), nn.ReLU(inplace=True))
