"""What Python and notebooks show of a tracked cine: two frames with what was tracked, and the curves."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vrnet.app.track_report import film_of, quality
from vrnet.app.tracking import Tracking
from vrnet.report.card import Card
from vrnet.report.cine_figures import PLOTTED, film_picture, plot_strain, plot_volumes, times_of
from vrnet.report.cine_numbers import frame_text, headline, smallest_cavity
from vrnet.report.film import Film
from vrnet.report.material_points import material_points
from vrnet.report.pair import Pair

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
    for ax, t in zip(upper.subplots(1, 2), (tracking.frame, shown_frame(tracking)), strict=True):
        ax.imshow(frame_picture(film, t))
        ax.set_title(frame_text(t, len(film)) + (" (reference)" if t == tracking.frame else ""), fontsize=10)
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


def shown_frame(tracking: Tracking) -> int:
    """The frame that a picture shows beside the reference: where the labels show the cavity of the left ventricle, that
    of its smallest volume; where they do not, or where the reference is that frame, the one that has moved farthest."""
    if (smallest := smallest_cavity(film_of(tracking))) is not None:
        return smallest
    spacing = np.reshape(tracking.cine.grid.spacing, (-1, *[1] * len(tracking.cine.grid.shape)))
    return int(np.argmax([float(np.square(field * spacing).mean()) for field in tracking.fields]))


def shown_pair(tracking: Tracking) -> Pair:
    """The reference, the frame that is shown beside it, and that frame brought back: what a thumbnail shows."""
    cine, k, reference = tracking.cine, shown_frame(tracking), tracking.reference_labels
    return Pair(
        fixed=cine.frames[tracking.frame].astype(np.float32),
        moving=cine.frames[k].astype(np.float32),
        warped=tracking.warped(k).array,
        field=tracking.fields[k],
        grid=cine.grid,
        fixed_labels=None if reference is None else reference.array,
    )


def frame_picture(film: Film, t: int) -> "Image":
    """A frame of the main slice: in grey with contours, and beside it with strain or grid."""
    return film_picture(film, material_points(film.slices, film.slices.main), t)


def tracking_card(tracking: Tracking) -> Card:
    """The frame beside the reference, and the numbers that the page has on top."""
    film, t = film_of(tracking), shown_frame(tracking)
    file = BytesIO()
    frame_picture(film, t).save(file, "PNG")
    numbers = headline(film, quality(tracking))
    facts = [(each.name, each.value + (f" ({each.detail})" if each.detail else "")) for each in numbers]
    title = f"{len(film)} frames of {Path(tracking.cine.name).name}, tracked by {tracking.found.method}"
    caption = f"{frame_text(t, len(film)).capitalize()}, as it has moved from frame {tracking.frame + 1}."
    return Card(title, facts, file.getvalue(), caption, tracking.verdict)
