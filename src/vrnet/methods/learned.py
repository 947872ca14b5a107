"""The learned methods, by the paper's shorthand: R-L1-3x2, VoxelMorph, Siamese, 4xRC-Net.

A network is a cascade like any other: VoxelMorph and Siamese are empty ones, RC-Net has no data step.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from vrnet.errors import BadInput
from vrnet.methods.method import CPU, MASKS_OF_NETWORKS, LossTerms, Trainable
from vrnet.methods.parameters import changes, check_at_most, split_name, with_parameters
from vrnet.networks import siamese
from vrnet.networks.adaptors import Noise, Plain, Predict, Recurse, Residual
from vrnet.networks.unet import he_initialised, unet
from vrnet.variational.cascade import Cascade, DataStep, Initializer, Keep, Step, no_motion
from vrnet.variational.data_terms import DATA_TERMS


def plain(net: nn.Module) -> nn.Module:
    """The paper's U."""
    return Plain(he_initialised(net))


PAPER_WIDTH = {2: 64, 3: 8}
SIAMESE_WIDTH = 64
MAX_CASCADES, MAX_WIDTH = 100, 4_096
"""More of either is a slip of the pen, or a file that is not to be trusted."""
COUNT = r"(\d{1,99})"
"""A number in a name: Python refuses to read one of thousands of digits."""
DENOISERS: dict[str, Callable[[nn.Module], nn.Module]] = {"R": Residual, "U": plain, "C": Recurse}
SHORTHAND = ("denoiser", "data", "warps", "iterations", "init", "parameters", "order", "width", "cascades")
"""The fields that the shorthand of a network says."""


@runtime_checkable
class Learned(Trainable, Protocol):
    """What all learned methods have in common."""

    @property
    def is_network(self) -> bool:
        return True

    @property
    def masks(self) -> str:
        return MASKS_OF_NETWORKS

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return SHORTHAND

    @property
    def loss(self) -> LossTerms:
        return LossTerms("L1", "Diffusion")

    @property
    def network_count(self) -> int:
        """How many networks it has at least; the file of a model has more tensors."""
        return 1

    def with_width(self, width: int | None) -> "Learned":
        return replace(self, width=width) if self.width is None else self  # type: ignore[type-var]


@dataclass(frozen=True)
class VRNet(Learned):
    """Algorithm 1 with learned denoisers and step weights, N_warp x N_iter cascades."""

    denoiser: Literal["R", "U", "C"] = "R"
    """R: residual U-Net on the field; U: plain; C: composed with what a U-Net sees in I0 and I1 warped."""
    data: str = "L2"
    """The name of a data term."""
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
        if self.data not in DATA_TERMS:
            raise BadInput(f'there is no data term "{self.data}": choose one of {", ".join(DATA_TERMS)}')
        if self.warps < 1 or self.iterations < 1 or self.theta <= 0:
            raise BadInput(f"{self} has no steps, or no θ above zero: give at least 1x1")
        check_at_most("warps times iterations", self.warps * self.iterations, MAX_CASCADES)
        check_width(self.width)

    def __str__(self) -> str:
        default = {field.name: field.default for field in fields(self)}
        words = [getattr(self, name) for name in ("init", "parameters", "order")
                 if getattr(self, name) != default[name]]  # fmt: skip
        parts = [self.denoiser, self.data, f"{self.warps}x{self.iterations}", *words]
        return "-".join(parts) + suffix(self.width) + changes(self, VRNet(), SHORTHAND)

    @property
    def is_random(self) -> bool:
        return self.init == "noise"

    @property
    def network_count(self) -> int:
        return self.warps * self.iterations if self.parameters == "Θ2" else 1

    @property
    def summary(self) -> str:
        kind = {"R": "residual", "U": "plain", "C": "image-aware"}[self.denoiser]
        return f"learned: VR-Net, {self.data} data step, {kind} denoiser, {self.warps} x {self.iterations} cascades"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        step, total = self._step(d), self.warps * self.iterations
        flat = [step] * total if self.parameters == "Θ1" else [step, *(self._step(d) for _ in range(total - 1))]
        rows = [flat[k : k + self.iterations] for k in range(0, total, self.iterations)]
        return Cascade(self._init(d), rows, DATA_TERMS[self.data].linearize).to(device)

    def _init(self, d: int) -> Initializer:
        if self.init == "unet":
            return Predict(unet(d, 2, self.width or PAPER_WIDTH[d]))
        return no_motion if self.init == "zeros" else Noise()

    def _step(self, d: int) -> Step:
        inputs = 2 if self.denoiser == "C" else d
        denoise = DENOISERS[self.denoiser](unet(d, inputs, self.width or PAPER_WIDTH[d]))
        data = DataStep(DATA_TERMS[self.data], self.theta)
        return Step(data, denoise) if self.order == "paper" else Step(denoise, data)


@dataclass(frozen=True)
class VoxelMorph(Learned):
    """One U-Net: the empty cascade."""

    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""

    def __post_init__(self) -> None:
        check_width(self.width)

    def __str__(self) -> str:
        return f"VoxelMorph{suffix(self.width)}"

    @property
    def summary(self) -> str:
        return "learned: one U-Net"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(Predict(unet(d, 2, self.width or PAPER_WIDTH[d])), []).to(device)


@dataclass(frozen=True)
class Siamese(Learned):
    """Two encoders that share weights: the empty cascade."""

    width: int | None = None
    """Channels of the first level; 64 where not given."""

    def __post_init__(self) -> None:
        check_width(self.width)

    def __str__(self) -> str:
        return f"Siamese{suffix(self.width)}"

    @property
    def summary(self) -> str:
        return "learned: two encoders that share weights"

    @property
    def loss(self) -> LossTerms:
        return LossTerms("L2", "Huber", alpha=1e-4)

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(Predict(siamese.Siamese(d, self.width or SIAMESE_WIDTH)), []).to(device)


@dataclass(frozen=True)
class RCNet(Learned):
    """Recursive cascades: each U-Net sees the images as the ones before it left them."""

    cascades: int = 3
    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""

    def __post_init__(self) -> None:
        if self.cascades < 1:
            raise BadInput("0xRC-Net has no network: give at least 1x")
        check_at_most("the number of cascades", self.cascades, MAX_CASCADES)
        check_width(self.width)

    def __str__(self) -> str:
        return f"{self.cascades}xRC-Net{suffix(self.width)}"

    @property
    def network_count(self) -> int:
        return self.cascades

    @property
    def summary(self) -> str:
        return f"learned: {self.cascades} recursive U-Nets"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        nets = [unet(d, 2, self.width or PAPER_WIDTH[d]) for _ in range(self.cascades)]
        return Cascade(no_motion, [[Step(Keep(), Recurse(net))] for net in nets]).to(device)


def check_width(width: int | None) -> None:
    if width is not None and width < 1:
        raise BadInput(f"a network of width {width} has no channels: give at least w1")
    check_at_most("the width of a network", width or 0, MAX_WIDTH)


def suffix(width: int | None) -> str:
    """How a name says the width, where it is not the paper's."""
    return "" if width is None else f"-w{width}"


PAPER = tuple(
    VRNet(denoiser, data, *steps)  # type: ignore[arg-type]
    for denoiser, data, steps in product("RU", ("L2", "L1"), ((1, 1), (2, 1), (2, 2), (3, 2), (6, 1)))
)
"""The 20 configurations of the paper's table, in its order."""


class Family(NamedTuple):
    """Learned methods of one kind, whose names have one form."""

    summary: str
    parse: Callable[[str], Learned | None]
    """The method of a name, if it is of this family."""


def parse_vrnet(name: str) -> VRNet | None:
    """The configuration of a shorthand such as R-L1-3x2-zeros-w16, if it is one."""
    options_form = r"((?:-(?:zeros|noise|Θ1|T1|released|w\d{1,99}))*)"
    form = rf"([RUC])-({'|'.join(map(re.escape, DATA_TERMS))})-{COUNT}x{COUNT}{options_form}"
    found = re.fullmatch(form, name, flags=re.IGNORECASE)
    terms = {term.casefold(): term for term in DATA_TERMS}
    if not found:
        return None
    words = [parse_option(word) for word in found[5].split("-") if word]
    options = dict(words)
    if len(options) < len(words):
        raise BadInput(f"{name} says one thing twice: give each of its words once")
    return VRNet(found[1].upper(), terms[found[2].casefold()], int(found[3]), int(found[4]), **options)  # type: ignore[arg-type]


def parse_option(word: str) -> tuple[str, str | int]:
    """The field that a word after the shorthand sets, and its value."""
    word = word.lower()
    if word.startswith("w"):
        return "width", int(word[1:])
    words = {"zeros": ("init", "zeros"), "noise": ("init", "noise"), "released": ("order", "released")}
    return words.get(word, ("parameters", "Θ1"))


def parse_rcnet(name: str) -> RCNet | None:
    """3xRC-Net, or 3xRC-Net-w16."""
    found = re.fullmatch(rf"{COUNT}xRC-Net(?:-w{COUNT})?", name, flags=re.IGNORECASE)
    return RCNet(int(found[1]), parse_width(found[2])) if found else None


def parse_single(kind: Callable[[int | None], Learned], name: str) -> Learned | None:
    """One network, such as VoxelMorph, or VoxelMorph-w32."""
    found = re.fullmatch(rf"{kind(None)}(?:-w{COUNT})?", name, flags=re.IGNORECASE)
    return kind(parse_width(found[1])) if found else None


def parse_width(digits: str | None) -> int | None:
    return int(digits) if digits else None


FAMILIES = {
    "R|U|C-L1|L2-NxM": Family(
        "learned: VR-Net, as R-L1-3x2: residual (R), plain (U) or image-aware (C) denoisers, "
        "L1, L2 or another data term in its data steps, N warps of M iterations",
        parse_vrnet,
    ),
    "VoxelMorph": Family(VoxelMorph().summary, partial(parse_single, VoxelMorph)),
    "Siamese": Family(Siamese().summary, partial(parse_single, Siamese)),
    "NxRC-Net": Family("learned: N recursive U-Nets, as 3xRC-Net", parse_rcnet),
}
"""Every kind of learned method by the form of its names."""


def parse_learned(name: str) -> Learned | None:
    """The learned method of that name, with the parameters that follow in brackets, if it is one's."""
    base, given = split_name(name)
    found = next((method for family in FAMILIES.values() if (method := family.parse(base))), None)
    return found and with_parameters(found, given, found.fixed_parameters)
