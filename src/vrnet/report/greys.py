"""Which intensities are black and which are white in the pictures of a pair."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.evaluation.rules import MAX_OFFSET, MAX_RANGE_RATIO

Window = tuple[float, float]


def grey_windows(images: Mapping[str, Float[ndarray, "*s"]], percentiles: tuple[float, float]) -> dict[str, Window]:
    """The intensities of black and of white of fixed, moving and warped, by percentiles of fixed and moving.

    They are the same for all, so that greys can be compared; unless the ranges of fixed and moving are so far apart
    that one of them would be all black or all white."""
    own = {name: window_of([images[name]], percentiles) for name in ("fixed", "moving")}
    if are_far_apart(own["fixed"], own["moving"]):
        return {name: own["fixed" if name == "fixed" else "moving"] for name in images}
    return dict.fromkeys(images, window_of([images["fixed"], images["moving"]], percentiles))


def window_of(images: Sequence[Float[ndarray, "*s"]], percentiles: tuple[float, float]) -> Window:
    """These percentiles of the intensities of images of one shape."""
    low, high = np.percentile(np.stack(images), percentiles).tolist()
    return (low, high) if high > low else (low, low + 1)


def are_far_apart(a: Window, b: Window) -> bool:
    """Whether one range is much wider than the other, or their middles lie far from each other."""
    narrow, wide = sorted(high - low for low, high in (a, b))
    return wide > MAX_RANGE_RATIO * narrow or abs(sum(a) - sum(b)) / 2 > MAX_OFFSET * wide
