"""U-Nets: down through an encoder, up through a decoder, with a skip at each level."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.fields import LINEAR_MODE
from vrnet.networks.convolution import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

HEAD_STD = 1e-5


class UNet(nn.Module):
    """`encoder[0]` keeps the size and each further level halves it; `ups` and `decoder` undo that, deepest first."""

    def __init__(
        self, encoder: Sequence[nn.Module], ups: Sequence[nn.Module], decoder: Sequence[nn.Module], head: nn.Module
    ) -> None:
        super().__init__()
        self.encoder, self.ups, self.decoder = nn.ModuleList(encoder), nn.ModuleList(ups), nn.ModuleList(decoder)
        self.head = head
        self.multiple = 2 ** len(self.ups)
        """What every side of its input must be divisible by."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *s"]:
        skips = []
        for level in self.encoder:
            x = level(x)
            skips.append(x)
        skips.pop()
        for up, level in zip(self.ups, self.decoder, strict=True):
            x = level(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


def unet_2d(inputs: int, outputs: int, width: int = 64, levels: int = 5) -> UNet:
    """Levels of two 3x3 convolutions, max-pooling, transposed 2x2, no normalisation: 31.03 M for five at width 64."""
    c = [width * 2**level for level in range(levels)]
    encoder = [convolutions_2d(inputs, c[0])]
    encoder += [nn.Sequential(nn.MaxPool2d(2), convolutions_2d(a, b)) for a, b in pairwise(c)]
    ups = [ConvTranspose2d(2 * k, k, 2, stride=2) for k in c[-2::-1]]
    decoder = [convolutions_2d(2 * k, k) for k in c[-2::-1]]
    return UNet(encoder, ups, decoder, near_zero(Conv2d(c[0], outputs, 1)))


def convolutions_2d(inputs: int, outputs: int) -> nn.Sequential:
    first, second = Conv2d(inputs, outputs, 3, padding=1), Conv2d(outputs, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))


def unet_3d(inputs: int, outputs: int, width: int = 8) -> UNet:
    """The light one: five levels by strided convolutions, a 5³ head; 1.12 M parameters at width 8, 4.46 M at 16."""
    c = width
    encoder = [
        convolutions_3d(inputs, c, c),
        convolutions_3d(c, 2 * c, 2 * c, stride=2),
        convolutions_3d(2 * c, 4 * c, 4 * c, stride=2),
        convolutions_3d(4 * c, 8 * c, 8 * c, stride=2),
        convolutions_3d(8 * c, 16 * c, 8 * c, stride=2),
    ]
    ups = [nn.Sequential(ConvTranspose3d(k * c, k * c, 2, stride=2), nn.ReLU(inplace=True)) for k in (8, 4, 2, 2)]
    decoder = [
        convolutions_3d(16 * c, 8 * c, 4 * c),
        convolutions_3d(8 * c, 4 * c, 2 * c),
        convolutions_3d(4 * c, 4 * c, 2 * c),
        convolutions_3d(3 * c, 2 * c, 2 * c),
    ]
    return UNet(encoder, ups, decoder, near_zero(Conv3d(2 * c, outputs, 5, padding=2, bias=False)))


def convolutions_3d(inputs: int, between: int, outputs: int, stride: int = 1) -> nn.Sequential:
    first = Conv3d(inputs, between, 3, stride=stride, padding=1)
    second = Conv3d(between, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))


def unet(d: int, inputs: int, width: int) -> UNet:
    """The U-Net for images in d dimensions, with d outputs: a field."""
    return {2: unet_2d, 3: unet_3d}[d](inputs, d, width)


class HalfResolution(nn.Module):
    """A network that sees each block of 2^d voxels as one, with 2^d times the channels; what it finds is enlarged.

    Most of a U-Net's time goes into its first level. Without it, a network of twice the width takes as long."""

    def __init__(self, net: UNet) -> None:
        super().__init__()
        self.net, self.multiple = net, 2 * net.multiple

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *s"]:
        found = self.net(blocks_as_channels(x))
        return functional.interpolate(found, scale_factor=2, mode=LINEAR_MODE[x.dim() - 2])


def blocks_as_channels(x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """The 2^d voxels of a block side by side: of each channel as many, in their order."""
    b, c, *sizes = x.shape
    d = len(sizes)
    split = x.reshape(b, c, *[part for n in sizes for part in (n // 2, 2)])
    within, between = range(3, 3 + 2 * d, 2), range(2, 2 + 2 * d, 2)
    return split.permute(0, 1, *within, *between).flatten(1, 1 + d)


def half_unet(d: int, inputs: int, width: int) -> HalfResolution:
    """The U-Net for images in d dimensions, at half their resolution; in 2D with one level fewer, so that it sees as
    far as `unet` does, and has as many parameters at twice the width."""
    inputs *= 2**d
    return HalfResolution(unet_2d(inputs, d, width, levels=4) if d == 2 else unet_3d(inputs, d, width))


def he_initialised(net: nn.Module) -> nn.Module:
    """A network that passes on what it sees from the start (He initialisation, the last layer too).

    For a plain denoiser: one whose output starts near zero would hide all that comes before it."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return net


def near_zero(head: nn.Module) -> nn.Module:
    """A last layer whose output starts near zero, so that an untrained residual network is near the identity."""
    for name, parameter in head.named_parameters():
        nn.init.normal_(parameter, std=HEAD_STD if name == "weight" else 0.0)
    return head
