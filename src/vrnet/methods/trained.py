"""Learned methods with their weights: u = model(I0, I1), at the spacing that the model was trained at."""

from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.devices import ModelOnDevices, channels_last
from vrnet.errors import BadInput, warn_of_input
from vrnet.fields import resize, resize_field
from vrnet.methods.method import CPU, MASKS_OF_NETWORKS, MASKS_OF_SOLVERS, Method, Scaling
from vrnet.methods.weights import Card, load_weights
from vrnet.networks.adaptors import Noise
from vrnet.variational.cascade import Spacing, initialize
from vrnet.variational.masks import Masks

SPACING_TOLERANCE = 0.05
"""An axis whose spacing is within this part of the model's is not resized."""
MAX_SPACING_RATIO = 3.0
"""How many times coarser or finer than the model's own: structures of that size in voxels it has never seen."""
UNIT_RATIO = 16
"""Spacings that differ by so many times are more likely in different units."""
UNET_MULTIPLE, ROUNDING_TOLERANCE = 16, 0.01
"""A size within this part of a multiple of 16 becomes that multiple, since a U-Net pads up to the next."""
ADVICE = {
    2: 'register slices one by one (`slices="each"`; of arrays, slice_axis=)',
    3: 'give it volumes, and register them whole (without `slices="each"`; of arrays, slice_axis=)',
}


@dataclass(frozen=True)
class Trained(Method):
    """A learned method with weights, ready to register."""

    card: Card
    models: ModelOnDevices = field(repr=False)
    file: str
    """The name of the file that it came from."""
    name: str
    """That by which it is asked for: of a model in the box its own, else that of its kind."""

    @classmethod
    def of(cls, card: Card, model: nn.Module, file: str, name: str | None = None) -> "Trained":
        """The method of a model, laid out for use."""
        return cls(card, ModelOnDevices(channels_last(model, card.dimension)), file, name or card.method)

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
    def dimensions(self) -> tuple[int, ...]:
        return (self.card.dimension,)

    @property
    def scaling(self) -> Scaling:
        return self.card.normalisation

    @property
    def own_spacing(self) -> Spacing:
        return self.card.spacing_mm

    @property
    def masks(self) -> str:
        return MASKS_OF_NETWORKS if self.is_network else MASKS_OF_SOLVERS

    @property
    def is_network(self) -> bool:
        return next(self.model.parameters(), None) is not None  # a template has no parameters

    @property
    def is_random(self) -> bool:
        return any(isinstance(module, Noise) for module in self.model.modules())

    @property
    def takes_flips(self) -> bool:
        return self.card.flips_in_training is not False

    @property
    def weights(self) -> str | None:
        return self.file

    @property
    def details(self) -> dict[str, str]:
        trained = f"on {self.card.trained_on}, at {millimetres(self.card.spacing_mm)}, by vrnet {self.card.version}"
        labels, mirrored = yes_or_no(self.card.labels_in_training), self.card.flips_in_training
        flips = {} if mirrored is None else {"flips in training": yes_or_no(mirrored)}
        start = {"started from": self.card.started_from} if self.card.started_from else {}
        kind = {} if self.name == self.card.method else {"configuration": self.card.method}
        return {**kind, "weights": self.file, "trained": trained, **start, "labels in training": labels, **flips}

    @property
    def summary(self) -> str:
        return f"trained on {self.card.trained_on}: {self.card.dimension}D at {millimetres(self.card.spacing_mm)}"

    def build(self, d: int, device: torch.device = CPU) -> "AtSpacing":
        if d != self.card.dimension:
            raise BadInput(f"{self} in {self.file} is a {self.card.dimension}D model: {ADVICE[self.card.dimension]}")
        return AtSpacing(self.models.on(device).eval(), self.card.spacing_mm)


class AtSpacing(nn.Module):
    """A model that sees images at its own spacing, in mm: others are resized to it, and the field is brought back.

    Without a spacing the images are taken to have the model's."""

    def __init__(self, model: nn.Module, spacing: tuple[float, ...]) -> None:
        super().__init__()
        self.model, self.spacing = model, spacing

    def forward(
        self,
        I0: Float[Tensor, "b 1 *s"],
        I1: Float[Tensor, "b 1 *s"],
        spacing: Spacing = None,
        masks: Masks | None = None,
    ) -> Float[Tensor, "b d *s"]:
        shape = tuple(I0.shape[2:])
        own = shape_at(self.spacing, shape, spacing or self.spacing)
        if own == shape:
            return initialize(self.model, I0, I1, self.spacing, masks)
        seen = masks and masks.map(lambda w: resize(w, own))
        return resize_field(initialize(self.model, resize(I0, own), resize(I1, own), self.spacing, seen), shape)


def shape_at(wanted: tuple[float, ...], shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """The shape, over the same extent, whose voxels are as nearly as can be as far apart as wanted.

    An axis within 5 % of that stays as it is: hearts differ in size by more, and interpolating would only blur."""
    if not is_in_reach(wanted, spacing):
        raise BadInput(
            f"the model works at {millimetres(wanted)} and the images have {millimetres(spacing)}: are they in mm?"
        )
    ratios = [h / own for h, own in zip(spacing, wanted, strict=True)]
    return tuple(
        n if abs(ratio - 1) <= SPACING_TOLERANCE else max(2, round_size((n - 1) * ratio + 1))
        for n, ratio in zip(shape, ratios, strict=True)
    )


def round_size(n: float) -> int:
    """The nearest multiple of 16 if that is within 1 %; else the nearest number."""
    multiple = UNET_MULTIPLE * round(n / UNET_MULTIPLE)
    return multiple if abs(multiple - n) <= ROUNDING_TOLERANCE * n else round(n)


def is_in_reach(wanted: tuple[float, ...], spacing: tuple[float, ...], ratio: float = UNIT_RATIO) -> bool:
    """Whether resizing from one to the other makes sense: the spacings differ by less than a ratio."""
    return all(1 / ratio < h / own < ratio for h, own in zip(spacing, wanted, strict=True))


def warn_if_far(method: Method, spacing: Spacing) -> None:
    """Warn of voxels that are far coarser or finer than those that a network was trained at."""
    own = method.own_spacing
    if own is None or spacing is None or len(own) != len(spacing):  # another dimension is refused by `build`
        return
    if not is_in_reach(own, spacing, MAX_SPACING_RATIO):
        warn_of_input(
            f"{method} was trained on voxels of {millimetres(own)}; these are of {millimetres(spacing)}, three or more "
            "times coarser or finer along an axis: it has seen none such, and may go wrong in them"
        )


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def millimetres(spacing: tuple[float, ...]) -> str:
    return " x ".join(f"{h:g}" for h in spacing) + " mm"


def load_method(path: str | PathLike[str], name: str | None = None) -> Trained:
    """The learned method in a file of weights, which `vrnet train` writes: ready to register."""
    model, card = load_weights(Path(path))
    return Trained.of(card, model, Path(path).name, name)
