"""What the scripts of a page read: the pair in 8-bit sheets, and what their values mean."""

from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from vrnet.images.grid import Grid
from vrnet.report.colours import (
    DIFFERENCE_MAP,
    FOLD,
    GRID,
    JACOBIAN_MAP,
    JACOBIAN_RANGE,
    colour_stops,
    label_colours,
)
from vrnet.report.greys import Window, grey_windows
from vrnet.report.pair import Pair, world_axes
from vrnet.report.sheets import encode_sheet, find_labels, quantise, quantise_motion, rank_labels, sheet_columns
from vrnet.report.slices import PageSlices, slice_pair

WINDOW_PERCENTILES = (0.5, 99.5)
"""The percentiles of the intensities of both images that are black and white."""
FULL_COLOUR_PERCENTILE = 99.9
"""The percentile of the lengths of the motion that has full colour: if the longest had it, a few outliers would make
all others pale."""
DETERMINANTS = (-1.0, -1 + 255 / 64)
"""The range of the determinants, in steps of 1/64."""
AXIS_ENDS = ("RL", "AP", "IS")
"""What lies at the two ends of each axis of LPS."""
BOX_MARGIN = 0.25
"""The margin around the structures when they are zoomed to, as a part of their size."""


def page_data(pair: Pair) -> dict[str, Any]:
    """What the page holds of a pair, which is oriented for viewing."""
    slices = slice_pair(pair)
    windows = grey_windows(slices.images, WINDOW_PERCENTILES)
    labels = find_labels(slices.labels.values()) if slices.labels else []
    largest = [float(np.abs(u).max()) or 1.0 for u in slices.motion]
    return {
        "tiles": tile_layout(slices),
        "spacing": slices.spacing,
        "factors": slices.factors,
        "windows": windows,
        "largest": largest,
        "scale": motion_scale(slices),
        "slices": [k + 1 for k in slices.numbers],
        "depth": 1 if pair.fixed.ndim == 2 else pair.fixed.shape[2],
        "start": first_shown(pair, slices),
        "edges": edge_letters(pair.grid),
        "labels": [{"value": value, "colour": colour} for value, colour in label_colours(labels).items()],
        "box": structure_box(slices),
        "sheets": {
            name: encode_sheet(array) for name, array in quantise_slices(slices, windows, largest, labels).items()
        },
    }


def page_colours() -> dict[str, Any]:
    """The colours that the scripts of a page paint with."""
    return {
        "difference": colour_stops(DIFFERENCE_MAP),
        "jacobian": colour_stops(JACOBIAN_MAP),
        "range": JACOBIAN_RANGE,
        "fold": FOLD,
        "grid": GRID,
    }


def quantise_slices(
    slices: PageSlices, windows: dict[str, Window], largest: list[float], labels: list[int]
) -> dict[str, UInt8[ndarray, "w h n"]]:
    """Each array in 8 bits: images over their windows, motion by its root, labels by their rank."""
    images = {name: quantise(image, *windows[name]) for name, image in slices.images.items()}
    motion = {f"u{i}": quantise_motion(u, m) for i, (u, m) in enumerate(zip(slices.motion, largest, strict=True))}
    maps = {name: rank_labels(map_, labels) for name, map_ in slices.labels.items()}
    return {**images, **motion, **maps, "det": quantise(slices.det, *DETERMINANTS), "folded": slices.folded}


def tile_layout(slices: PageSlices) -> dict[str, int]:
    """The size of a slice in a sheet, in pixels, and how many slices stand side by side."""
    width, height, n = slices.det.shape
    return {"width": width, "height": height, "columns": sheet_columns(n)}


def motion_scale(slices: PageSlices) -> float:
    """The length of motion within the slices that has full colour, in mm."""
    across, down = (u * h for u, h in zip(slices.motion[:2], slices.spacing[:2], strict=True))
    return float(np.percentile(np.hypot(across, down), FULL_COLOUR_PERCENTILE)) or 1.0


def first_shown(pair: Pair, slices: PageSlices) -> int:
    """The place, among the slices of the page, of the one nearest to the main slice."""
    main = 0 if pair.fixed.ndim == 2 else pair.main_slice()
    return int(np.argmin(np.abs(np.array(slices.numbers) - main)))


def edge_letters(grid: Grid) -> dict[str, str]:
    """The letters of what lies left, right, above and below in the pictures of a volume; none for an image."""
    if len(grid.shape) == 2:
        return {}
    D = np.reshape(grid.direction, (3, 3))
    ends = [AXIS_ENDS[axis][:: 1 if D[axis, i] >= 0 else -1] for i, axis in enumerate(world_axes(grid)[:2])]
    return dict(zip(("left", "right", "top", "bottom"), "".join(ends), strict=True))


def structure_box(slices: PageSlices) -> tuple[int, int, int, int] | None:
    """Left, top, width and height, in shown pixels, of the part that holds every structure, with a margin."""
    maps, start = slices.labels.values(), np.zeros(slices.det.shape[:2], bool)
    labelled = sum((np.any(map_, axis=2) for map_ in maps), start=start)
    if not labelled.any():
        return None
    (left, right), (top, bottom) = (span_with_margin(labelled.any(axis=other)) for other in (1, 0))
    return left, top, right - left, bottom - top


def span_with_margin(is_inside: Any, part: float = BOX_MARGIN) -> tuple[int, int]:
    """From the first true value to past the last one, widened on both sides by this part of it."""
    first, last = int(np.argmax(is_inside)), len(is_inside) - int(np.argmax(is_inside[::-1]))
    margin = round(part * (last - first))
    return max(first - margin, 0), min(last + margin, len(is_inside))
