"""The paper's figures. Each is drawn from numbers, which are written beside it as a CSV file where there are few."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from vrnet.evaluation.cohort import Row
from vrnet.paper.columns import title_of
from vrnet.paper.pictures import denoising, visual
from vrnet.paper.study import Study
from vrnet.paper.tables import CASCADES, TABLES
from vrnet.paper.values import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALPHAS = {2: (0.0, 0.005, 0.05, 0.1, 0.5), 3: (0.0, 0.005, 0.02, 0.1, 0.4)}
SHOWN = ("identity", "FFD", "TV-L1", "Demons", "SyN", "Siamese", "VoxelMorph", "2xRC-Net", "R-L1-3x2", "C-L2-3x1")
STEPS = {"1x1": 1, "2x1": 2, "2x2": 4, "3x2": 6}
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
    known = [name for name in SHOWN if name in TABLES["acdc"].methods or name in TABLES["cmr3d"].methods]
    groups = measured(study, {name: name for name in known})
    figure, axes = panels(2, width=14)
    boxes(axes[0], groups, "dice")
    boxes(axes[1], groups, "hd")
    axes[0].set_title(f"{study.data}: {len(next(iter(groups.values())))} test subjects")
    return figure, flattened(groups)


def alpha(study: Study) -> "tuple[Figure, Numbers]":
    """Hausdorff distance against α, and what validation says about it."""
    name, values = "C-L2-3x1" if study.d == 2 else "C-L1-2x1", ALPHAS[study.d]
    entries = {value: study.entry(name, alpha=value) for value in values}
    study.complete(list(entries.values()))
    numbers: Numbers = []
    for value, entry in entries.items():
        rows = study.rows(entry)
        means = {key: float(np.nanmean([row[key] for row in rows])) for key in ("dice_mean", "hd_mean")}
        numbers.append({"alpha": value, **means, "val_dice": study.config(entry)["validation"].get("val_dice")})
    figure, axes = panels(1)
    places = range(len(values))
    axes[0].plot(places, [row["hd_mean"] for row in numbers], "o-", color="C0", label="Hausdorff, test")
    axes[0].set(xticks=places, xticklabels=[f"{v:g}" for v in values], xlabel="α", ylabel="Hausdorff distance, mm")
    right = axes[0].twinx()
    right.plot(places, [row["val_dice"] for row in numbers], "s--", color="C1", label="Dice, validation")
    right.set_ylabel("Dice")
    axes[0].legend(handles=[*axes[0].get_lines(), *right.get_lines()], loc="best")
    axes[0].set_title(f"{name} on {study.data}: the weight of smoothness")
    return figure, numbers


def cascades(study: Study) -> "tuple[Figure, Numbers]":
    """Dice against the number of cascades: VR-Net and RC-Net, ours and as published on ACDC."""
    lines = {
        "RC-Net": {1: "VoxelMorph"} | {int(name[0]): name for name in CASCADES},
        "R-L1": {n: f"R-L1-{steps}" for steps, n in STEPS.items()},
        "R-L2": {n: f"R-L2-{steps}" for steps, n in STEPS.items()},
    }
    found = {name: study.seeds(name) for line in lines.values() for name in line.values()}
    study.complete(list(chain.from_iterable(found.values())))
    known = published("acdc") | published("ablation_acdc")
    figure, axes = panels(1)
    numbers: Numbers = []
    for colour, (label, line) in enumerate(lines.items()):
        ours = [np.nanmean([row["dice_mean"] for row in study.mean_rows(found[name])]) for name in line.values()]
        theirs = [known[name]["dice_mean"].mean for name in line.values()]
        axes[0].plot(list(line), ours, "o-", color=f"C{colour}", label=f"{label}, {study.data}")
        axes[0].plot(list(line), theirs, "x:", color=f"C{colour}", label=f"{label}, published on acdc")
        numbers += [
            {"method": name, "cascades": n, "dice_mean": float(a), "published": b}
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
