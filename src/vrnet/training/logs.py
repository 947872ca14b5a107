"""TensorBoard: a curve for every column of metrics.csv and every θ, and a strip of pictures of one pair."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import pi
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.data.sample import Sample
from vrnet.errors import BadInput
from vrnet.fields import determinant, jacobian, warp
from vrnet.training.run import Row
from vrnet.training.validation import evaluation_mode

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
