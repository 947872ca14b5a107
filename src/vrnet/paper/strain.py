"""End-diastole and end-systole as a cine of two frames: how much hearts strain and eject.

The labels of end-diastole alone are tracked; those of end-systole are what the ejection fraction is held against.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vrnet.cardiac.strain import GLOBAL, MEASURES, strain
from vrnet.cardiac.volumes import volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.acdc import ACDC, group_of
from vrnet.errors import BadInput, counted
from vrnet.files import Row, read_rows, write_rows
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.paper.study import Study
from vrnet.phantom.cycle import PATHOLOGIES, cycle
from vrnet.registration.cine import find_motion, plan_tracking, propagate_labels
from vrnet.vocabulary import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = "short-axis-cine", "TV-L1"
TEXTS = "subject", "group", "split", "method"
"""The columns that are no numbers."""


@dataclass(frozen=True, eq=False)
class Beat:
    """A heart at end-diastole and at end-systole."""

    cine: Cine
    labels: tuple[Image, Image]


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
    known = {row["subject"]: as_numbers(row) for row in read_rows(path, "one row per subject")} if path.exists() else {}
    subjects = find_subjects(study, bool(known))
    missing = [subject for subject in subjects if subject.name not in known]
    tick = study.stage(f"tracking {study.data} by {method}") if missing else None
    for number, subject in enumerate(missing, start=1):
        known[subject.name] = measure(subject, method, study.device)
        write_rows(list(known.values()), path)
        if tick:
            tick(number / len(missing))
    return [known[subject.name] for subject in subjects] or list(known.values())


def as_numbers(row: Mapping[str, str]) -> Row:
    """A row of the file, its numbers read."""
    return {key: text if key in TEXTS else float(text or "nan") for key, text in row.items()}


def find_subjects(study: Study, is_measured: bool) -> list[Subject]:
    """All subjects of the study; none where results are there and no folder is given."""
    if study.results.budget.phantoms is not None:
        return [phantom_subject(seed, name) for name in PATHOLOGIES for seed in range(2)]
    root = study.source.root if study.source else None
    if study.data != ACDC.name:
        raise BadInput(f"strain is measured on whole stacks of {ACDC.name}, not on {study.data}")
    if root is not None:
        return acdc_subjects(ACDC(root, study.source.split_file if study.source else None))
    if not is_measured:
        raise BadInput("no strain is measured yet: give the folder of ACDC as `root`")
    return []


def acdc_subjects(patients: ACDC) -> list[Subject]:
    """The patients of all splits."""

    def subject(name: str, split: str) -> Subject:
        return Subject(name, group_of(patients.root / name), split, lambda: read_patient(patients, name))

    return [subject(name, split) for split, names in patients.splits.items() for name in names]


def read_patient(patients: ACDC, name: str) -> Beat:
    """Both phases of a patient; where headers place them apart, as end-diastole lies."""
    images, masks = patients.read(name)
    frames = np.stack([image.array for image in images])
    return Beat(Cine(frames, images[0].grid, name=name), (masks[0], masks[1]))


def phantom_subject(seed: int, pathology: str) -> Subject:
    """A small beating stack whose motion stays within slices."""

    def read() -> Beat:
        shape, spacing = (32, 32, 3), (4.0, 4.0, 12.0)
        beat = cycle(seed, shape, spacing, pathology, frames=6)
        grid, at = Grid.plain(shape, spacing), [0, beat.end_systole]
        labels = [Image(beat.frame_labels[t].numpy(), grid, "labels") for t in at]
        return Beat(Cine(beat.frames[at].numpy(), grid), (labels[0], labels[1]))

    return Subject(f"{pathology} {seed}", pathology, "test", read)


def measure(subject: Subject, method: str, device: str) -> Row:
    """The row of a subject."""
    beat = subject.read()
    plan = plan_tracking(beat.cine, method, "auto", device)
    fields = find_motion(beat.cine, plan).fields
    diastole, systole = (labels.array for labels in beat.labels)
    spacing, across = beat.cine.grid.spacing, None if plan.slice_axis is None else plan.order[plan.slice_axis]
    curves = strain(fields, diastole, spacing, across=across)
    tracked = volumes(propagate_labels(diastole, fields, across), spacing).lv_ml
    labelled = volumes(np.stack([diastole, systole]), spacing).lv_ml
    regions = {measure.name: curves.curve(measure.name)[1] for measure in MEASURES} | {
        f"{name}_{level}": curves.curve(name, level)[1]
        for name in ("green_circumferential", "green_radial")
        for level in LEVELS
    }
    assert curves.regions[0] == GLOBAL
    return {
        "subject": subject.name, "group": subject.group, "split": subject.split, "method": str(plan.method),
        **{key: round(float(value), 3) for key, value in regions.items()}, "slices": len(curves.slices),
        "diastole_ml": round(float(labelled[0]), 3), "systole_ml": round(float(labelled[1]), 3),
        "systole_tracked_ml": round(float(tracked[1]), 3),
        "lost_at_base_percent": round(lost_at_base(*cavities(beat, across), curves.slices), 3),
        "ejection_labels": round(ejection(labelled), 3), "ejection_tracked": round(ejection(tracked), 3),
    }  # fmt: skip


def cavities(beat: Beat, across: int | None) -> tuple[np.ndarray, np.ndarray]:
    """How many voxels of each slice are the LV's cavity, by the labels of end-diastole and of end-systole."""

    def count(labels: Image) -> np.ndarray:
        cavity = labels.array == HeartLabels().lv
        return cavity.sum(tuple(axis for axis in range(cavity.ndim) if axis != across)).reshape(-1)

    return count(beat.labels[0]), count(beat.labels[1])


def lost_at_base(diastole: np.ndarray, systole: np.ndarray, base_to_apex: Sequence[int]) -> float:
    """Of the cavity at end-diastole, in percent: what lies in basal slices that have none at end-systole."""
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
