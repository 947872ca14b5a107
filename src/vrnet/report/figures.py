"""Pictures of a registration. Axis 0 of an array runs across the picture and axis 1 down it, as in ITK and NIfTI."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Integer
from numpy import ndarray

from vrnet.evaluation.label_names import label_text
from vrnet.files import write_bytes
from vrnet.report.appearance import Appearance, appearance
from vrnet.report.colours import (
    DIFFERENCE_MAP,
    FOLD,
    GRID,
    JACOBIAN_MAP,
    JACOBIAN_RANGE,
    MASK,
    motion_colours,
)
from vrnet.report.pair import Deformation, Pair, deformation, orient_for_viewing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID_LINES = 40
"""Lines of the deformed grid along the longer side of a picture."""
MAX_LEGEND_LABELS = 8
CHECKERS = 8
"""Squares of a checkerboard along the longer side of a picture."""


def overview(pair: Pair, title: str, names: Mapping[str, str] | None = None, is_opposite: bool = False) -> "Figure":
    """Images, structures where there are any, differences, grid, motion and Jacobian determinant of the main slice.

    Slice, greys, colours and the length of motion with full colour are those of the page; `names` are what labels are
    called. Of opposite contrasts differences would mean nothing: checkerboards are in their place."""
    from vrnet.report.picture import Picture

    whole = orient_for_viewing(pair)
    is_volume = whole.fixed.ndim == 3
    look = appearance(whole)
    k = look.numbers[look.start]
    flat = whole.cut(k) if is_volume else whole
    is_labelled = flat.fixed_labels is not None
    figure = Picture(figsize=(16 if is_labelled else 13, 7.2), layout="constrained")
    start = "; after the affine start" if pair.is_aligned else ""
    shown = f"; shown: slice {k + 1} of {whole.fixed.shape[2]}" if is_volume else ""
    masked = "" if flat.mask is None else "; dotted: the mask"
    figure.suptitle(f"{title}{start}{shown}{masked}", parse_math=False)  # a file's name may hold dollars
    axes = figure.subplots(2, 5 if is_labelled else 4, subplot_kw={"xticks": [], "yticks": []})
    show_images(list(axes[0]), flat, look, names or {})
    (show_checkerboards if is_opposite else show_differences)(list(axes[1]), flat, look)
    show_changes(list(axes[1][2:]), flat, deformation(whole.field, k), look)
    for ax in axes.flat:
        ax.set_axis_off()
        ax.set_aspect(flat.grid.spacing[1] / flat.grid.spacing[0])
    return figure


def show_images(axes: list["Axes"], pair: Pair, look: Appearance, names: Mapping[str, str]) -> None:
    """Fixed, moving and warped; then outlines before and after, or without labels the motion."""
    greys = look.windows
    for ax, name in zip(axes, greys, strict=False):
        show_image(ax, getattr(pair, name), title_of(pair, name), *greys[name])
        draw_mask(ax, pair.mask)
    if pair.fixed_labels is None:
        return show_motion(axes[3], pair.field, pair.grid.spacing, look.rim_mm, pair.unit)
    for ax, name in zip(axes[3:], ("moving", "warped"), strict=True):
        show_image(ax, getattr(pair, name), f"outlines: fixed —, {title_of(pair, name)} - -", *greys[name])
        show_outlines(ax, pair.fixed_labels, getattr(pair, f"{name}_labels"), look.colours, names)
    return None


def title_of(pair: Pair, name: str) -> str:
    """The name of an image of the pair, as a title: moving may be aligned."""
    return f"{name}, aligned" if name == "moving" and pair.is_aligned else name


def show_differences(axes: list["Axes"], pair: Pair, look: Appearance) -> None:
    """Differences before and after."""
    low, high = look.windows["fixed"]
    when = "aligned" if pair.is_aligned else "before"
    show_difference(axes[0], pair.fixed, pair.moving, f"|moving − fixed|, {when}", high - low, pair.mask)
    show_difference(axes[1], pair.fixed, pair.warped, "|warped − fixed|, after", high - low, pair.mask)


def show_checkerboards(axes: list["Axes"], pair: Pair, look: Appearance) -> None:
    """Fixed and moving, then fixed and warped, in turns, each in its own greys: edges meet where they should."""
    side = max(max(pair.fixed.shape) // CHECKERS, 1)
    rows, columns = np.indices(pair.fixed.shape) // side
    is_other = (rows + columns) % 2 == 1
    for ax, name in zip(axes, ("moving", "warped"), strict=False):
        fixed, other = (greys(getattr(pair, each), *look.windows[each]) for each in ("fixed", name))
        show_image(ax, np.where(is_other, other, fixed), f"fixed and {title_of(pair, name)}, in turns", 0.0, 1.0)


def greys(image: Float[ndarray, "w h"], low: float, high: float) -> Float[ndarray, "w h"]:
    """From 0, black, to 1, white."""
    return ((image - low) / max(high - low, 1e-12)).clip(0, 1)


def show_changes(axes: list["Axes"], pair: Pair, deformed: Deformation, look: Appearance) -> None:
    """Grid, motion if there is room, and Jacobian determinant."""
    show_grid(axes[0], pair.field)
    for ax in axes[1:-1]:
        show_motion(ax, pair.field, pair.grid.spacing, look.rim_mm, pair.unit)
    show_jacobian(axes[-1], deformed)


def show_image(ax: "Axes", image: Float[ndarray, "w h"], title: str, low: float, high: float) -> None:
    """An image in grey, `low` black and `high` white."""
    ax.imshow(image.T, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    ax.set_title(title, fontsize=10)


def show_outlines(
    ax: "Axes",
    fixed: Integer[ndarray, "w h"],
    other: Integer[ndarray, "w h"] | None,
    colours: Mapping[int, str],
    names: Mapping[str, str],
) -> None:
    """The outline of each label in its colour, fixed solid and the other dashed, with a legend of those in sight."""
    from matplotlib.lines import Line2D

    maps = {"solid": fixed} if other is None else {"solid": fixed, "dashed": other}
    there = np.unique(np.stack(list(maps.values()))).tolist()
    seen = {label: colour for label, colour in colours.items() if label in there}
    for style, map_ in maps.items():
        draw_contours(ax, map_, seen, style)
    if 0 < len(seen) <= MAX_LEGEND_LABELS:
        texts = {label: as_plain_text(label_text(label, names)) for label in seen}
        handles = [Line2D([], [], color=colour, label=texts[label]) for label, colour in seen.items()]
        ax.legend(handles=handles, loc="lower right", fontsize=8, handlelength=1)


def as_plain_text(name: str) -> str:
    """A name as matplotlib draws it as it is: dollars begin no mathematics, and a leading underscore hides nothing."""
    return name.replace("$", r"\$").replace("\n", " ").lstrip("_")


def draw_contours(ax: "Axes", labels: Integer[ndarray, "w h"], colours: dict[int, str], style: str) -> None:
    """The contour of each label, in its colour."""
    for label, colour in colours.items():
        mask = labels == label
        if mask.any() and not mask.all():
            ax.contour(mask.T, levels=[0.5], colors=[colour], linewidths=1.2, linestyles=style)


def draw_mask(ax: "Axes", mask: Bool[ndarray, "w h"] | None) -> None:
    """The outline of a mask, if there is one."""
    if mask is not None:
        draw_contours(ax, mask.astype(np.uint8), {1: MASK}, "dotted")


def show_difference(
    ax: "Axes",
    a: Float[ndarray, "w h"],
    b: Float[ndarray, "w h"],
    title: str,
    high: float,
    mask: Bool[ndarray, "w h"] | None = None,
) -> None:
    """|b − a|, with its mean in the title, inside a mask that shows here; half of `high` and more is brightest."""
    difference = np.abs(b - a)
    ax.imshow(difference.T, cmap=DIFFERENCE_MAP, vmin=0, vmax=high / 2, interpolation="nearest")
    draw_mask(ax, mask)
    inside = None if mask is None or not mask.any() else difference[mask]
    mean = f"mean {difference.mean():.3g}" if inside is None else f"mean inside {inside.mean():.3g}"
    ax.set_title(f"{title} ({mean})", fontsize=10)


def show_grid(ax: "Axes", u: Float[ndarray, "2 w h"]) -> None:
    """Grid lines of fixed as they lie in moving: the curves x + u(x)."""
    across, down = (np.indices(u.shape[1:]) + u).astype(float)
    step = grid_step(u.shape[1:])
    for i in range(0, across.shape[0], step):
        ax.plot(across[i], down[i], color=GRID, linewidth=0.6)
    for j in range(0, across.shape[1], step):
        ax.plot(across[:, j], down[:, j], color=GRID, linewidth=0.6)
    ax.set(xlim=(-0.5, u.shape[1] - 0.5), ylim=(u.shape[2] - 0.5, -0.5), aspect="equal")
    ax.set_title("deformed grid", fontsize=10)


def grid_step(shape: tuple[int, ...]) -> int:
    """Voxels from one line of the grid to the next."""
    return max(1, round(max(shape) / GRID_LINES))


def show_motion(
    ax: "Axes", u: Float[ndarray, "2 w h"], spacing: tuple[float, ...], rim_mm: float, unit: str = "mm"
) -> None:
    """Motion within the picture: direction is hue and length, up to the rim of the wheel in the corner, saturation."""
    across, down = u * np.reshape(spacing[:2], (2, 1, 1))
    ax.imshow(motion_colours(across, down, rim_mm).swapaxes(0, 1), interpolation="nearest")
    ax.set_title(f"displacement (rim {rim_mm:.3g} {unit})", fontsize=10)
    draw_wheel(ax.inset_axes((0.8, 0.02, 0.18, 0.18)))


def draw_wheel(ax: "Axes") -> None:
    """A disc with the colour of every direction and length of motion."""
    across, down = np.meshgrid(*[np.linspace(-1, 1, 101)] * 2, indexing="ij")
    inside = np.hypot(across, down) <= 1
    wheel = np.concatenate([motion_colours(across, down, 1.0), inside[..., None]], axis=-1)
    ax.imshow(wheel.swapaxes(0, 1), extent=(-1, 1, 1, -1))
    ax.set_axis_off()


def show_jacobian(ax: "Axes", deformed: Deformation, bar: bool = True) -> None:
    """det(I + ∇u): blue shrinks, red grows, green is folded."""
    from matplotlib.colors import ListedColormap

    low, high = JACOBIAN_RANGE
    image = ax.imshow(deformed.det.T, cmap=JACOBIAN_MAP, vmin=low, vmax=high, interpolation="nearest")
    ax.imshow(np.where(deformed.folded, 1.0, np.nan).T, cmap=ListedColormap([FOLD]), interpolation="nearest")
    if bar:
        ax.figure.colorbar(image, ax=ax, shrink=0.7)
    ax.set_title("Jacobian determinant (strict folds green)", fontsize=10)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the suffix of the file names."""
    picture = BytesIO()
    figure.savefig(picture, dpi=130, format=path.suffix.removeprefix("."))
    write_bytes(picture.getvalue(), path)
