"""How good a model is on pairs that it is not trained on: the loss, Dice where there are labels, and their curves
in TensorBoard, one for every column of metrics.csv and every θ."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan, nan
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vrnet.data.prepared import PreparedSplit
from vrnet.fields.calculus import warp_labels
from vrnet.training.loss import Loss
from vrnet.training.run import Row

Scores = dict[str, float]
"""val_loss and, where there are labels, val_dice."""


def validate(model: nn.Module, prepared: PreparedSplit, loss: Loss, device: torch.device) -> Scores:
    """Mean scores of a split. Dice is averaged over the pairs of a subject for each structure, then over the
    structures, then over the subjects that have labels."""
    labels, losses, dice = list(prepared.structures.values()), [], []
    with evaluation_mode(model):
        for sample in prepared.samples:
            parts = [sample.fixed, sample.moving]
            if sample.fixed_labels is not None and sample.moving_labels is not None and labels:
                parts += [sample.fixed_labels, sample.moving_labels]
            pair = [part.to(device) for part in parts]
            I0, I1, *L = loss.arrange(*pair)
            u = model(I0, I1, sample.spacing)
            losses.append(loss(I0, I1, u, *L))
            if L:
                fixed, moving = pair[2:]
                of_pairs = dice_of_labels(fixed, warp_labels(moving, u[: len(fixed)]), labels)
                dice.append(of_pairs.nanmean(0).nanmean())
    mean_dice = torch.stack(dice).nanmean().item() if dice else nan
    return {"val_loss": torch.stack(losses).mean().item()} | ({} if isnan(mean_dice) else {"val_dice": mean_dice})


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


def dice_of_labels(a: UInt8[Tensor, "b 1 *s"], b: UInt8[Tensor, "b 1 *s"], labels: list[int]) -> Float[Tensor, "b k"]:
    """2|A ∩ B| / (|A| + |B|) of each label; NaN where neither map has it."""
    A, B = (torch.cat([L == label for label in labels], dim=1).flatten(2) for L in (a, b))
    return 2 * (A & B).sum(2) / (A.sum(2) + B.sum(2))


class Logs:
    """Event files of TensorBoard in the folder of a run. Events after the step that it goes on from are hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "logs"), purge_step=step + 1)

    def write(self, row: Row, model: nn.Module) -> None:
        """The scores of a validation, and every θ."""
        step = int(row["step"])
        for name in row.keys() - {"step"}:
            self.writer.add_scalar(name, row[name], step)
        for number, theta in enumerate(thetas(model), start=1):
            self.writer.add_scalar(f"theta/{number}", theta, step)
        self.writer.flush()


def thetas(model: nn.Module) -> list[float]:
    """θ of each data step."""
    found = [parameter for name, parameter in model.named_parameters() if name.endswith("log_theta")]
    return [parameter.exp().item() for parameter in found]
