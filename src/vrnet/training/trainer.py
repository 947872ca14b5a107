"""One model on its way: the pairs of each step, the step itself, and what is kept of it."""

from typing import TYPE_CHECKING

import torch
from numpy.random import SeedSequence
from torch import Tensor
from torch.optim import Adam

from vrnet.devices import WARM_UP, channels_last, record_graph
from vrnet.methods.method import Trainable
from vrnet.training.augmentation import changed
from vrnet.training.loss import Loss, make_loss
from vrnet.training.pairs import Pairs
from vrnet.training.recompute import Recomputed, again
from vrnet.training.settings import Training

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Trainer:
    """What step k draws depends on the seed and k alone: a run that was stopped goes on as if it had not been, and
    several devices share one draw, each its part."""

    def __init__(self, fabric: "Fabric", method: Trainable, pairs: Pairs, settings: Training) -> None:
        self.fabric, self.pairs, self.settings = fabric, pairs, settings
        self.loss = loss_of(method, settings.alpha)
        torch.manual_seed(settings.seed)
        self.model = method.build(len(pairs.shape)).to(fabric.device)
        on_gpu = fabric.device.type == "cuda"
        if on_gpu:
            channels_last(self.model, len(pairs.shape))
        rate = torch.tensor(settings.rate, device=fabric.device)
        self.optimizer = Adam(self.model.parameters(), lr=rate, fused=on_gpu, capturable=on_gpu)
        trained = Recomputed(self.model) if settings.recompute and self.model.steps else self.model
        self._model, self._optimizer = fabric.setup(trained, self.optimizer)
        self._advance = self.advance
        self._warm_up = WARM_UP if on_gpu and fabric.world_size == 1 else -1

    def step(self, number: int) -> Tensor:
        """Take one; its loss, which the next one may overwrite."""
        return self.learn(number, *self.draw(number))

    def learn(self, number: int, I0: Tensor, I1: Tensor) -> Tensor:
        """Take a step with these pairs; what else it draws is the same whoever drew them, and when."""
        self.seed(number, 1)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.settings.rate_at(number))
        if self._warm_up == 0:
            self._advance = record_graph(self.advance, I0, I1)
        self._warm_up -= 1
        return self._advance(I0, I1)

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """The pairs of a step, changed; on several devices, the part of this one."""
        self.seed(number)
        size, augmentation = self.settings.batch, self.settings.augmentation
        chosen = torch.randint(len(self.pairs.index), (size,))
        mine, there = slice(self.fabric.global_rank, None, self.fabric.world_size), self.fabric.device
        I0, I1 = (I.to(there) for I in self.pairs.take(chosen[mine]))
        if augmentation is None:
            return I0, I1
        change = augmentation.draw(size, self.pairs.shape, self.pairs.spacing)
        return changed(I0, I1, change.part(mine, there))

    def seed(self, *key: int) -> None:
        torch.manual_seed(int(SeedSequence((self.settings.seed, *key)).generate_state(1)[0]))

    def advance(self, I0: Tensor, I1: Tensor) -> Tensor:
        """Loss, gradient, update."""
        self._optimizer.zero_grad()
        u = self._model(I0, I1, self.pairs.spacing)
        value = again(self.loss, I0, I1, u) if self.settings.recompute else self.loss(I0, I1, u)
        self.fabric.backward(value)
        self._optimizer.step()
        return value.detach()


def loss_of(method: Trainable, alpha: float) -> Loss:
    """The paper's loss; for Siamese that of its authors."""
    return make_loss(method.loss, alpha)
