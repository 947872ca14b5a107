"""What the scripts of a page read: the pair in 8-bit sheets, and what their values mean."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from vrnet.report.colours import label_colours
from vrnet.report.pair import Pair, closest
from vrnet.report.sheets import Shown, columns, most_common, quantised, ranked, sheet, shown

WINDOW = (0.5, 99.5)  # percentiles of both images
LARGEST = 99.9  # percentile of the motion that has full colour: a few outliers would pale all others
TOWARDS = ("RL", "AP", "IS")  # what lies at the two ends of each axis of LPS
MARGIN = 0.25  # around the structures, of their size


def embedded(pair: Pair) -> dict[str, Any]:
    """An upright pair as the page holds it."""
    part = shown(pair)
    low, high = window(part)
    labels = most_common(part.labels.values()) if part.labels else []
    largest = [float(np.abs(u).max()) or 1.0 for u in part.motion]
    return {
        "tiles": tiles(part),
        "spacing": part.spacing,
        "factors": part.factors,
        "window": (low, high),
        "largest": largest,
        "scale": motion_scale(part),
        "slices": [k + 1 for k in part.slices],
        "depth": 1 if pair.fixed.ndim == 2 else pair.fixed.shape[2],
        "start": start(pair, part),
        "edges": edges(pair),
        "labels": [{"value": value, "colour": colour} for value, colour in label_colours(labels).items()],
        "box": box(part),
        "sheets": {name: sheet(array) for name, array in coded(part, (low, high), largest, labels).items()},
    }


def coded(
    part: Shown, window: tuple[float, float], largest: list[float], labels: list[int]
) -> dict[str, UInt8[ndarray, "w h n"]]:
    """Each array in 8 bits: images over the window, motion by its root, determinants from -1 in steps of 1/64."""
    images = {name: quantised(image, *window) for name, image in part.images.items()}
    motion = {f"u{i}": rooted(u, m) for i, (u, m) in enumerate(zip(part.motion, largest, strict=True))}
    maps = {name: ranked(map_, labels) for name, map_ in part.labels.items()}
    return {**images, **motion, **maps, "det": quantised(part.det, -1.0, -1 + 255 / 64), "folded": part.folded}


def rooted(u: Float[ndarray, "*s"], largest: float) -> UInt8[ndarray, "*s"]:
    """128 + 127 √(u/largest), signed: where motion is small its steps are finest, and straight grids stay straight."""
    return quantised(np.sign(u) * np.sqrt(np.abs(u) / largest), -128 / 127, 1.0)


def tiles(part: Shown) -> dict[str, int]:
    """The size of a slice, and how many stand side by side."""
    width, height, n = part.det.shape
    return {"width": width, "height": height, "columns": columns(n)}


def window(part: Shown) -> tuple[float, float]:
    """The intensities from black to white, one scale for all images."""
    low, high = np.percentile(np.stack([part.images["fixed"], part.images["moving"]]), WINDOW).tolist()
    return (low, high) if high > low else (low, low + 1)


def motion_scale(part: Shown) -> float:
    """The length of motion within the slices that has full colour, in mm."""
    across, down = (u * h for u, h in zip(part.motion[:2], part.spacing[:2], strict=True))
    return float(np.percentile(np.hypot(across, down), LARGEST)) or 1.0


def start(pair: Pair, part: Shown) -> int:
    """The place, among those shown, of the slice nearest to the main one."""
    main = 0 if pair.fixed.ndim == 2 else pair.main_slice()
    return int(np.argmin(np.abs(np.array(part.slices) - main)))


def edges(pair: Pair) -> dict[str, str]:
    """The letters of what lies left, right, above and below in the pictures of a volume."""
    if pair.fixed.ndim == 2:
        return {}
    D = np.reshape(pair.grid.direction, (3, 3))
    ends = [TOWARDS[axis][:: 1 if D[axis, i] >= 0 else -1] for i, axis in enumerate(closest(pair.grid)[:2])]
    return dict(zip(("left", "right", "top", "bottom"), "".join(ends), strict=True))


def box(part: Shown) -> tuple[int, int, int, int] | None:
    """Corner and size, in shown pixels, of the part that holds every structure, with a margin."""
    labelled = sum((np.any(map_, axis=2) for map_ in part.labels.values()), start=np.zeros(part.det.shape[:2], bool))
    if not labelled.any():
        return None
    (left, right), (top, bottom) = (span(labelled.any(axis=other)) for other in (1, 0))
    return left, top, right - left, bottom - top


def span(there: Any) -> tuple[int, int]:
    """From the first true to past the last one, widened by the margin."""
    first, last = int(np.argmax(there)), len(there) - int(np.argmax(there[::-1]))
    margin = round(MARGIN * (last - first))
    return max(first - margin, 0), min(last + margin, len(there))
