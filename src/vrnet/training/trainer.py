"""One model in training: the pairs of each step, and the step itself, on one device or on several.

Lightning's Fabric brings devices, nodes and mixed precision. Its Trainer is not used: it resumes by unpickling a
checkpoint, and does not go on to the bit with batches that each step draws by its number.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from numpy.random import SeedSequence
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam
from torch.utils.checkpoint import checkpoint

from vrnet.devices import WARM_UP_CALLS, Lookahead, channels_last, find_device, record_graph
from vrnet.errors import BadInput
from vrnet.methods.method import Trainable
from vrnet.provenance import how_to_install
from vrnet.training.augmentation import augment, draw_transform
from vrnet.training.loss import loss_of
from vrnet.training.pairs import Pairs
from vrnet.training.settings import Training
from vrnet.variational.cascade import Cascade, Spacing
from vrnet.variational.linearize import Field, Images
from vrnet.variational.regularizers import Memory

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Trainer:
    """A model, its pairs, and the optimiser of all its parameters: of networks, and log θ of data steps. What step k
    draws depends on the seed and k alone, so that a run that was stopped goes on as if it had not been, and several
    devices share one draw, each its part."""

    def __init__(self, fabric: "Fabric", method: Trainable, pairs: Pairs, settings: Training) -> None:
        self.fabric, self.pairs, self.settings = fabric, pairs, settings
        self.loss = loss_of(method, settings, pairs.structures)
        """That of pairs which one process has, as in validation."""
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
    """BadInput where Lightning, which training needs, is not installed."""
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
