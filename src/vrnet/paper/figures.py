"""The paper's figures. Each is drawn from numbers, which are written beside it as a CSV file."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray
from torch import Tensor

from vrnet.data.protocols import Sample
from vrnet.errors import BadInput, counted
from vrnet.fields.calculus import warp, warp_labels
from vrnet.files import Row, exists, read_json, read_rows, write_json
from vrnet.methods.method import Method
from vrnet.methods.names import missing_package, parse
from vrnet.networks.denoisers import Noise
from vrnet.paper.results import Entry, Results, Study, best_alphas
from vrnet.paper.specs import RC_NETS, published_values
from vrnet.paper.tables import measure_title
from vrnet.report.drawing import label_colours, motion_colours
from vrnet.report.figures import draw_contours, show_grid, show_jacobian
from vrnet.report.pair import Deformation, deformation
from vrnet.variational.cascade import Cascade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The figures that show images: all methods on one subject, and the field after each step of denoising.

COMPARED_METHODS = {
    2: ("FFD", "TV-L1", "Siamese", "VoxelMorph", "2xRC-Net", "R-L1-3x2", "C-L2-3x1"),
    3: ("Demons", "SyN", "FFD", "VoxelMorph", "2xRC-Net", "R-L1-2x1", "C-L1-2x1"),
}
ROWS = ("warped", "its mask, fixed outlined", "displacement", "grid", "Jacobian, folds green", "difference from fixed")
INPUT_ROWS = ("fixed", "its mask", "moving", "its mask", "", "difference before")


class RegisteredSlice(NamedTuple):
    """Slice k of a subject after a registration, (w, h); of an image the whole of it."""

    k: int
    image: ndarray
    labels: ndarray
    u: ndarray
    """(2, w, h), in voxels: motion within the slice."""
    deformed: Deformation


def draw_comparison(study: Study) -> "tuple[Figure, list[Row]]":
    """ROWS of each method in a column, and INPUT_ROWS, before registration, in the first."""
    names = [name for name in COMPARED_METHODS[study.d] if missing_package(parse(name)) is None]
    sample = study.test.samples[len(study.test.samples) // 2]
    pair, found = len(sample.fixed) // 2, {}
    one = slice(pair, pair + 1)
    for name, method in zip(names, study.methods([study.results.entry(name) for name in names]), strict=True):
        with torch.inference_mode():
            u = method.build(study.d)(sample.fixed[one], sample.moving[one], sample.spacing).cpu()
        found[name] = cut_slice(sample, pair, u)
    before = cut_slice(sample, pair, torch.zeros(1, study.d, *sample.fixed.shape[2:]))
    fixed, mask = (slice_of(part[pair], before.k)[0] for part in (sample.fixed, cast(Tensor, sample.fixed_labels)))
    figure, axes = new_grid(len(ROWS), len(found) + 1, 2.2, f"{study.data}, {sample.name}")
    grey: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 1}
    axes[0, 0].imshow(fixed.T, **grey)
    show_mask(axes[1, 0], mask)
    axes[2, 0].imshow(before.image.T, **grey)
    show_mask(axes[3, 0], before.labels)
    axes[4, 0].set_axis_off()
    scale = max(float(np.abs(after.u).max()) for after in found.values()) or 1.0  # one for all: voxels of full colour
    for column, (name, after) in zip(axes.T[1:], found.items(), strict=True):
        column[0].imshow(after.image.T, **grey)
        show_mask(column[1], after.labels, mask)
        column[2].imshow(motion_colours(after.u[0], after.u[1], scale).swapaxes(0, 1))
        show_grid(column[3], after.u)
        show_jacobian(column[4], after.deformed, bar=False)
        for ax in column:
            ax.set_title("")
        column[0].set_title(name, fontsize=10)
    for ax, shown in zip(axes[5], [before, *found.values()], strict=True):
        ax.imshow(np.abs(shown.image - fixed).T, cmap="inferno", vmin=0, vmax=0.5)
    for column, titles in zip(axes.T[:2], (INPUT_ROWS, ROWS), strict=True):
        for ax, title in zip(column, titles, strict=True):
            ax.set_ylabel(title, fontsize=8)
    return figure, [
        {"method": name, "mean_difference": float(np.abs(after.image - fixed).mean())} for name, after in found.items()
    ]


def new_grid(rows: int, columns: int, height: float, title: str) -> "tuple[Figure, ndarray]":
    """A figure of rows x columns axes without ticks, each row so many inches high."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.1 * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    figure.suptitle(title)
    return figure, axes


def cut_slice(sample: Sample, pair: int, u: Tensor) -> RegisteredSlice:
    """The slice of a registered pair that shows most of the heart."""
    one, labels = slice(pair, pair + 1), cast(Tensor, sample.fixed_labels)[pair, 0]
    k = int((labels > 0).sum((0, 1)).numpy().argmax()) if labels.dim() == 3 else 0
    warped = warp(sample.moving[one], u), warp_labels(cast(Tensor, sample.moving_labels)[one], u)
    image, mask = (slice_of(part[0], k)[0] for part in warped)
    return RegisteredSlice(k, image, mask, slice_of(u[0], k)[:2], deformation(u[0].numpy(), k))


def slice_of(x: Float[Tensor, "c *s"] | UInt8[Tensor, "c *s"], k: int) -> Shaped[ndarray, "c w h"]:
    """Slice k of a volume; an image as it is."""
    return (x if x.dim() == 3 else x[..., k]).numpy()


def show_mask(ax: "Axes", labels: ndarray, truth: ndarray | None = None) -> None:
    """A label map in grey, and the outlines of the true one in green."""
    ax.imshow(labels.T, cmap="gray", vmin=0, interpolation="nearest")
    if truth is not None:
        draw_contours(ax, truth, dict.fromkeys(label_colours(np.unique(truth[truth > 0]).tolist()), "lime"), "solid")


def draw_denoising(study: Study) -> "tuple[Figure, list[Row]]":
    """The field after each cascade of R-L2-6x1 and its mean |∇u|, from a guess with noise and from noise alone."""
    names = ("R-L2-6x1", "R-L2-6x1-noise") if study.d == 2 else ("R-L2-2x1", "R-L2-2x1-noise")
    sample, methods = study.test.samples[0], study.methods([study.results.entry(name) for name in names])
    found = {name: field_states(method, sample) for name, method in zip(names, methods, strict=True)}
    count = len(found[names[0]])
    figure, axes = new_grid(2 * len(found), count, 2.25, f"{study.data}, {sample.name}: the field after each cascade")
    numbers: list[Row] = []
    for place, (name, states) in enumerate(found.items()):
        scale = float(np.abs(states[-1]).max()) or 1.0
        for k, u in enumerate(states):
            above, below = axes[2 * place : 2 * place + 2, k]
            above.imshow(motion_colours(u[0], u[1], scale).swapaxes(0, 1))
            above.set_title("start" if k == 0 else f"cascade {k}", fontsize=9)
            show_grid(below, u)
            below.set_title("")
            roughness = float(np.mean([np.abs(np.diff(u, axis=axis)).mean() for axis in (1, 2)]))
            numbers.append({"method": name, "cascade": k, "roughness": roughness})
        axes[2 * place, 0].set_ylabel(name)
    return figure, numbers


def field_states(method: Method, sample: Sample) -> list[ndarray]:
    """The noisy start, and the field after each cascade: motion within the image, or the middle slice, (2, w, h)."""
    I0, I1, model = sample.fixed[:1], sample.moving[:1], cast(Cascade, method.model)
    with torch.inference_mode():
        first = model.init(I0, I1, sample.spacing)
        if not isinstance(model.init, Noise):  # a guess, to which noise of one voxel is added
            first = first + torch.randn(first.shape, generator=torch.Generator().manual_seed(1))
        after = [state.v for state in model.refine(first, I0, I1, sample.spacing) if not state.is_fresh]
    return [slice_of(v[0], first.shape[-1] // 2)[:2] for v in (first, *after)]


# The figures of numbers: of methods, α, cascades and subjects to train on.

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
}
"""{label of a line: {number of cascades: method}}"""


def draw_parameterisations(study: Study) -> "tuple[Figure, list[Row]]":
    """Dice by structure of R-L2-6x1: one set of weights for all its steps (Θ1), or one for each (Θ2)."""
    groups = measure_methods(study, {"Θ1": "R-L2-6x1-Θ1", "Θ2": "R-L2-6x1"})
    figure, numbers = draw_structures(groups, ("dice",), 7.0)
    figure.axes[0].set_title(f"R-L2-6x1 on {study.data}: shared weights (Θ1) and own (Θ2)")
    return figure, numbers


def draw_boxplots(study: Study) -> "tuple[Figure, list[Row]]":
    """Dice and Hausdorff distance by method and structure."""
    groups = measure_methods(study, {name: name for name in BOX_METHODS[study.d]})
    figure, numbers = draw_structures(groups, ("dice", "hd"), 14.0)
    figure.axes[0].set_title(f"{study.data}: {len(next(iter(groups.values())))} test subjects")
    return figure, numbers


def draw_alpha(study: Study) -> "tuple[Figure, list[Row]]":
    """Hausdorff distance on test subjects against α; below it Dice on validation subjects, by which α is chosen."""
    alphas = ALPHAS[study.d]
    entries = {name: [study.results.entry(name, alpha=alpha) for alpha in alphas] for name in ALPHA_METHODS[study.d]}
    study.complete(list(chain.from_iterable(entries.values())))
    numbers: list[Row] = [
        {
            "method": name,
            "alpha": alpha,
            **{kind: mean_over_subjects(study.results.rows(entry), kind) for kind in ("dice_mean", "hd_mean")},
            "val_dice": (study.results.run(entry).config.get("validation") or {}).get("val_dice"),
        }
        for name, group in entries.items()
        for alpha, entry in zip(alphas, group, strict=True)
    ]
    figure, axes = new_figure(2)
    for ax, measure in zip(axes, ("hd_mean", "val_dice"), strict=True):
        for name in entries:
            ax.plot(range(len(alphas)), [row[measure] for row in numbers if row["method"] == name], "o-", label=name)
        ax.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes[0].set(ylabel="Hausdorff distance on test subjects, mm", title=f"{study.data}: the weight of smoothness, α")
    axes[1].set(ylabel="Dice on validation subjects", xlabel="α")
    axes[0].legend()
    return figure, numbers


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
    for name in EFFICIENT_METHODS[study.d]:
        line = [row for row in numbers if row["method"] == name]
        ax.plot([row["subjects"] for row in line], [row["dice_mean"] for row in line], "o-", label=name)
    ax.set(xlabel="training subjects", ylabel="Dice", title=f"{study.data}: Dice on test subjects", xscale="log")
    counts = sorted({n for _, n in entries})
    ax.set_xticks(counts, [str(n) for n in counts])
    ax.minorticks_off()
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
    groups: Mapping[str, Sequence[Row]], kinds: Sequence[str], width: float
) -> "tuple[Figure, list[Row]]":
    """Boxes of Dice or of Hausdorff distance for each structure and each method, and all their rows."""
    figure, axes = new_figure(len(kinds), width)
    for ax, kind in zip(axes, kinds, strict=True):
        columns = [column for column in next(iter(groups.values()))[0] if column.startswith(f"{kind}_")]
        values = {
            label: [[row[c] for row in rows if not np.isnan(row[c])] for c in columns] for label, rows in groups.items()
        }
        draw_boxes(ax, values, [measure_title(c).split(" ", 1)[1] for c in columns])
        ax.set_ylabel({"dice": "Dice", "hd": "Hausdorff distance, mm"}[kind])
        ax.legend(fontsize=8, ncols=min(len(groups), 5))
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


# The figure of strain from end-diastole to end-systole, drawn from what benchmarks/strain.py measured.

STRAIN_METHODS = "short-axis-cine", "TV-L1"
PANELS = {
    "green_circumferential": ("circumferential Green strain, %", (-20.0, -16.0)),
    "green_radial": ("radial Green strain, %", (19.0, 41.0)),
}
"""{measure: (title, range of healthy adults)}: -18 ± 2, and 25 to 35 ± 6, over packages and definitions, which differ
by several points."""


def draw_strain(study: Study) -> "tuple[Figure, list[Row]]":
    """Boxes of strain at end-systole by pathology, a colour per method; and Bland and Altman's plot of the EF."""
    from matplotlib.figure import Figure

    groups: dict[str, list[Row]] = {}
    for method in STRAIN_METHODS:
        path = study.results.out / "strain" / f"{study.data}_{method}.csv"
        if not path.exists():
            raise BadInput(f"no strain of {study.data} is measured yet: run benchmarks/strain.py, which writes {path}")
        texts = "subject", "group", "split", "method"
        groups[method] = [
            {key: text if key in texts else float(text or "nan") for key, text in row.items()}
            for row in read_rows(path, "one row per subject")
        ]
    figure = Figure(figsize=(15, 4.8), layout="constrained")
    *boxes, last = figure.subplots(1, len(PANELS) + 1)
    pathologies = list(dict.fromkeys(row["group"] for rows in groups.values() for row in rows))
    for ax, (measure, (title, healthy)) in zip(boxes, PANELS.items(), strict=True):
        values = {
            method: [[row[measure] for row in rows if row["group"] == name] for name in pathologies]
            for method, rows in groups.items()
        }
        ax.axhspan(*healthy, color="C2", alpha=0.15, label="about healthy adults")
        draw_boxes(ax, values, pathologies, mark_size=4)
        ax.set_title(title)
        ax.legend(fontsize=8)
    draw_agreement(last, groups)
    count = len(groups[STRAIN_METHODS[0]])
    figure.suptitle(f"{study.data}, {counted(count, 'subject')}: end-diastole to end-systole, as a cine of two frames")
    return figure, [row for rows in groups.values() for row in rows]


def draw_agreement(ax: "Axes", groups: dict[str, list[Row]]) -> None:
    """Differences of the ejection fractions against their means, with bias and limits of agreement. Rings are hearts
    whose labels at end-systole lack a basal slice, which no motion within slices can show."""
    ring: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 9, "markerfacecolor": "none"}
    for number, (method, rows) in enumerate(groups.items()):
        tracked, labelled = (np.array([row[f"ejection_{way}"] for row in rows]) for way in ("tracked", "labels"))
        mean, difference, colour = (tracked + labelled) / 2, tracked - labelled, f"C{number}"
        bias, spread = difference.mean(), 1.96 * difference.std(ddof=1)
        text = f"{method}: {bias:+.1f} ({bias - spread:.1f} to {bias + spread:.1f})"
        ax.plot(mean, difference, "o", markersize=4, alpha=0.7, color=colour, label=text)
        for value, line in ((bias, "-"), (bias - spread, "--"), (bias + spread, "--")):
            ax.axhline(value, color=colour, linestyle=line, linewidth=1)
        lost = [row.get("lost_at_base_percent", 0.0) > 0 for row in rows]
        ax.plot(mean[lost], difference[lost], color=colour, **ring)
    ax.plot([], color="0.4", label="labels lack a basal slice at end-systole", **ring)
    ax.set(title="EF by tracked labels − by labels, points", xlabel="mean of both, %")
    ax.legend(fontsize=8, title="bias (limits of agreement)")


FIGURES: "dict[str, Callable[[Study], tuple[Figure, list[Row]]]]" = {
    "parameterisations": draw_parameterisations,
    "alpha": draw_alpha,
    "cascades": draw_cascades,
    "efficiency": draw_efficiency,
    "visual": draw_comparison,
    "boxplots": draw_boxplots,
    "denoising": draw_denoising,
    "strain": draw_strain,
}
