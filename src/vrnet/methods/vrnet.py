"""VR-Net by the paper's shorthand, R-L1-3x2: Algorithm 1 unrolled, with networks for its denoisers and a learned θ for
each data step. The networks it is compared with are cascades too: empty ones, or without data steps."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vrnet.errors import BadInput, check_range
from vrnet.methods.method import COUNT, CPU, MAX_CASCADES, PAPER_WIDTH, LossTerms, Trainable, suffix
from vrnet.methods.parameters import changes
from vrnet.networks import denoisers
from vrnet.networks import unet as nets
from vrnet.networks.pyramid import PyramidNet
from vrnet.networks.unet import he_initialised, unet
from vrnet.variational.cascade import Cascade, DataStep, Initializer, Spacing, Step, no_motion
from vrnet.variational.data_terms import DATA_TERMS, L2
from vrnet.variational.linearize import Images, Masks

NO_DATA = "none"
WORD_FIELDS = {
    "zeros": "init", "noise": "init", "Θ1": "parameters", "T1": "parameters", "released": "order", "frozen": "penalty",
    "half": "resolution", "he": "start_weights",
}  # fmt: skip
"""The field that each word after the shorthand sets, to itself; T1 is Θ1 in ASCII. Names have them in this order."""


class Denoiser(NamedTuple):
    """What the first letter of the shorthand stands for."""

    kind: str
    make: Callable[[nn.Module], nn.Module]  # the half step of a network
    sees_images: bool = False  # whether the network is shown both images, not the field
    is_diffeomorphic: bool = False  # whether all parts of the method move along flows


DENOISERS = {
    "R": Denoiser("residual", denoisers.Residual),
    "U": Denoiser("plain", lambda net: denoisers.Plain(he_initialised(net))),
    "C": Denoiser("image-aware", denoisers.Recurse, sees_images=True),
    "D": Denoiser("image-aware diffeomorphic", partial(denoisers.Recurse, along_flow=True), True, True),
}


@dataclass(frozen=True)
class VRNet(Trainable):
    """Algorithm 1 with learned denoisers and step weights, N_warp x N_iter cascades."""

    denoiser: Literal["R", "U", "C", "D"] = "R"
    """R: residual U-Net on the field; U: plain; C: composed with what a U-Net sees in I0 and I1 warped; D: as C, and
    every move, that of the data step too, is along a smooth flow, which hardly folds."""
    data: str = "L2"
    """The name of a data term; none: no data steps, to see what they bring."""
    warps: int = 6
    iterations: int = 1
    init: Literal["unet", "zeros", "noise"] = "unet"
    parameters: Literal["Θ1", "Θ2"] = "Θ2"
    """Θ1: one network and one θ for all steps; Θ2: each step has its own."""
    order: Literal["paper", "released"] = "paper"
    """paper: data, then denoise, v is the result; released: denoise, then data, u is the result."""
    penalty: Literal["learned", "frozen"] = "learned"
    """frozen: θ stays what it is at the start."""
    resolution: Literal["full", "half"] = "full"
    """half: networks see each block of 2x2 pixels (2x2x2 voxels) as one. They take as long as others of half the width,
    and what they find is smoother."""
    start_weights: Literal["own", "he"] = "own"
    """he: the networks of the denoisers are drawn by He's rule before training, as those of U always are, to compare
    with U. own: by PyTorch's, and their last layer starts near zero, so that an untrained one changes nothing."""
    channels: int = 0
    """Further channels of the images, such as probabilities of structures. The data steps compare them too, each with a
    learned weight."""
    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""
    theta: float = 0.1
    """θ at the start, for images in [0, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range({"warps": self.warps, "iterations": self.iterations}, 1)
        check_range({"warps times iterations": self.warps * self.iterations}, most=MAX_CASCADES)
        check_range({"theta": self.theta}, above=True)
        if self.data == NO_DATA and self.init != "unet" and not DENOISERS[self.denoiser].sees_images:
            raise BadInput(f"no part of {self} sees the images: choose C or D, or leave out {self.init}")

    def __str__(self) -> str:
        words = [getattr(self, name) for name in dict.fromkeys(WORD_FIELDS.values())]
        said = [word for word in words if word in WORD_FIELDS]
        said += [f"c{self.channels}"] if self.channels else []
        parts = [self.denoiser, self.data, f"{self.warps}x{self.iterations}", *said]
        return "-".join(parts) + suffix(self.width) + changes(self, VRNet(), super().fixed_parameters)

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        named = super().fixed_parameters
        return (*named, "theta") if self.data == NO_DATA else named

    @property
    def summary(self) -> str:
        kind, data = DENOISERS[self.denoiser].kind, "no" if self.data == NO_DATA else self.data
        return f"learned: VR-Net, {data} data step, {kind} denoiser, {self.warps} x {self.iterations} cascades"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        step, total = self._step(d), self.warps * self.iterations
        flat = [step] * total if self.parameters == "Θ1" else [step, *(self._step(d) for _ in range(total - 1))]
        rows = [flat[k : k + self.iterations] for k in range(0, total, self.iterations)]
        init: Initializer = no_motion
        if self.init != "zeros":
            init = denoisers.Predict(self._net(d, sees_images=True)) if self.init == "unet" else denoisers.Noise()
            init = denoisers.InitialFlow(init) if DENOISERS[self.denoiser].is_diffeomorphic else init
        linearize = DATA_TERMS.get(self.data, L2()).linearize
        if self.channels:
            return denoisers.WeighedCascade(denoisers.Weighed(init, self.channels), rows, linearize).to(device)
        return Cascade(init, rows, linearize).to(device)

    def _step(self, d: int) -> Step:
        kind = DENOISERS[self.denoiser]
        net = self._net(d, kind.sees_images)
        denoise = kind.make(he_initialised(net) if self.start_weights == "he" else net)
        if self.data == NO_DATA:
            data: nn.Module = nn.Identity()
        else:
            prox = DataStep(DATA_TERMS[self.data], self.theta)
            prox.requires_grad_(self.penalty == "learned")
            data = denoisers.FlowDataStep(prox) if kind.is_diffeomorphic else prox
        return Step(data, denoise) if self.order == "paper" else Step(denoise, data)

    def _net(self, d: int, sees_images: bool) -> nn.Module:
        """Of two images side by side, or of a field."""
        inputs = 2 * (1 + self.channels) if sees_images else d
        return unet(d, inputs, self.width or PAPER_WIDTH[d], half=self.resolution == "half")


PAPER = tuple(
    VRNet(denoiser, data, *steps)  # type: ignore[arg-type]
    for denoiser, data, steps in product("RU", ("L2", "L1"), ((1, 1), (2, 1), (2, 2), (3, 2), (6, 1)))
)
"""The 20 configurations of the paper's table, in its order."""


def parse_vrnet(name: str) -> VRNet | None:
    """The configuration of a shorthand such as R-L1-3x2-zeros-w16, if it is one."""
    terms = {term.casefold(): term for term in (*DATA_TERMS, NO_DATA)}  # also a term that was added a moment ago
    words = rf"((?:-(?:{'|'.join(WORD_FIELDS)}|[cw]\d{{1,99}}))*)"
    form = rf"([{''.join(DENOISERS)}])-({'|'.join(map(re.escape, terms))})-{COUNT}x{COUNT}{words}"
    found = re.fullmatch(form, name, flags=re.IGNORECASE)
    if not found:
        return None
    options: dict[str, Any] = {}
    known = {word.casefold(): (field, word.replace("T1", "Θ1")) for word, field in WORD_FIELDS.items()}
    for word in filter(None, found[5].casefold().split("-")):
        field, value = known.get(word) or ({"c": "channels", "w": "width"}[word[0]], int(word[1:]))
        if field in options:
            raise BadInput(f"{name} says one thing twice: give each of its words once")
        options[field] = value
    return VRNet(found[1].upper(), terms[found[2].casefold()], int(found[3]), int(found[4]), **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class VoxelMorph(Trainable):
    """One U-Net: the empty cascade."""

    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""

    summary = "learned: one U-Net"

    def __str__(self) -> str:
        return f"VoxelMorph{suffix(self.width)}"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(denoisers.Predict(unet(d, 2, self.width or PAPER_WIDTH[d])), []).to(device)


@dataclass(frozen=True)
class Siamese(Trainable):
    """Two encoders that share weights: the empty cascade."""

    width: int | None = None
    """Channels of the first level; 64 where not given."""

    summary = "learned: two encoders that share weights"
    loss = LossTerms("L2", "Huber", alpha=0.02)

    def __str__(self) -> str:
        return f"Siamese{suffix(self.width)}"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        return Cascade(denoisers.Predict(nets.Siamese(d, self.width or 64)), []).to(device)


@dataclass(frozen=True)
class RCNet(Trainable):
    """Recursive cascades: each U-Net sees the images as the ones before it left them."""

    cascades: int = 3
    width: int | None = None
    """Channels of the first level; 64 in 2D and 8 in 3D where not given."""
    resolution: Literal["full", "half"] = "full"
    """half: networks see each block of 2x2 pixels (2x2x2 voxels) as one, as those of VR-Net can."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range({"the number of cascades": self.cascades}, 1, MAX_CASCADES)

    def __str__(self) -> str:
        return f"{self.cascades}xRC-Net{'-half' if self.resolution == 'half' else ''}{suffix(self.width)}"

    @property
    def summary(self) -> str:
        return f"learned: {self.cascades} recursive U-Nets"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        width, half = self.width or PAPER_WIDTH[d], self.resolution == "half"
        nets = [unet(d, 2, width, half) for _ in range(self.cascades)]
        return Cascade(no_motion, [[Step(nn.Identity(), denoisers.Recurse(net))] for net in nets]).to(device)


PYRAMID_WORDS = {"image": "features", "uncorrelated": "correlation", "added": "flows"}
"""What each word after P-L2 leaves out. Names have them in this order."""


@dataclass(frozen=True)
class Pyramid(Trainable):
    """One encoder for both images; at each level a data step on images and learned features, then a network."""

    data: Literal["L1", "L2", "none"] = "L2"
    """The data term; none: no data steps, to see what they bring."""
    channels: int = 0
    """Further channels of the images, such as probabilities of structures."""
    width: int | None = None
    """Channels of the features at full resolution; 8 in 2D and 6 in 3D where not given."""
    theta: float = 0.1
    """θ at the start, for images in [0, 1]."""
    without: frozenset[str] = frozenset()
    """Parts that are left out, of the values of PYRAMID_WORDS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range({"theta": self.theta}, above=True)
        if self.data == NO_DATA and "features" in self.without:
            raise BadInput(f"{self} has no data steps: leave out image")

    def __str__(self) -> str:
        words = "".join(f"-{word}" for word, part in PYRAMID_WORDS.items() if part in self.without)
        return f"P-{self.data}{words}{f'-c{self.channels}' if self.channels else ''}{suffix(self.width)}"

    @property
    def summary(self) -> str:
        return f"learned: a pyramid of features, {'no' if self.data == NO_DATA else self.data} data step"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        width, term = self.width or {2: 8, 3: 6}[d], DATA_TERMS.get(self.data)
        net = PyramidNet(d, self.channels, width, term, self.theta, self.without)
        return Cascade(denoisers.Predict(net), []).to(device)


STRUCTURES = 3
REGISTERS_NOTHING = "finds structures in one image, and registers none: use `vrnet segment IMAGE --out LABELS`"


@dataclass(frozen=True)
class Segmenter(Trainable):
    """A U-Net of one image. It is trained on pairs as those that register are, on both images of each."""

    structures: int = STRUCTURES
    """How many there are beside the background."""
    width: int | None = None
    """Channels of the first level; 32 in 2D and 16 in 3D where not given."""

    summary = "learned: a U-Net that finds structures in one image"
    segments = True

    def __str__(self) -> str:
        return f"Segmenter{'' if self.structures == STRUCTURES else f'-k{self.structures}'}{suffix(self.width)}"

    def build(self, d: int, device: torch.device = CPU) -> "SegmentPairs":
        net = nets.segmenter(d, 1, 1 + self.structures, self.width or {2: 32, 3: 16}[d])
        return SegmentPairs(net).to(device)


class SegmentPairs(denoisers.Predict):
    """The scores of background and structures in each image of a pair, the moving ones after the fixed ones."""

    steps = ()

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Tensor:
        return denoisers.apply_padded(self.net, torch.cat([I0, I1]))


def parse_segmenter(name: str) -> Segmenter | None:
    """The segmenter of a name such as Segmenter-k2-w16, if it is one."""
    found = re.fullmatch(rf"Segmenter(?:-k{COUNT})?(?:-w{COUNT})?", name, flags=re.IGNORECASE)
    return found and Segmenter(int(found[1] or STRUCTURES), int(found[2]) if found[2] else None)


def parse_baseline(name: str) -> Trainable | None:
    """VoxelMorph, Siamese, 3xRC-Net, 3xRC-Net-half or P-L2-c3, each also with a width, as VoxelMorph-w32."""
    pyramid = rf"P-(L1|L2|none)((?:-(?:{'|'.join(PYRAMID_WORDS)}))*)(?:-c{COUNT})?"
    forms = rf"(VoxelMorph)|(Siamese)|{COUNT}xRC-Net(-half)?|{pyramid}"
    found = re.fullmatch(rf"(?:{forms})(?:-w{COUNT})?", name, flags=re.IGNORECASE)
    if not found:
        return None
    voxelmorph, _, cascades, half, data, words, channels, digits = found.groups()
    width = int(digits) if digits else None
    if cascades:
        return RCNet(int(cascades), width, "half" if half else "full")
    if data:
        term: Any = {"l1": "L1", "l2": "L2"}.get(data.casefold(), NO_DATA)
        without = [PYRAMID_WORDS[word] for word in words.casefold().split("-")[1:]]
        made = Pyramid(term, int(channels or 0), width, without=frozenset(without))
        return made if str(made).casefold() == name.casefold() else None  # each word once, in order
    return VoxelMorph(width) if voxelmorph else Siamese(width)
