"""One model in training: the pairs of each step, and the step itself."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from numpy.random import SeedSequence
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam

from vrnet.devices import WARM_UP_CALLS, channels_last, hand_over, keep_pace, new_stream, on_stream, record_graph
from vrnet.methods.method import Trainable
from vrnet.training.augmentation import augment, augment_labels, draw_transform
from vrnet.training.loss import Loss, make_loss
from vrnet.training.pairs import Pairs
from vrnet.training.processes import sum_over_processes
from vrnet.training.recompute import RecomputedCascade, recompute
from vrnet.training.settings import Training

if TYPE_CHECKING:
    from lightning.fabric import Fabric


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
        self._before = keep_pace(self.drawing, self._before)
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
