"""The paper's figures. Each is drawn from numbers, which are written beside it as a CSV file."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING

import numpy as np

from vrnet.errors import BadInput
from vrnet.files import Row, exists, read_json, write_json
from vrnet.paper.results import Entry, Results, Study, best_alphas
from vrnet.paper.specs import RC_NETS, published_values
from vrnet.paper.tables import measure_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Methods, α, cascades and subjects to train on.

COMPARED_METHODS = {
    2: ("FFD", "TV-L1", "Siamese", "VoxelMorph", "2xRC-Net", "R-L1-3x2", "C-L2-3x1"),
    3: ("Demons", "SyN", "FFD", "VoxelMorph", "2xRC-Net", "R-L1-2x1", "C-L1-2x1"),
}
ALPHAS = {2: (0.0, 0.005, 0.05, 0.1, 0.5), 3: (0.0, 0.005, 0.02, 0.1, 0.4)}
ALPHA_METHODS = {2: ("R-L1-3x2", "R-L2-6x1", "C-L2-3x1"), 3: ("C-L1-2x1",)}
BOX_METHODS = {
    2: ("identity", "FFD", "TV-L1", "Demons", "SyN", "Siamese", "VoxelMorph", "2xRC-Net", "R-L1-3x2", "C-L2-3x1"),
    3: ("identity", *COMPARED_METHODS[3]),
}
EFFICIENT_METHODS = {
    2: ("VoxelMorph", "3xRC-Net", "R-L1-3x2", "D-L2-3x1"),
    3: ("VoxelMorph", "2xRC-Net", "R-L1-2x1", "D-L1-2x1"),
}
STEPS = {"1x1": 1, "2x1": 2, "2x2": 4, "3x2": 6}
CASCADE_LINES = {
    "RC-Net": {1: "VoxelMorph"} | {int(name[0]): name for name in RC_NETS},
    **{kind: {n: f"{kind}-{steps}" for steps, n in STEPS.items()} for kind in ("R-L1", "R-L2")},
    "C-L2": {3: "C-L2-3x1", 6: "C-L2-6x1"},
}  # {label of a line: {number of cascades: method}}


def draw_parameterisations(study: Study) -> "tuple[Figure, list[Row]]":
    """Dice by structure of R-L2-6x1: one set of weights for all its steps (Θ1), or one for each (Θ2)."""
    title = f"R-L2-6x1 on {study.data}: shared weights (Θ1) and own (Θ2)"
    return draw_structures(study, {"Θ1": "R-L2-6x1-Θ1", "Θ2": "R-L2-6x1"}, ("dice",), 7.0, title)


def draw_boxplots(study: Study) -> "tuple[Figure, list[Row]]":
    """Dice and Hausdorff distance by method and structure."""
    return draw_structures(study, {name: name for name in BOX_METHODS[study.d]}, ("dice", "hd"), 14.0)


def draw_alpha(study: Study) -> "tuple[Figure, list[Row]]":
    """Hausdorff distance on test subjects against α; below it Dice on validation subjects, by which α is chosen."""
    asked = product(ALPHA_METHODS[study.d], ALPHAS[study.d])
    entries = {(name, alpha): study.results.entry(name, alpha=alpha) for name, alpha in asked}
    study.complete([*entries.values()])
    numbers: list[Row] = [
        {
            "method": name,
            "alpha": alpha,
            **{kind: mean_over_subjects(study.results.rows(entry), kind) for kind in ("dice_mean", "hd_mean")},
            "val_dice": (study.results.run(entry).config.get("validation") or {}).get("val_dice"),
        }
        for (name, alpha), entry in entries.items()
    ]
    figure, (above, below) = new_figure(2)
    draw_lines(above, numbers, "alpha", "hd_mean")
    draw_lines(below, numbers, "alpha", "val_dice")
    above.set(ylabel="Hausdorff distance on test subjects, mm", title=f"{study.data}: the weight of smoothness, α")
    below.set(ylabel="Dice on validation subjects", xlabel="α")
    above.legend()
    return figure, numbers


def draw_lines(ax: "Axes", numbers: list[Row], x: str, y: str) -> None:
    """A line for each method; the values of x stand at even distances."""
    places = sorted({row[x] for row in numbers})
    for name in dict.fromkeys(row["method"] for row in numbers):
        line = [row for row in numbers if row["method"] == name]
        ax.plot([places.index(row[x]) for row in line], [row[y] for row in line], "o-", label=name)
    ax.set_xticks(range(len(places)), [f"{place:g}" for place in places])


def draw_cascades(study: Study) -> "tuple[Figure, list[Row]]":
    """Dice against the number of cascades: VR-Net and RC-Net, ours and as published on ACDC."""
    groups = measure_methods(study, {name: name for line in CASCADE_LINES.values() for name in line.values()})
    published = published_values("acdc") | published_values("ablation_acdc")
    figure, axes = new_figure(1, width=9.0)
    numbers: list[Row] = []
    for colour, (label, line) in enumerate(CASCADE_LINES.items()):
        ours = [mean_over_subjects(groups[name], "dice_mean") for name in line.values()]
        theirs = {n: published[name]["dice_mean"].mean for n, name in line.items() if name in published}
        axes[0].plot(list(line), ours, "o-", color=f"C{colour}", label=f"{label}, {study.data}")
        if theirs:
            at, dice = list(theirs), list(theirs.values())
            axes[0].plot(at, dice, "x:", color=f"C{colour}", label=f"{label}, published on acdc")
        numbers += [
            {"method": name, "cascades": n, "dice_mean": mean, "published": theirs.get(n)}
            for (n, name), mean in zip(line.items(), ours, strict=True)
        ]
    axes[0].set(xlabel="cascades", ylabel="Dice")
    figure.legend(loc="outside right upper")
    return figure, numbers


def draw_efficiency(study: Study) -> "tuple[Figure, list[Row]]":
    """Dice on test subjects against the number of subjects that a network was trained on."""
    path, entries = study.results.out / study.data / "subjects.json", {}
    try:
        if exists(path):
            entries = efficiency_entries(study.results, int(read_json(path)["train"]))
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path} is damaged: restore it, or remove it and give the images") from error
    if not entries or not all(study.results.has(group[0]) for group in entries.values()):
        total = len(study.split("train", "training").names)
        write_json({"train": total}, path)  # for those who have no images
        entries = efficiency_entries(study.results, total)
    study.complete(list(chain.from_iterable(entries.values())))
    numbers: list[Row] = []
    for (name, n), group in entries.items():
        dice = [row["dice_mean"] for row in study.results.mean_rows(group)]
        found = {"dice_mean": float(np.mean(dice)), "dice_std": float(np.std(dice)), "seeds": len(group)}
        numbers.append({"method": name, "subjects": n, **found})
    figure, (ax,) = new_figure(1, width=9.0)
    draw_lines(ax, numbers, "subjects", "dice_mean")
    ax.set(xlabel="training subjects", ylabel="Dice", title=f"{study.data}: Dice on test subjects")
    figure.legend(loc="outside right upper")
    return figure, numbers


def efficiency_entries(results: Results, total: int) -> dict[tuple[str, int], list[Entry]]:
    """{(method, number of subjects): one entry per seed}: an eighth, a quarter, a half and all of `total` subjects."""
    counts = {max(1, total // part): max(1, total // part) for part in (8, 4, 2)} | {total: None}
    return {
        (name, n): results.seeds(name, subjects=subjects)
        for name in EFFICIENT_METHODS[results.d]
        for n, subjects in counts.items()
    }


def measure_methods(study: Study, methods: dict[str, str]) -> dict[str, list[Row]]:
    """{label: one row per subject} of {label: method}: the mean over seeds, with the α that validation chose."""
    alphas = best_alphas(study.results)
    entries = {
        label: study.results.seeds(name, alphas.get(str(study.results.entry(name).method)))
        for label, name in methods.items()
    }
    study.complete(list(chain.from_iterable(entries.values())))
    return {label: study.results.mean_rows(group) for label, group in entries.items()}


def mean_over_subjects(rows: list[Row], measure: str) -> float:
    return float(np.nanmean([row[measure] for row in rows]))


def new_figure(rows: int, width: float = 7.0) -> "tuple[Figure, list[Axes]]":
    """A figure of so many axes one below the other, `width` inches wide."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, squeeze=False)[:, 0])


def draw_structures(
    study: Study, methods: dict[str, str], kinds: Sequence[str], width: float, title: str = ""
) -> "tuple[Figure, list[Row]]":
    """Boxes of Dice or of Hausdorff distance for each structure and each method, and all their rows."""
    groups = measure_methods(study, methods)
    figure, axes = new_figure(len(kinds), width)
    for ax, kind in zip(axes, kinds, strict=True):
        columns = [column for column in next(iter(groups.values()))[0] if column.startswith(f"{kind}_")]
        values = {
            label: [[row[c] for row in rows if not np.isnan(row[c])] for c in columns] for label, rows in groups.items()
        }
        draw_boxes(ax, values, [measure_title(c).split(" ", 1)[1] for c in columns])
        ax.set_ylabel({"dice": "Dice", "hd": "Hausdorff distance, mm"}[kind])
        ax.legend(fontsize=8, ncols=min(len(groups), 5))
    axes[0].set_title(title or f"{study.data}: {len(next(iter(groups.values())))} test subjects")
    return figure, [{"method": label, **row} for label, rows in groups.items() for row in rows]


def draw_boxes(
    ax: "Axes", values: Mapping[str, Sequence[Sequence[float]]], places: Sequence[str], mark_size: int = 3
) -> None:
    """A box for each place and each label, side by side; the line is the median, the mark the mean."""
    width = 0.8 / len(values)
    for number, (label, groups) in enumerate(values.items()):
        drawn = ax.boxplot(
            groups, positions=[k + (number - (len(values) - 1) / 2) * width for k in range(len(places))],
            widths=0.9 * width, showmeans=True, patch_artist=True, label=label, medianprops={"color": "black"},
            meanprops={"markersize": mark_size, "markerfacecolor": "white"}, flierprops={"markersize": mark_size - 1},
        )  # fmt: skip
        for box in drawn["boxes"]:
            box.set_facecolor(f"C{number}")
    ax.set_xticks(range(len(places)), places)


FIGURES: "dict[str, Callable[[Study], tuple[Figure, list[Row]]]]" = {
    "parameterisations": draw_parameterisations,
    "alpha": draw_alpha,
    "cascades": draw_cascades,
    "efficiency": draw_efficiency,
    "boxplots": draw_boxplots,
}
