"""Train one method on one data set, in one folder: steps, validations, checkpoints, and word of how it goes.

Lightning's Fabric brings devices, nodes and mixed precision. Its Trainer is not used: it resumes by unpickling a
checkpoint, and does not go on to the bit with batches that each step draws by its number."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite, isnan, nan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from numpy.random import SeedSequence
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam
from torch.utils.checkpoint import checkpoint

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import WARM_UP_CALLS, Lookahead, channels_last, find_device, in_main_thread, own_stream, record_graph
from vrnet.errors import BadInput, check_range
from vrnet.files import exists, write_bytes, write_rows
from vrnet.methods.method import Card, Trainable, made_by_fields
from vrnet.methods.names import bundled_file, is_bundled
from vrnet.methods.weights import load_weights, read_card, save_weights, template_shape
from vrnet.provenance import how_to_install, provenance
from vrnet.training.augmentation import augment, draw_transform
from vrnet.training.loss import AnyLoss, loss_of
from vrnet.training.pairs import Pairs
from vrnet.training.run import (
    CHECKPOINT,
    METRICS,
    SEGMENTER,
    WEIGHTS,
    Progress,
    Row,
    Run,
    best_row,
    load_checkpoint,
    save_checkpoint,
)
from vrnet.training.settings import Training
from vrnet.variational.cascade import Cascade, Spacing
from vrnet.variational.linearize import Field, Images
from vrnet.variational.regularizers import Memory

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from vrnet.training.channels import Segmenters

REPORT_EVERY_SECONDS = 0.5  # how often whoever watches hears of the training: each report waits for the GPU


@dataclass(frozen=True)
class TrainingStatus:
    step: int
    steps: int
    loss: float
    scores: Row  # the latest row of metrics.csv; empty before the first
    steps_per_second: float  # validations not counted


class TrainingResult(NamedTuple):
    """What became of a run. `best` is the row of metrics.csv that its weights belong to, empty before the first."""

    step: int
    is_finished: bool
    best: Row


Watch = Callable[[TrainingStatus], None]


def fit(
    method: Trainable, train: PreparedSplit, val: PreparedSplit, settings: Training, folder: Path, *,
    start_from: str | Path | None = None, segmenters: "Segmenters | None" = None, device: str = "auto",
    devices: int = 1, nodes: int = 1, resume: bool = False, watch: Watch = lambda status: None,
) -> TrainingResult:  # fmt: skip
    """Train a method; the folder then holds what `run.py` says. Ctrl-C and SIGTERM leave a run that can be resumed.

    `start_from` names weights to begin with: a bundled model or a file. `segmenters` made the further channels of the
    images, if there are any: that of all subjects then lies beside the weights, whose card names it. `watch` is called
    with a TrainingStatus about twice a second."""
    run, first = Run(folder), train.samples[0]
    spacing, d, channels = first.spacing, len(first.spacing), first.fixed.shape[1] - 1
    if method.channels != channels:
        told = f"{method} takes images with {method.channels} further channels, and these have {channels}"
        raise BadInput(f'{told}: choose another method, or give `channels="anatomy"`')
    start = None if start_from is None else find_start(str(start_from))
    start_card = start and read_card(start)
    if start_card and (start_card.method, start_card.dimension) != (str(method), d):
        holds, wanted = f"{start_card.method} in {start_card.dimension}D", f"{method} in {d}D"
        other = "" if template_shape(start_card.method) else f"train {start_card.method}, or "
        raise BadInput(f"{start_from} holds {holds}, which cannot start {wanted}: {other}give other weights")
    config = {
        "method": str(method), "dimension": d, "data": train.data,
        "subjects": {part.split: part.names for part in (train, val)}, "training": asdict(settings),
        "start_from": None if start_from is None else str(start_from),
    } | ({"channels": str(segmenters)} if segmenters else {})  # fmt: skip
    loss_of(method, settings)  # which fails at once where there is no such term
    pairs = Pairs.from_split(train, settings.uses_labels)
    check_range({"devices": devices, "nodes": nodes}, 1)
    if settings.batch % (devices * nodes):
        raise BadInput(f"{devices * nodes} devices cannot share a batch of {settings.batch}: choose a multiple")
    run.check(resume)
    run.check_same(config)
    is_first = devices * nodes == 1 or is_first_process()
    with run.lock() if is_first else nullcontext(), keep_settings():
        run.check(resume)  # again: another run may have begun and ended there meanwhile
        fabric = launch_fabric(device, devices, nodes, settings)  # others start here: they make the checks too
        with catch_stop_signals() as stop_requested, own_stream(fabric.device):
            made_by = provenance(fabric.device)
            if fabric.world_size > 1:
                made_by["device"] = f"{fabric.world_size} x {made_by['device']}"
            if fabric.is_global_zero:
                run.begin(config, made_by)
                if segmenters:
                    write_bytes(segmenters.all.read_bytes(), folder / SEGMENTER)
            fabric.barrier()
            trainer = Trainer(fabric, method, pairs.move_to(fabric.device), settings)
            if start and not exists(folder / CHECKPOINT):
                trainer.model.load_state_dict(load_weights(start)[0].state_dict())
            trained_on = f"{train.data}, {train.split}: {len(train.samples)} subjects, {settings.steps} steps"
            card = Card(
                str(method), d, spacing, "each" if train.pairs_across_subjects else "jointly", trained_on,
                labels_in_training=settings.uses_labels
                or segmenters is not None
                or bool(start_card and start_card.labels_in_training),
                flips_in_training=settings.mirrors,
                channels="anatomy" if segmenters else "",
                segmenter=SEGMENTER if segmenters else "",
                cross_fitted=True if segmenters else None,
                started_from=f"{Path(str(start_from)).name} ({start_card.trained_on})" if start_card else "",
                **made_by_fields(made_by),
            )  # fmt: skip
            return TrainingLoop(trainer, val.load(), folder, card).run(watch, stop_requested)


# The model in training: the pairs of each step, and the step itself, on one device or on several.


class Trainer:
    """A model, its pairs, and the optimiser of all its parameters: of networks, and log θ of data steps. What step k
    draws depends on the seed and k alone, so that a run that was stopped goes on as if it had not been, and several
    devices share one draw, each its part."""

    def __init__(self, fabric: "Fabric", method: Trainable, pairs: Pairs, settings: Training) -> None:
        self.fabric, self.pairs, self.settings = fabric, pairs, settings
        self.loss = loss_of(method, settings, pairs.structures)  # that of pairs which one process has, as in validation
        self.step_loss = self.loss
        if fabric.world_size > 1:
            # All processes share the pairs of a step. The gradient of their sum is summed over their losses, which are
            # equal, and Lightning takes the mean of the gradients: that is the gradient of one process.
            self.step_loss = replace(
                self.loss, total=lambda x: cast(Tensor, fabric.all_gather(x, sync_grads=True)).sum(0)
            )
        torch.manual_seed(settings.seed)
        self.model = method.build(len(pairs.shape)).to(fabric.device)
        on_gpu = fabric.device.type == "cuda"
        if on_gpu:
            channels_last(self.model, len(pairs.shape))
        rate = torch.tensor(settings.rate, device=fabric.device)
        self.optimizer = Adam(self.model.parameters(), lr=rate, fused=on_gpu, capturable=on_gpu)
        trained = RecomputedCascade(self.model) if settings.recompute and self.model.steps else self.model
        self._model, self._optimizer = fabric.setup(trained, self.optimizer)
        self._descend = self.descend
        self._drawing = Lookahead(fabric.device)
        """Draws pairs beside the step before: what is copied to a GPU waits for its stream."""
        self._warm_up = WARM_UP_CALLS if on_gpu and fabric.world_size == 1 else -1
        """Steps before the first that is recorded as a CUDA graph."""

    def step(self, number: int) -> Tensor:
        """Take a step; its loss, which the next step may overwrite."""
        pair = self._drawing.call(self.draw, number)
        self.seed(number, 1)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.settings.rate_at(number))
        if self._warm_up == 0:
            self._descend = record_graph(self.descend, *pair)
        self._warm_up -= 1
        return self._descend(*pair)

    def draw(self, number: int) -> tuple[Tensor, ...]:
        """This device's part of a step: augmented images, fixed and moving, and labels if these are trained on."""
        self.seed(number)
        size, augmentation = self.settings.batch, self.settings.augmentation
        rows, device = slice(self.fabric.global_rank, None, self.fabric.world_size), self.fabric.device
        chosen = torch.randint(len(self.pairs.index), (size,))[rows]
        I0, I1, *labels = (part.to(device) for part in self.pairs.batch(chosen, self.settings.uses_labels))
        if augmentation is None:
            return I0, I1, *labels
        transform = draw_transform(augmentation, size, self.pairs.shape, self.pairs.spacing).select(rows, device)
        return augment(I0, I1, transform, labels)

    def seed(self, *key: int) -> None:
        """Start torch's generator anew, from the seed of the run and a key."""
        torch.manual_seed(int(SeedSequence((self.settings.seed, *key)).generate_state(1)[0]))

    def descend(self, *pair: Tensor) -> Tensor:
        """Loss, gradient, and a step of Adam; the loss."""
        self._optimizer.zero_grad()
        I0, I1, *labels = self.loss.arrange(*pair)
        inputs = I0, I1, self._model(I0, I1, self.pairs.spacing), *labels
        value = recompute(self.step_loss, *inputs) if self.settings.recompute else self.step_loss(*inputs)
        self.fabric.backward(value)
        if self.settings.clip is not None:
            clip_grad_norm_(self.model.parameters(), self.settings.clip)  # all devices have the same gradients by now
        self._optimizer.step()
        return value.detach()


# Gradient checkpointing: what a row of a cascade computes, a linearisation and its steps, is not kept.

recompute = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
"""recompute(function, *inputs) is function(*inputs); what lies between is computed again for the backward pass."""


class RecomputedCascade(nn.Module):
    """A cascade whose training takes the memory of its largest row, for about a third more time."""

    def __init__(self, cascade: Cascade) -> None:
        super().__init__()
        self.cascade = cascade

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None) -> Field:
        def run_row(row: int, v: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
            *_, last = self.cascade.linearize_and_step(row, v, memory, I0, I1, spacing)
            return last.v, last.memory

        v, memory = recompute(self.cascade.init, I0, I1, spacing), None
        for row in range(len(self.cascade.schedule)):
            v, memory = recompute(run_row, row, v, memory)
        return v


# The processes that train a model: Lightning's Fabric in each, on one device or many.


def check_lightning() -> None:
    try:
        import lightning.fabric  # noqa: F401
    except ImportError as error:
        raise BadInput(f"training needs Lightning: {how_to_install('train')}") from error


def launch_fabric(device: str, devices: int, nodes: int, settings: Training) -> "Fabric":
    """Lightning's Fabric, on one device or in one process of many; the other processes of this machine start here."""
    check_lightning()
    from lightning.fabric import Fabric

    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    on_gpu = find_device(device).type == "cuda"
    if on_gpu and devices > torch.cuda.device_count():
        raise BadInput(f"there are {torch.cuda.device_count()} GPUs here, not {devices}: choose fewer `devices`")
    torch.set_float32_matmul_precision("high")
    fabric = Fabric(
        accelerator="cuda" if on_gpu else "cpu", strategy="ddp" if devices * nodes > 1 else "auto",
        devices=devices, num_nodes=nodes,
        precision="bf16-mixed" if on_gpu and settings.precision == "bf16" else "32-true",
    )  # fmt: skip
    fabric.launch()
    return fabric


@contextmanager
def keep_settings() -> Iterator[None]:
    """Afterwards the random numbers and the precision of PyTorch are as they were."""
    precision = torch.get_float32_matmul_precision()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


# The loop: its steps, validations and checkpoints.


class TrainingLoop:
    """The steps of a run, from where it was left."""

    def __init__(self, trainer: Trainer, val: PreparedSplit, folder: Path, card: Card) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.trainer, self.val, self.folder, self.card = trainer, val, folder, card
        self.fabric, self.settings = trainer.fabric, trainer.settings
        progress, loss_sum = load_checkpoint(folder / CHECKPOINT, trainer.model, trainer.optimizer, self.settings.steps)
        self.step, self.rows = progress.step, progress.rows
        self.loss_sum = loss_sum.to(self.fabric.device)
        logs, is_first = str(folder / "logs"), self.fabric.is_global_zero
        self.curves = SummaryWriter(logs, purge_step=self.step + 1) if is_first else None  # which hides later events
        self.reported_step, self.reported_at = self.step, perf_counter()

    @property
    def is_finished(self) -> bool:
        return self.step == self.settings.steps

    def run(self, watch: Watch, stop_requested: Callable[[], bool]) -> TrainingResult:
        """Take every step that is left, unless asked to stop; then write a checkpoint."""
        while not self.is_finished:
            loss = self.trainer.step(self.step)
            self.loss_sum += loss
            self.step += 1
            if self.step % self.settings.validate_every == 0 or self.is_finished:
                self.validate()
            if self.is_finished or perf_counter() - self.reported_at > REPORT_EVERY_SECONDS:
                watch(self.status(loss))
            stop = stop_requested()
            if self.fabric.world_size > 1:  # several processes agree now and then: whether one was asked to stop
                due = self.step % 20 == 0
                stop = due and bool(self.fabric.all_reduce(torch.tensor(float(stop)), reduce_op="sum"))
            if stop:
                self.checkpoint()
                break
        return TrainingResult(self.step, self.is_finished, best_row(self.rows))

    def status(self, loss: Tensor) -> TrainingStatus:
        """Where training stands, given the loss of the last step."""
        value, now = loss.item(), perf_counter()  # in this order: what a GPU was asked for takes its time first
        speed = (self.step - self.reported_step) / (now - self.reported_at)
        self.reported_step, self.reported_at = self.step, now
        scores = self.rows[-1] if self.rows else {}
        return TrainingStatus(self.step, self.settings.steps, value, scores, speed)

    def validate(self) -> None:
        """Measure the model, write the row, its weights if it is the best so far, and a checkpoint.

        BadInput if a loss is not finite: the training diverged."""
        began, model = perf_counter(), self.trainer.model
        since = self.step - (self.rows[-1]["step"] if self.rows else 0)
        row: Row = {"step": self.step, "loss": self.mean_over_devices(self.loss_sum / since).item()}
        row["rate"] = self.settings.rate_at(self.step - 1)
        if self.curves is not None:
            row |= validate(model, self.val, self.trainer.loss, self.fabric.device)
        row = self.fabric.broadcast(row)
        for loss in (row["loss"], row["val_loss"]):
            if not isfinite(loss):
                told = f"the loss is {loss} after {self.step} steps"
                raise BadInput(f"{told}: train in another folder at a smaller `rate`")
        self.rows.append(row)
        self.loss_sum.zero_()
        if self.curves is not None:
            if best_row(self.rows) is row:
                save_weights(model, self.card, self.folder / WEIGHTS)
            write_rows(self.rows, self.folder / METRICS)  # after the weights, so that each row has had its own
            found = {f"theta/{number}": theta for number, theta in enumerate(thetas(model), start=1)} | row
            for name in found.keys() - {"step"}:
                self.curves.add_scalar(name, found[name], self.step)
            self.curves.flush()
        self.checkpoint()
        self.reported_at += perf_counter() - began

    def checkpoint(self) -> None:
        """Write where the run stands, in the first process; the others wait for it."""
        loss_sum = self.mean_over_devices(self.loss_sum)
        if self.fabric.is_global_zero:
            progress, trainer = Progress(self.step, self.rows), self.trainer
            save_checkpoint(self.folder / CHECKPOINT, trainer.model, trainer.optimizer, progress, loss_sum)
        self.fabric.barrier()

    def mean_over_devices(self, value: Tensor) -> Tensor:
        return self.fabric.all_reduce(value, reduce_op="mean")  # type: ignore[return-value]


@contextmanager
def catch_stop_signals() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C or SIGTERM came; the step under way is finished, unless it comes again."""
    caught: list[int] = []

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread() else ()
    before = {number: signal.signal(number, catch) for number in numbers}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_first_process() -> bool:
    """Whether this is the first of the processes that train one model, by what Lightning, torchrun or SLURM told it."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


def find_start(name: str) -> Path:
    """The file of weights to begin with: of a bundled model by its name, else that of the path."""
    return bundled_file(name) if is_bundled(name) else Path(name)


def validate(model: nn.Module, prepared: PreparedSplit, loss: AnyLoss, device: torch.device) -> dict[str, float]:
    """val_loss and, where there are labels, val_dice of a split: the mean over the pairs of a subject for each
    structure, then over structures, then over subjects that have labels. The model learns nothing meanwhile."""
    labels, losses, dice = list(prepared.structures.values()), [], []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for sample in prepared.samples:
            parts = [sample.fixed, sample.moving]
            if sample.fixed_labels is not None and sample.moving_labels is not None and labels:
                parts += [sample.fixed_labels, sample.moving_labels]
            pair = [part.to(device) for part in parts]
            I0, I1, *L = loss.arrange(*pair)
            u = model(I0, I1, sample.spacing)
            losses.append(loss(I0, I1, u, *L))
            if L:
                maps = loss.label_maps(u, *pair[2:])
                A, B = (torch.cat([map_ == label for label in labels], dim=1).flatten(2) for map_ in maps)
                of_pairs = 2 * (A & B).sum(2) / (A.sum(2) + B.sum(2))  # NaN where neither map has the label
                dice.append(of_pairs.nanmean(0).nanmean())
    model.train(was_training)
    mean_dice = torch.stack(dice).nanmean().item() if dice else nan
    return {"val_loss": torch.stack(losses).mean().item()} | ({} if isnan(mean_dice) else {"val_dice": mean_dice})


def thetas(model: nn.Module) -> list[float]:
    return [log.exp().item() for name, log in model.named_parameters() if name.endswith("log_theta")]
