"""How the pictures of a pair look, on its page and in its overview: decided once, so that both agree."""

from dataclasses import dataclass

import numpy as np

from vrnet.report.colours import label_colours
from vrnet.report.greys import Window, grey_windows
from vrnet.report.pair import Pair
from vrnet.report.sheets import find_labels
from vrnet.report.slices import average_blocks, block_factors, choose_slices, sample_blocks

WINDOW_PERCENTILES = (0.5, 99.5)
"""The percentiles of the intensities of both images that are black and white."""
FULL_COLOUR_PERCENTILE = 99.9
"""The percentile of the lengths of the motion that has full colour: if the longest had it, a few outliers would make
all others pale."""


@dataclass(frozen=True)
class Appearance:
    """What is shown of a pair, and in which greys and colours."""

    numbers: list[int]
    """The slices that are shown, from 0."""
    start: int
    """The place among them of the one that is shown first."""
    windows: dict[str, Window]
    """The intensities of black and of white of each image."""
    rim_mm: float
    """The length of motion within the slices that has full colour; in voxels where no spacing is known."""
    colours: dict[int, str]
    """That of each label."""


def appearance(pair: Pair) -> Appearance:
    """How a pair looks, which is oriented for viewing."""
    depth, factors = 1 if pair.fixed.ndim == 2 else pair.fixed.shape[2], block_factors(pair)
    numbers = choose_slices(depth)
    images = {name: average_blocks(getattr(pair, name), numbers, factors) for name in ("fixed", "moving", "warped")}
    maps = [map_ for map_ in (pair.fixed_labels, pair.moving_labels, pair.warped_labels) if map_ is not None]
    labels = find_labels(sample_blocks(map_, numbers, factors) for map_ in maps) if maps else []
    within = zip(pair.field[:2], pair.grid.spacing[:2], strict=True)
    across, down = (average_blocks(u, numbers, factors) * h for u, h in within)
    main = 0 if pair.fixed.ndim == 2 else pair.main_slice()
    return Appearance(
        numbers=numbers,
        start=int(np.argmin(np.abs(np.array(numbers) - main))),
        windows=grey_windows(images, WINDOW_PERCENTILES),
        rim_mm=float(np.percentile(np.hypot(across, down), FULL_COLOUR_PERCENTILE)) or 1.0,
        colours=label_colours(labels),
    )
