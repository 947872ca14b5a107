"""End-diastole and end-systole as a cine of two frames: how much hearts strain and eject.

The labels of end-diastole alone are tracked; those of end-systole are what the ejection fraction is held against.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vrnet.cardiac.cine import track
from vrnet.cardiac.strain import TITLES
from vrnet.cardiac.volumes import slices_first, volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.acdc import ACDC, group_of
from vrnet.errors import BadInput, counted
from vrnet.files import Row, read_rows, write_rows
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.paper.study import Study
from vrnet.phantom.cycle import PATHOLOGIES, cycle
from vrnet.vocabulary import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = "short-axis-cine", "TV-L1"
TEXTS = "subject", "group", "split", "method"
"""The columns that are no numbers."""


Beat = tuple[Cine, Image, Image]
"""A heart at end-diastole and at end-systole, and the labels of both."""


@dataclass(frozen=True)
class Subject:
    """Whose heart it is, what it suffers from, and how it is read."""

    name: str
    group: str
    split: str
    read: Callable[[], Beat]


def strain_rows(study: Study, method: str) -> list[Row]:
    """One row per subject: strain at end-systole in percent, and volumes in ml. What is missing is measured, and kept.

    Without a folder of images, what was measured before is all there is."""
    path = study.results.out / "strain" / f"{study.data}_{method}.csv"
    rows = read_rows(path, "one row per subject") if path.exists() else []
    known: dict[Any, Row] = {
        row["subject"]: {key: text if key in TEXTS else float(text or "nan") for key, text in row.items()}
        for row in rows
    }
    subjects = find_subjects(study, bool(known))
    missing = [subject for subject in subjects if subject.name not in known]
    tick = study.stage(f"tracking {study.data} by {method}") if missing else None
    for number, subject in enumerate(missing, start=1):
        known[subject.name] = measure(subject, method, study.device)
        write_rows(list(known.values()), path)
        if tick:
            tick(number / len(missing))
    return [known[subject.name] for subject in subjects] or list(known.values())


def find_subjects(study: Study, is_measured: bool) -> list[Subject]:
    """All subjects of the study; none where results are there and no folder is given."""
    if study.results.budget.phantoms is not None:
        return [phantom_subject(seed, name) for name in PATHOLOGIES for seed in range(2)]
    root = study.source.root if study.source else None
    if study.data != ACDC.name:
        raise BadInput(f"strain is measured on whole stacks of {ACDC.name}, not on {study.data}")
    if root is None and not is_measured:
        raise BadInput("no strain is measured yet: give the folder of ACDC as `root`")
    if root is None:
        return []
    patients = ACDC(root, study.source.split_file if study.source else None)

    def read(name: str) -> Beat:
        """Both phases of a patient; where headers place them apart, as end-diastole lies."""
        (diastole, systole), masks = patients.read(name)
        return Cine(np.stack([diastole.array, systole.array]), diastole.grid, name=name), masks[0], masks[1]

    return [
        Subject(name, group_of(patients.root / name), split, partial(read, name))
        for split, names in patients.splits.items()
        for name in names
    ]


def phantom_subject(seed: int, pathology: str) -> Subject:
    """A small beating stack whose motion stays within slices."""

    def read() -> Beat:
        shape, spacing = (32, 32, 3), (4.0, 4.0, 12.0)
        beat = cycle(seed, shape, spacing, pathology, frames=6)
        grid, at = Grid.plain(shape, spacing), [0, beat.end_systole]
        diastole, systole = (Image(beat.frame_labels[t].numpy(), grid, "labels") for t in at)
        return Cine(beat.frames[at].numpy(), grid), diastole, systole

    return Subject(f"{pathology} {seed}", pathology, "test", read)


def measure(subject: Subject, method: str, device: str) -> Row:
    """The row of a subject."""
    cine, diastole, systole = subject.read()
    result = track(cine, method, labels=diastole, device=device)
    found, tracked = result.strain, result.volumes
    if found is None or tracked is None:
        raise BadInput(f"no strain is measured of {subject.name}: {result.no_strain}")
    labelled = volumes(np.stack([diastole.array, systole.array]), cine.grid.spacing)
    regions = {name: found.curve(name)[1] for name in TITLES} | {
        f"{name}_{level}": found.curve(name, level)[1]
        for name in ("green_circumferential", "green_radial")
        for level in LEVELS
    }
    cavities = [slices_first(labels.array[None] == HeartLabels().lv, result.across) for labels in (diastole, systole)]
    at_diastole, at_systole = (cavity.sum((0, 2, 3)) for cavity in cavities)
    return {
        "subject": subject.name, "group": subject.group, "split": subject.split, "method": result.method,
        **{key: round(float(value), 3) for key, value in regions.items()}, "slices": len(found.slices),
        "diastole_ml": round(float(labelled.lv_ml[0]), 3), "systole_ml": round(float(labelled.lv_ml[1]), 3),
        "systole_tracked_ml": round(float(tracked.lv_ml[1]), 3),
        "lost_at_base_percent": round(lost_at_base(at_diastole, at_systole, found.slices), 3),
        "ejection_labels": round(ejection(labelled.lv_ml), 3), "ejection_tracked": round(ejection(tracked.lv_ml), 3),
    }  # fmt: skip


def lost_at_base(diastole: np.ndarray, systole: np.ndarray, base_to_apex: Sequence[int]) -> float:
    """Of the cavity at end-diastole, given its voxels by slice at both phases, in percent: what lies in basal slices
    that have none at end-systole."""
    if base_to_apex[0] > base_to_apex[-1]:
        diastole, systole = diastole[::-1], systole[::-1]
    is_lost = ~np.logical_or.accumulate(systole > 0)
    return float(100 * diastole[is_lost].sum() / diastole.sum())


def ejection(volume: np.ndarray) -> float:
    """100 (1 − V_ES / V_ED) of the volumes at end-diastole and end-systole."""
    return float(100 * (1 - volume[1] / volume[0]))


# The figure of strain: by pathology, beside what is healthy; and ejection fractions, tracked against labelled.


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
