"""The pairs to train on: images, with labels where asked for, held on one device, and which two make a pair."""

from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import permutations

import torch
from jaxtyping import Float, Integer, Shaped, UInt8
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.errors import BadInput


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pair k is images[index[k, 0]], fixed, and images[index[k, 1]], moving."""

    images: Float[Tensor, "m c *s"]
    """Each with its further channels, if there are any."""
    index: Integer[Tensor, "n 2"]
    spacing: tuple[float, ...]
    labels: UInt8[Tensor, "m 1 *s"] | None = None
    """Those of each image, where they were asked for."""
    structures: tuple[int, ...] = ()
    """The labels that mean something."""

    @classmethod
    def from_split(cls, prepared: PreparedSplit, with_labels: bool = False) -> "Pairs":
        """The pairs of a split: within each subject or, where subjects are compared, every image with every other.

        A fixed image is held once, by what it and its labels show: all frames of a cine share one."""
        fixed: dict[bytes, tuple[Tensor, ...]] = {}
        moving, which, grids = list[tuple[Tensor, ...]](), list[bytes](), set()
        for sample in prepared.samples:  # read one by one: labels and images that come again are let go at once
            grids.add((sample.fixed.shape[2:], sample.spacing))
            if len(grids) > 1:
                raise BadInput(f"the images of {prepared.data} differ in shape or spacing: prepare them on one grid")
            here, there = [sample.fixed], [sample.moving]
            if with_labels:
                if sample.fixed_labels is None or sample.moving_labels is None or not prepared.structures:
                    told = f"{sample.name}, in {prepared.split} of {prepared.data}, has no labels to train on"
                    raise BadInput(f"{told}: give it some, or leave `labels_weight` and `batch_dice` at 0")
                here, there = [*here, sample.fixed_labels], [*there, sample.moving_labels]
            for parts in zip(*(torch.split(part, 1) for part in here), strict=True):
                key = sha256(b"".join(part.numpy().tobytes() for part in parts)).digest()
                fixed.setdefault(key, tuple(part.clone() for part in parts))
                which.append(key)
            if not prepared.pairs_across_subjects:
                moving.append(tuple(there))
        (_, spacing), count = grids.pop(), len(fixed)
        if prepared.pairs_across_subjects and count < 2:
            raise BadInput(f"{prepared.split} of {prepared.data} has one image, and two are needed: add subjects")
        place = {key: k for k, key in enumerate(fixed)}
        within = ((place[key], count + k) for k, key in enumerate(which))
        index = torch.tensor(list(permutations(range(count), 2) if prepared.pairs_across_subjects else within))
        images, *held = (torch.cat(column) for column in zip(*fixed.values(), *moving, strict=True))
        return cls(images, index, spacing, held[0] if held else None, tuple(prepared.structures.values()))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[2:])

    def move_to(self, device: torch.device) -> "Pairs":
        """The pairs on a device if they take no more than a quarter of its free memory; otherwise where they are."""
        if device.type == "cuda" and self.images.nbytes > torch.cuda.mem_get_info(device)[0] / 4:
            return self
        labels = None if self.labels is None else self.labels.to(device)
        return replace(self, images=self.images.to(device), index=self.index.to(device), labels=labels)

    def batch(self, chosen: Integer[Tensor, "b"], with_labels: bool = False) -> tuple[Shaped[Tensor, "b _ *s"], ...]:
        """The fixed and the moving images of the chosen pairs, and their labels if asked for."""
        rows = self.index[chosen.to(self.index.device)]
        held = (self.images, self.labels) if with_labels and self.labels is not None else (self.images,)
        return tuple(part[rows[:, side]] for part in held for side in (0, 1))
