"""U-Nets: down through an encoder, up through a decoder, with a skip at each level."""

import platform
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.fields.calculus import LINEAR_MODE, scale
from vrnet.networks.denoisers import FIELD_SCALE

# Convolutions that are quick on ARM: in 3D, and for transposed ones, PyTorch has no good kernels there.
#
# Other processors and GPUs are faster by the plain way.

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
FULL_CHANNELS = 16  # a 2D convolution on ARM takes as long for fewer channels of its result
CPUINFO = Path("/proc/cpuinfo")  # on Linux: nowhere else was it measured whether computing with 16 bits is faster
HAS_HALF_PRECISION = IS_ARM and CPUINFO.exists() and "asimdhp" in CPUINFO.read_text().split()


class Conv2d(nn.Conv2d):
    """torch's Conv2d. In use, wide ones compute in half precision where the processor is twice as fast so, and leave it
    for the next; a narrow one, such as the last, returns to single. A field changes by less than .01 voxel."""

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
        is_in_use = x.device.type == "cpu" and not torch.is_grad_enabled()
        if not (HAS_HALF_PRECISION and is_in_use and x.dtype in (torch.float32, torch.float16)):
            return super().forward(x)
        is_wide = self.in_channels >= 16 and self.out_channels >= 32  # others are not quicker, or see precise images
        x = x.half() if is_wide else x.float()
        return self._conv_forward(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class ConvTranspose2d(nn.ConvTranspose2d):
    """torch's ConvTranspose2d, for a kernel as long as its stride. It is as precise as what it sees."""

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


def convolve_slices(conv: nn.Conv3d, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """The slices that a 3D kernel sees, and those that it makes, at once are channels of a 2D one. Channels lie
    together in memory, where a 2D convolution is as fast as a product of matrices."""
    k, stride, padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])

    def cost(together: int) -> float:  # more slices at once fill the processor, but each sees more slices
        return (k + (together - 1) * stride) / min(1.0, together * conv.out_channels / FULL_CHANNELS)

    together = min(range(1, FULL_CHANNELS + 1), key=cost)
    n = (x.shape[2] + 2 * padding - k) // stride + 1
    blocks, step = ceil(n / together), together * stride
    seen, begins = k + step - stride, (blocks - 1) * step + 1
    x = functional.pad(x.movedim(1, -1), (0, 0, 0, 0, 0, 0, padding, begins - 1 + seen - padding - x.shape[2]))
    stacked = torch.cat([x[:, i : i + begins : step] for i in range(seen)], dim=-1)
    bias = None if conv.bias is None else conv.bias.repeat(together)
    last = step - stride  # the kernel of each slice is the same, moved on by the stride
    moved = [functional.pad(conv.weight, (0, 0, 0, 0, r * stride, last - r * stride)) for r in range(together)]
    weight = torch.cat(moved).transpose(1, 2).flatten(1, 2).contiguous(memory_format=torch.channels_last)
    y = functional.conv2d(stacked.flatten(0, 1).movedim(-1, 1), weight, bias, stride, padding)
    y = y.view(len(x), blocks, together, conv.out_channels, *y.shape[2:])
    return y.movedim(3, 1).flatten(2, 3)[:, :, :n]


def expand_blocks(conv: nn.ConvTranspose2d | nn.ConvTranspose3d, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *t"]:
    """A voxel's block is a product of a matrix with its channels: a convolution that sees one voxel."""
    d, sizes = x.ndim - 2, (n * k for n, k in zip(x.shape[2:], conv.kernel_size, strict=True))
    weight = conv.weight.to(x.dtype).movedim(1, -1).flatten(1).t()[..., None, None]
    y = functional.conv2d(x.flatten(2, -2), weight).movedim(1, -1)
    y = y.reshape(len(x), *x.shape[2:], *conv.kernel_size, conv.out_channels)
    y = y.permute(0, *(axis for i in range(1, d + 1) for axis in (i, i + d)), -1).reshape(len(x), *sizes, -1)
    return (y if conv.bias is None else y + conv.bias.to(x.dtype)).movedim(-1, 1)


CONVOLUTIONS = {2: Conv2d, 3: Conv3d}
Layers = Sequence[nn.Module]


WINDOW_MARGIN = 5
"""Voxels beyond a window at each level of a decoder: two convolutions, and what the coarser level has got wrong."""


class UNet(nn.Module):
    """`encoder[0]` keeps the size and each further level halves it; `ups` and `decoder` undo that, deepest first."""

    def __init__(self, encoder: Layers, ups: Layers, decoder: Layers, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.ups, self.decoder = nn.ModuleList(encoder), nn.ModuleList(ups), nn.ModuleList(decoder)
        self.head = head
        self.multiple = 2 ** len(self.ups)  # what every side of its input must be divisible by

    def forward(self, x: Float[Tensor, "b c *s"], window: tuple[slice, ...] | None = None) -> Float[Tensor, "b k *t"]:
        """What it finds everywhere; or in a window, with so much about it that it is the same there, for less work."""
        skips = []
        for level in self.encoder:
            x = level(x)
            skips.append(x)
        skips.pop()
        starts = [0] * (x.dim() - 2)
        for up, level in zip(self.ups, self.decoder, strict=True):
            x, skip, stride = up(x), skips.pop(), 2 ** len(skips)
            for axis, part in enumerate(window or (), start=2):
                start = max(0, part.start // stride - WINDOW_MARGIN)
                stop = min(skip.shape[axis], -(-part.stop // stride) + WINDOW_MARGIN)
                x = x.narrow(axis, start - 2 * starts[axis - 2], stop - start)
                skip, starts[axis - 2] = skip.narrow(axis, start, stop - start), start
            x = level(torch.cat([x, skip], dim=1))
        for axis, part in enumerate(window or (), start=2):
            x = x.narrow(axis, part.start - starts[axis - 2], part.stop - part.start)
        return self.head(x)


def unet_2d(inputs: int, outputs: int, width: int = 64, levels: int = 5) -> UNet:
    """Levels of two 3x3 convolutions, max-pooling, transposed 2x2, no normalisation: 31.03 M for five at width 64."""
    c = [width * 2**level for level in range(levels)]
    encoder = [convolutions(2, inputs, c[0], c[0])]
    encoder += [nn.Sequential(nn.MaxPool2d(2), convolutions(2, a, b, b)) for a, b in pairwise(c)]
    ups = [ConvTranspose2d(2 * k, k, 2, stride=2) for k in c[-2::-1]]
    decoder = [convolutions(2, 2 * k, k, k) for k in c[-2::-1]]
    return UNet(encoder, ups, decoder, near_zero(Conv2d(c[0], outputs, 1)))


def unet_3d(inputs: int, outputs: int, width: int = 8) -> UNet:
    """The light one: five levels by strided convolutions, a 5³ head; 1.12 M parameters at width 8, 4.46 M at 16."""
    c = width
    down, up = ((1, 2, 2), (2, 4, 4), (4, 8, 8), (8, 16, 8)), ((16, 8, 4), (8, 4, 2), (4, 4, 2), (3, 2, 2))
    encoder = [convolutions(3, inputs, c, c)]
    encoder += [convolutions(3, a * c, b * c, k * c, stride=2) for a, b, k in down]
    ups = [nn.Sequential(ConvTranspose3d(k * c, k * c, 2, stride=2), nn.ReLU(inplace=True)) for k in (8, 4, 2, 2)]
    decoder = [convolutions(3, a * c, b * c, k * c) for a, b, k in up]
    return UNet(encoder, ups, decoder, near_zero(Conv3d(2 * c, outputs, 5, padding=2, bias=False)))


def convolutions(d: int, inputs: int, between: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Two of 3 voxels along each axis, each with a rectifier; the first may halve the size."""
    first = CONVOLUTIONS[d](inputs, between, 3, stride=stride, padding=1)
    second = CONVOLUTIONS[d](between, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))


class HalfResolution(nn.Module):
    """A network that sees each block of 2^d voxels as one, with 2^d times the channels; what it finds is enlarged. Most
    time goes into a U-Net's first level: without it, a network of twice the width takes as long."""

    def __init__(self, net: UNet) -> None:
        super().__init__()
        self.net, self.multiple = net, 2 * net.multiple

    def forward(self, x: Float[Tensor, "b c *s"]) -> Float[Tensor, "b k *s"]:
        b, c, *sizes = x.shape
        d = len(sizes)
        split = x.reshape(b, c, *[part for n in sizes for part in (n // 2, 2)])
        within, between = range(3, 3 + 2 * d, 2), range(2, 2 + 2 * d, 2)
        found = self.net(split.permute(0, 1, *within, *between).flatten(1, 1 + d))  # a block's voxels in their order
        return functional.interpolate(found, scale_factor=2, mode=LINEAR_MODE[d])


def unet(d: int, inputs: int, width: int, half: bool = False) -> UNet | HalfResolution:
    """The U-Net for images in d dimensions, with d outputs: a field. At half their resolution, it has one level fewer
    in 2D, so that it sees as far, and has as many parameters at twice the width."""
    if not half:
        return {2: unet_2d, 3: unet_3d}[d](inputs, d, width)
    inputs *= 2**d
    return HalfResolution(unet_2d(inputs, d, width, levels=4) if d == 2 else unet_3d(inputs, d, width))


def he_initialised(net: nn.Module) -> nn.Module:
    """A network that passes on what it sees from the start (He initialisation, the last layer too): a plain denoiser
    whose output starts near zero would hide all that comes before it."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return net


def near_zero(head: nn.Module) -> nn.Module:
    """A last layer whose output starts near zero, so that an untrained residual network is near the identity."""
    for name, parameter in head.named_parameters():
        nn.init.normal_(parameter, std=1e-5 if name == "weight" else 0.0)
    return head


# The Siamese network of Qin et al. and Qiu et al.: two encoders that share weights, all scales joined at full size.

DEPTHS = (2, 2, 3, 3, 3)
WIDTHS = (1, 2, 4, 8, 8)
LAYERS = {2: (nn.Conv2d, nn.BatchNorm2d), 3: (Conv3d, nn.BatchNorm3d)}
"""In 2D torch's own convolution, which is never rounded: a normalisation follows each."""


class Siamese(nn.Module):
    """Each image goes through the encoder; at each scale both features are joined to `width` and enlarged. The last
    layer finds displacements as shares of half the image along each axis, which tanh keeps below 1."""

    multiple = 16

    def __init__(self, d: int, width: int = 64) -> None:
        super().__init__()
        channels = [1, *(width * k for k in WIDTHS)]
        levels = zip(channels, channels[1:], DEPTHS, strict=False)
        self.encoder = nn.ModuleList(
            nn.Sequential(block(d, a, b, stride=1 + (a > 1)), *(block(d, b, b) for _ in range(n - 1)))
            for a, b, n in levels
        )
        self.join = nn.ModuleList(block(d, 2 * b, width) for b in channels[1:])
        last = LAYERS[d][0](width, d, 1)
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
        return [*accumulate(self.encoder, lambda f, level: level(f), initial=image)][1:]


SEGMENTER_WIDTHS = (1, 2, 4, 6, 8)  # channels of each level, as multiples of the first's


def segmenter(d: int, inputs: int, outputs: int, width: int) -> UNet:
    """A U-Net that normalises, and grows less from level to level: 3.7 M parameters in 2D at width 32."""
    c = [width * k for k in SEGMENTER_WIDTHS]
    encoder = [nn.Sequential(block(d, inputs, c[0]), block(d, c[0], c[0]))]
    encoder += [nn.Sequential(block(d, a, b, stride=2), block(d, b, b)) for a, b in pairwise(c)]
    ups = [nn.Upsample(scale_factor=2, mode=LINEAR_MODE[d]) for _ in c[1:]]
    decoder = [nn.Sequential(block(d, a + b, a), block(d, a, a)) for a, b in reversed(list(pairwise(c)))]
    return UNet(encoder, ups, decoder, LAYERS[d][0](c[0], outputs, 1))


def block(d: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, normalisation, ReLU."""
    convolution, normalisation = LAYERS[d]
    found = convolution(inputs, outputs, kernel, stride=stride, padding=kernel // 2)
    return nn.Sequential(found, normalisation(outputs), nn.ReLU(inplace=True))
