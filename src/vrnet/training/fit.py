"""Train one method on one data set, in one folder.

Lightning Fabric brings devices, nodes and mixed precision.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from math import isfinite, isnan, pi
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, UInt8
from numpy.random import SeedSequence
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam
from torch.utils.checkpoint import checkpoint

from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.devices import (
    WARM_UP_CALLS,
    channels_last,
    check_gpus,
    find_device,
    hand_over,
    has_cuda,
    in_main_thread,
    limit_lookahead,
    new_stream,
    on_stream,
    own_stream,
    record_graph,
)
from vrnet.errors import BadInput
from vrnet.fields.calculus import determinant, jacobian, warp, warp_labels
from vrnet.files import exists, write_rows
from vrnet.methods.bundled import BUNDLED, is_bundled
from vrnet.methods.method import Trainable
from vrnet.methods.template import parse_template
from vrnet.methods.weights import Card, load_weights, read_card, save_weights
from vrnet.provenance import how_to_install, provenance
from vrnet.training.augmentation import augment, augment_labels, draw_transform
from vrnet.training.loss import Loss, make_loss
from vrnet.training.pairs import Pairs
from vrnet.training.run import (
    CHECKPOINT,
    METRICS,
    WEIGHTS,
    Row,
    Run,
    RunState,
    best_row,
    load_checkpoint,
    save_checkpoint,
)
from vrnet.training.settings import Training
from vrnet.variational.cascade import Cascade, Spacing, no_motion
from vrnet.variational.regularizers import Memory

if TYPE_CHECKING:
    from lightning.fabric import Fabric


# Scores of a model on pairs it is not trained on: the loss and, where there are labels, the mean Dice.

Scores = dict[str, float]
"""val_loss and, where there are labels, val_dice."""


def validate(model: nn.Module, prepared: PreparedSplit, loss: Loss, device: torch.device) -> Scores:
    """Mean scores of a split. Dice is averaged over the pairs of a subject for each structure, then over the
    structures, then over the subjects."""
    with evaluation_mode(model):
        found = [score_subject(model, sample, prepared.structures, loss, device) for sample in prepared.samples]
    losses, dice = (torch.stack(column) for column in zip(*found, strict=True))
    mean_dice = dice.nanmean().item()
    return {"val_loss": losses.mean().item()} | ({} if isnan(mean_dice) else {"val_dice": mean_dice})


def validate_identity(prepared: PreparedSplit, loss: Loss) -> Scores:
    """Mean scores of a split without registration: u = 0."""
    return validate(Cascade(no_motion, []), prepared, loss, torch.device("cpu"))


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """The model as it will be used: it learns nothing, by gradients or by averages that a normalisation keeps."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def score_subject(
    model: nn.Module, sample: Sample, structures: Mapping[str, int], loss: Loss, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The loss and the mean Dice of a subject; a Dice of NaN where it has no labels."""
    parts = [sample.fixed, sample.moving]
    if sample.fixed_labels is not None and sample.moving_labels is not None and structures:
        parts += [sample.fixed_labels, sample.moving_labels]
    pair = [part.to(device) for part in parts]
    I0, I1, *labels = loss.arrange(*pair)
    u = model(I0, I1, sample.spacing)
    value = loss(I0, I1, u, *labels)
    if not labels:
        return value, torch.full((), torch.nan, device=device)
    fixed, moving = pair[2:]
    found = dice_of_labels(fixed, warp_labels(moving, u[: len(fixed)]), list(structures.values()))
    return value, found.nanmean(0).nanmean()


def dice_of_labels(a: UInt8[Tensor, "b 1 *s"], b: UInt8[Tensor, "b 1 *s"], labels: list[int]) -> Float[Tensor, "b k"]:
    """2|A ∩ B| / (|A| + |B|) of each label; NaN where neither map has it."""
    A, B = (torch.cat([L == label for label in labels], dim=1).flatten(2) for L in (a, b))
    return 2 * (A & B).sum(2) / (A.sum(2) + B.sum(2))


# TensorBoard: a curve for every column of metrics.csv and every θ, and a strip of pictures of one pair.

FOLDER = "logs"
TILES = "fixed, moving, warped, difference before, after, grid, det 0 to 2"
"""What the pictures of a strip show, from left to right."""
GAP_PIXELS = 2
"""Width of the white gap between two pictures of a strip."""
GRID_LINE_EVERY_VOXELS = 8


class Logs:
    """Event files in the folder of a run. Events after the step that it goes on from are hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder / FOLDER
        with self.failing():
            self.writer = SummaryWriter(str(self.folder), purge_step=step + 1)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """BadInput in place of the system's errors, such as that the disk is full."""
        try:
            yield
        except OSError as error:
            raise BadInput(f"cannot write in {self.folder} ({error.strerror}): make room, then `resume`") from error

    def write(self, row: Row, model: nn.Module, sample: Sample) -> None:
        """The scores of a validation, every θ, and how the model registers the first pair of a subject."""
        with self.failing():
            self.add_events(row, model, sample)
            self.writer.flush()

    def add_events(self, row: Row, model: nn.Module, sample: Sample) -> None:
        """One event for each of these."""
        step = int(row["step"])
        for name in row.keys() - {"step"}:
            self.writer.add_scalar(name, row[name], step)
        for number, theta in enumerate(thetas(model), start=1):
            self.writer.add_scalar(f"theta/{number}", theta, step)
        device = next(model.parameters()).device
        I0, I1 = sample.fixed[:1].to(device), sample.moving[:1].to(device)
        with evaluation_mode(model):
            self.writer.add_image(f"pair/{TILES}", draw_strip(I0, I1, model(I0, I1, sample.spacing)), step)


def thetas(model: nn.Module) -> list[float]:
    """θ of each data step."""
    found = [parameter for name, parameter in model.named_parameters() if name.endswith("log_theta")]
    return [parameter.exp().item() for parameter in found]


def draw_strip(
    I0: Float[Tensor, "1 1 *s"], I1: Float[Tensor, "1 1 *s"], u: Float[Tensor, "1 d *s"]
) -> Float[Tensor, "1 h w"]:
    """Fixed, moving, moving brought to fixed, their difference before and after, a grid, and det(I + ∇u) from 0 to 2;
    of a volume the middle slice. The first axis runs to the right."""
    I1w = warp(I1, u)
    det = determinant(jacobian(u))[:, None].clamp(0, 2) / 2
    tiles = [I0, I1, I1w, (I1 - I0).abs(), (I1w - I0).abs(), warp(draw_grid(I0), u), det]
    padded = [functional.pad(middle_slice(tile[0]).mT, (0, GAP_PIXELS), value=1.0) for tile in tiles]
    return torch.cat(padded, dim=2)[..., :-GAP_PIXELS]


def draw_grid(I: Float[Tensor, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    """Soft lines across the first two axes, in the shape of an image: sharp lines break where they are warped."""
    every = GRID_LINE_EVERY_VOXELS
    x, y = (torch.arange(n, device=I.device) % every * (2 * pi / every) for n in I.shape[2:4])
    waves = torch.maximum(x.cos()[:, None], y.cos()).clamp(min=0).pow(4)
    return waves.view(1, 1, *waves.shape, *[1] * (I.dim() - 4)).expand_as(I)


def middle_slice(I: Float[Tensor, "1 *s"]) -> Float[Tensor, "1 h w"]:
    """The middle slice of a volume; an image of two dimensions as it is."""
    return I if I.dim() == 3 else I[..., I.shape[-1] // 2]


# The processes that train a model: Lightning's Fabric in each, on one device or many, and signals that ask to stop.

MAX_DEVICES = 1024
"""Of one machine, and machines: each device is a process."""


def check_devices(batch: int, devices: int, nodes: int) -> None:
    """BadInput unless all devices have the same part of a batch."""
    if devices < 1 or nodes < 1:
        raise BadInput("there is nothing to compute on: `devices` and `nodes` are 1 at least")
    if max(devices, nodes) > MAX_DEVICES:
        raise BadInput(f"`devices` and `nodes` are {MAX_DEVICES} at most")
    if batch % (devices * nodes):
        raise BadInput(f"{devices * nodes} devices cannot share a batch of {batch}: choose a multiple")


def check_lightning() -> None:
    """BadInput where Lightning, which training needs, is not installed."""
    try:
        import lightning.fabric  # noqa: F401
    except ImportError as error:
        raise BadInput(f"training needs Lightning: {how_to_install('train')}") from error


def launch_fabric(device: str, devices: int, nodes: int, settings: Training) -> "Fabric":
    """Lightning's Fabric, on one device or in one process of many; the other processes of this machine start here."""
    check_lightning()
    from lightning.fabric import Fabric

    for logger in lightning_loggers():
        logger.setLevel(logging.WARNING)
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


def lightning_loggers() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in ("lightning.fabric", "lightning.pytorch")]


@contextmanager
def keep_settings() -> Iterator[None]:
    """Afterwards the random numbers and the precision of PyTorch, and what Lightning tells, are as they were."""
    precision, levels = torch.get_float32_matmul_precision(), [logger.level for logger in lightning_loggers()]
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count() if has_cuda() else 0)):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for logger, level in zip(lightning_loggers(), levels, strict=True):
            logger.setLevel(level)


class SumOverProcesses(torch.autograd.Function):
    """y = Σ x over all processes: the loss of each depends on every x, so the gradient by one x is Σ ∂ℒ/∂y over all.

    Where the losses are equal and Lightning takes the mean of the gradients, that is the gradient of one process.
    (The all_reduce of torch.distributed.nn does the same, and is deprecated.)"""

    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        total = value.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return SumOverProcesses.forward(ctx, gradient)


def sum_over_processes(value: Tensor) -> Tensor:
    """The sum of the values of all processes that train one model, in each of them; each must call this."""
    return SumOverProcesses.apply(value)  # type: ignore[no-untyped-call]


def is_first_process() -> bool:
    """Whether this is the first of the processes that train one model, by what Lightning, torchrun or SLURM told it."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


@contextmanager
def catch_stop_signals() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C or SIGTERM came, so that the step under way is finished first.

    A second Ctrl-C stops at once."""
    caught: list[int] = []
    if not in_main_thread():
        yield lambda: False
        return

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Gradient checkpointing: what a row of a cascade computes is not kept, but computed again for the backward pass.
#
# A row is one linearisation and its steps.


class RecomputedCascade(nn.Module):
    """A cascade whose training takes the memory of its largest row, for about a third more time."""

    def __init__(self, cascade: Cascade) -> None:
        super().__init__()
        self.cascade = cascade

    def forward(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], spacing: Spacing = None
    ) -> Float[Tensor, "b d *s"]:
        v, memory = recompute(self.cascade.init, I0, I1, spacing), None
        for row in range(len(self.cascade.schedule)):
            v, memory = recompute(run_row, self.cascade, row, v, memory, I0, I1, spacing)
        return v


def run_row(
    cascade: Cascade, row: int, v: Tensor, memory: Memory, I0: Tensor, I1: Tensor, spacing: Spacing
) -> tuple[Tensor, Memory]:
    """The field after one linearisation at v and its steps, and what is remembered."""
    *_, last = cascade.linearize_and_step(row, v, memory, I0, I1, spacing)
    return last.v, last.memory


def recompute(function: Callable[..., Any], *inputs: object) -> Any:
    """function(*inputs); what lies between is computed again when gradients are asked for."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


# One model in training: the pairs of each step, and the step itself.


class Trainer:
    """A model, its optimiser and its pairs. What step k draws depends on the seed and k alone, so that a run that was
    stopped goes on as if it had not been, and several devices share one draw, each its part."""

    def __init__(self, fabric: "Fabric", method: Trainable, pairs: Pairs, settings: Training) -> None:
        self.fabric, self.pairs, self.settings = fabric, pairs, settings
        self.loss = loss_of(method, settings, pairs.structures)
        """That of pairs which one process has, as in validation."""
        self.step_loss = replace(self.loss, total=sum_over_processes) if fabric.world_size > 1 else self.loss
        """That of a step, whose pairs all processes share."""
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
        self.drawing = new_stream(fabric.device)
        """Where pairs are drawn, beside the step before: what is copied to a GPU waits for its stream."""
        self._before: torch.cuda.Event | None = None
        self._warm_up = WARM_UP_CALLS if on_gpu and fabric.world_size == 1 else -1

    def step(self, number: int) -> Tensor:
        """Take a step; its loss, which the next step may overwrite."""
        return self.update(number, *self.draw(number))

    def update(self, number: int, *pair: Tensor) -> Tensor:
        """Take a step with these pairs; what else it draws is the same whoever drew them, and when."""
        self.seed(number, 1)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.settings.rate_at(number))
        if self._warm_up == 0:
            self._descend = record_graph(self.descend, *pair)
        self._warm_up -= 1
        return self._descend(*pair)

    def draw(self, number: int) -> tuple[Tensor, ...]:
        """The augmented images of a step, fixed and moving, and their labels if these are trained on; on several
        devices, the part of this one."""
        self._before = limit_lookahead(self.drawing, self._before)
        with on_stream(self.drawing):
            drawn = self._draw(number)
        hand_over(drawn, self.drawing)
        return drawn

    def _draw(self, number: int) -> tuple[Tensor, ...]:
        self.seed(number)
        size, augmentation = self.settings.batch, self.settings.augmentation
        rows, device = slice(self.fabric.global_rank, None, self.fabric.world_size), self.fabric.device
        chosen = torch.randint(len(self.pairs.index), (size,))[rows]
        drawn = self.pairs.batch(chosen), self.pairs.batch_labels(chosen) if self.settings.uses_labels else ()
        (I0, I1), labels = (tuple(part.to(device) for part in parts) for parts in drawn)
        if augmentation is None:
            return I0, I1, *labels
        transform = draw_transform(augmentation, size, self.pairs.shape, self.pairs.spacing).select(rows, device)
        return (*augment(I0, I1, transform), *augment_labels(labels, transform))

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


def loss_of(method: Trainable, settings: Training, structures: Iterable[int] = ()) -> Loss:
    """What a method is trained with: its own terms, unless the settings name others, and what these add to them."""
    terms = make_loss(method.loss, settings.alpha, settings.similarity, settings.smoothness)
    weights = {name: getattr(settings, name) for name in ("consistency", "labels_weight", "batch_dice")}
    return replace(terms, **weights, labels=tuple(structures) if settings.uses_labels else ())


# The training loop: step after step; now and then a validation, a checkpoint, and word of how it goes.

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


# Fine-tuning: a training that begins with the weights of a trained model of the same method.


def find_start(name: str) -> Path:
    """The file of weights: of a model in the box by its name, else that of the path."""
    return BUNDLED[name.casefold()].file if is_bundled(name) else Path(name)


def check_start(name: str, method: Trainable, d: int) -> Card:
    """The card of the weights; BadInput unless they are of the method that is to be trained in d dimensions."""
    card = read_card(find_start(name))
    if (card.method, card.dimension) != (str(method), d):
        holds, wanted = f"{card.method} in {card.dimension}D", f"{method} in {d}D"
        other = "" if parse_template(card.method) else f"train {card.method}, or "
        raise BadInput(f"{name} holds {holds}, which cannot start {wanted}: {other}give other weights")
    return card


def load_start(name: str, model: nn.Module) -> None:
    """Give a model the weights."""
    found, _ = load_weights(find_start(name))
    model.load_state_dict(found.state_dict())


def validate_start(name: str, prepared: PreparedSplit, loss: Loss, device: torch.device) -> Scores:
    """Mean scores of a split by the weights as they were, before they were trained further."""
    model, _ = load_weights(find_start(name))
    return validate(model.to(device), prepared, loss, device)


@dataclass(frozen=True)
class TrainingJob:
    """What is to be trained, how, and the folder of the run."""

    method: Trainable
    settings: Training
    folder: Path
    start_from: str | None = None
    """Weights to begin with, of a model in the box or in a file; None: those that the seed draws."""


def fit(
    method: Trainable,
    train: PreparedSplit,
    val: PreparedSplit,
    settings: Training,
    folder: Path,
    *,
    start_from: str | Path | None = None,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    resume: bool = False,
    watch: Watch = lambda status: None,
) -> TrainingResult:
    """Train a method; the folder then holds what `run.py` says. Ctrl-C and SIGTERM leave a run that can be resumed.

    `start_from` names weights to begin with: a model in the box or a file. `watch` is called with a TrainingStatus
    about twice a second."""
    start = None if start_from is None else str(start_from)
    job, pairs = TrainingJob(method, settings, folder, start), Pairs.from_split(train, settings.uses_labels)
    check_devices(settings.batch, devices, nodes)
    check_job(job, train, val, resume)
    is_first = devices * nodes == 1 or is_first_process()
    with Run(folder).lock() if is_first else nullcontext():
        Run(folder).check(resume)  # again: another run may have begun and ended there meanwhile
        with keep_settings():
            fabric = launch_fabric(device, devices, nodes, settings)  # others start here: they make the checks too
            with catch_stop_signals() as stop_requested, own_stream(fabric.device):
                loop = begin_loop(job, fabric, pairs.move_to(fabric.device), train, val)
                return loop.run(watch, stop_requested)


def check_job(job: TrainingJob, train: PreparedSplit, val: PreparedSplit, resume: bool) -> None:
    """BadInput unless the run can begin, or go on, in its folder; nothing is written."""
    loss_of(job.method, job.settings)
    if job.start_from is not None:
        check_start(job.start_from, job.method, train.samples[0].fixed.dim() - 2)
    run = Run(job.folder)
    run.check(resume)
    run.check_same(describe_run(job, train, val))


def begin_loop(
    job: TrainingJob, fabric: "Fabric", pairs: Pairs, train: PreparedSplit, val: PreparedSplit
) -> TrainingLoop:
    """The loop of a run, ready for its next step; the first process writes config.json."""
    pairs.check_batch(job.settings.batch // fabric.world_size, fabric.device)
    made_by = provenance(fabric.device)
    if fabric.world_size > 1:
        made_by["device"] = f"{fabric.world_size} x {made_by['device']}"
    if fabric.is_global_zero:
        Run(job.folder).begin(describe_run(job, train, val), made_by)
    fabric.barrier()
    trainer = Trainer(fabric, job.method, pairs, job.settings)
    if job.start_from is not None and not exists(job.folder / CHECKPOINT):
        load_start(job.start_from, trainer.model)
    return TrainingLoop(trainer, val.load(), job.folder, make_card(job, train, made_by))


def describe_run(job: TrainingJob, train: PreparedSplit, val: PreparedSplit) -> dict[str, Any]:
    """config.json without its provenance: all that makes the run what it is."""
    return {
        "method": str(job.method),
        "dimension": train.samples[0].fixed.dim() - 2,
        "data": train.data,
        "subjects": {part.split: part.names for part in (train, val)},
        "training": asdict(job.settings),
        "start_from": job.start_from,
    }


def make_card(job: TrainingJob, train: PreparedSplit, made_by: Mapping[str, str | None]) -> Card:
    """What weights.safetensors says of itself."""
    first, with_labels = train.samples[0], job.settings.uses_labels
    start = job.start_from and check_start(job.start_from, job.method, first.fixed.dim() - 2)
    return Card(
        method=str(job.method),
        dimension=first.fixed.dim() - 2,
        spacing_mm=first.spacing,
        normalisation="each" if train.pairs_across_subjects else "jointly",
        trained_on=f"{train.data}, {train.split}: {len(train.samples)} subjects, {job.settings.steps} steps",
        version=made_by["vrnet"] or "",
        commit=made_by["commit"] or "",
        torch=made_by["torch"] or "",
        device=made_by["device"] or "",
        labels_in_training=with_labels or bool(start and start.labels_in_training),
        flips_in_training=job.settings.mirrors,
        started_from=f"{Path(job.start_from).name} ({start.trained_on})" if job.start_from and start else "",
    )
