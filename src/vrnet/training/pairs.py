"""The pairs to train on: images held together on one device, and which two of them make a pair."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import permutations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import free_memory
from vrnet.errors import BadInput

MAX_PART_OF_GPU_MEMORY = 0.25


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pair k is images[index[k, 0]], fixed, and images[index[k, 1]], moving."""

    images: Float[Tensor, "m 1 *s"]
    index: Integer[Tensor, "n 2"]
    spacing: tuple[float, ...]

    @classmethod
    def from_split(cls, prepared: PreparedSplit) -> "Pairs":
        """The pairs of a split: within each subject or, where subjects are compared, every image with every other."""
        samples = list(prepared.samples)
        if len({(sample.fixed.shape[2:], sample.spacing) for sample in samples}) > 1:
            raise BadInput(f"the images of {prepared.data} differ in shape or spacing: prepare them on one grid")
        fixed, which = unique_images([image for sample in samples for image in sample.fixed])
        if prepared.pairs_across_subjects:
            index = torch.tensor(list(permutations(range(len(fixed)), 2)))
            return cls(fixed, index, samples[0].spacing)
        images = torch.cat([fixed, *(sample.moving for sample in samples)])
        return cls(images, torch.stack([which, torch.arange(len(fixed), len(images))], dim=1), samples[0].spacing)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[2:])

    def move_to(self, device: torch.device) -> "Pairs":
        """The pairs on a device if they take no more than a quarter of its free memory; otherwise where they are."""
        if self.images.nbytes > MAX_PART_OF_GPU_MEMORY * free_memory(device):
            return self
        return replace(self, images=self.images.to(device), index=self.index.to(device))

    def batch(self, chosen: Integer[Tensor, "b"]) -> tuple[Float[Tensor, "b 1 *s"], Float[Tensor, "b 1 *s"]]:
        """The fixed and the moving images of the chosen pairs."""
        rows = self.index[chosen.to(self.index.device)]
        return self.images[rows[:, 0]], self.images[rows[:, 1]]


def unique_images(images: Sequence[Float[Tensor, "1 *s"]]) -> tuple[Float[Tensor, "m 1 *s"], Integer[Tensor, " n"]]:
    """Each image once, and for every given image its place among them: all frames of a cine share one fixed frame."""
    keys = [sha256(image.numpy().tobytes()).digest() for image in images]
    kept = dict(zip(keys, images, strict=True))
    place = {key: k for k, key in enumerate(kept)}
    return torch.stack(list(kept.values())), torch.tensor([place[key] for key in keys])
