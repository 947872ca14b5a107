"""What Python and notebooks show of a tracked cine: two frames with what was tracked, and the curves."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vrnet.app.track_report import film_of, quality
from vrnet.app.tracking import Tracking
from vrnet.report.card import Card
from vrnet.report.cine_figures import PLOTTED, film_picture, plot_strain, plot_volumes, times_of
from vrnet.report.cine_numbers import headline
from vrnet.report.film import Film
from vrnet.report.material_points import material_points

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

ROW_INCHES, CURVE_INCHES = 3.6, 4.6


def tracking_figure(tracking: Tracking) -> "Figure":
    """The reference and the frame farthest from it, with contours and strain, or the grid; below, the curves."""
    from vrnet.report.picture import Picture

    film = film_of(tracking)
    curves = (len(PLOTTED) if film.strain is not None else 0) + (film.volumes is not None)
    rows = 2 if curves else 1
    figure = Picture(figsize=(CURVE_INCHES * max(curves, 3), ROW_INCHES * rows), layout="constrained")
    figure.suptitle(f"{Path(tracking.cine.name).name}, {tracking.found.method}", parse_math=False, fontsize=11)
    upper, *lower = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for ax, t in zip(upper.subplots(1, 2), shown_frames(tracking), strict=True):
        ax.imshow(frame_picture(film, t))
        ax.set_title(f"frame {t}" + (" (reference)" if t == tracking.frame else ""), fontsize=10)
        ax.set_axis_off()
    if lower:
        plot_curves(lower[0].subplots(1, curves, squeeze=False)[0].tolist(), film)
    return figure


def plot_curves(axes: list, film: Film) -> None:  # type: ignore[type-arg]
    """Strain, where it was measured, and volumes over the cycle."""
    times = times_of(film)
    if film.strain is not None:
        for ax, measure in zip(axes, PLOTTED, strict=False):
            plot_strain(ax, film.strain, measure, times)
    if film.volumes is not None:
        plot_volumes(axes[-1], film.volumes, times)
    for ax in axes:
        ax.set_xlabel("frame" if film.times_ms is None else "ms")


def shown_frames(tracking: Tracking) -> tuple[int, int]:
    """The reference, and the frame whose motion from it is greatest."""
    lengths = [float(np.square(field).mean()) for field in tracking.fields]
    return tracking.frame, int(np.argmax(lengths))


def frame_picture(film: Film, t: int) -> "Image":
    """A frame of the main slice: in grey with contours, and beside it with strain or grid."""
    return film_picture(film.slices, material_points(film.slices, film.slices.main), t)


def tracking_card(tracking: Tracking) -> Card:
    """The farthest frame, and the numbers that the page has on top."""
    film, (_, t) = film_of(tracking), shown_frames(tracking)
    file = BytesIO()
    frame_picture(film, t).save(file, "PNG")
    numbers = headline(film, quality(tracking))
    facts = [(each.name, each.value + (f" ({each.detail})" if each.detail else "")) for each in numbers]
    title = f"{len(film)} frames of {Path(tracking.cine.name).name}, tracked by {tracking.found.method}"
    caption = f"Frame {t}, whose motion from frame {tracking.frame} is greatest."
    return Card(title, facts, file.getvalue(), caption, tracking.verdict)
