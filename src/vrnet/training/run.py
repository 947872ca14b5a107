"""A run on disk: config.json, metrics.csv, weights.safetensors (the best on validation), checkpoint.safetensors."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vrnet.errors import BadInput
from vrnet.files import atomic_write, check_folder, exists

CONFIG, METRICS, WEIGHTS, CHECKPOINT = "config.json", "metrics.csv", "weights.safetensors", "checkpoint.safetensors"
FILES = (CONFIG, METRICS, WEIGHTS, CHECKPOINT)
Row = dict[str, int | float]
"""A row of metrics.csv: the step, the loss since the row before, the rate, scores on validation."""


@dataclass(frozen=True)
class Run:
    """The folder of a run."""

    folder: Path

    @property
    def is_begun(self) -> bool:
        return any(exists(self.folder / name) for name in FILES)

    def check(self, resume: bool) -> None:
        """BadInput unless the folder can be written in, and holds no run that is not to be resumed."""
        check_folder(self.folder, FILES)
        if self.is_begun and not resume:
            raise BadInput(f"{self.folder} holds a run: add --resume to go on with it, or choose another folder")

    def check_same(self, config: Mapping[str, Any]) -> None:
        """BadInput if the run was begun otherwise."""
        if not self.is_begun:
            return
        begun, asked = flat(self.config()), flat(as_json(config))
        for key, value in asked.items():
            if begun.get(key) != value:
                was = f"other {key}" if isinstance(value, dict) else f"{key} {begun.get(key)}, not {value}"
                raise BadInput(f"{self.folder} was begun with {was}: resume with the same, or choose another folder")

    def begin(self, config: Mapping[str, Any]) -> None:
        """Write what is to be done, unless that was begun before."""
        if not self.is_begun:
            with atomic_write(self.folder / CONFIG) as temporary:
                temporary.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def config(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / CONFIG).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(f"{self.folder / CONFIG} cannot be read: choose another folder") from error

    def write_rows(self, rows: list[Row]) -> None:
        """metrics.csv, for the reader: nothing is read from it."""
        with (
            atomic_write(self.folder / METRICS) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def save(self, step: int, model: nn.Module, optimizer: Optimizer, total: Tensor, rows: list[Row]) -> None:
        """Everything that the next step depends on; the sum of the losses since the last validation; and what was
        measured so far, a row a validation."""
        from safetensors.torch import save_file

        tensors = {"total": total} | {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in state.items()}
        with atomic_write(self.folder / CHECKPOINT) as temporary:
            held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            save_file(held, temporary, metadata={"step": str(step), "rows": json.dumps(rows)})

    def restore(self, model: nn.Module, optimizer: Optimizer) -> tuple[int, Tensor, list[Row]]:
        """Go back to where the run was left; the steps done, the sum of the losses since the last row, and the rows."""
        from safetensors import SafetensorError, safe_open

        if not exists(self.folder / CHECKPOINT):
            return 0, torch.zeros(()), []
        try:
            with safe_open(self.folder / CHECKPOINT, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                step, rows = (json.loads(file.metadata()[name]) for name in ("step", "rows"))
            model.load_state_dict(below("model.", tensors))
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in below("optimizer.", tensors).items():
                number, part = name.split(".")
                state.setdefault(int(number), {})[part] = tensor
            optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
            lay_out(optimizer)
            return step, tensors["total"], rows
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
            place = self.folder / CHECKPOINT
            raise BadInput(f"{place} is damaged, so the run cannot go on: train again in another folder") from error


def lay_out(optimizer: Optimizer) -> None:
    """Give what the optimiser keeps of each parameter its layout in memory, which fused steps take for granted."""
    for parameter, kept in optimizer.state.items():
        for name in kept.keys() - {"step"}:
            kept[name] = torch.empty_like(parameter).copy_(kept[name])


def best_row(rows: list[Row]) -> Row:
    """That of highest Dice on validation, where it has labels; of equals that of lowest loss."""
    return max(rows, key=lambda row: (row.get("val_dice", 0.0), -row["val_loss"]), default={})


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the settings of the training beside the rest."""
    return {key: value for key, value in config.items() if key != "training"} | dict(config.get("training", {}))


def as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """As it reads when it comes back from a file."""
    return json.loads(json.dumps(config))
