"""The figure of strain: by pathology, beside what is healthy; and ejection fractions, tracked against labelled."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vrnet.files import Row
from vrnet.paper.strain import METHODS, strain_rows
from vrnet.paper.study import Study
from vrnet.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


class Agreement(NamedTuple):
    """Of two ways to measure one thing: the mean of the differences, and 1.96 standard deviations to both sides."""

    bias: float
    low: float
    high: float


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
        found, colour = agreement(tracked, labelled), f"C{number}"
        text = f"{method}: {found.bias:+.1f} ({found.low:.1f} to {found.high:.1f})"
        ax.plot((tracked + labelled) / 2, tracked - labelled, "o", markersize=4, alpha=0.7, color=colour, label=text)
        for value, line in zip(found, ("-", "--", "--"), strict=True):
            ax.axhline(value, color=colour, linestyle=line, linewidth=1)
        lost = [row.get("lost_at_base_percent", 0.0) > 0 for row in rows]
        ax.plot(((tracked + labelled) / 2)[lost], (tracked - labelled)[lost], color=colour, **ring)
    ax.plot([], color="0.4", label="labels lack a basal slice at end-systole", **ring)
    ax.set(title="EF by tracked labels − by labels, points", xlabel="mean of both, %")
    ax.legend(fontsize=8, title="bias (limits of agreement)")


def agreement(found: np.ndarray, expected: np.ndarray) -> Agreement:
    """Bias and limits of agreement of Bland and Altman."""
    difference = found - expected
    bias, spread = difference.mean(), 1.96 * difference.std(ddof=1)
    return Agreement(float(bias), float(bias - spread), float(bias + spread))
