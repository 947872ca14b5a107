"""Trained models on disk: safetensors, with a card in the header that says what they are. No pickle anywhere."""

import json
from dataclasses import MISSING, asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from vrnet.errors import BadInput
from vrnet.files import check_file, exists, is_folder, write_tensors
from vrnet.methods.learned import parse_learned
from vrnet.methods.method import Scaling

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Card:
    """What a model is, and what it expects."""

    method: str
    """The name of the method, such as R-L1-3x2, from which the model is built again."""
    dimension: int
    spacing_mm: tuple[float, ...]
    """The spacing of the images it was trained on."""
    normalisation: Scaling
    """How intensities were scaled in training, and are in use."""
    trained_on: str
    version: str
    """The version of vrnet that trained it."""
    commit: str = ""
    """The commit of the checkout that trained it; empty where there was none, or it is not known."""
    torch: str = ""
    """The version of torch, where it is known."""
    device: str = ""
    """What it was trained on, where it is known."""

    def __post_init__(self) -> None:
        h = self.spacing_mm
        if self.dimension not in (2, 3) or len(h) != self.dimension or not all(isfinite(x) and x > 0 for x in h):
            raise BadInput(f"a model has 2 or 3 dimensions with a spacing each, not {self.dimension} with {h} mm")
        if self.normalisation not in get_args(Scaling):
            raise BadInput(f'images are scaled jointly or each, not "{self.normalisation}"')


def save_weights(model: nn.Module, card: Card, path: Path, half: bool = False) -> None:
    """Write a model; in half precision it takes half the room."""
    check_file(path, (SUFFIX,))
    dtype = torch.float16 if half else torch.float32
    tensors = {name: cast(tensor.cpu(), dtype).contiguous() for name, tensor in model.state_dict().items()}
    write_tensors(tensors, path, {"vrnet": json.dumps(asdict(card))})


def load_weights(path: Path) -> tuple[nn.Module, Card]:
    """The model of a file, in single precision and for use, with its card; BadInput if it is not one of ours."""
    card, tensors = read_card(path), read_tensors(path)
    method = parse_learned(card.method)
    if method is None:
        raise BadInput(f'{path} holds a model called "{card.method}", which this vrnet does not know: update it')
    with torch.device("meta"), SkipInitialisation():  # all numbers are in the file
        model = method.build(card.dimension, torch.device("meta"))
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise BadInput(f"the weights in {path} do not fit {card.method}: they are of another model") from error
    if not all(tensor.sum().isfinite() for tensor in tensors.values()):  # one that is not makes its sum so
        raise BadInput(f"some weights in {path} are not finite: its training went wrong, take an earlier one")
    return model.eval(), card


class SkipInitialisation(TorchFunctionMode):
    """Networks get no first numbers: to draw them for tensors without data, torch would load its compiler."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        is_initialising = getattr(function, "__module__", "") == nn.init.__name__ or function in INITIALISING
        return given.get("tensor", *args[:1]) if is_initialising else function(*args, **given)


INITIALISING = (torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.fill_, torch.Tensor.zero_)


def cast(tensor: torch.Tensor, dtype: torch.dtype, copy: bool = False) -> torch.Tensor:
    """Numbers in another precision; counts as they are."""
    return tensor.to(dtype if tensor.is_floating_point() else tensor.dtype, copy=copy)


def read_card(path: Path) -> Card:
    """The card of a file."""
    from safetensors import SafetensorError, safe_open

    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    if is_folder(path):
        raise BadInput(f"{path} is a folder: if it is that of a run, give {path / f'weights{SUFFIX}'}")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
        values: dict[str, Any] = json.loads(header["vrnet"])
        values["spacing_mm"] = tuple(values["spacing_mm"])
        known = {field.name for field in fields(Card) if field.default is MISSING or field.name in values}
        return Card(**{name: values[name] for name in known})
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, BadInput) as error:
        raise BadInput(f"{path} does not hold a model of vrnet: give a file that vrnet train wrote") from error


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file in single precision, as copies: what safetensors gives is the file itself, and changes
    where it is changed."""
    from safetensors.torch import load_file

    return {name: cast(tensor, torch.float32, copy=True) for name, tensor in load_file(path).items()}
