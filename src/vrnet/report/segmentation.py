"""The page of a segmentation: outlines over the slices, volumes, and of a cine their curves."""

from math import isfinite
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from vrnet.cardiac.anatomy import Segmentation, sizes
from vrnet.errors import counted, numbered
from vrnet.files import write_bytes
from vrnet.images.image import Cine
from vrnet.provenance import versions
from vrnet.report import drawing
from vrnet.report.figures import draw_contours, show_image
from vrnet.report.page import span_with_margin
from vrnet.report.pair import choose_slices, turn_array, viewing_order
from vrnet.vocabulary import HEART

MAX_SLICES, COLUMNS, PANEL_INCHES = 20, 5, 2.4
BOX_MARGIN = 0.5  # around the labels, as a part of their size
NAMES = {HEART["RV"]: "right ventricle", HEART["Myo"]: "wall of the left ventricle", HEART["LV"]: "left ventricle"}
COLOURS = drawing.label_colours(sorted(NAMES))


def outlines_figure(found: Segmentation, t: int) -> drawing.Picture:
    """The slices of a frame with outlines, cut to the part around the labels; a dash where there is no confidence."""
    grid, image = found.grid, found.image
    frames = image.frames if isinstance(image, Cine) else image.array[None]
    if len(grid.shape) == 2:
        stack, labels, edges = frames[t][..., None], found.frames[..., None], grid.spacing
    else:
        order, signs = viewing_order(grid)
        stack, labels = turn_array(frames[t], order, signs), turn_array(found.frames, order, signs)
        edges = tuple(grid.spacing[axis] for axis in order)
    is_shown = labels.any((0, 1, 2)) if labels.any() else np.ones(labels.shape[-1], bool)
    first, last = np.flatnonzero(is_shown)[[0, -1]]
    numbers = [int(first) + k for k in choose_slices(int(last - first) + 1, MAX_SLICES)]
    box = [slice(None), slice(None)]
    if labels.any():
        box = [
            slice(*span_with_margin(labels.any((0, 2, 3)), BOX_MARGIN)),
            slice(*span_with_margin(labels.any((0, 1, 3)), BOX_MARGIN)),
        ]
    stack, labels = stack[*box], labels[t][*box]
    window = drawing.window_of([stack[..., numbers].astype(np.float32)], drawing.WINDOW_PERCENTILES)
    columns = min(COLUMNS, len(numbers))
    rows = -(-len(numbers) // columns)
    figure = drawing.Picture(figsize=(PANEL_INCHES * columns, (PANEL_INCHES + 0.25) * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axes:
        ax.set_axis_off()
    for ax, k in zip(axes, numbers, strict=False):
        sure = found.confidence[t, k]
        title = f"slice {k + 1}" + (f", {sure:.2f}" if isfinite(sure) else "")
        show_image(ax, stack[..., k], title, window)
        draw_contours(ax, labels[..., k], COLOURS, "solid")
        ax.set_aspect(edges[1] / edges[0])
    return figure


def curves_figure(found: Segmentation) -> drawing.Picture:
    """Volumes over the cycle, with end-diastole and end-systole marked."""
    image, volumes = found.image, found.volumes
    known = image.times_ms if isinstance(image, Cine) else None
    times = np.arange(1.0, len(found.frames) + 1) if known is None else np.array(known)
    figure = drawing.Picture(figsize=(7, 3.2), layout="constrained")
    ax: Any = figure.subplots()
    curves = {"LV": volumes.lv_ml, "RV": volumes.rv_ml, "wall": volumes.wall_ml}
    labels = dict(zip(curves, (HEART["LV"], HEART["RV"], HEART["Myo"]), strict=True))
    for name, curve in curves.items():
        if curve.any():
            ax.plot(times, curve, color=COLOURS[labels[name]], linewidth=2.6 if name == "LV" else 1.5, label=name)
    for k, name in ((found.end_diastole, "ED"), (found.end_systole, "ES")):
        ax.axvline(times[k], color="#999999", linewidth=0.8)
        ax.annotate(name, (times[k], 0), textcoords="offset points", xytext=(3, 3), fontsize=8)
    ax.set(xlabel="frame" if known is None else "ms", ylabel="ml")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8)
    return figure


def write_page(found: Segmentation, path: Path) -> Path:
    """Write the page, which opens from disk and loads nothing else; returns its path."""
    is_cine = isinstance(found.image, Cine)
    figures = {"Outlines": outlines_figure(found, 0)}
    if is_cine:
        figures = {"Volumes over the cycle": curves_figure(found)} if found.volumes.lv_ml.any() else {}
        for name, t in (("End-diastole", found.end_diastole), ("End-systole", found.end_systole)):
            figures[f"{name}, frame {t + 1}"] = outlines_figure(found, t)
    size, spacing = " x ".join(map(str, found.grid.shape)), " x ".join(f"{h:.4g}" for h in found.grid.spacing)
    run = {
        "image": found.image.name,
        "size": (f"{counted(len(found.frames), 'frame')} of " if is_cine else "") + f"{size} voxels of {spacing} mm",
        "model": found.model,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items() if version),
    }
    text = drawing.render_template(
        "segmentation.html", name=PurePath(found.image.name).name, found=found, sizes=sizes(found), is_cine=is_cine,
        pictures={title: drawing.data_address(figure.png(110)) for title, figure in figures.items()}, run=run,
        legend={NAMES[label]: COLOURS[label] for label in sorted(NAMES)},
        unsure=numbered("slice", found.unsure), open=numbered("slice", found.open),
    )  # fmt: skip
    write_bytes(text.encode(errors="replace"), path)
    return path
