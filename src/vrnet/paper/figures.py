"""The paper's figures. Each is drawn from numbers, which are written beside it as a CSV file where there are few."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from vrnet.files import Row
from vrnet.paper.columns import title_of
from vrnet.paper.pictures import COMPARED, denoising, visual
from vrnet.paper.study import Entry, Study
from vrnet.paper.tables import CASCADES
from vrnet.paper.values import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALPHAS = {2: (0.0, 0.005, 0.05, 0.1, 0.5), 3: (0.0, 0.005, 0.02, 0.1, 0.4)}
SHOWN = {
    2: ("identity", "FFD", "TV-L1", "Demons", "SyN", "Siamese", "VoxelMorph", "2xRC-Net", "R-L1-3x2", "C-L2-3x1"),
    3: ("identity", *COMPARED[3]),
}
STEPS = {"1x1": 1, "2x1": 2, "2x2": 4, "3x2": 6}
LINES = {
    "RC-Net": {1: "VoxelMorph"} | {int(name[0]): name for name in CASCADES},
    **{kind: {n: f"{kind}-{steps}" for steps, n in STEPS.items()} for kind in ("R-L1", "R-L2")},
}
"""{label: {cascades: method}}"""
Numbers = list[Row]


@dataclass(frozen=True)
class Drawing:
    """What is drawn, and of which data set."""

    title: str
    draw: "Callable[[Study], tuple[Figure, Numbers]]"
    data: str = "acdc"


def parameterisations(study: Study) -> "tuple[Figure, Numbers]":
    """Dice by structure of R-L2-6x1, its steps with one set of weights (Θ1) or each its own (Θ2)."""
    groups = measured(study, {"Θ1": "R-L2-6x1-Θ1", "Θ2": "R-L2-6x1"})
    figure, axes = panels(1)
    boxes(axes[0], groups, "dice")
    axes[0].set_title(f"R-L2-6x1 on {study.data}: shared weights (Θ1) and own (Θ2)")
    return figure, flattened(groups)


def boxplots(study: Study) -> "tuple[Figure, Numbers]":
    """Dice and Hausdorff distance by method and structure."""
    groups = measured(study, {name: name for name in SHOWN[study.d]})
    figure, axes = panels(2, width=14.0)
    boxes(axes[0], groups, "dice")
    boxes(axes[1], groups, "hd")
    axes[0].set_title(f"{study.data}: {len(next(iter(groups.values())))} test subjects")
    return figure, flattened(groups)


def alpha(study: Study) -> "tuple[Figure, Numbers]":
    """Hausdorff distance against α, and what validation says about it."""
    name = "C-L2-3x1" if study.d == 2 else "C-L1-2x1"
    entries = [study.entry(name, alpha=value) for value in ALPHAS[study.d]]
    study.complete(entries)
    numbers = [{"alpha": value, **outcome(study, entry)} for value, entry in zip(ALPHAS[study.d], entries, strict=True)]
    figure, axes = panels(1)
    places, left, right = range(len(numbers)), axes[0], axes[0].twinx()
    left.plot(places, [row["hd_mean"] for row in numbers], "o-", color="C0", label="Hausdorff, test")
    right.plot(places, [row["val_dice"] for row in numbers], "s--", color="C1", label="Dice, validation")
    left.set(xlabel="α", ylabel="Hausdorff distance, mm", title=f"{name} on {study.data}: the weight of smoothness")
    left.set_xticks(places, [f"{row['alpha']:g}" for row in numbers])
    right.set_ylabel("Dice")
    left.legend(handles=[*left.get_lines(), *right.get_lines()], loc="best")
    return figure, numbers


def outcome(study: Study, entry: Entry) -> Row:
    """The means over test subjects, and Dice on those of validation."""
    means = {kind: mean_of(study.rows(entry), kind) for kind in ("dice_mean", "hd_mean")}
    return {**means, "val_dice": study.config(entry)["validation"].get("val_dice")}


def cascades(study: Study) -> "tuple[Figure, Numbers]":
    """Dice against the number of cascades: VR-Net and RC-Net, ours and as published on ACDC."""
    groups = measured(study, {name: name for line in LINES.values() for name in line.values()})
    known = published("acdc") | published("ablation_acdc")
    figure, axes = panels(1)
    numbers: Numbers = []
    for colour, (label, line) in enumerate(LINES.items()):
        ours = [mean_of(groups[name], "dice_mean") for name in line.values()]
        theirs = [known[name]["dice_mean"].mean for name in line.values()]
        axes[0].plot(list(line), ours, "o-", color=f"C{colour}", label=f"{label}, {study.data}")
        axes[0].plot(list(line), theirs, "x:", color=f"C{colour}", label=f"{label}, published on acdc")
        numbers += [
            {"method": name, "cascades": n, "dice_mean": a, "published": b}
            for (n, name), a, b in zip(line.items(), ours, theirs, strict=True)
        ]
    axes[0].set(xlabel="cascades", ylabel="Dice")
    axes[0].legend(fontsize=8)
    return figure, numbers


FIGURES = {
    "parameterisations": Drawing("One set of weights for all steps, or one for each", parameterisations),
    "alpha": Drawing("Hausdorff distance against α", alpha),
    "cascades": Drawing("Dice against the number of cascades", cascades),
    "visual": Drawing("All methods on one subject", visual),
    "boxplots": Drawing("Dice and Hausdorff distance by method and structure", boxplots),
    "denoising": Drawing("The field after each cascade, from a noisy start", denoising),
}


def measured(study: Study, methods: dict[str, str]) -> dict[str, list[Row]]:
    """What each method scored on each subject, by its label."""
    found = {label: study.seeds(name) for label, name in methods.items()}
    study.complete(list(chain.from_iterable(found.values())))
    return {label: study.mean_rows(entries) for label, entries in found.items()}


def mean_of(rows: list[Row], kind: str) -> float:
    return float(np.nanmean([row[kind] for row in rows]))


def flattened(groups: dict[str, list[Row]]) -> Numbers:
    return [{"method": label, **row} for label, rows in groups.items() for row in rows]


def panels(rows: int, width: float = 7.0) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2 * rows), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows)))


def boxes(ax: "Axes", groups: dict[str, list[Row]], kind: str) -> None:
    """A box for each structure and each method, side by side; the line is the median, the mark the mean."""
    columns = [column for column in next(iter(groups.values()))[0] if column.startswith(f"{kind}_")]
    room = 0.8 / len(groups)
    for number, (label, rows) in enumerate(groups.items()):
        values = [[row[c] for row in rows if not np.isnan(row[c])] for c in columns]
        places = [k + (number - (len(groups) - 1) / 2) * room for k in range(len(columns))]
        drawn = ax.boxplot(
            values, positions=places, widths=0.9 * room, showmeans=True, patch_artist=True, label=label,
            medianprops={"color": "black"}, meanprops={"markersize": 3, "markerfacecolor": "white"},
            flierprops={"markersize": 2},
        )  # fmt: skip
        for box in drawn["boxes"]:
            box.set_facecolor(f"C{number}")
    ax.set_xticks(range(len(columns)), [title_of(c).split(" ", 1)[1] for c in columns])
    ax.set_ylabel({"dice": "Dice", "hd": "Hausdorff distance, mm"}[kind])
    ax.legend(fontsize=8, ncols=min(len(groups), 5))
