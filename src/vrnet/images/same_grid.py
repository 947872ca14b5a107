"""Whether labels and masks lie on the grid of their image: where they do not, both grids are told, and what to do."""

from itertools import product

import numpy as np

from vrnet.errors import BadInput
from vrnet.images.grid import Grid

NEAREST = "resample it to that grid, to the nearest voxel"


def check_same_grid(name: str, own: Grid, image: str, grid: Grid, others: dict[str, Grid] | None = None) -> None:
    """BadInput unless what is called `name` has the voxels of an image; if it has those of another, that is named."""
    if own.matches(grid):
        return
    texts = grid_text(own), grid_text(grid)
    if texts[0] == texts[1]:
        sizes = f"both have {texts[0]}, but turned or placed otherwise, up to {farthest_mm(own, grid):.3g} mm apart"
    else:
        sizes = f"it has {texts[0]}, and that grid has {texts[1]}"
    if fitting := next((other for other, each in (others or {}).items() if own.matches(each)), None):
        advice = f"it lies on that of {fitting}: give each to its own image"
    elif own.shape == grid.shape:
        advice = f"if its header alone is wrong, give it that of the image; else {NEAREST}"
    else:
        advice = f"give the one that was drawn on this image, or {NEAREST}"
    raise BadInput(f"{name} is not on the grid of {image}: {sizes}; {advice}")


def grid_text(grid: Grid) -> str:
    """The size of a grid in words, with where it lies."""
    size, spacing = " x ".join(map(str, grid.shape)), " x ".join(f"{h:.4g}" for h in grid.spacing)
    return f"{size} voxels of {spacing} mm at {', '.join(f'{x:.4g}' for x in grid.origin)}"


def farthest_mm(a: Grid, b: Grid) -> float:
    """How far the corners of two grids of one shape are apart, at most."""
    corners = np.array(list(product(*((0.0, n - 1.0) for n in a.shape))))
    return float(np.linalg.norm(a.points(corners) - b.points(corners), axis=1).max())
