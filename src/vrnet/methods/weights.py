"""Trained models on disk: safetensors, with a card in the header that says what they are. No pickle anywhere."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from vrnet.devices import ModelOnDevices, channels_last
from vrnet.errors import BadInput, warn_of_input
from vrnet.fields.calculus import resize, resize_field
from vrnet.files import TensorFile, check_file, exists, is_folder, open_tensors, write_tensors
from vrnet.methods import vrnet as learned
from vrnet.methods.method import CPU, MASKS_OF_NETWORKS, MASKS_OF_SOLVERS, Card, Method, Trainable
from vrnet.methods.parameters import PerDimension, split_name, with_parameters
from vrnet.methods.solvers import preset
from vrnet.variational.cascade import Spacing
from vrnet.variational.data_terms import LNCC
from vrnet.variational.initialisers import ThroughTemplate
from vrnet.variational.linearize import Field, Images, Masks
from vrnet.variational.solver import Solver


class Family(NamedTuple):
    """Learned methods of one kind, whose names have one form; `parse` gives the method of a name, if it is of it."""

    summary: str
    parse: Callable[[str], Trainable | None]


FAMILIES = {
    "R|U|C|D-L1|L2-NxM": Family(
        "learned: VR-Net, as R-L1-3x2: residual (R), plain (U), image-aware (C) or diffeomorphic (D) denoisers, "
        "L1, L2, another data term or none in its data steps, N warps of M iterations",
        learned.parse_vrnet,
    ),
    "VoxelMorph": Family(learned.VoxelMorph().summary, learned.parse_baseline),
    "Siamese": Family(learned.Siamese().summary, learned.parse_baseline),
    "NxRC-Net": Family("learned: N recursive U-Nets, as 3xRC-Net", learned.parse_baseline),
    "P-L1|L2|none": Family("learned: a pyramid of features with data steps, as P-L2", learned.parse_baseline),
    "Segmenter": Family(learned.Segmenter().summary, learned.parse_segmenter),
}
"""Every kind of learned method by the form of its names."""


def parse_learned(name: str) -> Trainable | None:
    """The learned method of that name, with the parameters that follow in brackets, if it is one's."""
    base, given = split_name(name)
    found = next((method for family in FAMILIES.values() if (method := family.parse(base))), None)
    return found and with_parameters(found, given, found.fixed_parameters)


DETAIL = LNCC(radii=(2.0, 4.0))  # smaller boxes than those of two images: a template is sharper and less noisy
SOLVER = replace(preset("Gaussian", "LNCC"), lam=PerDimension(0.7, 0.65))
# λ and the radii were chosen on the validation pairs of hippocampus, by Dice and strict folds.


def make_solver(d: int, device: torch.device = CPU) -> Solver:
    return SOLVER.solver(DETAIL, d).to(device)


def template_shape(name: str) -> tuple[int, ...] | None:
    """(48, 64, 48) of Template-48x64x48, what a file of weights says it holds; None if it is no template."""
    found = re.fullmatch(r"Template-([1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3}){1,2})", name, flags=re.IGNORECASE)
    return found and tuple(int(n) for n in found[1].split("x"))


SUFFIX = ".safetensors"
KEY = "vrnet"  # where the header of a file has the card
ADVICE = "give a file that this version's vrnet train wrote"


def save_weights(model: nn.Module, card: Card, path: Path, half: bool = False) -> None:
    """Write a model; in half precision it takes half the room."""
    check_file(path, (SUFFIX,))
    dtype, state = torch.float16 if half else torch.float32, model.state_dict()
    single = {name: x.to(dtype) if x.is_floating_point() else x for name, x in state.items()}
    write_tensors({name: x.cpu().contiguous() for name, x in single.items()}, path, {KEY: json.dumps(asdict(card))})


def load_weights(path: Path) -> tuple[nn.Module, Card]:
    """The model of a file, in single precision and for use, with its card. BadInput, before memory is asked for, unless
    its tensors have the names, shapes and types of the model that the card names, or half its precision."""
    with open_weights(path) as (file, card):
        try:
            shape = template_shape(card.method)
            method = None if shape else parse_learned(card.method)
        except BadInput as error:
            raise BadInput(f"{path} holds no model of vrnet ({error}): {ADVICE}") from error
        if not (shape or method):
            raise BadInput(f'{path} holds a model called "{card.method}", which this vrnet does not know: update it')
        with torch.device("meta"), SkipInitialisation():  # without numbers: all of them are in the file
            blank, meta = torch.zeros(1, 1, *shape or ()), torch.device("meta")
            model = method.build(card.dimension, meta) if method else ThroughTemplate(blank, blank, make_solver)
        single = {torch.float16: torch.float32}
        found = {name: (shape, single.get(dtype, dtype)) for name, (shape, dtype) in file.layouts().items()}
        fits = len(shape or card.spacing_mm) == card.dimension
        if not fits or found != {name: (tuple(x.shape), x.dtype) for name, x in model.state_dict().items()}:
            raise BadInput(f"the weights in {path} do not fit {card.method}: of another version of vrnet? {ADVICE}")
        tensors = file.read()
    model.load_state_dict(tensors, assign=True)
    return model.float().eval(), card


def read_card(path: Path) -> Card:
    with open_weights(path) as (_, card):
        return card


@contextmanager
def open_weights(path: Path) -> Iterator[tuple[TensorFile, Card]]:
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    if is_folder(path):
        raise BadInput(f"{path} is a folder: if it is that of a run, give {path / f'weights{SUFFIX}'}")
    with open_tensors(path, ADVICE) as file:
        yield file, file.record(KEY, Card)


class SkipInitialisation(TorchFunctionMode):
    """Networks get no first numbers: to draw them for tensors without data, torch would load its compiler."""

    METHODS = (torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.fill_, torch.Tensor.zero_)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        is_initialising = getattr(function, "__module__", "") == nn.init.__name__ or function in self.METHODS
        return given.get("tensor", *args[:1]) if is_initialising else function(*args, **given)


MAX_SPACING_RATIO = 3.0  # how many times coarser or finer than the model's own: it has never seen structures so large
UNIT_RATIO = 16  # spacings that differ by so many times are more likely in different units


@dataclass(frozen=True)
class Trained(Method):
    """A learned method with weights, ready to register."""

    card: Card = field()  # without a default, which `Method` has
    models: ModelOnDevices = field(repr=False)
    file: str  # the name of the file that it came from
    name: str  # that by which it is asked for: of a model in the box its own, else that of its kind
    folder: Path = field(default=Path(), repr=False)  # that of the file

    @classmethod
    def of(cls, card: Card, model: nn.Module, file: str, name: str | None = None, folder: Path = Path()) -> "Trained":
        """The method of a model, laid out for use."""
        return cls(card, ModelOnDevices(channels_last(model, card.dimension)), file, name or card.method, folder)

    def __str__(self) -> str:
        return self.name

    @property
    def model(self) -> nn.Module:
        """The one on the CPU."""
        return self.models.on(CPU)

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self))

    @property
    def masks(self) -> str:
        return MASKS_OF_NETWORKS if self.is_network else MASKS_OF_SOLVERS

    @property
    def is_network(self) -> bool:
        return next(self.model.parameters(), None) is not None  # a template has no parameters

    @property
    def is_segmenter(self) -> bool:
        """Whether it finds structures in one image, and registers none."""
        return learned.parse_segmenter(self.card.method) is not None

    @property
    def weights(self) -> str | None:
        return self.file

    @property
    def segmenter(self) -> str | Path | None:
        name = self.card.segmenter
        return self.folder / name if name.endswith(SUFFIX) else name or None

    @property
    def details(self) -> dict[str, str]:
        card, yes_or_no = self.card, {True: "yes", False: "no", None: ""}
        said = {
            "configuration": "" if self.name == card.method else card.method,
            "weights": self.file,
            "trained": f"on {card.trained_on}, at {millimetres(card.spacing_mm)}, by vrnet {card.version}",
            "started from": card.started_from,
            "channels": card.channels + (" (cross-fitted)" if card.cross_fitted else ""),
            "segmenter": card.segmenter,
            "labels in training": yes_or_no[card.labels_in_training],
            "flips in training": yes_or_no[card.flips_in_training],
        }
        return {name: text for name, text in said.items() if text}

    @property
    def summary(self) -> str:
        return f"trained on {self.card.trained_on}: {self.card.dimension}D at {millimetres(self.card.spacing_mm)}"

    def build(self, d: int, device: torch.device = CPU) -> "AtSpacing":
        if self.is_segmenter:
            raise BadInput(f"{self} in {self.file} {learned.REGISTERS_NOTHING}")
        if d != self.card.dimension:
            advice = 'give it volumes, and register them whole (without `slices="each"`; of arrays, slice_axis=)'
            if self.card.dimension == 2:
                advice = 'register slices one by one (`slices="each"`; of arrays, slice_axis=)'
            raise BadInput(f"{self} in {self.file} is a {self.card.dimension}D model: {advice}")
        return AtSpacing(self.models.on(device).eval(), self.card.spacing_mm)


class AtSpacing(nn.Module):
    """A model that sees images at its own spacing, in mm: others are resized to it, and the field is brought back."""

    def __init__(self, model: nn.Module, spacing: tuple[float, ...]) -> None:
        super().__init__()
        self.model, self.spacing = model, spacing

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        shape = tuple(I0.shape[2:])
        own = shape_at(self.spacing, shape, spacing or self.spacing)
        if own == shape:
            return self.model(I0, I1, self.spacing, masks)
        seen = masks and masks.map(lambda w: resize(w, own))
        return resize_field(self.model(resize(I0, own), resize(I1, own), self.spacing, seen), shape)


def shape_at(wanted: tuple[float, ...], shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """The shape, over the same extent, whose voxels are as nearly as can be as far apart as wanted. An axis within 5 %
    of that stays: hearts differ in size by more, and interpolating would only blur. A size within 1 % of a multiple of
    16 becomes that multiple, since a U-Net pads up to the next."""
    if not is_in_reach(wanted, spacing):
        own, given = millimetres(wanted), millimetres(spacing)
        raise BadInput(f"the model works at {own} and the images have {given}: are they in mm?")
    found = []
    for n, h, best in zip(shape, spacing, wanted, strict=True):
        exact = (n - 1) * h / best + 1
        multiple = 16 * round(exact / 16)
        size = multiple if abs(multiple - exact) <= 0.01 * exact else round(exact)
        found.append(n if abs(h / best - 1) <= 0.05 else max(2, size))
    return tuple(found)


def is_in_reach(wanted: tuple[float, ...], spacing: tuple[float, ...], ratio: float = UNIT_RATIO) -> bool:
    """Whether resizing from one to the other makes sense: the spacings differ by less than a ratio."""
    return all(1 / ratio < h / own < ratio for h, own in zip(spacing, wanted, strict=True))


def warn_if_far(method: Method, spacing: Spacing) -> None:
    """Warn of voxels that are far coarser or finer than those that a network was trained at."""
    own = method.own_spacing
    if own is None or spacing is None or len(own) != len(spacing):  # another dimension is refused by `build`
        return
    if not is_in_reach(own, spacing, MAX_SPACING_RATIO):
        told = f"{method} was trained on voxels of {millimetres(own)}; these are of {millimetres(spacing)}"
        warn_of_input(f"{told}, three or more times coarser or finer along an axis: it may go wrong in them")


def millimetres(spacing: tuple[float, ...]) -> str:
    return " x ".join(f"{h:g}" for h in spacing) + " mm"


def load_method(path: str | PathLike[str], name: str | None = None) -> Trained:
    """The learned method in a file of weights, which `vrnet train` writes: ready to register."""
    model, card = load_weights(Path(path))
    return Trained.of(card, model, Path(path).name, name, Path(path).absolute().parent)
