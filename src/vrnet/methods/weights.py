"""Trained models on disk: safetensors, with a card in the header that says what they are. No pickle anywhere."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from vrnet.errors import BadInput
from vrnet.files import check_file, exists, is_folder
from vrnet.images.checks import MAX_SPACING_MM, MIN_SPACING_MM, check_memory
from vrnet.methods.families import parse_learned
from vrnet.methods.learned import Learned
from vrnet.methods.method import Scaling
from vrnet.methods.template import Template, parse_template
from vrnet.tensor_files import TensorFile, open_tensors, write_tensors

SUFFIX = ".safetensors"
KEY = "vrnet"
"""Where the header of a file has the card."""
ADVICE = "give a file that this version's vrnet train wrote"


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
    labels_in_training: bool = False
    """Whether labels had a part in the loss that it, or what its training began with, was trained with."""
    flips_in_training: bool | None = None
    """Whether it was shown mirrored images in training, the last of several; None where that is not known."""
    started_from: str = ""
    """The weights that its training began with, and what these were trained on; empty where it began with none."""

    def __post_init__(self) -> None:
        h = self.spacing_mm
        in_reach = all(MIN_SPACING_MM <= x <= MAX_SPACING_MM for x in h)
        if self.dimension not in (2, 3) or len(h) != self.dimension or not in_reach:
            raise BadInput(f"a model has 2 or 3 dimensions with a spacing each, not {self.dimension} with {h} mm")
        if self.normalisation not in get_args(Scaling):
            raise BadInput(f'images are scaled jointly or each, not "{self.normalisation}"')


def save_weights(model: nn.Module, card: Card, path: Path, half: bool = False) -> None:
    """Write a model; in half precision it takes half the room."""
    check_file(path, (SUFFIX,))
    dtype = torch.float16 if half else torch.float32
    tensors = {name: cast(tensor.cpu(), dtype).contiguous() for name, tensor in model.state_dict().items()}
    write_tensors(tensors, path, {KEY: json.dumps(asdict(card))})


def load_weights(path: Path) -> tuple[nn.Module, Card]:
    """The model of a file, in single precision and for use, with its card; BadInput if it is not one of ours."""
    check_place(path)
    with open_tensors(path, ADVICE) as file:
        card = file.record(KEY, Card)
        model = build_fitting(find_learned(card, path), card, file)
        check_memory(path, path.stat().st_size)
        tensors = file.read()
    model.load_state_dict({name: cast(tensor, torch.float32) for name, tensor in tensors.items()}, assign=True)
    return model.eval(), card


def read_card(path: Path) -> Card:
    """The card of a file; its numbers are not read."""
    check_place(path)
    with open_tensors(path, ADVICE) as file:
        return file.record(KEY, Card)


def check_place(path: Path) -> None:
    """BadInput unless there is a file."""
    if not exists(path):
        raise BadInput(f"there is no {path}: check its name")
    if is_folder(path):
        raise BadInput(f"{path} is a folder: if it is that of a run, give {path / f'weights{SUFFIX}'}")


def find_learned(card: Card, path: Path) -> Learned | Template:
    """The method that a card names; BadInput if there is none."""
    try:
        found = parse_template(card.method) or parse_learned(card.method)
    except BadInput as error:
        raise BadInput(f"{path} holds no model of vrnet ({error}): {ADVICE}") from error
    if found is None:
        raise BadInput(f'{path} holds a model called "{card.method}", which this vrnet does not know: update it')
    return found


def build_fitting(method: Learned | Template, card: Card, file: TensorFile) -> nn.Module:
    """The model of a method, without its numbers: all of them are in the file. BadInput unless the file's tensors have
    the names, shapes and types of the model's, or half its precision; most that have not are refused before it is
    built."""
    found = {name: (shape, SINGLE.get(dtype, dtype)) for name, (shape, dtype) in file.layouts().items()}
    if len(found) > method.network_count:
        with torch.device("meta"), SkipInitialisation():
            model = method.build(card.dimension, torch.device("meta"))
        if found == {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in model.state_dict().items()}:
            return model
    told = f"the weights in {file.path} do not fit {card.method}"
    raise BadInput(f"{told}: they are of another model, or of another version of vrnet; {ADVICE}")


class SkipInitialisation(TorchFunctionMode):
    """Networks get no first numbers: to draw them for tensors without data, torch would load its compiler."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        is_initialising = getattr(function, "__module__", "") == nn.init.__name__ or function in INITIALISING
        return given.get("tensor", *args[:1]) if is_initialising else function(*args, **given)


INITIALISING = (torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.fill_, torch.Tensor.zero_)


SINGLE = {torch.float16: torch.float32}
"""What numbers in a file become."""


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Numbers in another precision; counts as they are."""
    return tensor.to(dtype if tensor.is_floating_point() else tensor.dtype)
