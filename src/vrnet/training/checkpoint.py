"""checkpoint.safetensors: everything that the next step of a run depends on.

Written here and not by Lightning's fabric.save and fabric.load(weights_only=True): these write by way of the system's
temporary folder, which is not atomic across disks; they replace the optimiser's settings by those of the file, which
must be those of this device (a rate in the memory of the CPU cannot change a step that a GPU has recorded); and they
unpickle, whereas safetensors holds nothing that could be executed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vrnet.errors import BadInput
from vrnet.files import exists, write_tensors
from vrnet.training.run import Row


class RunState(NamedTuple):
    """How far a run is, beside its model and optimiser."""

    step: int
    """Steps done."""
    loss_sum: Tensor
    """The sum of the losses since the last row."""
    rows: list[Row]
    """One row per validation."""


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, state: RunState) -> None:
    """Write where a run stands, whole or not at all."""
    tensors = {"total": state.loss_sum} | {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, kept in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in kept.items()}
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(held, path, {"step": str(state.step), "rows": json.dumps(state.rows)})


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer) -> RunState:
    """Bring model and optimiser to where the run was left; a run without a checkpoint is at its beginning."""
    from safetensors import SafetensorError, safe_open

    if not exists(path):
        return RunState(0, torch.zeros(()), [])
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            step, rows = (json.loads(file.metadata()[name]) for name in ("step", "rows"))
        model.load_state_dict(select_prefix("model.", tensors))
        load_optimizer(optimizer, select_prefix("optimizer.", tensors))
        return RunState(step, tensors["total"], rows)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise BadInput(f"{path} is damaged, so the run cannot go on: train again in another folder") from error


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
