"""The paper's tables, as data: which methods on which images, and what is spent on a learned method."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from vrnet.data.dataset import Phantoms
from vrnet.data.protocols import Purpose
from vrnet.files import read_rows
from vrnet.methods.external import FFD, Demons, SyN
from vrnet.methods.method import Method, Trainable
from vrnet.methods.names import parse
from vrnet.training.settings import IN_SPACE, PRESETS, Augmentation, Training

LISTS = Path(__file__).parent / "lists"
RC_NETS = tuple(f"{n}xRC-Net" for n in range(2, 8))
OVERLAP = ("dice_mean", "hd_mean", "folding_percent")


@dataclass(frozen=True)
class TableSpec:
    """A table with one row per method and one column per measure."""

    title: str
    data: str
    methods: tuple[str, ...]
    fallback: str | None = None  # phantoms that stand for the data set where a reader does not have it
    measures: tuple[str, ...] | None = None  # everything that is measured, if not given
    reference: str = ""  # the row that the others are compared with: the paper's, or ours; never chosen by its result
    has_times: bool = False
    also_published: str | None = None  # another data set whose published numbers are shown too


def read_tables() -> dict[str, TableSpec]:
    found = tomllib.loads((LISTS / "tables.toml").read_text(encoding="utf-8"))
    for spec in found.values():
        spec |= {name: tuple(spec[name].split()) for name in ("methods", "measures") if name in spec}
    return {name: TableSpec(**spec) for name, spec in found.items()}


TABLES = read_tables()
REPEATED_SUBJECTS = {data: {"patient076": "patient074"} for data in ("acdc", "acdc3d", "stacks")}
"""By data set, subjects whose images are those of another one, with other masks."""
TIMED_METHODS = (
    "FFD", "TV-L1", "Demons", "SyN", "Siamese", "VoxelMorph", "2xRC-Net", "3xRC-Net", "7xRC-Net", "R-L2-1x1",
    "R-L2-2x1", "R-L2-6x1",
)  # fmt: skip
UNTIMED = ("7xRC-Net", 3), ("R-L2-6x1", 3), ("Siamese", 3)
"""Deep cascades, which need too much memory for volumes, and a network of 2D: methods and dimensions."""


# One number of a table: a mean and, over several subjects, a standard deviation, printed as ".873(.050)".

DECIMALS = {"dice": 3, "hd": 2, "folding": 2, "jacobian": 3, "end": 2}
"""Decimals of a measure, by the first word of its name."""


@dataclass(frozen=True)
class Value:
    """mean(std), printed to so many decimals."""

    mean: float
    std: float | None = None
    decimals: int = 3

    def __str__(self) -> str:
        """Numbers below one have no zero before the point, as in the paper."""
        words = [f"{x:.{self.decimals}f}" for x in (self.mean, self.std) if x is not None]
        mean, *std = [text.removeprefix("0") if text.startswith("0.") else text for text in words]
        return f"{mean}({std[0]})" if std else mean

    @classmethod
    def parse(cls, text: str) -> "Value":
        found = re.fullmatch(r"(\d*\.\d+)(?:\((\d*\.\d+)\))?", text)
        if found is None:
            raise ValueError(f'"{text}" is not a mean and a standard deviation')
        mean, std = found.groups()
        return cls(float(mean), None if std is None else float(std), len(mean.split(".")[1]))


def published_values(name: str) -> dict[str, dict[str, Value]]:
    """The numbers of one of the paper's tables, published/NAME.csv; none where it has no such table."""
    path = Path(__file__).parent / "published" / f"{name}.csv"
    if not path.is_file():
        return {}
    return {
        row.pop("method"): {measure: Value.parse(text) for measure, text in row.items() if text}
        for row in read_rows(path, "one row per method")
    }


# Budgets: the width of networks and their training, on each data set.

DIMENSIONS = {"acdc": 2, "ukbb": 2, "phantom": 2, "hippocampus": 3, "cmr3d": 3, "acdc3d": 3, "phantom3d": 3}
"""The dimension of each data set that tables are made of."""
TIMED_PHANTOMS = {2: Phantoms(shape=(160, 160), spacing=1.8), 3: Phantoms(shape=(128, 128, 96), spacing=1.2)}
"""By dimension, images of the paper's shapes, on which methods are timed."""


@dataclass(frozen=True)
class Budget:
    """The width of networks by dimension (None: the paper's), and how they are trained, by data set."""

    name: str
    widths: Mapping[int, int | None]
    training: Mapping[str, Training]
    phantoms: Mapping[int, Phantoms] | None = None
    """By dimension, the phantoms that replace every data set of that dimension, if any do."""
    replaced_methods: Mapping[str, Method] = field(default_factory=dict)
    """Methods that have other parameters here than the tuned ones, by the names that tables give them."""
    trained_as: Mapping[str, Purpose] = field(default_factory=dict)
    """By data set, what training subjects are prepared for, if not for training."""
    data_sets: Mapping[str, str] = field(default_factory=dict)
    """By data set, the one that is read in its place: the same subjects, measured alike, with more to train on."""
    beside: "tuple[str, Budget] | None" = None  # a budget whose results tables show, too, and what they call it
    alphas_of: "Budget | None" = None
    """The budget whose trainings decide on α of each method, where a table chooses it; its own, if not given."""

    def changed(self, name: str, change: Callable[[Training], Training], **others: Any) -> "Budget":
        """This budget under another name, with each of its trainings changed."""
        training = {data: change(settings) for data, settings in self.training.items()}
        return replace(self, name=name, training=training, **others)

    def method(self, name: str, d: int) -> Method:
        """The method of that name; a network has the width of this budget, unless its name gives one."""
        method = self.replaced_methods.get(name) or parse(name)
        if not method.is_trainable:
            return method.resolve(d, None)
        learned = cast(Any, method)
        return learned if learned.width is not None else replace(learned, width=self.widths[d])

    def settings(self, method: Trainable, data: str, alpha: float | None, seed: int) -> Training:
        """How the method is trained on the data; a method whose loss has its own α, such as Siamese, keeps that."""
        chosen = alpha if method.loss.alpha is None else method.loss.alpha
        settings = replace(self.training[data], seed=seed)
        return settings if chosen is None else replace(settings, alpha=chosen)


UNFLIPPED = Augmentation(flip=False, rotation=15.0, tilt=5.0, scale=0.1, translation=0.05)
"""A heart twists and shortens one way: where outlines do not show the motion along an axis, flipping would hide it."""
SHORT_2D = Training(steps=3_000, rate=4e-4, alpha=0.1, validate_every=3_000)
SHORT_3D = Training(steps=500, batch=1, rate=5e-4, alpha=0.02, augmentation=UNFLIPPED, validate_every=500)
PRESET = {
    **{name: PRESETS[name] for name in ("acdc", "ukbb", "cmr3d", "hippocampus")},
    **{"phantom": PRESETS["acdc"], "acdc3d": PRESETS["cmr3d"], "phantom3d": PRESETS["cmr3d"]},
}
SHORT = Budget("short", {2: 16, 3: 8}, {
    **dict.fromkeys(("acdc", "ukbb", "phantom"), SHORT_2D),
    **dict.fromkeys(("cmr3d", "phantom3d"), SHORT_3D),
    "acdc3d": replace(SHORT_3D, steps=1_500, batch=2, alpha=0.1, validate_every=1_500),
    "hippocampus": Training(steps=1_500, batch=4, rate=5e-4, alpha=0.4, augmentation=IN_SPACE, validate_every=1_500),
})  # fmt: skip
CONSISTENT = Budget("consistent", {2: 16, 3: 8}, {
    **dict.fromkeys(("acdc", "ukbb", "phantom"), replace(PRESETS["consistent"], validate_every=3_000)),
    **dict.fromkeys(("cmr3d", "phantom3d"), replace(SHORT_3D, consistency=0.03)),
    "acdc3d": replace(PRESETS["consistent"], batch=2, augmentation=UNFLIPPED, validate_every=3_000),
    "hippocampus": replace(PRESETS["hippocampus-consistent"], validate_every=4_000),
})  # fmt: skip
AUGMENTED = Budget("augmented", {2: None, 3: None}, PRESET, trained_as={"acdc": "evaluation"})
AS_PUBLISHED = replace(AUGMENTED, name="paper", training=PRESET | {
    data: replace(PRESET[data], augmentation=None) for data in PRESET if data != "hippocampus"
})  # fmt: skip
QUICK = Budget(
    "quick", {2: 2, 3: 2}, dict.fromkeys(DIMENSIONS, Training(steps=2, batch=1, rate=1e-3, validate_every=2)),
    {2: Phantoms("phantom", (48, 48), 6.0, {"train": 2, "val": 1, "test": 3}),
     3: Phantoms("phantom3d", (16, 16, 16), 9.0, {"train": 2, "val": 1, "test": 3})},
    {"FFD": FFD(spacing=40.0, levels=1, iterations=5), "Demons": Demons(iterations=(5,)), "SyN": SyN(iterations=(5,))},
)  # fmt: skip
BUDGETS = {
    "paper": AS_PUBLISHED,
    "augmented": AUGMENTED,
    **{
        name: budget.changed(  # validated at its end alone, so that the weights of the last step are kept
            name, lambda training: replace(training, validate_every=training.steps), trained_as={},
            data_sets={"acdc": "acdc-cycles"}, beside=("ED and ES alone", budget),
        )
        for name, budget in (("cycles", AS_PUBLISHED), ("cycles-augmented", AUGMENTED))
    },
    "short": SHORT,
    "central": SHORT.changed("central", lambda training: replace(training, smoothness="CentralDiffusion")),
    "consistent": CONSISTENT,
    "long": CONSISTENT.changed(
        "long",
        lambda training: replace(training, steps=3 * training.steps, validate_every=3 * training.steps),
        alphas_of=CONSISTENT,
    ),
    "quick": QUICK,
}  # fmt: skip
