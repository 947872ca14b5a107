"""The figure of strain from end-diastole to end-systole, drawn from what benchmarks/strain.py measured.

    python benchmarks/strain_figure.py

The options are those of `vrnet paper figure`, which draws the other figures.
"""

import sys
from typing import Any

import numpy as np

from vrnet.app.main import main
from vrnet.errors import BadInput, counted
from vrnet.files import Row, read_rows
from vrnet.paper import pictures
from vrnet.paper.figures import draw_boxes
from vrnet.paper.results import Study

STRAIN_METHODS = "short-axis-cine", "TV-L1"
PANELS = {
    "green_circumferential": ("circumferential Green strain, %", (-20.0, -16.0)),
    "green_radial": ("radial Green strain, %", (19.0, 41.0)),
}
"""{measure: (title, range of healthy adults)}: -18 ± 2, and 25 to 35 ± 6, over packages and definitions, which differ
by several points."""


def draw_strain(study: Study):
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


def draw_agreement(ax, groups):
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


if __name__ == "__main__":
    pictures.FIGURES["strain"] = draw_strain
    sys.argv[1:1] = ["paper", "figure", "strain"]
    main()
