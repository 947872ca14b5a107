"""How a model does on pairs it is not trained on: the loss and, where there are labels, the mean Dice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isnan

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Sample
from vrnet.fields import warp_labels
from vrnet.training.loss import Loss
from vrnet.variational.cascade import Cascade, no_motion

Scores = dict[str, float]


def validated(model: nn.Module, prepared: PreparedSplit, loss: Loss, device: torch.device) -> Scores:
    """val_loss, and val_dice where there are labels: of each structure over the pairs of a subject, of the structures,
    of the subjects, each time the mean."""
    with in_use(model):
        found = [scored(model, sample, prepared.structures, loss, device) for sample in prepared.samples]
    losses, dices = (torch.stack(column) for column in zip(*found, strict=True))
    mean_dice = dices.nanmean().item()
    return {"val_loss": losses.mean().item()} | ({} if isnan(mean_dice) else {"val_dice": mean_dice})


def unregistered(prepared: PreparedSplit, loss: Loss) -> Scores:
    """The same of no motion at all."""
    return validated(Cascade(no_motion, []), prepared, loss, torch.device("cpu"))


@contextmanager
def in_use(model: nn.Module) -> Iterator[None]:
    """As it will be used: it learns nothing from what it sees, by gradients or by averages that it keeps."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def scored(
    model: nn.Module, sample: Sample, structures: Mapping[str, int], loss: Loss, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The loss and the mean Dice of a subject; NaN where it has no labels."""
    I0, I1 = sample.fixed.to(device), sample.moving.to(device)
    u = model(I0, I1, sample.spacing)
    if sample.fixed_labels is None or sample.moving_labels is None or not structures:
        return loss(I0, I1, u), torch.full((), torch.nan, device=device)
    masks = sample.fixed_labels.to(device), warp_labels(sample.moving_labels.to(device), u)
    return loss(I0, I1, u), dices(*masks, list(structures.values())).nanmean(0).nanmean()


def dices(a: UInt8[Tensor, "b 1 *s"], b: UInt8[Tensor, "b 1 *s"], labels: list[int]) -> Float[Tensor, "b k"]:
    """2|A ∩ B| / (|A| + |B|) of each label; NaN where neither has it."""
    A, B = (torch.cat([L == label for label in labels], dim=1).flatten(2) for L in (a, b))
    return 2 * (A & B).sum(2) / (A.sum(2) + B.sum(2))
