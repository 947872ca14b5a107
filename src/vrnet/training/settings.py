"""How a network is trained: the paper's schedules as presets."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

from vrnet.data.prepared import PreparedSplit
from vrnet.errors import BadInput
from vrnet.methods.method import Trainable
from vrnet.training.augmentation import Augmentation


@dataclass(frozen=True)
class Training:
    """Adam on ℒ(u) = D + α S, without labels."""

    steps: int = 20_000
    batch: int = 10
    """Pairs a step, over all devices together."""
    rate: float = 1e-4
    """Of Adam, at the start."""
    hold: float = 0.5
    """The part of the steps that keeps that rate; then it falls linearly to zero. 1 keeps it to the end."""
    alpha: float = 0.05
    """Weight of the smoothness of the field."""
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    """None for a faithful run: the images as they are."""
    precision: Literal["bf16", "float32"] = "bf16"
    """Of the networks on a GPU; warps, data steps and the loss are always float32."""
    recompute: bool = False
    """Recompute what the networks saw instead of keeping it: less memory, about a third more time."""
    validate_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.validate_every) < 1:
            raise BadInput("a run has at least 1 step, 1 pair in a batch, and 1 step between validations")
        if not (0 < self.rate < inf and 0 <= self.alpha < inf):
            raise BadInput(f"rate is {self.rate} and alpha {self.alpha}: give a rate above 0, and alpha 0 or more")
        if not 0 <= self.seed < 2**31:
            raise BadInput(f"seed is {self.seed}: give a whole number from 0 to {2**31 - 1}")
        if not 0 <= self.hold <= 1:
            raise BadInput(f"hold is {self.hold}: give the part of the steps that keeps the rate, from 0 to 1")

    def rate_at(self, step: int) -> float:
        """The learning rate of a step: constant, then linear to zero."""
        falling = (self.steps - step) / ((1 - self.hold) * self.steps) if self.hold < 1 else 1.0
        return self.rate * min(1.0, falling)


IN_SPACE = Augmentation(rotation=15.0, tilt=10.0, scale=0.1, translation=0.05)
PRESETS = {
    "ukbb": Training(steps=50_000, alpha=0.1),
    "acdc": Training(steps=20_000, alpha=0.05),
    "cmr3d": Training(steps=30_000, batch=2, hold=1.0, alpha=1e-4, augmentation=IN_SPACE, recompute=True),
    "short": Training(steps=3_000, rate=4e-4, alpha=0.05),
    "hippocampus": Training(steps=3_000, batch=4, rate=5e-4, alpha=0.4, augmentation=IN_SPACE),
    "phantom": Training(steps=250, batch=2, rate=3e-3, alpha=0.05, validate_every=50),
}
"""The first three are the paper's; the others are ours, for a tenth of the steps or less."""
OF_DATA = {"acdc": "acdc", "ukbb": "ukbb", "hippocampus": "hippocampus", "phantom": "phantom"}
OF_DIMENSION = {2: "acdc", 3: "cmr3d"}


def settings(method: Trainable, preset: str, train: PreparedSplit, augment: bool, given: Mapping[str, Any]) -> Training:
    """A preset (auto: that of the data, or else of its dimension), changed by what is given; Siamese has its own α."""
    if preset == "auto":
        preset = OF_DATA.get(train.data, OF_DIMENSION[len(train.samples[0].spacing)])
    own = {} if method.loss.alpha is None else {"alpha": method.loss.alpha}
    found = replace(PRESETS[preset], **{**own, **given})
    return found if augment else replace(found, augmentation=None)
