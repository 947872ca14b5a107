"""Pictures of what is not a registered pair: an image, a cine, a transform."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from vrnet.images.cine import Cine
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.transform import Transform
from vrnet.report.cine_numbers import frame_text
from vrnet.report.figures import show_grid, show_image, show_jacobian, show_motion
from vrnet.report.greys import Window, window_of
from vrnet.report.pair import VIEWS, Pair, deformation, orient_for_viewing, turn_array, viewing_order, world_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WINDOW_PERCENTILES = (0.0, 99.5)
"""The percentiles of the intensities that are black and white."""
PLANES = {"axial": 2, "coronal": 1, "sagittal": 0}
"""The axis of LPS that slices of each plane lie across."""
PANEL_INCHES = 3.4
MAX_FRAMES = 6
"""Frames of a cine that are shown."""


def image_figure(image: Image) -> "Figure":
    """The picture; of a volume, the middle slice across each axis, by the name of its plane where the header says how
    the image lies."""
    window = window_of([image.array.astype(np.float32)], WINDOW_PERCENTILES)
    if image.array.ndim == 2:
        figure, (ax,) = panels(1, image.name)
        show_slice(ax, image.array, image.grid.spacing, "", window)
        return figure
    figure, axes = panels(3, image.name)
    for (name, across), ax in zip(PLANES.items(), axes, strict=True):
        flat, spacing = middle_slice(image.array, image.grid, across)
        axis = plane_order(image.grid, across)[0][-1]
        show_slice(ax, flat, spacing, name if image.grid.is_placed else f"across axis {axis}", window)
    return figure


def cine_figure(cine: Cine) -> "Figure":
    """The middle slice at a few frames, evenly through the cycle."""
    numbers = np.unique(np.linspace(0, len(cine) - 1, min(MAX_FRAMES, len(cine))).round().astype(int)).tolist()
    window = window_of([cine.frames[numbers].astype(np.float32)], WINDOW_PERCENTILES)
    figure, axes = panels(len(numbers), cine.name)
    for ax, t in zip(axes, numbers, strict=True):
        when = frame_text(t, len(cine)) + (f", {cine.times_ms[t]:.0f} ms" if cine.times_ms else "")
        flat, spacing = middle_slice(cine.frames[t], cine.grid)
        show_slice(ax, flat, spacing, when, window)
    return figure


def transform_figure(transform: Transform) -> "Figure":
    """Deformed grid, motion and Jacobian determinant; of a volume, of the slice that moves most."""
    whole, k = busiest_slice(transform)
    flat = whole if whole.fixed.ndim == 2 else whole.cut(k)
    figure, axes = panels(3, str(transform) if whole.fixed.ndim == 2 else f"{transform}; slice {k + 1}")
    show_grid(axes[0], flat.field)
    longest = float(np.hypot(*(flat.field * np.reshape(flat.grid.spacing, (2, 1, 1)))).max()) or 1.0
    show_motion(axes[1], flat.field, flat.grid.spacing, longest)
    show_jacobian(axes[2], deformation(whole.field, k))
    for ax in axes:
        ax.set_aspect(flat.grid.spacing[1] / flat.grid.spacing[0])
    return figure


def busiest_slice(transform: Transform) -> tuple[Pair, int]:
    """A transform as a pair that shows nothing, turned as it is viewed, and the slice that moves most."""
    blank = np.zeros(transform.grid.shape, np.float32)
    whole = orient_for_viewing(Pair(blank, blank, blank, transform.in_voxels(), transform.grid))
    if whole.fixed.ndim == 2:
        return whole, 0
    return whole, int(np.square(whole.field).sum(axis=(0, 1, 2)).argmax())


def panels(count: int, title: str) -> tuple["Figure", list["Axes"]]:
    """A figure with pictures side by side, and no frames around them. A name is shown as it is: $ is no mathematics."""
    from vrnet.report.picture import Picture

    figure = Picture(figsize=(PANEL_INCHES * count, PANEL_INCHES + 0.5), layout="constrained")
    figure.suptitle(title, parse_math=False, fontsize=11)
    axes = [figure.add_subplot(1, count, 1 + i) for i in range(count)]
    for ax in axes:
        ax.set_axis_off()
    return figure, axes


def show_slice(ax: "Axes", flat: Shaped[ndarray, "w h"], spacing: tuple[float, ...], title: str, grey: Window) -> None:
    """A picture in grey, its pixels as wide and as high as they are."""
    show_image(ax, flat.astype(np.float32), title, *grey)
    ax.set_aspect(spacing[1] / spacing[0])


def middle_slice(
    array: Shaped[ndarray, "*s"], grid: Grid, across: int | None = None
) -> tuple[Float[ndarray, "w h"], tuple[float, ...]]:
    """The picture; of a volume, its middle slice as radiologists view it; and the spacing.

    Slices lie across the axis of widest spacing, or nearest to this axis of LPS."""
    if array.ndim == 2:
        return array.astype(np.float32), grid.spacing
    order, signs = viewing_order(grid) if across is None else plane_order(grid, across)
    turned = turn_array(array, order, signs)
    return turned[..., turned.shape[2] // 2].astype(np.float32), tuple(grid.spacing[axis] for axis in order[:2])


def plane_order(grid: Grid, across: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order in which the axes of a volume are shown, slices across this axis of LPS last; -1 is flipped."""
    world = world_axes(grid)
    axes = [world.index(axis) for axis, _ in VIEWS[across]]
    runs = [grid.axes[lps, axis] >= 0 for (lps, _), axis in zip(VIEWS[across], axes, strict=True)]
    signs = [sign if forward else -sign for (_, sign), forward in zip(VIEWS[across], runs, strict=True)]
    return (*axes, world.index(across)), (*signs, 1)
