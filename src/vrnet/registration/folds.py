"""The repair of a registration's folds, and what is said of it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.devices import few_threads
from vrnet.repair import unfold


@dataclass(frozen=True)
class Repair:
    """How much of a field was changed to free it of folds. Moves are means and maxima over the changed voxels."""

    folded_percent: float
    """Voxels that were folded, by the strict count."""
    changed_percent: float
    mean_move_voxels: float
    max_move_voxels: float
    mean_move_mm: float | None
    """None where no spacing is known."""
    max_move_mm: float | None

    def __str__(self) -> str:
        unit = "voxels" if self.mean_move_mm is None else "mm"
        mean, most = (getattr(self, f"{which}_move_{unit}") for which in ("mean", "max"))
        folded, changed = f"{self.folded_percent:.2g} %", f"{self.changed_percent:.2g} %"
        moves = f"by {mean:.2g} {unit} on average, {most:.2g} at most"
        return f"{folded} of the voxels were folded; {changed} were moved to undo that, {moves}"


@torch.inference_mode()
def repair_folds(
    field: Float[Tensor, "d *s"], spacing: tuple[float, ...] | None, slice_axis: int | None
) -> tuple[Float[Tensor, "d *s"], Repair | None]:
    """A field in voxels without folds, and what was changed, if anything was. Slices are repaired each by itself."""
    within = [axis for axis in range(len(field)) if axis != slice_axis]
    u = field[None] if slice_axis is None else field[within].movedim(1 + slice_axis, 0)
    with few_threads(field[0].numel()):
        found = unfold(u)
    if found.field is u:
        return field, None
    repaired = field.clone()
    repaired[within] = found.field[0] if slice_axis is None else found.field.movedim(0, 1 + slice_axis)
    return repaired, describe_repair(repaired - field, found.folded, spacing)


def describe_repair(move: Float[Tensor, "d *s"], folded: Tensor, spacing: tuple[float, ...] | None) -> Repair:
    """What a repair did, from how it moved the ends of the displacements, in voxels."""
    changed = move.abs().amax(0) > 0
    lengths = move[:, changed].double()
    mm = None if spacing is None else lengths * lengths.new_tensor(spacing)[:, None]
    return Repair(percent(folded), percent(changed), *mean_and_max(lengths), *mean_and_max(mm))


def percent(mask: Tensor) -> float:
    return 100 * mask.double().mean().item()


def mean_and_max(vectors: Float[Tensor, "d n"] | None) -> tuple[float, float] | tuple[None, None]:
    """The mean and the greatest of the lengths of n vectors."""
    if vectors is None:
        return None, None
    lengths = torch.linalg.vector_norm(vectors, dim=0)
    return lengths.mean().item(), lengths.max().item()
