"""The learned methods, by the paper's shorthand: R-L1-3x2, VoxelMorph, Siamese, 4xRC-Net.

A network is a cascade like any other: VoxelMorph and Siamese are empty ones, RC-Net has no data step.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.errors import BadInput
from vrnet.methods.identity import no_motion
from vrnet.methods.method import CPU, LossTerms, Trainable
from vrnet.methods.parameters import changes
from vrnet.networks import siamese
from vrnet.networks.adaptors import Keep, Plain, Predict, Recurse, Residual
from vrnet.networks.unet import he_initialised, unet
from vrnet.variational.cascade import Cascade, Initializer, ReleasedStep, Spacing, Step
from vrnet.variational.data_steps import DataStep, l1_step, l2_step


def plain(net: nn.Module) -> nn.Module:
    """The paper's U."""
    return Plain(he_initialised(net))


WIDTHS = {2: 64, 3: 8}
SIAMESE_WIDTH = 64
DENOISERS: dict[str, Callable[[nn.Module], nn.Module]] = {"R": Residual, "U": plain, "C": Recurse}
DATA_STEPS = {"L1": l1_step, "L2": l2_step}
STEPS = {"paper": Step, "released": ReleasedStep}


@runtime_checkable
class Learned(Trainable, Protocol):
    """What all learned methods have in common."""

    @property
    def is_network(self) -> bool:
        return True

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return FIXED

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def loss(self) -> LossTerms:
        return LossTerms("L1", "Diffusion")

    def with_width(self, width: int | None) -> "Learned":
        return replace(self, width=width) if self.width is None else self  # type: ignore[type-var]


@dataclass(frozen=True)
class VRNet(Learned):
    """Algorithm 1 with learned denoisers and step weights, N_warp x N_iter cascades."""

    denoiser: Literal["R", "U", "C"] = "R"
    """R: residual U-Net on the field; U: plain; C: composed with what a U-Net sees in I0 and I1 warped."""
    data: Literal["L1", "L2"] = "L2"
    warps: int = 6
    iterations: int = 1
    init: Literal["unet", "zeros", "noise"] = "unet"
    parameters: Literal["Θ1", "Θ2"] = "Θ2"
    """Θ1: one network and one θ for all steps; Θ2: each step has its own."""
    order: Literal["paper", "released"] = "paper"
    """paper: data, then denoise, v is the result; released: denoise, then data, u is the result."""
    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""
    theta: float = 0.1
    """θ at the start, for images in [0, 1]."""

    def __post_init__(self) -> None:
        if self.warps < 1 or self.iterations < 1 or self.theta <= 0:
            raise BadInput(f"{self} has no steps, or no θ above zero: give at least 1x1")
        check_width(self.width)

    def __str__(self) -> str:
        changed = [f"{getattr(self, name)}" for name in ("init", "parameters", "order") if differs(self, name)]
        width = [f"w{self.width}"] if self.width is not None else []
        words = [self.denoiser, self.data, f"{self.warps}x{self.iterations}", *changed, *width]
        return "-".join(words) + changes(self, VRNet(), FIXED)

    @property
    def is_random(self) -> bool:
        return self.init == "noise"

    @property
    def summary(self) -> str:
        kind = {"R": "residual", "U": "plain", "C": "image-aware"}[self.denoiser]
        return f"learned: VR-Net, {self.data} data step, {kind} denoiser, {self.warps} x {self.iterations} cascades"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        step, total = self._step(d), self.warps * self.iterations
        flat = [step] * total if self.parameters == "Θ1" else [step, *(self._step(d) for _ in range(total - 1))]
        rows = [flat[k : k + self.iterations] for k in range(0, total, self.iterations)]
        return Cascade(self._init(d), rows).to(device)

    def _init(self, d: int) -> Initializer:
        if self.init == "unet":
            return Predict(unet(d, 2, self.width or WIDTHS[d]))
        return no_motion if self.init == "zeros" else Noise()

    def _step(self, d: int) -> nn.Module:
        inputs = 2 if self.denoiser == "C" else d
        net = unet(d, inputs, self.width or WIDTHS[d])
        return STEPS[self.order](DataStep(DATA_STEPS[self.data], self.theta), DENOISERS[self.denoiser](net))

    @classmethod
    def parse(cls, name: str) -> "VRNet | None":
        """The configuration of that shorthand, if it is one."""
        form = r"([RUC])-(L[12])-(\d+)x(\d+)((?:-(?:zeros|noise|Θ1|T1|released|w\d+))*)"
        found = re.fullmatch(form, name, flags=re.IGNORECASE)
        if not found:
            return None
        denoiser, data, warps, iterations, rest = found.groups()
        options = dict(option(word) for word in rest.split("-") if word)
        return cls(denoiser.upper(), data.upper(), int(warps), int(iterations), **options)  # type: ignore[arg-type]


FIXED = ("denoiser", "data", "warps", "iterations", "init", "parameters", "order", "width")
"""What the shorthand of a network says."""


def differs(method: VRNet, name: str) -> bool:
    return getattr(method, name) != next(f.default for f in fields(method) if f.name == name)


def option(word: str) -> tuple[str, str | int]:
    """The field that a word after the shorthand sets, and its value."""
    word = word.lower()
    if word.startswith("w"):
        return "width", int(word[1:])
    return {"zeros": ("init", "zeros"), "noise": ("init", "noise"), "released": ("order", "released")}.get(
        word, ("parameters", "Θ1")
    )


@dataclass(frozen=True)
class VoxelMorph(Learned):
    """One U-Net: the empty cascade."""

    width: int | None = None

    def __post_init__(self) -> None:
        check_width(self.width)

    @property
    def summary(self) -> str:
        return "learned: one U-Net"

    def __str__(self) -> str:
        return "VoxelMorph" + (f"-w{self.width}" if self.width else "")

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(Predict(unet(d, 2, self.width or WIDTHS[d])), []).to(device)


@dataclass(frozen=True)
class Siamese(Learned):
    """Two encoders that share weights: the empty cascade."""

    width: int | None = None

    def __post_init__(self) -> None:
        check_width(self.width)

    @property
    def summary(self) -> str:
        return "learned: two encoders that share weights"

    @property
    def loss(self) -> LossTerms:
        return LossTerms("L2", "Huber", alpha=1e-4)

    def __str__(self) -> str:
        return "Siamese" + (f"-w{self.width}" if self.width else "")

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(Predict(siamese.Siamese(d, self.width or SIAMESE_WIDTH)), []).to(device)


@dataclass(frozen=True)
class RCNet(Learned):
    """Recursive cascades: each U-Net sees the images as the ones before it left them."""

    cascades: int = 3
    width: int | None = None

    def __post_init__(self) -> None:
        if self.cascades < 1:
            raise BadInput("0xRC-Net has no network: give at least 1x")
        check_width(self.width)

    def __str__(self) -> str:
        return f"{self.cascades}xRC-Net" + (f"-w{self.width}" if self.width else "")

    @property
    def summary(self) -> str:
        return f"learned: {self.cascades} recursive U-Nets"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        nets = [unet(d, 2, self.width or WIDTHS[d]) for _ in range(self.cascades)]
        return Cascade(no_motion, [[Step(Keep(), Recurse(net))] for net in nets]).to(device)


def check_width(width: int | None) -> None:
    if width is not None and width < 1:
        raise BadInput(f"a network of width {width} has no channels: give at least w1")


class Noise(nn.Module):
    """Independent normal displacements, one voxel wide: others each time in training, always the same in use.

    Those in use are drawn on the CPU, since every kind of device draws others."""

    def forward(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        b, _, *s = I0.shape
        if self.training:
            return torch.randn(b, len(s), *s, device=I0.device, dtype=I0.dtype)
        one = torch.randn(len(s), *s, generator=torch.Generator().manual_seed(0))
        return one.to(I0).expand(b, -1, *s)


PAPER = tuple(
    VRNet(denoiser, data, *steps)  # type: ignore[arg-type]
    for denoiser, data, steps in product("RU", ("L2", "L1"), ((1, 1), (2, 1), (2, 2), (3, 2), (6, 1)))
)
"""The 20 configurations of the paper's table, in its order."""
FAMILIES = {
    "R|U|C-L1|L2-NxM": "learned: VR-Net, as R-L1-3x2: residual (R), plain (U) or image-aware (C) denoisers, "
    "L1 or L2 data steps, N warps of M iterations",
    "VoxelMorph": VoxelMorph().summary,
    "Siamese": Siamese().summary,
    "NxRC-Net": "learned: N recursive U-Nets, as 3xRC-Net",
}


def learned(name: str) -> Learned:
    """The learned method of that name."""
    found = recognised(name)
    if found is None:
        raise BadInput(f'no learned method is called "{name}": try R-L1-3x2, VoxelMorph, Siamese or 3xRC-Net')
    return found


def recognised(name: str) -> Learned | None:
    """The learned method of that name, if it is one's."""
    other = re.fullmatch(r"(VoxelMorph|Siamese|(\d+)xRC-Net)(?:-w(\d+))?", name, flags=re.IGNORECASE)
    if not other:
        return VRNet.parse(name)
    kind, cascades, width = other.group(1).lower(), other.group(2), int(other.group(3)) if other.group(3) else None
    if cascades:
        return RCNet(int(cascades), width)
    return VoxelMorph(width) if kind == "voxelmorph" else Siamese(width)
