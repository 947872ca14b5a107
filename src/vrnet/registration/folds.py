"""The repair of a registration's folds, and what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.devices import few_threads
from vrnet.repair import MARGIN, Unfolded, unfold
from vrnet.wording import is_slight, small_percent


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
    def is_slight(self) -> bool:
        """Whether next to nothing was changed, which nobody needs to be told at once."""
        most = self.max_move_voxels if self.max_move_mm is None else self.max_move_mm
        return is_slight(self.changed_percent, most)

    def __str__(self) -> str:
        unit = "voxels" if self.mean_move_mm is None else "mm"
        mean, most = (getattr(self, f"{which}_move_{unit}") for which in ("mean", "max"))
        place = ", ".join(map(str, self.farthest_voxel))
        moves = f"{mean:.2g} {unit} on average and {most:.2g} {unit} at most, at voxel ({place})"
        mended = f"{small_percent(self.changed_percent)} of the voxels were moved to mend that, by {moves}"
        return f"{self.cause}: {mended}{self.loss}"

    @property
    def loss(self) -> str:
        """What was lost, in words to go on with; nothing where every fold could be opened."""
        if not self.drawn_percent:
            return ""
        return f"; about folds that did not open, {small_percent(self.drawn_percent)} of them lost much of their motion"

    @property
    def cause(self) -> str:
        """What was wrong with the field."""
        if self.folded_percent:
            return f"{small_percent(self.folded_percent)} of the voxels were folded, which no tissue does"
        return f"No voxel was folded, but some were squeezed to less than {100 * MARGIN:.0f} % of their size"

    def mirrored(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> "Repair":
        """The repair of images that are mirrored along these axes."""
        place = (
            n - 1 - i if axis in axes else i for axis, (i, n) in enumerate(zip(self.farthest_voxel, shape, strict=True))
        )
        return replace(self, farthest_voxel=tuple(place))

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
    lengths = move[:, changed].double()
    edges = lengths.new_tensor(spacing or (1.0,) * len(move))
    mm = lengths * edges[:, None]
    farthest = torch.linalg.vector_norm(mm, dim=0).argmax()
    return Repair(
        percent_of_voxels(found.folded),
        percent_of_voxels(changed),
        *mean_and_max(lengths),
        mean_move_mm=None if spacing is None else mean_and_max(mm)[0],
        max_move_mm=None if spacing is None else mean_and_max(mm)[1],
        farthest_voxel=tuple(changed.nonzero()[farthest].tolist()),
        drawn_percent=percent_of_voxels(found.drawn),
    )


def percent_of_voxels(mask: Tensor) -> float:
    return 100 * mask.double().mean().item()


def mean_and_max(vectors: Float[Tensor, "d n"]) -> tuple[float, float]:
    """The mean and the greatest of the lengths of n vectors."""
    lengths = torch.linalg.vector_norm(vectors, dim=0)
    return lengths.mean().item(), lengths.max().item()
