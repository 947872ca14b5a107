"""What the scripts of a page read: the pair in 8-bit sheets, and what their values mean."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from vrnet.evaluation.label_names import label_text
from vrnet.images.grid import Grid
from vrnet.report.appearance import Appearance
from vrnet.report.colours import (
    DIFFERENCE_MAP,
    FOLD,
    GRID,
    JACOBIAN_MAP,
    JACOBIAN_RANGE,
    MASK,
    colour_stops,
)
from vrnet.report.greys import Window
from vrnet.report.pair import Pair, turn_grid, viewing_order, world_axes
from vrnet.report.sheets import encode_sheet, quantise, quantise_motion, rank_labels, sheet_columns
from vrnet.report.slices import PageSlices
from vrnet.report.volumes import DETERMINANTS, is_volume, volume_data

AXIS_ENDS = ("RL", "AP", "IS")
"""What lies at the two ends of each axis of LPS."""
BOX_MARGIN = 0.25
"""The margin around the structures when they are zoomed to, as a part of their size."""


def page_data(
    pair: Pair,
    slices: PageSlices,
    look: Appearance,
    edges: Mapping[str, str],
    names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What the page holds of a pair, which is oriented for viewing; `edges` are the letters of its grid before that,
    `names` what its labels are called."""
    names = names or {}
    largest = [float(np.abs(u).max()) or 1.0 for u in slices.motion]
    return {
        "tiles": tile_layout(slices),
        "spacing": slices.spacing,
        "unit": pair.unit,
        "factors": slices.factors,
        "windows": look.windows,
        "largest": largest,
        "scale": look.rim_mm,
        "slices": [k + 1 for k in slices.numbers],
        "depth": 1 if pair.fixed.ndim == 2 else pair.fixed.shape[2],
        "start": look.start,
        "edges": dict(edges),
        "labels": [
            {"value": value, "name": label_text(value, names), "colour": colour}
            for value, colour in look.colours.items()
        ],
        "box": structure_box(slices),
        **(volume_parts(pair, look) if is_volume(pair) else sheet_parts(slices, look, largest)),
    }


def volume_parts(pair: Pair, look: Appearance) -> dict[str, Any]:
    """The arrays of a page that shows every voxel of a volume."""
    return {"sheets": {}, "volume": volume_data(pair, look)}


def sheet_parts(slices: PageSlices, look: Appearance, largest: list[float]) -> dict[str, Any]:
    """The arrays of a page that shows slices: each is a sheet of them."""
    arrays = quantise_slices(slices, look.windows, largest, [*look.colours])
    return {"sheets": {name: encode_sheet(array) for name, array in arrays.items()}, "volume": None}


def page_colours() -> dict[str, Any]:
    """The colours that the scripts of a page paint with."""
    return {
        "difference": colour_stops(DIFFERENCE_MAP),
        "jacobian": colour_stops(JACOBIAN_MAP),
        "range": JACOBIAN_RANGE,
        "fold": FOLD,
        "grid": GRID,
        "mask": MASK,
    }


def quantise_slices(
    slices: PageSlices, windows: dict[str, Window], largest: list[float], labels: list[int]
) -> dict[str, UInt8[ndarray, "w h n"]]:
    """Each array in 8 bits: images over their windows, motion by its root, labels by their rank."""
    images = {name: quantise(image, *windows[name]) for name, image in slices.images.items()}
    motion = {f"u{i}": quantise_motion(u, m) for i, (u, m) in enumerate(zip(slices.motion, largest, strict=True))}
    maps = {name: rank_labels(map_, labels) for name, map_ in slices.labels.items()}
    maps |= {} if slices.mask is None else {"mask": slices.mask.astype(np.uint8)}
    return {**images, **motion, **maps, "det": quantise(slices.det, *DETERMINANTS), "folded": slices.folded}


def tile_layout(slices: PageSlices) -> dict[str, int]:
    """The size of a slice in a sheet, in pixels, and how many slices stand side by side."""
    width, height, n = slices.det.shape
    return {"width": width, "height": height, "columns": sheet_columns(n)}


def edge_letters(grid: Grid) -> dict[str, str]:
    """The letters of what lies left, right, above and below in the pictures of a volume, by the grid of its file.

    None for an image, and none where the header does not say how it lies."""
    if len(grid.shape) == 2 or not grid.is_placed:
        return {}
    shown = turn_grid(grid, *viewing_order(grid))
    ends = [AXIS_ENDS[axis][:: 1 if shown.axes[axis, i] >= 0 else -1] for i, axis in enumerate(world_axes(shown)[:2])]
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
