"""Scores of a model on pairs it is not trained on: the loss and, where there are labels, the mean Dice."""

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
