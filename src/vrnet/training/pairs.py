"""The pairs to train on: images, with their labels where these are trained on, held together on one device, and which
two of them make a pair."""

from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import permutations

import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.devices import available_memory, free_memory
from vrnet.errors import BadInput

MAX_PART_OF_GPU_MEMORY = 0.25
COPIES_OF_BATCH = 3
"""How often a batch is held at least: as it is drawn, augmented, and warped; networks take far more."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pair k is images[index[k, 0]], fixed, and images[index[k, 1]], moving."""

    images: Float[Tensor, "m 1 *s"]
    index: Integer[Tensor, "n 2"]
    spacing: tuple[float, ...]
    labels: UInt8[Tensor, "m 1 *s"] | None = None
    """Those of each image, where they were asked for."""
    structures: tuple[int, ...] = ()
    """The labels that mean something."""

    @classmethod
    def from_split(cls, prepared: PreparedSplit, with_labels: bool = False) -> "Pairs":
        """The pairs of a split: within each subject or, where subjects are compared, every image with every other."""
        fixed, moving, which, grids = UniqueImages(), HeldImages(), [], set()
        for sample in prepared.samples:  # read one by one: labels and images that come again are let go at once
            grids.add((sample.fixed.shape[2:], sample.spacing))
            if len(grids) > 1:
                raise BadInput(f"the images of {prepared.data} differ in shape or spacing: prepare them on one grid")
            labels = labels_to_train_on(sample, prepared) if with_labels else (None, None)
            which += fixed.place(sample.fixed, labels[0])
            if not prepared.pairs_across_subjects:
                moving.hold(sample.moving, labels[1])
        (_, spacing), count = grids.pop(), len(fixed.images)
        if prepared.pairs_across_subjects and count < 2:
            raise BadInput(f"{prepared.split} of {prepared.data} has one image, and pairs are of two: add subjects")
        if prepared.pairs_across_subjects:
            index = torch.tensor(list(permutations(range(count), 2)))
        else:
            index = torch.stack([torch.tensor(which), torch.arange(count, count + len(which))], dim=1)
        held = torch.cat(fixed.labels + moving.labels) if with_labels else None
        images = torch.cat(fixed.images + moving.images)
        return cls(images, index, spacing, held, tuple(prepared.structures.values()))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[2:])

    def move_to(self, device: torch.device) -> "Pairs":
        """The pairs on a device if they take no more than a quarter of its free memory; otherwise where they are."""
        if self.images.nbytes > MAX_PART_OF_GPU_MEMORY * free_memory(device):
            return self
        labels = None if self.labels is None else self.labels.to(device)
        return replace(self, images=self.images.to(device), index=self.index.to(device), labels=labels)

    def check_batch(self, size: int, device: torch.device) -> None:
        """BadInput if so many pairs, which are held several times while they are drawn, do not fit in memory."""
        need = COPIES_OF_BATCH * 2 * size * self.images[0].nbytes
        free = min(free_memory(device), available_memory())
        if need > free:
            room = f"needs {need / 1e9:.3g} GB of memory, and {free / 1e9:.3g} GB are free"
            raise BadInput(f"a batch of {size} pairs {room}: choose a smaller `batch`")

    def batch(self, chosen: Integer[Tensor, "b"]) -> tuple[Float[Tensor, "b 1 *s"], Float[Tensor, "b 1 *s"]]:
        """The fixed and the moving images of the chosen pairs."""
        rows = self.index[chosen.to(self.index.device)]
        return self.images[rows[:, 0]], self.images[rows[:, 1]]

    def batch_labels(self, chosen: Integer[Tensor, "b"]) -> tuple[UInt8[Tensor, "b 1 *s"], UInt8[Tensor, "b 1 *s"]]:
        """The labels of these images."""
        if self.labels is None:
            raise ValueError("the pairs are held without labels")
        rows = self.index[chosen.to(self.index.device)]
        return self.labels[rows[:, 0]], self.labels[rows[:, 1]]


class HeldImages:
    """Images, and the labels of each where there are any."""

    def __init__(self) -> None:
        self.images: list[Float[Tensor, "n 1 *s"]] = []
        self.labels: list[UInt8[Tensor, "n 1 *s"]] = []

    def hold(self, images: Float[Tensor, "n 1 *s"], labels: UInt8[Tensor, "n 1 *s"] | None) -> None:
        """Add a batch."""
        self.images.append(images)
        if labels is not None:
            self.labels.append(labels)


class UniqueImages(HeldImages):
    """Images, each held once: all frames of a cine share one fixed frame."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[bytes, int] = {}

    def place(self, images: Float[Tensor, "n 1 *s"], labels: UInt8[Tensor, "n 1 *s"] | None) -> list[int]:
        """The number of each image among those held, to which it is added if it, or what its labels say, is new."""
        found = []
        for k in range(len(images)):
            parts = [part[k : k + 1].clone() for part in (images, labels) if part is not None]
            key = sha256(b"".join(part.numpy().tobytes() for part in parts)).digest()
            if key not in self.places:
                self.places[key] = len(self.images)
                self.hold(parts[0], parts[1] if labels is not None else None)
            found.append(self.places[key])
        return found


def labels_to_train_on(
    sample: Sample, prepared: PreparedSplit
) -> tuple[UInt8[Tensor, "n 1 *s"], UInt8[Tensor, "n 1 *s"]]:
    """The labels of fixed and moving; BadInput if the subject has none."""
    if sample.fixed_labels is None or sample.moving_labels is None or not prepared.structures:
        which = f"{sample.name}, in {prepared.split} of {prepared.data}, has no labels to train on"
        raise BadInput(f"{which}: give it some, or leave `labels_weight` and `batch_dice` at 0")
    return sample.fixed_labels, sample.moving_labels
