"""The pairs to train on: images held together on one device, and which two of them make a pair."""

from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import permutations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import free_memory
from vrnet.errors import BadInput
from vrnet.images.checks import available_memory

MAX_PART_OF_GPU_MEMORY = 0.25
COPIES_OF_BATCH = 3
"""How often a batch is held at least: as it is drawn, augmented, and warped; networks take far more."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pair k is images[index[k, 0]], fixed, and images[index[k, 1]], moving."""

    images: Float[Tensor, "m 1 *s"]
    index: Integer[Tensor, "n 2"]
    spacing: tuple[float, ...]

    @classmethod
    def from_split(cls, prepared: PreparedSplit) -> "Pairs":
        """The pairs of a split: within each subject or, where subjects are compared, every image with every other."""
        fixed, moving, which, grids = UniqueImages(), [], [], set()
        for sample in prepared.samples:  # read one by one: labels and images that come again are let go at once
            grids.add((sample.fixed.shape[2:], sample.spacing))
            if len(grids) > 1:
                raise BadInput(f"the images of {prepared.data} differ in shape or spacing: prepare them on one grid")
            which += [fixed.place(image) for image in sample.fixed]
            moving += [] if prepared.pairs_across_subjects else [sample.moving]
        (_, spacing), count = grids.pop(), len(fixed.images)
        if prepared.pairs_across_subjects and count < 2:
            raise BadInput(f"{prepared.split} of {prepared.data} has one image, and pairs are of two: add subjects")
        if prepared.pairs_across_subjects:
            index = torch.tensor(list(permutations(range(count), 2)))
        else:
            index = torch.stack([torch.tensor(which), torch.arange(count, count + len(which))], dim=1)
        return cls(torch.cat(fixed.images + moving), index, spacing)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[2:])

    def move_to(self, device: torch.device) -> "Pairs":
        """The pairs on a device if they take no more than a quarter of its free memory; otherwise where they are."""
        if self.images.nbytes > MAX_PART_OF_GPU_MEMORY * free_memory(device):
            return self
        return replace(self, images=self.images.to(device), index=self.index.to(device))

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


class UniqueImages:
    """Images, each held once: all frames of a cine share one fixed frame."""

    def __init__(self) -> None:
        self.images: list[Float[Tensor, "1 1 *s"]] = []
        self.places: dict[bytes, int] = {}

    def place(self, image: Float[Tensor, "1 *s"]) -> int:
        """The number of an image among those held, to which it is added if it is new."""
        key = sha256(image.numpy().tobytes()).digest()
        if key not in self.places:
            self.places[key] = len(self.images)
            self.images.append(image[None].clone())
        return self.places[key]
