"""Training, start to end: step after step, and now and then a look at how the model does on others.

Lightning Fabric brings devices, nodes and mixed precision.
"""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import current_thread, main_thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from vrnet import __version__
from vrnet.checking import device_named
from vrnet.data.prepared import Prepared
from vrnet.errors import BadInput
from vrnet.methods.learned import Learned
from vrnet.methods.weights import Card, save_weights
from vrnet.training.logs import Logs, thetas
from vrnet.training.pairs import Pairs
from vrnet.training.run import WEIGHTS, Row, Run
from vrnet.training.settings import Training
from vrnet.training.trainer import Trainer
from vrnet.training.validation import validated

if TYPE_CHECKING:
    from lightning.fabric import Fabric

AGREE_EVERY = 20
LOOK_EVERY = 0.5
NORMALISATION = "1st to 99th percentile of both images together to [0, 1]"


@dataclass(frozen=True)
class Moment:
    """Where training stands."""

    step: int
    steps: int
    loss: float
    scores: Row
    """The latest row of metrics.csv."""
    thetas: list[float]
    steps_per_second: float


@dataclass(frozen=True)
class Fitted:
    """What became of a run."""

    step: int
    is_finished: bool
    best: Row
    """The row of metrics.csv that weights.safetensors belongs to; empty before the first."""


Watch = Callable[[Moment], None]


def fit(
    method: Learned,
    train: Prepared,
    val: Prepared,
    settings: Training,
    folder: Path,
    *,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    resume: bool = False,
    watch: Watch = lambda moment: None,
) -> Fitted:
    """Train a method; the folder then holds what `Run` says. Ctrl-C and SIGTERM leave a run that can be resumed."""
    fabric = launched(device, devices, nodes, settings)
    if settings.batch % fabric.world_size:
        raise BadInput(f"{fabric.world_size} devices cannot share a batch of {settings.batch}: choose a multiple")
    pairs, run = Pairs.of(train).near(fabric.device), Run(folder)
    if fabric.is_global_zero:
        run.begin(described(method, train, val, settings), resume)
    fabric.barrier()
    with asked_to_stop() as is_asked, own_stream(fabric.device):
        course = Course(Trainer(fabric, method, pairs, settings), val, run, card_of(method, train, settings))
        return course.go(watch, is_asked)


class Course:
    """The steps of a run, from where it was left."""

    def __init__(self, trainer: Trainer, val: Prepared, run: Run, card: Card) -> None:
        self.trainer, self.val, self.run, self.card = trainer, val, run, card
        self.fabric, self.settings = trainer.fabric, trainer.settings
        self.done, self.total = run.restore(trainer.model, trainer.optimizer)
        self.total = self.total.to(self.fabric.device)
        self.rows = [row for row in run.rows() if row["step"] <= self.done]
        self.logs = Logs(run.folder, self.done) if self.fabric.is_global_zero else None

    def go(self, watch: Watch, is_asked: Callable[[], bool]) -> Fitted:
        steps, looked, before = self.settings.steps, perf_counter(), self.done
        while self.done < steps:
            loss = self.trainer.step(self.done)
            self.total += loss
            self.done += 1
            if self.done % self.settings.validate_every == 0 or self.done == steps:
                self.look()
            if perf_counter() - looked > LOOK_EVERY or self.done == steps:
                value, now = loss.item(), perf_counter()
                watch(
                    Moment(
                        self.done,
                        steps,
                        value,
                        self.rows[-1] if self.rows else {},
                        thetas(self.trainer.model),
                        (self.done - before) / (now - looked),
                    )
                )
                looked, before = now, self.done
            if self.is_to_stop(is_asked):
                self.keep()
                break
        return Fitted(self.done, self.done == steps, self.best)

    def look(self) -> None:
        """Validate, write the row, keep the model if it is the best so far, and where the run stands."""
        since = self.done - (self.rows[-1]["step"] if self.rows else 0)
        loss = (self.total / since).item()
        self.total.zero_()
        if self.logs is not None:
            scores = validated(self.trainer.model, self.val, self.trainer.loss, self.fabric.device)
            self.rows.append({"step": self.done, "loss": loss, "rate": self.settings.rate_at(self.done - 1), **scores})
            self.run.write_rows(self.rows)
            if self.best is self.rows[-1]:
                save_weights(self.trainer.model, self.card, self.run.folder / WEIGHTS)
            self.logs.write(self.rows[-1], self.trainer.model, self.val.samples[0])
        else:
            self.rows.append({"step": self.done})
        self.keep()

    def keep(self) -> None:
        """Write where the run stands, once, and let the others wait."""
        if self.fabric.is_global_zero:
            self.run.save(self.done, self.trainer.model, self.trainer.optimizer, self.total)
        self.fabric.barrier()

    def is_to_stop(self, is_asked: Callable[[], bool]) -> bool:
        """Whether this process or another was asked to stop; several agree now and then."""
        if self.fabric.world_size == 1:
            return is_asked()
        if self.done % AGREE_EVERY:
            return False
        return bool(self.fabric.all_reduce(torch.tensor(float(is_asked())), reduce_op="sum"))

    @property
    def best(self) -> Row:
        """The row of highest Dice on validation, or of lowest loss where it has no labels; the first of equals."""
        has_dice = bool(self.rows) and "val_dice" in self.rows[0]
        score = (lambda row: row["val_dice"]) if has_dice else (lambda row: -row["val_loss"])
        return max(self.rows, key=score, default={})


def launched(device: str, devices: int, nodes: int, settings: Training) -> "Fabric":
    """Lightning's Fabric, on one device or as one process of many."""
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise BadInput("training needs Lightning: install vrnet[train]") from error
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    on_gpu = device_named(device).type == "cuda"
    if on_gpu and devices > torch.cuda.device_count():
        raise BadInput(f"there are {torch.cuda.device_count()} GPUs here, not {devices}: choose fewer --devices")
    torch.set_float32_matmul_precision("high")
    fabric = Fabric(
        accelerator="cuda" if on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision="bf16-mixed" if on_gpu and settings.precision == "bf16" else "32-true",
    )
    fabric.launch()
    return fabric


def described(method: Learned, train: Prepared, val: Prepared, settings: Training) -> dict[str, Any]:
    """config.json: all that makes the run what it is."""
    parts = {part.split: [sample.name for sample in part.samples] for part in (train, val)}
    return {
        "method": str(method),
        "dimension": train.samples[0].fixed.dim() - 2,
        "data": train.data,
        "subjects": parts,
        "training": asdict(settings),
        "version": __version__,
    }


def card_of(method: Learned, train: Prepared, settings: Training) -> Card:
    first = train.samples[0]
    return Card(
        method=str(method),
        dimension=first.fixed.dim() - 2,
        spacing_mm=first.spacing,
        normalisation=NORMALISATION,
        trained_on=f"{train.data}, {train.split}: {len(train.samples)} subjects, {settings.steps} steps",
        version=__version__,
    )


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came: the step under way is finished first. A second Ctrl-C is not waited for."""
    asked: list[int] = []
    if current_thread() is not main_thread():
        yield lambda: False
        return

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """A stream of its own on a GPU, since what is recorded must not run on the default one."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
