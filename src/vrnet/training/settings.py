"""How a network is trained: the paper's schedules as presets. `Training` is what Python, `vrnet train` and config.json
know of it; its docstrings are the help of the command."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from vrnet.errors import check_range

if TYPE_CHECKING:
    from vrnet.data.prepared import PreparedSplit
    from vrnet.methods.method import Trainable

MAX_SEED = 2**31 - 1
MAX_COUNT = 100_000_000
"""Steps and pairs: at a thousand steps per second, more than a day of them."""


@dataclass(frozen=True)
class Augmentation:
    """How far images may be changed; zeros and False leave them as they are."""

    flip: bool = True
    """Mirror along each axis, half of the time."""
    rotation: float = 180.0
    """Largest turn within the plane of the first two axes, in degrees."""
    tilt: float = 0.0
    """In 3D, the largest turn in the other two planes, in degrees."""
    scale: float = 0.2
    """Largest change of size, as a part of it."""
    translation: float = 0.1
    """Largest shift along each axis, as a part of half the image."""
    gamma: float = 0.3
    """Intensities are raised to the power e^g, |g| at most this."""
    swap: float = 0.5
    """The probability that fixed and moving are exchanged."""
    contrast: float = 0.0
    """Intensities I become 1/2 + e^c (I − 1/2), |c| at most this; the same for both images."""
    brightness: float = 0.0
    """The most that is added to all intensities of both images."""
    noise: float = 0.0
    """The largest standard deviation of normal noise, which is another in each image."""
    elastic: float = 0.0
    """How far the control points of a smooth map, the same for both images, move along each axis, in voxels."""
    twins: float = 0.0
    """The probability that moving is fixed again, moved on its own: its motion is known from the image, and may be
    none."""
    twin_motion: float = 3.0
    """How far the control points of such a motion move along each axis at most, in voxels."""
    bias: float = 0.0
    """Intensities are multiplied by e^b, b being a smooth map with values of this at most."""
    blur: float = 0.0
    """How far, from 0 to 1, images are blurred at most, by a Gaussian of 1.5 voxels."""
    cut: float = 0.0
    """The probability that a pair is black outside a box about its labels, where these are trained on: as images are
    that were cut to the heart, within a margin."""


@dataclass(frozen=True)
class Training:
    """Adam on ℒ(u) = D + α S and, where their weights are above 0, inverse consistency and labels."""

    steps: int = 20_000
    """How often the weights are changed."""
    batch: int = 10
    """Pairs per step, over all devices together."""
    rate: float = 1e-4
    """The learning rate of Adam, at the start."""
    hold: float = 0.5
    """The part of the steps, from 0 to 1, that keeps this rate; then it falls linearly to zero."""
    warm_up: int = 0
    """Steps in which the rate rises linearly to its full height."""
    clip: float | None = None
    """Gradients longer than this are shortened to it; none are without it."""
    alpha: float = 0.05
    """The weight of smoothness in the loss."""
    similarity: str | None = None
    """The data term of the loss, such as L2, or a sum such as 0.5*L1+0.05*LNCC(radii=4), if not the method's own."""
    smoothness: str | None = None
    """The regulariser of the loss, such as Bending, or a sum such as Diffusion+5*Bending, if not the method's own."""
    consistency: float = 0.0
    """The weight of inverse consistency in the loss. Above 0, every pair is registered in both directions."""
    labels_weight: float = 0.0
    """The weight of labels in the loss (soft Dice). Above 0, all subjects that are trained on need labels."""
    batch_dice: float = 0.0
    """The weight of batch Dice in the loss: soft Dice of all pairs of a step together. Above 0, all subjects that are
    trained on need labels, and the rate must be small, such as 1.5e-4."""
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    """Random changes of the images, which the paper does not make: rotation, flips, scale, shift, brightness, and
    exchange of fixed and moving. With --no-augment there are none."""
    precision: Literal["bf16", "float32"] = "bf16"
    """Of networks on a GPU; warps, data steps and the loss are always float32."""
    recompute: bool = False
    """Gradient checkpointing: half the memory or less, for about a third more time."""
    validate_every: int = 500
    """Steps between two validations."""
    seed: int = 0
    """Decides on the first weights, the batches and the augmentation."""

    def __post_init__(self) -> None:
        check_range({name: getattr(self, name) for name in ("steps", "batch", "validate_every")}, 1, MAX_COUNT)
        check_range({"warm_up": self.warm_up}, most=MAX_COUNT)
        check_range({"seed": self.seed}, most=MAX_SEED)
        check_range({"hold": self.hold}, most=1)
        check_range({"rate": self.rate} | ({} if self.clip is None else {"clip": self.clip}), above=True)
        check_range({name: getattr(self, name) for name in ("alpha", "consistency", "labels_weight", "batch_dice")})

    @property
    def uses_labels(self) -> bool:
        """Whether labels are in the loss, so that all subjects that are trained on need them."""
        return self.labels_weight > 0 or self.batch_dice > 0

    @property
    def mirrors(self) -> bool:
        """Whether images are mirrored, half of the time."""
        return self.augmentation is not None and self.augmentation.flip

    def rate_at(self, step: int) -> float:
        """The learning rate of a step: it rises while warming up, is constant, then falls linearly to zero."""
        falling = (self.steps - step) / ((1 - self.hold) * self.steps) if self.hold < 1 else 1.0
        rising = (step + 1) / self.warm_up if self.warm_up else 1.0
        return self.rate * min(1.0, falling, rising)


IN_SPACE = Augmentation(rotation=15.0, tilt=10.0, scale=0.1, translation=0.05)
"""For volumes, which lie the same way in space more or less."""
JITTERED = Augmentation(rotation=45.0, swap=0.5, twins=0.1, contrast=0.2, brightness=0.1, noise=0.03, elastic=4.0)
JITTERED_IN_SPACE = replace(IN_SPACE, flip=False, swap=0.5, contrast=0.2, brightness=0.1, noise=0.03, elastic=2.0)
"""Not mirrored: where a structure begins and ends is not the same in a mirror, and labels tell."""
TURNED = Augmentation(rotation=45.0, swap=0.3)
STEADY = Training(rate=4e-4, warm_up=200, clip=1.0)
DETAIL = "0.5*L1+0.05*LNCC(radii=4,epsilon=0.05)"
"""Intensities for what is far apart, and the correlation within 9 voxels for edges."""
PRESETS = {
    "acdc": Training(steps=20_000, alpha=0.05),
    "ukbb": Training(steps=50_000, alpha=0.1),
    "cmr3d": Training(steps=30_000, batch=2, hold=1.0, alpha=1e-4, augmentation=IN_SPACE, recompute=True),
    "short": Training(steps=3_000, rate=4e-4, alpha=0.05),
    "labels": replace(
        STEADY, steps=20_000, alpha=0.08, similarity=DETAIL, smoothness="Bending+60*Folding", consistency=0.03,
        labels_weight=0.6, augmentation=JITTERED,
    ),
    "consistent": replace(
        STEADY, steps=3_000, alpha=0.05, similarity=DETAIL, smoothness="Bending", consistency=0.03,
        augmentation=Augmentation(rotation=45.0),
    ),
    "hippocampus": Training(steps=3_000, batch=4, rate=5e-4, alpha=0.4, augmentation=IN_SPACE),
    "hippocampus-labels": replace(
        STEADY, steps=3_600, batch=4, alpha=0.05, similarity=DETAIL, smoothness="Diffusion+2000*Folding",
        labels_weight=1.0, augmentation=JITTERED_IN_SPACE,
    ),
    "hippocampus-consistent": replace(
        STEADY, steps=8_000, batch=4, alpha=0.5, similarity="LNCC(radii=4,epsilon=0.05)", smoothness="Bending",
        consistency=0.1, augmentation=replace(IN_SPACE, flip=False, swap=0.3),
    ),
    "segmenter": Training(
        steps=5_000, batch=12, rate=1e-3, hold=0.2, warm_up=200, clip=1.0, labels_weight=1.0,
        augmentation=Augmentation(
            scale=0.4, gamma=0.5, contrast=0.3, brightness=0.1, noise=0.05, elastic=4.0, bias=0.3, blur=1.0, cut=0.2
        ),
    ),
    "segmenter-volumes": Training(
        steps=3_000, batch=4, rate=1e-3, hold=0.2, warm_up=200, clip=1.0, labels_weight=1.0,
        augmentation=replace(JITTERED_IN_SPACE, bias=0.3, blur=1.0),
    ),
    "pyramid": replace(
        STEADY, steps=3_000, alpha=0.1, similarity=DETAIL, smoothness="Bending", augmentation=TURNED,
    ),
    "pyramid-labels": replace(
        STEADY, steps=5_000, rate=6e-4, alpha=0.1, similarity=DETAIL, smoothness="Bending+60*Folding",
        labels_weight=1.0, augmentation=replace(JITTERED, swap=0.3),
    ),
    "phantom": Training(steps=250, batch=2, rate=3e-3, alpha=0.05, validate_every=50),
}  # fmt: skip
"""The first three are the paper's; the others are ours, for fewer steps. Those called labels need the labels of those
who are trained on; those called consistent register every pair in both directions."""
PRESET_OF_DATA = {"acdc": "acdc", "ukbb": "ukbb", "hippocampus": "hippocampus", "phantom": "phantom"}
PRESET_OF_DIMENSION = {2: "acdc", 3: "cmr3d"}


def fill_settings(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a file keeps; those that came later are at their defaults, which change nothing."""
    defaults = asdict(Training())
    found, augmentation = {**defaults, **kept}, kept.get("augmentation")
    if isinstance(augmentation, dict):
        found["augmentation"] = {**defaults["augmentation"], **augmentation}
    return found


def settings(method: "Trainable", preset: str, split: "PreparedSplit", changes: Mapping[str, Any]) -> Training:
    """A preset ("auto": that of the data, or else of its dimension) with the method's own α, and these changes."""
    d = len(split.samples[0].spacing)
    if preset == "auto" and method.segments:
        preset = {2: "segmenter", 3: "segmenter-volumes"}[d]
    if preset == "auto":
        preset = PRESET_OF_DATA.get(split.data, PRESET_OF_DIMENSION[d])
    own = {} if method.loss.alpha is None else {"alpha": method.loss.alpha}
    return replace(PRESETS[preset], **{**own, **changes})
