"""The colours of figures and pages: one source, so that both read alike."""

from colorsys import hsv_to_rgb

import numpy as np
from jaxtyping import Float
from numpy import ndarray

# Equally spaced stops of matplotlib's inferno and RdBu_r.
DIFFERENCE = (
    "#000004", "#160b39", "#420a68", "#6a176e", "#932667", "#bc3754",
    "#dd513a", "#f37819", "#fca50a", "#f6d746", "#fcffa4",
)  # fmt: skip
JACOBIAN = (
    "#053061", "#2065ab", "#4393c3", "#90c4dd", "#d1e5f0", "#f7f6f6",
    "#fddbc7", "#f3a481", "#d6604d", "#b1182b", "#67001f",
)  # fmt: skip
JACOBIAN_RANGE = (0.0, 2.0)
FOLD = "#00d000"  # no mixture of blue, white and red comes near it
GRID = "#5fb3ff"
LABELS = ("#4cc9f0", "#f9c74f", "#f94144", "#90be6d", "#d65db1", "#f3722c")
GOLDEN = 0.618034  # of a turn: any number of hues, each far from those before it


def label_colours(labels: list[int]) -> dict[int, str]:
    """A colour for each label: the first few chosen, the others by turning the hue."""
    turned = [hsv_to_rgb(i * GOLDEN % 1, 0.55 + 0.3 * (i % 2), 0.95) for i in range(len(LABELS), len(labels))]
    more = ["#" + "".join(f"{round(255 * channel):02x}" for channel in colour) for colour in turned]
    return dict(zip(labels, [*LABELS, *more], strict=False))


def motion_colours(across: Float[ndarray, "*s"], down: Float[ndarray, "*s"], scale: float) -> Float[ndarray, "*s 3"]:
    """RGB of a motion in the picture: direction is hue (right red, then clockwise), length up to `scale` saturation."""
    hue = np.arctan2(down, across) / (2 * np.pi) * 6
    saturation = np.clip(np.hypot(across, down) / scale, 0, 1)
    distance = [(n + hue) % 6 for n in (5, 3, 1)]  # of each primary, on the wheel
    return np.stack([1 - saturation * np.clip(np.minimum(k, 4 - k), 0, 1) for k in distance], axis=-1)
