"""Pictures of a registration. Axis 0 of an array runs across the picture and axis 1 down it, as in ITK and NIfTI."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy import ndarray

from vrnet.fields import determinant, jacobian

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID_STEP = 4
GRID_COLOUR = "#3a86ff"
LABEL_COLOURS = ("#4cc9f0", "#f9c74f", "#f94144", "#90be6d", "#b5179e", "#f3722c")


@dataclass(frozen=True)
class Pair:
    """A registered pair, ready to be shown: images in the intensities of the files, field in voxels."""

    fixed: Float[ndarray, "*s"]
    moving: Float[ndarray, "*s"]
    warped: Float[ndarray, "*s"]
    field: Float[ndarray, "d *s"]
    fixed_labels: Integer[ndarray, "*s"]
    moving_labels: Integer[ndarray, "*s"]
    warped_labels: Integer[ndarray, "*s"]

    def in_plane(self) -> "Pair":
        """A 2D pair as it is; of a 3D one, the middle slice across the last axis, and the motion within it."""
        if self.fixed.ndim == 2:
            return self
        k = self.fixed.shape[2] // 2
        arrays = {name: array[..., k] for name, array in vars(self).items()}
        return replace(self, **(arrays | {"field": arrays["field"][:2]}))


def overview(pair: Pair, title: str) -> "Figure":
    """Fixed, moving, warped and outlines; differences before and after, deformed grid, Jacobian determinant."""
    from matplotlib.figure import Figure

    flat = pair.in_plane()
    det = determinant(jacobian(torch.from_numpy(pair.field.astype(np.float32))[None]))[0].numpy()
    figure = Figure(figsize=(13, 7.2), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 4)
    for ax in axes.flat:
        ax.set_axis_off()
    high = float(np.percentile(np.stack([flat.fixed, flat.moving]), 99.5))
    low = min(float(flat.fixed.min()), float(flat.moving.min()))
    for ax, name in zip(axes[0], ("fixed", "moving", "warped"), strict=False):
        show_image(ax, getattr(flat, name), name, low, high)
    show_image(axes[0, 3], flat.fixed, "outlines: fixed —, warped - -", low, high)
    outline(axes[0, 3], flat.fixed_labels, "solid")
    outline(axes[0, 3], flat.warped_labels, "dashed")
    show_difference(axes[1, 0], flat.fixed, flat.moving, "|moving − fixed|, before", high - low)
    show_difference(axes[1, 1], flat.fixed, flat.warped, "|warped − fixed|, after", high - low)
    show_grid(axes[1, 2], flat.field)
    show_jacobian(axes[1, 3], det if det.ndim == 2 else det[..., det.shape[2] // 2])
    return figure


def show_image(ax: "Axes", image: Float[ndarray, "h w"], title: str, low: float, high: float) -> None:
    ax.imshow(image.T, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    ax.set_title(title, fontsize=10)


def outline(ax: "Axes", labels: Integer[ndarray, "h w"], style: str) -> None:
    """The contour of each label, in its colour."""
    for label in np.unique(labels[labels > 0]):
        colour = LABEL_COLOURS[(int(label) - 1) % len(LABEL_COLOURS)]
        ax.contour((labels == label).T, levels=[0.5], colors=[colour], linewidths=1.2, linestyles=style)


def show_difference(ax: "Axes", a: Float[ndarray, "h w"], b: Float[ndarray, "h w"], title: str, high: float) -> None:
    """|b − a|, with its mean in the title; half of `high` is brightest."""
    difference = np.abs(b - a)
    ax.imshow(difference.T, cmap="inferno", vmin=0, vmax=high / 2, interpolation="nearest")
    ax.set_title(f"{title} (mean {difference.mean():.3g})", fontsize=10)


def show_grid(ax: "Axes", u: Float[ndarray, "2 h w"]) -> None:
    """Grid lines of fixed as they lie in moving: the curves x + u(x)."""
    across, down = (np.indices(u.shape[1:]) + u).astype(float)
    for i in range(0, across.shape[0], GRID_STEP):
        ax.plot(across[i], down[i], color=GRID_COLOUR, linewidth=0.6)
    for j in range(0, across.shape[1], GRID_STEP):
        ax.plot(across[:, j], down[:, j], color=GRID_COLOUR, linewidth=0.6)
    ax.set(xlim=(0, u.shape[1] - 1), ylim=(u.shape[2] - 1, 0), aspect="equal")
    ax.set_title("deformed grid", fontsize=10)


def show_jacobian(ax: "Axes", det: Float[ndarray, "h w"]) -> None:
    """det(I + ∇u): blue shrinks, red grows, green is folded."""
    image = ax.imshow(det.T, cmap="RdBu_r", vmin=0, vmax=2, interpolation="nearest")
    ax.imshow(np.where(det < 0, 1.0, np.nan).T, cmap="brg", vmin=0, vmax=1, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.7)
    ax.set_title("Jacobian determinant (folds green)", fontsize=10)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as the file's ending says."""
    from vrnet.images.io import written_whole

    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=130)
