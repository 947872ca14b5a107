"""The repair of a registration's folds, and what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.devices import few_threads
from vrnet.errors import is_slight, small_percent
from vrnet.fields.folds import MARGIN, Unfolded, unfold


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

    farthest_voxel: tuple[int, ...]
    """The voxel of fixed whose end was moved the most."""
    drawn_percent: float = 0.0
    """Voxels about folds that could not be opened: their motion was drawn towards that of what lies around."""

    @property
    def moves(self) -> tuple[float, float, str]:
        """The mean and the greatest move, in mm, or in voxels where no spacing is known."""
        if self.mean_move_mm is None or self.max_move_mm is None:
            return self.mean_move_voxels, self.max_move_voxels, "voxels"
        return self.mean_move_mm, self.max_move_mm, "mm"

    @property
    def is_slight(self) -> bool:
        """Whether next to nothing was changed, which nobody needs to be told at once."""
        return is_slight(self.changed_percent, self.moves[1])

    def __str__(self) -> str:
        cause = f"{small_percent(self.folded_percent)} of the voxels were folded, which no tissue does"
        if not self.folded_percent:
            cause = f"No voxel was folded, but some were squeezed to less than {100 * MARGIN:.0f} % of their size"
        mean, most, unit = self.moves
        moves = f"{mean:.2g} {unit} on average and {most:.2g} {unit} at most"
        place = ", ".join(map(str, self.farthest_voxel))
        lost = f"; about folds that did not open, {small_percent(self.drawn_percent)} of them lost much of their motion"
        return (
            f"{cause}: {small_percent(self.changed_percent)} of the voxels were moved to mend that, by {moves}, "
            f"at voxel ({place}){lost if self.drawn_percent else ''}"
        )

    def mirrored(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> "Repair":
        """The repair of images that are mirrored along these axes."""
        ends = enumerate(zip(self.farthest_voxel, shape, strict=True))
        return replace(self, farthest_voxel=tuple(n - 1 - i if axis in axes else i for axis, (i, n) in ends))

    def reordered(self, order: Sequence[int]) -> "Repair":
        """The repair of images that have axis order[i] as axis i."""
        return replace(self, farthest_voxel=tuple(self.farthest_voxel[axis] for axis in order))


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
    return repaired, describe_repair(repaired - field, found, spacing)


def describe_repair(move: Float[Tensor, "d *s"], found: Unfolded, spacing: tuple[float, ...] | None) -> Repair:
    """What a repair did, from how it moved the ends of the displacements, in voxels."""
    changed = move.abs().amax(0) > 0
    voxels = move[:, changed].double()
    mm = voxels * voxels.new_tensor(spacing or (1.0,) * len(move))[:, None]
    lengths, lengths_mm = (torch.linalg.vector_norm(moves, dim=0) for moves in (voxels, mm))
    folded, moved, drawn = (100 * mask.double().mean().item() for mask in (found.folded, changed, found.drawn))
    return Repair(
        folded_percent=folded,
        changed_percent=moved,
        mean_move_voxels=lengths.mean().item(),
        max_move_voxels=lengths.max().item(),
        mean_move_mm=None if spacing is None else lengths_mm.mean().item(),
        max_move_mm=None if spacing is None else lengths_mm.max().item(),
        farthest_voxel=tuple(changed.nonzero()[lengths_mm.argmax()].tolist()),
        drawn_percent=drawn,
    )
