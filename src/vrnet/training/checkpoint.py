"""checkpoint.safetensors: everything that the next step of a run depends on.

Written here and not by Lightning's fabric.save and fabric.load(weights_only=True): these write by way of the system's
temporary folder, which is not atomic across disks; they replace the optimiser's settings by those of the file, which
must be those of this device (a rate in the memory of the CPU cannot change a step that a GPU has recorded); and they
unpickle, whereas safetensors holds nothing that could be executed.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vrnet.errors import BadInput
from vrnet.files import exists
from vrnet.schema import convert_record
from vrnet.tensor_files import Layout, open_tensors, write_tensors
from vrnet.training.run import Row, ValidationRow

KEY = "run"
"""Where the header of a file has the progress."""
ADVICE = "train again in another folder"
OPTIMIZER_PARTS = "step", "exp_avg", "exp_avg_sq"
"""What Adam keeps of each parameter."""


class RunState(NamedTuple):
    """How far a run is, beside its model and optimiser."""

    step: int
    """Steps done."""
    loss_sum: Tensor
    """The sum of the losses since the last row."""
    rows: list[Row]
    """One row per validation."""


@dataclass(frozen=True)
class Progress:
    """What a checkpoint says of its run: `RunState` without the tensor."""

    step: int
    rows: tuple[dict[str, int | float], ...]

    def __post_init__(self) -> None:
        steps = [0, *(convert_record(row, ValidationRow).step for row in self.rows), self.step]
        if not all(a < b for a, b in pairwise(steps[:-1])) or steps[-1] < steps[-2]:
            raise BadInput(f"its validations are at steps {steps[1:-1]}, and it is at step {self.step}")


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, state: RunState) -> None:
    """Write where a run stands, whole or not at all."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors_of(model, optimizer, state).items()}
    write_tensors(held, path, {KEY: json.dumps(asdict(Progress(state.step, tuple(state.rows))))})


def tensors_of(model: nn.Module, optimizer: Optimizer, state: RunState) -> dict[str, Tensor]:
    """Every tensor of a run by its name in the file."""
    tensors = {"total": state.loss_sum} | {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, kept in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in kept.items()}
    return tensors


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, steps: int) -> RunState:
    """Bring model and optimiser to where a run of so many steps was left; without a checkpoint it is at its beginning.

    Nothing is changed unless the file is whole, and of this model."""
    if not exists(path):
        return RunState(0, torch.zeros(()), [])
    with open_tensors(path, ADVICE) as file:
        progress = file.record(KEY, Progress)
        if progress.step > steps:
            raise file.refusal(f"is at step {progress.step} of a run that ends after {steps}")
        found = file.layouts()
        if found != layouts_of(model, {name.split(".")[1] for name in found if name.startswith("optimizer.")}):
            raise file.refusal("holds another model than the run has")
        tensors = file.read()
    model.load_state_dict(select_prefix("model.", tensors))
    load_optimizer(optimizer, select_prefix("optimizer.", tensors))
    return RunState(progress.step, tensors["total"], list(progress.rows))


def layouts_of(model: nn.Module, moved: set[str]) -> dict[str, Layout]:
    """Shape and type of every tensor of a model's checkpoint, given the numbers of the parameters that were moved: of
    others the optimiser keeps nothing."""
    layouts: dict[str, Layout] = {"total": ((), torch.float32)}
    layouts |= {f"model.{name}": (tuple(tensor.shape), tensor.dtype) for name, tensor in model.state_dict().items()}
    for number, parameter in enumerate(model.parameters()):
        shapes = (), tuple(parameter.shape), tuple(parameter.shape)
        for part, shape in zip(OPTIMIZER_PARTS, shapes, strict=True) if str(number) in moved else ():
            layouts[f"optimizer.{number}.{part}"] = shape, torch.float32
    return layouts


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimiser back what it kept of each parameter, named NUMBER.NAME; its settings stay as they are."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, part = name.split(".")
        state.setdefault(int(number), {})[part] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    for parameter, kept in optimizer.state.items():
        for name in kept.keys() - {"step"}:  # fused steps take for granted that it lies in memory as the parameter does
            kept[name] = torch.empty_like(parameter).copy_(kept[name])


def select_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
