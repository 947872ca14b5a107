"""How a network is trained: the paper's schedules as presets. `Training` is what Python, `vrnet train` and config.json
know of it; its docstrings are the help of the command (options.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from vrnet.errors import BadInput
from vrnet.methods.method import Trainable
from vrnet.training.augmentation import Augmentation

if TYPE_CHECKING:
    from vrnet.data.prepared import PreparedSplit

MAX_SEED = 2**31 - 1
MAX_COUNT = 100_000_000
"""Steps and pairs: at a thousand steps per second, more than a day of them."""

MAX_WEIGHT = 1e30
"""Rate and α must be numbers in float32, too."""


@dataclass(frozen=True)
class Training:
    """Adam on ℒ(u) = D + α S, without labels."""

    steps: int = 20_000
    """How often the weights are changed."""
    batch: int = 10
    """Pairs per step, over all devices together."""
    rate: float = 1e-4
    """The learning rate of Adam, at the start."""
    hold: float = 0.5
    """The part of the steps, from 0 to 1, that keeps this rate; then it falls linearly to zero."""
    alpha: float = 0.05
    """The weight of smoothness in the loss."""
    similarity: str | None = None
    """The data term of the loss, such as L1 or L2, if not the method's own."""
    smoothness: str | None = None
    """The regulariser of the loss, such as Diffusion or Bending, if not the method's own."""
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    """Random changes of the images, which the paper does not make: they are turned, flipped, scaled, shifted and
    brightened, and fixed and moving exchanged. Without it, or with --no-augment, they stay as they are."""
    precision: Literal["bf16", "float32"] = "bf16"
    """The numbers that networks compute with on a GPU; warps, data steps and the loss are always float32."""
    recompute: bool = False
    """Gradient checkpointing: half the memory or less, for about a third more time."""
    validate_every: int = 500
    """Steps between two validations."""
    seed: int = 0
    """Decides on the first weights, the batches and the augmentation."""

    def __post_init__(self) -> None:
        counts = self.steps, self.batch, self.validate_every
        if not 1 <= min(counts) <= max(counts) <= MAX_COUNT:
            raise BadInput("a run has at least 1 step, 1 pair in a batch, and 1 step between validations; "
                           f"and at most {MAX_COUNT:,} of each")  # fmt: skip
        if not (0 < self.rate <= MAX_WEIGHT and 0 <= self.alpha <= MAX_WEIGHT):
            said = f"rate is {self.rate} and alpha {self.alpha}"
            raise BadInput(f"{said}: give a rate above 0, alpha 0 or more, and both {MAX_WEIGHT:g} at most")
        if not 0 <= self.seed <= MAX_SEED:
            raise BadInput(f"seed is {self.seed}: give a whole number from 0 to {MAX_SEED}")
        if not 0 <= self.hold <= 1:
            raise BadInput(f"hold is {self.hold}: give the part of the steps that keeps the rate, from 0 to 1")

    def rate_at(self, step: int) -> float:
        """The learning rate of a step: constant, then linear to zero."""
        falling = (self.steps - step) / ((1 - self.hold) * self.steps) if self.hold < 1 else 1.0
        return self.rate * min(1.0, falling)


IN_SPACE = Augmentation(rotation=15.0, tilt=10.0, scale=0.1, translation=0.05)
"""For volumes, which lie the same way in space more or less."""
PRESETS = {
    "ukbb": Training(steps=50_000, alpha=0.1),
    "acdc": Training(steps=20_000, alpha=0.05),
    "cmr3d": Training(steps=30_000, batch=2, hold=1.0, alpha=1e-4, augmentation=IN_SPACE, recompute=True),
    "short": Training(steps=3_000, rate=4e-4, alpha=0.05),
    "hippocampus": Training(steps=3_000, batch=4, rate=5e-4, alpha=0.4, augmentation=IN_SPACE),
    "phantom": Training(steps=250, batch=2, rate=3e-3, alpha=0.05, validate_every=50),
}
"""The first three are the paper's; the others are ours, for a tenth of the steps or less."""
PRESET_OF_DATA = {"acdc": "acdc", "ukbb": "ukbb", "hippocampus": "hippocampus", "phantom": "phantom"}
PRESET_OF_DIMENSION = {2: "acdc", 3: "cmr3d"}


def settings(method: Trainable, preset: str, split: "PreparedSplit", changes: Mapping[str, Any]) -> Training:
    """A preset ("auto": that of the data, or else of its dimension) with the method's own α, and these changes."""
    if preset == "auto":
        preset = PRESET_OF_DATA.get(split.data, PRESET_OF_DIMENSION[len(split.samples[0].spacing)])
    own = {} if method.loss.alpha is None else {"alpha": method.loss.alpha}
    return replace(PRESETS[preset], **{**own, **changes})
