"""The folder of a run: config.json, metrics.csv, weights.safetensors (best on validation), checkpoint.safetensors."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrnet.errors import BadInput
from vrnet.files import check_folder, exists, json_ready, read_json, write_json
from vrnet.locks import hold_lock, is_locked
from vrnet.schema import read_record
from vrnet.training.settings import fill_settings

CONFIG, METRICS, WEIGHTS, CHECKPOINT = "config.json", "metrics.csv", "weights.safetensors", "checkpoint.safetensors"
FILES = (CONFIG, METRICS, WEIGHTS, CHECKPOINT)
LOCK = ".lock"
"""A file that is there while a run is trained."""
Row = dict[str, int | float]
"""A row of metrics.csv: the step, the mean loss since the row before, the rate, the scores on validation."""
Setting = None | bool | int | float | str | tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class ValidationRow:
    """What a `Row` has."""

    step: int
    loss: float
    rate: float
    val_loss: float
    val_dice: float = 0.0


@dataclass(frozen=True)
class RunConfig:
    """What config.json has: all that makes a run what it is, and what has made it so far."""

    method: str
    dimension: int
    data: str
    subjects: dict[str, Any]
    training: dict[str, Setting]
    provenance: tuple[dict[str, str | None], ...]
    start_from: str | None = None


@dataclass(frozen=True)
class Run:
    """The folder of a run."""

    folder: Path

    @property
    def is_begun(self) -> bool:
        """Whether any file of a run is there."""
        return any(exists(self.folder / name) for name in FILES)

    def check(self, resume: bool) -> None:
        """BadInput unless the folder can be written in, and holds no run that is not to be resumed."""
        check_folder(self.folder, FILES)
        if self.is_begun and not resume:
            raise BadInput(f"{self.folder} holds a run: add `resume` to go on with it, or choose another folder")

    def check_unlocked(self) -> None:
        """BadInput while another process trains in the folder."""
        if is_locked(self.folder / LOCK):
            raise self._in_use()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep others from training in the folder meanwhile: BadInput for them. It ends with this process at last."""
        is_new = not exists(self.folder)
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(hold_lock(self.folder / LOCK))
            except BlockingIOError as error:
                raise self._in_use() from error
            except OSError as error:
                raise BadInput(f"cannot write to {self.folder} ({error.strerror}): choose another folder") from error
            yield
        if is_new:
            with suppress(OSError):
                self.folder.rmdir()  # which leaves a folder that has anything in it

    def _in_use(self) -> BadInput:
        return BadInput(f"{self.folder} is in use by a training that is running: wait for it, or choose another folder")

    def check_same(self, config: Mapping[str, Any]) -> None:
        """BadInput if the run was begun with another method, other data or other settings."""
        if not self.is_begun:
            return
        begun, asked = self.config(), flatten(json_ready(dict(config)))
        begun = flatten({**begun, "training": fill_settings(begun["training"])})
        for key, value in asked.items():
            if begun.get(key) != value:
                was = f"other {key}" if isinstance(value, dict) else f"{key} {begun.get(key)}, not {value}"
                raise BadInput(f"{self.folder} was begun with {was}: resume with the same, or choose another folder")

    def begin(self, config: Mapping[str, Any], provenance: Mapping[str, str | None]) -> None:
        """Write config.json. A run that goes on keeps its own, with what it is made by from now on, if that is new."""
        found = self.config() if self.is_begun else {**config, "provenance": []}
        makers = found["provenance"]
        if provenance not in makers:
            write_json(found | {"provenance": [*makers, dict(provenance)]}, self.folder / CONFIG)

    def config(self) -> dict[str, Any]:
        """What config.json holds."""
        path = self.folder / CONFIG
        found = read_json(path)
        read_record(found, RunConfig, path, "choose another folder")
        return dict(found)


def best_row(rows: list[Row]) -> Row:
    """The row of highest Dice on validation, where it has labels; of equals that of lowest loss. Empty if none."""
    return max(rows, key=lambda row: (row.get("val_dice", 0.0), -row["val_loss"]), default={})


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the settings of the training beside the rest."""
    return {key: value for key, value in config.items() if key != "training"} | dict(config.get("training", {}))
