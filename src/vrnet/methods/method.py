"""What others need to know of a method. Nobody outside this folder asks for its type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import permutations, product
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.devices import CPU as CPU
from vrnet.errors import BadInput, check_range
from vrnet.fields.calculus import zeros
from vrnet.images.grid import MAX_SPACING_MM, MIN_SPACING_MM
from vrnet.variational.cascade import Initializer, Spacing
from vrnet.variational.linearize import Field, Images, Masks

Scaling = Literal["jointly", "each"]  # whether percentiles of both images of a pair together, or of each, go to [0, 1]
Task = Literal["pair", "cine"]  # what is registered: two images, or the frames of a cine
Query = Callable[[], bool]  # answered when it is asked: to answer takes time
MASKS_OF_NETWORKS = "networks see each image, outside its mask, as the other; a weight in data steps, if any"
MASKS_OF_SOLVERS = "a weight in the data term"


@dataclass(frozen=True)
class Card:
    """What a model with weights is, and what it expects; empty or None is what it has not, or what is not known."""

    method: str  # its name, such as R-L1-3x2, from which the model is built again
    dimension: int
    spacing_mm: tuple[float, ...]  # that of the images it was trained on
    normalisation: Scaling  # how intensities were scaled in training, and are in use
    trained_on: str
    version: str  # of the vrnet that trained it, as the commit of its checkout
    commit: str = ""
    torch: str = ""
    device: str = ""
    labels_in_training: bool = False  # whether labels had a part in its loss, or in that of its first weights
    flips_in_training: bool | None = None  # whether it was shown mirrored images in training, the last of several
    started_from: str = ""  # the weights that its training began with, and what these were trained on
    channels: str = ""  # what the further channels of its images are: "anatomy"
    segmenter: str = ""  # of these channels: one in the box by its name (`anatomy`), or a file beside the weights
    cross_fitted: bool | None = None  # whether the channels of a subject came from a segmenter that had not seen it

    def __post_init__(self) -> None:
        h = self.spacing_mm
        in_reach = all(MIN_SPACING_MM <= x <= MAX_SPACING_MM for x in h)
        if self.dimension not in (2, 3) or len(h) != self.dimension or not in_reach:
            raise BadInput(f"a model has 2 or 3 dimensions with a spacing each, not {self.dimension} with {h} mm")
        if self.normalisation not in get_args(Scaling):
            raise BadInput(f'images are scaled jointly or each, not "{self.normalisation}"')
        if self.channels not in ("", "anatomy") or PurePath(self.segmenter).name != self.segmenter:
            told = f'"{ascii(self.channels)[1:-1]}" of "{ascii(self.segmenter)[1:-1]}"'
            raise BadInput(f"further channels are anatomy, of a segmenter in the box or beside the weights, not {told}")


def made_by_fields(made_by: Mapping[str, str | None]) -> dict[str, Any]:
    """What a card says of that which made a model: version, commit, torch and, where it is told, device."""
    named = {"version": "vrnet", "commit": "commit", "torch": "torch", "device": "device"}
    return {field: made_by.get(name) or "" for field, name in named.items()}


class LossTerms(NamedTuple):
    """What a method is trained with: the names of a data term and of a regulariser, and α where it has its own."""

    similarity: str
    smoothness: str
    alpha: float | None = None


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass: its fields are its parameters, and str(method) is its name, which parses back to it."""

    package: str | None = None
    """What must be installed for it, if anything."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """Where it can run."""
    is_trainable: bool = False
    """Whether it must be trained, and given weights, before it can register."""
    takes_channels: bool = False
    """Whether it matches further channels of images, whatever they are; one that was trained with some has a card."""
    card: Card | None = None
    """What its model is, if it has one with weights."""

    @property
    def summary(self) -> str:
        """One line on what it is."""

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        """What finds the field of a pair in d dimensions, on a device; BadInput where that cannot be."""

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions of the images that it can register: 2, 3 or both."""
        return (self.card.dimension,) if self.card else (2, 3)

    @property
    def scaling(self) -> Scaling:
        """How the intensities of a pair are brought to [0, 1] for it."""
        return self.card.normalisation if self.card else "jointly"

    @property
    def own_spacing(self) -> Spacing:
        """The spacing in mm that it takes images to have where none is given; None: voxels are cubes."""
        return self.card.spacing_mm if self.card else None

    @property
    def masks(self) -> str:
        """What it makes of masks, in words; it sees only images that are in-painted outside them."""
        return "images in-painted outside them"

    @property
    def is_network(self) -> bool:
        """Whether it is made of convolutions, which are worth sharing among threads and recording on a GPU."""
        return False

    @property
    def weights(self) -> str | None:
        """The name of the file that its weights came from, if it has any."""
        return None

    @property
    def segmenter(self) -> str | Path | None:
        """The segmenter whose probabilities it was trained with: by its name in the box, or in a file."""
        return None

    @property
    def model(self) -> nn.Module | None:
        """The network with its weights, of a method that has one."""
        return None

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        """The fields that cannot be set one by one: the name says them, or a file of weights does."""
        return ()

    @property
    def details(self) -> dict[str, str]:
        """What a page says of it beside its name."""
        shown = (f"{field.name} {getattr(self, field.name)}" for field in fields(self))  # type: ignore[arg-type]
        return {"parameters": ", ".join(shown)}

    def resolve(self, d: int, spacing: Spacing, images: Task = "pair", shows_heart: Query | None = None) -> "Method":
        """The method itself; of a choice, what it comes to for images of d dimensions with this spacing in mm. Whether
        they show a short-axis heart is asked where that decides; of images that are not at hand, it is taken so."""
        return self


PAPER_WIDTH = {2: 64, 3: 8}
MAX_CASCADES, MAX_WIDTH = 100, 4_096  # more of either is a slip of the pen, or a file that is not to be trusted
COUNT = r"(\d{1,99})"  # a number in a name: Python refuses to read one of thousands of digits


@runtime_checkable
class Trainable(Method, Protocol):
    """A learned method without weights: training builds a fresh model of it. Its name says all its fields but θ."""

    loss: LossTerms = LossTerms("L1", "Diffusion")
    """What it is trained with, where nothing else is asked for."""
    is_trainable: bool = True
    is_network: bool = True
    segments: bool = False
    """Whether it finds structures in images instead of the motion between them."""
    channels: int = 0
    """Further channels of its images, such as probabilities of structures."""
    masks: str = MASKS_OF_NETWORKS

    @property
    def width(self) -> int | None:
        """Channels of the first level of its networks; None stands for the paper's."""

    def __post_init__(self) -> None:
        check_range({"further channels": self.channels}, most=MAX_WIDTH)
        if self.width is not None:
            check_range({"the width of a network": self.width}, 1, MAX_WIDTH)

    def build(self, d: int, device: torch.device = CPU) -> Any:
        """A fresh model, its first weights drawn by torch's generator."""

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self) if field.name != "theta")  # type: ignore[arg-type]


def suffix(width: int | None) -> str:
    return "" if width is None else f"-w{width}"


# A method averaged over flips and quarter turns of the pair: u = mean of g⁻¹ · method(g · I0, g · I1).
#
# No voxel is interpolated. Iterative methods hardly change by it; a network, which knows no symmetry, may gain.

AVERAGED = "+average"  # what the name of a method ends with if it is averaged
WORDS = "averaged over flips and quarter turns of the pair"


def turn(I: Float[Tensor, "b c *s"], order: tuple[int, ...], flipped: tuple[int, ...]) -> Float[Tensor, "b c *t"]:
    """The image with its axes in another order, some of them then reversed."""
    return I.permute(0, 1, *(2 + axis for axis in order)).flip([2 + axis for axis in flipped]).contiguous()


class AverageOverTurns(nn.Module):
    """The mean over the 8 flips of a volume; of a picture 4 and, if pixels are square, 4 with axes exchanged."""

    def __init__(self, find: Initializer, own_spacing: Spacing = None) -> None:
        super().__init__()
        self.find, self.own_spacing = find, own_spacing

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        d, total, own = I0.dim() - 2, zeros(I0), spacing or self.own_spacing
        is_square = own is None or abs(own[0] / own[1] - 1) < 1e-3
        orders = list(permutations(range(d))) if d == 2 and is_square else [tuple(range(d))]
        flips = [tuple(axis for axis in range(d) if chosen[axis]) for chosen in product((False, True), repeat=d)]
        for order, flipped in product(orders, flips):
            change = partial(turn, order=order, flipped=flipped)
            h = spacing and tuple(spacing[axis] for axis in order)
            u = self.find(change(I0), change(I1), h, masks and masks.map(change))
            u = u.flip([2 + axis for axis in flipped])
            u[:, list(flipped)] *= -1
            back = [order.index(axis) for axis in range(d)]
            total = total + u[:, back].permute(0, 1, *(2 + axis for axis in back))
        return total / (len(orders) * len(flips))


@dataclass(frozen=True)
class Averaged(Method):
    """Another method, averaged; in all else it is that method. BadInput where flips are not for it."""

    method: Method

    def __post_init__(self) -> None:
        if (card := self.method.card) and card.flips_in_training is False:
            raise without_flips(self.method)

    def __str__(self) -> str:
        return f"{self.method}{AVERAGED}"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return AverageOverTurns(self.method.build(d, device), self.method.own_spacing)

    def resolve(self, d: int, spacing: Spacing, images: Task = "pair", shows_heart: Query | None = None) -> "Averaged":
        return Averaged(self.method.resolve(d, spacing, images, shows_heart))

    @property
    def summary(self) -> str:
        return f"{self.method.summary}; {WORDS}"

    @property
    def details(self) -> dict[str, str]:
        return {**self.method.details, "field": WORDS}


for name in (*Method.__annotations__, *(key for key, value in vars(Method).items() if isinstance(value, property))):
    if name not in vars(Averaged):
        setattr(Averaged, name, property(attrgetter(f"method.{name}")))


def without_flips(method: Method) -> BadInput:
    """The error to raise where a network that never saw mirrored images is to be averaged."""
    told = f"{method} was trained without mirrored images, and is not averaged over flips and turns"
    return BadInput(f"{told}: leave out `average=True`, and +average in its name")
