"""The colours of figures and pages: one source, so that both read alike. Colour maps are matplotlib's."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

DIFFERENCE_MAP = "inferno"
JACOBIAN_MAP = "RdBu_r"
STRAIN_MAP = "RdYlBu_r"
"""No strain is pale yellow: in an image of greys, a white wall would seem to have no value."""
JACOBIAN_RANGE = (0.0, 2.0)
"""The determinants at both ends of the colour map."""
FOLD = "#00d000"  # no mixture of blue, white and red comes near it
GRID = "#5fb3ff"
MASK = "#ff7ac6"  # none of the labels that are chosen by hand has it
LABELS = ("#4cc9f0", "#f9c74f", "#f94144", "#90be6d", "#d65db1", "#f3722c")
GOLDEN_RATIO = 0.618034
"""Of a turn of the hue: any number of hues, each far from those before it."""


def label_colours(labels: list[int]) -> dict[int, str]:
    """A colour for each label: the first few are chosen by hand, the others by turning the hue."""
    from matplotlib.colors import hsv_to_rgb, to_hex

    hsv = [(i * GOLDEN_RATIO % 1, 0.55 + 0.3 * (i % 2), 0.95) for i in range(len(LABELS), len(labels))]
    return dict(zip(labels, [*LABELS, *(to_hex(tuple(hsv_to_rgb(colour))) for colour in hsv)], strict=False))


def motion_colours(across: Float[ndarray, "*s"], down: Float[ndarray, "*s"], scale: float) -> Float[ndarray, "*s 3"]:
    """RGB of a motion in the picture: direction is hue (right red, then clockwise), length up to `scale` saturation."""
    from matplotlib.colors import hsv_to_rgb

    hue = np.arctan2(down, across) / (2 * np.pi) % 1
    saturation = np.clip(np.hypot(across, down) / scale, 0, 1)
    return hsv_to_rgb(np.stack([hue, saturation, np.ones_like(hue)], axis=-1))


def colour_stops(name: str, count: int = 11) -> list[str]:
    """Equally spaced colours of one of matplotlib's maps, as #rrggbb: a page interpolates between them."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in mpl.colormaps[name](np.linspace(0, 1, count))]
