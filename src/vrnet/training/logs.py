"""TensorBoard: a curve for every column of metrics.csv and every θ, and a picture of one pair."""

from pathlib import Path

from torch import nn

from vrnet.data.sample import Sample
from vrnet.training.pictures import TILES, strip
from vrnet.training.run import Row
from vrnet.training.validation import in_use

FOLDER = "logs"


class Logs:
    """Event files in the folder of a run; what came after the step it goes on from is hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / FOLDER), purge_step=step + 1)

    def write(self, row: Row, model: nn.Module, sample: Sample) -> None:
        """The scores of a validation, θ, and what the model makes of the first pair of a subject."""
        step = int(row["step"])
        for name in row.keys() - {"step"}:
            self.writer.add_scalar(name, row[name], step)
        for number, theta in enumerate(thetas(model), start=1):
            self.writer.add_scalar(f"theta/{number}", theta, step)
        device = next(model.parameters()).device
        I0, I1 = sample.fixed[:1].to(device), sample.moving[:1].to(device)
        with in_use(model):
            self.writer.add_image(f"pair/{TILES}", strip(I0, I1, model(I0, I1, sample.spacing)), step)
        self.writer.flush()


def thetas(model: nn.Module) -> list[float]:
    """θ of each data step."""
    found = [parameter for name, parameter in model.named_parameters() if name.endswith("log_theta")]
    return [parameter.exp().item() for parameter in found]
