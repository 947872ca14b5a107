"""The folder of a run: config.json, metrics.csv, weights.safetensors (best on validation), checkpoint.safetensors;
of a method with channels also segmenter.safetensors, the network that makes them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn
from torch.optim import Optimizer

from vrnet import files
from vrnet.errors import BadInput
from vrnet.training.settings import fill_settings

CONFIG, METRICS, WEIGHTS, CHECKPOINT = "config.json", "metrics.csv", "weights.safetensors", "checkpoint.safetensors"
SEGMENTER = "segmenter.safetensors"
FILES = (CONFIG, METRICS, WEIGHTS, CHECKPOINT, SEGMENTER)
Row = dict[str, int | float]
"""A row of metrics.csv: the step, the mean loss since the row before, the rate, the scores on validation."""


@dataclass(frozen=True)
class RunConfig:
    """What config.json has: all that makes a run what it is, and what has made it so far."""

    method: str
    dimension: int
    data: str
    subjects: dict[str, Any]
    training: dict[str, Any]
    provenance: tuple[dict[str, str | None], ...]
    start_from: str | None = None
    channels: str = ""


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def is_begun(self) -> bool:
        return any(files.exists(self.folder / name) for name in FILES)

    def check(self, resume: bool) -> None:
        """BadInput unless the folder can be written in, and holds no run that is not to be resumed."""
        files.check_folder(self.folder, FILES)
        if self.is_begun and not resume:
            raise BadInput(f"{self.folder} holds a run: add `resume` to go on with it, or choose another folder")

    def check_same(self, config: Mapping[str, Any]) -> None:
        """BadInput if the run was begun with another method, other data or other settings."""
        if not self.is_begun:
            return
        begun = self.config()
        begun |= fill_settings(begun["training"])
        asked = files.json_ready(dict(config))
        for key, value in {**asked, **asked["training"]}.items():
            if key != "training" and begun.get(key) != value:
                was = f"other {key}" if isinstance(value, dict) else f"{key} {begun.get(key)}, not {value}"
                raise BadInput(f"{self.folder} was begun with {was}: resume with the same, or choose another folder")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep others from training in the folder meanwhile: BadInput for them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock", timeout=0)
        with suppress(OSError):  # where there are no locks, nobody is kept out
            try:
                lock.acquire()
            except Timeout as error:
                told = f"{self.folder} is in use by a training that is running: wait for it, or choose another folder"
                raise BadInput(told) from error
        try:
            yield
        finally:
            (self.folder / ".lock").unlink(missing_ok=True)
            lock.release()

    def begin(self, config: Mapping[str, Any], provenance: Mapping[str, str | None]) -> None:
        """Write config.json. A run that goes on keeps its own, with what it is made by from now on, if that is new."""
        found = self.config() if self.is_begun else {**config, "provenance": []}
        makers = found["provenance"]
        if provenance not in makers:
            files.write_json(found | {"provenance": [*makers, dict(provenance)]}, self.folder / CONFIG)

    def config(self) -> dict[str, Any]:
        path = self.folder / CONFIG
        found = files.read_json(path)
        files.read_record(found, RunConfig, path, "choose another folder")
        return dict(found)


def best_row(rows: list[Row]) -> Row:
    """The row of highest Dice on validation, where it has labels; of equals that of lowest loss. Empty if none."""
    return max(rows, key=lambda row: (row.get("val_dice", 0.0), -row["val_loss"]), default={})


# checkpoint.safetensors: everything that the next step of a run depends on.
#
# Not Lightning's fabric.save and fabric.load: these unpickle, and replace the optimiser's settings by those of a file,
# which must be those of this device (a rate in the memory of the CPU cannot change a step that a GPU has recorded).

KEY = "run"  # where the header of a file has the progress


@dataclass(frozen=True)
class Progress:
    """How far a run is: what the header of a checkpoint says."""

    step: int
    rows: list[Row]


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, progress: Progress, loss_sum: Tensor) -> None:
    """Write where a run stands, whole or not at all; `loss_sum` is that since the last row."""
    tensors = {"total": loss_sum} | {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, kept in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in kept.items()}
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    files.write_tensors(held, path, {KEY: json.dumps(asdict(progress))})


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, steps: int) -> tuple[Progress, Tensor]:
    """Bring model and optimiser to where a run of so many steps was left; how far that is, and the sum of losses.

    Without a checkpoint it is at its beginning. Nothing is changed unless the file is whole, and of this model."""
    if not files.exists(path):
        return Progress(0, []), torch.zeros(())
    with files.open_tensors(path, "train again in another folder") as file:
        progress = file.record(KEY, Progress)
        if progress.step > steps:
            raise file.refusal(f"is at step {progress.step} of a run that ends after {steps}")
        layouts = file.layouts()
        expected = {"total": torch.zeros(())} | {f"model.{name}": x for name, x in model.state_dict().items()}
        for number, parameter in enumerate(model.parameters()):
            if f"optimizer.{number}.step" in layouts:  # of parameters that never had a gradient Adam keeps nothing
                kept = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
                expected |= {f"optimizer.{number}.{name}": x for name, x in kept.items()}
        if layouts != {name: (tuple(x.shape), x.dtype) for name, x in expected.items()}:
            raise file.refusal("holds another model than the run has")
        tensors = file.read()
    model.load_state_dict({name.removeprefix("model."): x for name, x in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, part = name.split(".")
            state.setdefault(int(index), {})[part] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    for moved, moments in optimizer.state.items():
        for part in moments.keys() - {"step"}:  # fused steps take for granted that they lie in memory as the parameter
            moments[part] = torch.empty_like(moved).copy_(moments[part])
    return progress, tensors["total"]
