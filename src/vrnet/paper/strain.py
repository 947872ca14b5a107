"""The figure of strain from end-diastole to end-systole, drawn from what benchmarks/strain.py measured."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vrnet.errors import BadInput, counted
from vrnet.files import Row, read_rows
from vrnet.paper.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = "short-axis-cine", "TV-L1"
TEXTS = "subject", "group", "split", "method"
"""The columns that are no numbers."""


def strain_rows(study: Study, method: str) -> list[Row]:
    """One row per subject: strain at end-systole in percent, and volumes in ml."""
    path = study.results.out / "strain" / f"{study.data}_{method}.csv"
    if not path.exists():
        raise BadInput(f"no strain of {study.data} is measured yet: run benchmarks/strain.py, which writes {path}")
    rows = read_rows(path, "one row per subject")
    return [{key: text if key in TEXTS else float(text or "nan") for key, text in row.items()} for row in rows]


# By pathology, beside what is healthy; and ejection fractions, tracked against labelled.


class Panel(NamedTuple):
    """A measure of strain, and the range of healthy adults, in percent."""

    measure: str
    title: str
    healthy: tuple[float, float]


PANELS = (
    Panel("green_circumferential", "circumferential Green strain, %", (-20.0, -16.0)),
    Panel("green_radial", "radial Green strain, %", (19.0, 41.0)),
)
"""Healthy: -18 ± 2, and 25 to 35 ± 6, over packages and definitions, which differ by several points."""


def draw_strain(study: Study) -> "tuple[Figure, list[Row]]":
    """Boxes of strain at end-systole by pathology, a colour per method; and Bland and Altman's plot of the EF."""
    from matplotlib.figure import Figure

    groups = {method: strain_rows(study, method) for method in METHODS}
    figure = Figure(figsize=(15, 4.8), layout="constrained")
    *boxes, last = figure.subplots(1, len(PANELS) + 1)
    for ax, panel in zip(boxes, PANELS, strict=True):
        draw_panel(ax, groups, panel)
    draw_agreement(last, groups)
    count = len(next(iter(groups.values())))
    figure.suptitle(f"{study.data}, {counted(count, 'subject')}: end-diastole to end-systole, as a cine of two frames")
    return figure, [row for rows in groups.values() for row in rows]


def draw_panel(ax: "Axes", groups: dict[str, list[Row]], panel: Panel) -> None:
    """A box per pathology and method; the line is the median, the mark the mean."""
    names = list(dict.fromkeys(row["group"] for rows in groups.values() for row in rows))
    width = 0.8 / len(groups)
    ax.axhspan(*panel.healthy, color="C2", alpha=0.15, label="about healthy adults")
    for number, (method, rows) in enumerate(groups.items()):
        values = [[row[panel.measure] for row in rows if row["group"] == name] for name in names]
        places = [k + (number - (len(groups) - 1) / 2) * width for k in range(len(names))]
        drawn = ax.boxplot(
            values, positions=places, widths=0.9 * width, showmeans=True, patch_artist=True, label=method,
            medianprops={"color": "black"}, meanprops={"markersize": 4, "markerfacecolor": "white"},
            flierprops={"markersize": 3},
        )  # fmt: skip
        for box in drawn["boxes"]:
            box.set_facecolor(f"C{number}")
    ax.set_xticks(range(len(names)), names)
    ax.set_title(panel.title)
    ax.legend(fontsize=8)


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
