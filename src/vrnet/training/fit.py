"""Training, start to end: step after step, and now and then a look at how the model does on others.

Lightning Fabric brings devices, nodes and mixed precision.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import check_gpus, find_device, in_main_thread, own_stream
from vrnet.errors import BadInput
from vrnet.methods.method import Trainable
from vrnet.methods.weights import Card, save_weights
from vrnet.provenance import __version__
from vrnet.training.logs import Logs, thetas
from vrnet.training.pairs import Pairs
from vrnet.training.run import WEIGHTS, Row, Run, best_row
from vrnet.training.settings import Training
from vrnet.training.trainer import Trainer
from vrnet.training.validation import Scores, validated

if TYPE_CHECKING:
    from lightning.fabric import Fabric

AGREE_EVERY = 20
LOOK_EVERY = 0.5


@dataclass(frozen=True)
class TrainingStatus:
    """Where training stands."""

    step: int
    steps: int
    loss: float
    scores: Row
    """The latest row of metrics.csv."""
    thetas: list[float]
    steps_per_second: float


@dataclass(frozen=True)
class TrainingResult:
    """What became of a run."""

    step: int
    is_finished: bool
    best: Row
    """The row of metrics.csv that weights.safetensors belongs to; empty before the first."""


Watch = Callable[[TrainingStatus], None]


def fit(
    method: Trainable,
    train: PreparedSplit,
    val: PreparedSplit,
    settings: Training,
    folder: Path,
    *,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    resume: bool = False,
    watch: Watch = lambda moment: None,
) -> TrainingResult:
    """Train a method; the folder then holds what `Run` says. Ctrl-C and SIGTERM leave a run that can be resumed."""
    pairs, run, config = Pairs.of(train), Run(folder), described(method, train, val, settings)
    check_shares(settings.batch, devices, nodes)
    run.check(resume)
    run.check_same(config)
    fabric = launched(device, devices, nodes, settings)  # others start here, and are past these checks when it returns
    if fabric.is_global_zero:
        run.begin(config)
    fabric.barrier()
    with asked_to_stop() as is_asked, own_stream(fabric.device):
        trainer = Trainer(fabric, method, pairs.near(fabric.device), settings)
        course = TrainingLoop(trainer, val.load(), run, card_of(method, train, settings))
        return course.go(watch, is_asked)


class Pace:
    """Steps a second since the last look; a look waits for the GPU, so it is due now and then only."""

    def __init__(self, done: int) -> None:
        self.looked, self.done = perf_counter(), done

    @property
    def is_due(self) -> bool:
        return perf_counter() - self.looked > LOOK_EVERY

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done meanwhile takes no time."""
        start = perf_counter()
        yield
        self.looked += perf_counter() - start

    def since(self, done: int) -> float:
        """Steps a second since this was last asked."""
        before, self.looked = self.looked, perf_counter()
        steps, self.done = done - self.done, done
        return steps / (self.looked - before)


class TrainingLoop:
    """The steps of a run, from where it was left."""

    def __init__(self, trainer: Trainer, val: PreparedSplit, run: Run, card: Card) -> None:
        self.trainer, self.val, self.run, self.card = trainer, val, run, card
        self.fabric, self.settings = trainer.fabric, trainer.settings
        self.done, total, self.rows = run.restore(trainer.model, trainer.optimizer)
        self.total = total.to(self.fabric.device)
        self.logs = Logs(run.folder, self.done) if self.fabric.is_global_zero else None
        self.pace = Pace(self.done)

    @property
    def is_finished(self) -> bool:
        return self.done == self.settings.steps

    def go(self, watch: Watch, is_asked: Callable[[], bool]) -> TrainingResult:
        """Every step that is left, unless asked to stop."""
        while not self.is_finished:
            loss = self.advance(*self.trainer.draw(self.done))
            if self.pace.is_due or self.is_finished:
                watch(self.moment(loss))
            if self.is_to_stop(is_asked):
                self.keep()
                break
        return self.fitted

    def advance(self, I0: Tensor, I1: Tensor) -> Tensor:
        """The next step, with these pairs, and a look where one is due; its loss."""
        loss = self.trainer.learn(self.done, I0, I1)
        self.total += loss
        self.done += 1
        if self.done % self.settings.validate_every == 0 or self.is_finished:
            with self.pace.paused():
                self.look()
        return loss

    def moment(self, loss: Tensor) -> TrainingStatus:
        latest = self.rows[-1] if self.rows else {}
        found = loss.item(), latest, thetas(self.trainer.model)
        return TrainingStatus(self.done, self.settings.steps, *found, self.pace.since(self.done))

    @property
    def fitted(self) -> TrainingResult:
        return TrainingResult(self.done, self.is_finished, self.best)

    def look(self) -> None:
        """Validate, write the row, keep the model if it is the best so far, and where the run stands."""
        since = self.done - (self.rows[-1]["step"] if self.rows else 0)
        loss = self.shared(self.total / since).item()
        if not isfinite(loss):
            raise BadInput(f"the loss is {loss} after {self.done} steps: train in another folder at a smaller --rate")
        self.total.zero_()
        self.rows.append({"step": self.done, "loss": loss, "rate": self.settings.rate_at(self.done - 1)})
        self.rows[-1] |= self.fabric.broadcast(self.scores() if self.logs is not None else {})
        if self.logs is not None:
            if self.best is self.rows[-1]:
                save_weights(self.trainer.model, self.card, self.run.folder / WEIGHTS)
            self.run.write_rows(self.rows)  # a row is there only when its weights are
        self.keep()
        if self.logs is not None:
            self.logs.write(self.rows[-1], self.trainer.model, self.val.samples[0])

    def scores(self) -> Scores:
        return validated(self.trainer.model, self.val, self.trainer.loss, self.fabric.device)

    def keep(self) -> None:
        """Write where the run stands, once, and let the others wait."""
        total = self.shared(self.total)
        if self.fabric.is_global_zero:
            self.run.save(self.done, self.trainer.model, self.trainer.optimizer, total, self.rows)
        self.fabric.barrier()

    def shared(self, value: Tensor) -> Tensor:
        """The mean over the devices."""
        return self.fabric.all_reduce(value, reduce_op="mean")  # type: ignore[return-value]

    def is_to_stop(self, is_asked: Callable[[], bool]) -> bool:
        """Whether this process or another was asked to stop; several agree now and then."""
        if self.fabric.world_size == 1:
            return is_asked()
        if self.done % AGREE_EVERY:
            return False
        return bool(self.fabric.all_reduce(torch.tensor(float(is_asked())), reduce_op="sum"))

    @property
    def best(self) -> Row:
        """The row of highest Dice on validation, where it has labels; of equals that of lowest loss."""
        return best_row(self.rows)


def check_shares(batch: int, devices: int, nodes: int) -> None:
    """BadInput unless all devices have the same part of a batch."""
    if devices < 1 or nodes < 1:
        raise BadInput("there is nothing to compute on: --devices and --nodes are 1 at least")
    if batch % (devices * nodes):
        raise BadInput(f"{devices * nodes} devices cannot share a batch of {batch}: choose a multiple")


def launched(device: str, devices: int, nodes: int, settings: Training) -> "Fabric":
    """Lightning's Fabric, on one device or as one process of many."""
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise BadInput("training needs Lightning: pip install 'vrnet[train]' (in a checkout, -e '.[train]')") from error
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    on_gpu = find_device(device).type == "cuda"
    if on_gpu:
        check_gpus(devices)
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


def is_first_process() -> bool:
    """Of those that train together, by what Lightning, torchrun or SLURM told this one."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


def described(method: Trainable, train: PreparedSplit, val: PreparedSplit, settings: Training) -> dict[str, Any]:
    """config.json: all that makes the run what it is."""
    parts = {part.split: part.names for part in (train, val)}
    return {
        "method": str(method),
        "dimension": train.samples[0].fixed.dim() - 2,
        "data": train.data,
        "subjects": parts,
        "training": asdict(settings),
        "version": __version__,
    }


def card_of(method: Trainable, train: PreparedSplit, settings: Training) -> Card:
    first = train.samples[0]
    return Card(
        method=str(method),
        dimension=first.fixed.dim() - 2,
        spacing_mm=first.spacing,
        normalisation="each" if train.pairs_across_subjects else "jointly",
        trained_on=f"{train.data}, {train.split}: {len(train.samples)} subjects, {settings.steps} steps",
        version=__version__,
    )


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came: the step under way is finished first. A second Ctrl-C is not waited for."""
    asked: list[int] = []
    if not in_main_thread():
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
