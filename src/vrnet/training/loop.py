"""The training loop: step after step; now and then a validation, a checkpoint, and word of how it goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.errors import BadInput
from vrnet.files import write_rows
from vrnet.methods.weights import Card, save_weights
from vrnet.training.checkpoint import RunState, load_checkpoint, save_checkpoint
from vrnet.training.logs import Logs, thetas
from vrnet.training.run import CHECKPOINT, METRICS, WEIGHTS, Row, best_row
from vrnet.training.trainer import Trainer
from vrnet.training.validation import Scores, validate

AGREE_EVERY_STEPS = 20
"""How often several processes ask each other whether to stop."""
REPORT_EVERY_SECONDS = 0.5
"""How often whoever watches hears of the training: each report waits for the GPU."""


@dataclass(frozen=True)
class TrainingStatus:
    """Where training stands."""

    step: int
    steps: int
    loss: float
    scores: Row
    """The latest row of metrics.csv; empty before the first."""
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


class Speedometer:
    """Steps per second between two reports, validations not counted."""

    def __init__(self, step: int) -> None:
        self.since, self.step = perf_counter(), step

    @property
    def is_due(self) -> bool:
        """Whether the last report is long enough ago."""
        return perf_counter() - self.since > REPORT_EVERY_SECONDS

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count the time that passes meanwhile."""
        start = perf_counter()
        yield
        self.since += perf_counter() - start

    def read(self, step: int) -> float:
        """Steps per second since the last reading, now that so many steps are done."""
        before, self.since = self.since, perf_counter()
        taken, self.step = step - self.step, step
        return taken / (self.since - before)


class TrainingLoop:
    """The steps of a run, from where it was left."""

    def __init__(self, trainer: Trainer, val: PreparedSplit, folder: Path, card: Card) -> None:
        self.trainer, self.val, self.folder, self.card = trainer, val, folder, card
        self.fabric, self.settings = trainer.fabric, trainer.settings
        found = load_checkpoint(folder / CHECKPOINT, trainer.model, trainer.optimizer, self.settings.steps)
        self.step, loss_sum, self.rows = found
        self.loss_sum = loss_sum.to(self.fabric.device)
        self.logs = Logs(folder, self.step) if self.fabric.is_global_zero else None
        self.speed = Speedometer(self.step)

    @property
    def is_finished(self) -> bool:
        return self.step == self.settings.steps

    @property
    def result(self) -> TrainingResult:
        return TrainingResult(self.step, self.is_finished, best_row(self.rows))

    def run(self, watch: Watch, stop_requested: Callable[[], bool]) -> TrainingResult:
        """Take every step that is left, unless asked to stop; then write a checkpoint."""
        while not self.is_finished:
            loss = self.advance(*self.trainer.draw(self.step))
            if self.speed.is_due or self.is_finished:
                watch(self.status(loss))
            if self.agree_to_stop(stop_requested):
                self.checkpoint()
                break
        return self.result

    def advance(self, *pair: Tensor) -> Tensor:
        """Take the next step with these pairs, and validate where that is due; the loss of the step."""
        loss = self.trainer.update(self.step, *pair)
        self.loss_sum += loss
        self.step += 1
        if self.step % self.settings.validate_every == 0 or self.is_finished:
            with self.speed.pause():
                self.validate()
        return loss

    def status(self, loss: Tensor) -> TrainingStatus:
        """Where training stands, given the loss of the last step."""
        scores = self.rows[-1] if self.rows else {}
        found = loss.item(), scores, thetas(self.trainer.model)
        return TrainingStatus(self.step, self.settings.steps, *found, self.speed.read(self.step))

    def validate(self) -> None:
        """Measure the model, write the row, its weights if it is the best so far, and a checkpoint."""
        self.rows.append({"step": self.step, "loss": self.mean_loss(), "rate": self.settings.rate_at(self.step - 1)})
        self.loss_sum.zero_()
        self.rows[-1] |= self.fabric.broadcast(self.scores() if self.logs is not None else {})
        if self.logs is not None:
            if best_row(self.rows) is self.rows[-1]:
                save_weights(self.trainer.model, self.card, self.folder / WEIGHTS)
            write_rows(self.rows, self.folder / METRICS)  # after the weights, so that each row has had its own
        self.checkpoint()
        if self.logs is not None:
            self.logs.write(self.rows[-1], self.trainer.model, self.val.samples[0])

    def mean_loss(self) -> float:
        """The mean loss since the last row, over all devices; BadInput if the training diverged."""
        since = self.step - (self.rows[-1]["step"] if self.rows else 0)
        loss = self.mean_over_devices(self.loss_sum / since).item()
        self.check_loss(loss)
        return loss

    def check_loss(self, loss: float) -> None:
        """BadInput if a loss is not finite: the training diverged."""
        if not isfinite(loss):
            raise BadInput(f"the loss is {loss} after {self.step} steps: train in another folder at a smaller `rate`")

    def scores(self) -> Scores:
        """The scores of the model on the validation subjects; BadInput if they are not finite."""
        found = validate(self.trainer.model, self.val, self.trainer.loss, self.fabric.device)
        self.check_loss(found["val_loss"])
        return found

    def checkpoint(self) -> None:
        """Write where the run stands, in the first process; the others wait for it."""
        state = RunState(self.step, self.mean_over_devices(self.loss_sum), self.rows)
        if self.fabric.is_global_zero:
            save_checkpoint(self.folder / CHECKPOINT, self.trainer.model, self.trainer.optimizer, state)
        self.fabric.barrier()

    def mean_over_devices(self, value: Tensor) -> Tensor:
        return self.fabric.all_reduce(value, reduce_op="mean")  # type: ignore[return-value]

    def agree_to_stop(self, stop_requested: Callable[[], bool]) -> bool:
        """Whether this process or another was asked to stop; several agree now and then."""
        if self.fabric.world_size == 1:
            return stop_requested()
        if self.step % AGREE_EVERY_STEPS:
            return False
        return bool(self.fabric.all_reduce(torch.tensor(float(stop_requested())), reduce_op="sum"))
