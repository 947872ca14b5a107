"""Pictures of a registration. Axis 0 of an array runs across the picture and axis 1 down it, as in ITK and NIfTI."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from numpy import ndarray

from vrnet.data.labels import label_text
from vrnet.files import write_bytes
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.images.transforms import Transform
from vrnet.registration.pair import PairResult
from vrnet.report import measures
from vrnet.report.drawing import (
    DIFFERENCE_MAP,
    FOLD,
    GRID,
    JACOBIAN_MAP,
    JACOBIAN_RANGE,
    MASK,
    Tile,
    grey_windows,
    join_tiles,
    motion_colours,
    quantise,
    render_template,
    window_of,
)
from vrnet.report.measures import is_contrast_opposite
from vrnet.report.pair import (
    WINDOW_PERCENTILES,
    Appearance,
    Deformation,
    View,
    appearance,
    deformation,
    orient_for_viewing,
    turn_array,
    viewing_order,
)
from vrnet.verdict.rules import WORDS, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID_LINES = 40
"""Lines of the deformed grid along the longer side of a picture."""
MAX_LEGEND_LABELS = 8
CHECKERS = 8
"""Squares of a checkerboard along the longer side of a picture."""


def pair_figure(result: PairResult, title: str = "") -> "Figure":
    """The overview of a registered pair; without a title, by its method and verdict."""
    title = title or f"{result.method}; verdict: {WORDS[result.judged.level]}"
    return overview(View.of(result), title, result.measures.get("label_names"), is_contrast_opposite(result.measures))


def write_overview(path: Path, result: PairResult) -> None:
    """Write the overview as a file, with what the registration gained in its title."""
    dice, level = result.measures.get("dice"), result.judged.level
    before, after = measures.before_after(dice)
    gain = f": mean {measures.title('dice', result.measures)} {before:.3f} → {after:.3f}" if dice else ""
    worth = "" if level == "good" else f"; verdict: {WORDS[level]}"
    save(pair_figure(result, f"{result.method}{gain}{worth}"), path)


def overview(pair: View, title: str, names: Mapping[str, str] | None = None, is_opposite: bool = False) -> "Figure":
    """Images, structures where there are any, differences, grid, motion and Jacobian determinant of the main slice.

    Slice, greys, colours and the length of motion with full colour are those of the page; `names` are what labels are
    called. For opposite contrasts differences would mean nothing: checkerboards are shown instead."""
    from vrnet.report.drawing import Picture

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
    show_grid(axes[1][2], flat.field)
    for ax in axes[1][3:-1]:
        show_motion(ax, flat.field, flat.grid.spacing, look.rim_mm, flat.unit)
    show_jacobian(axes[1][-1], deformation(whole.field, k))
    for ax in axes.flat:
        ax.set_axis_off()
        ax.set_aspect(flat.grid.spacing[1] / flat.grid.spacing[0])
    return figure


def show_images(axes: list["Axes"], pair: View, look: Appearance, names: Mapping[str, str]) -> None:
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


def title_of(pair: View, name: str) -> str:
    """The name of an image of the pair, as a title: moving may be aligned."""
    return f"{name}, aligned" if name == "moving" and pair.is_aligned else name


def show_differences(axes: list["Axes"], pair: View, look: Appearance) -> None:
    """Differences before and after."""
    low, high = look.windows["fixed"]
    when = "aligned" if pair.is_aligned else "before"
    show_difference(axes[0], pair.fixed, pair.moving, f"|moving − fixed|, {when}", high - low, pair.mask)
    show_difference(axes[1], pair.fixed, pair.warped, "|warped − fixed|, after", high - low, pair.mask)


def show_checkerboards(axes: list["Axes"], pair: View, look: Appearance) -> None:
    """Fixed and moving, then fixed and warped, in turns, each in its own greys: edges meet where they should."""
    side = max(max(pair.fixed.shape) // CHECKERS, 1)
    rows, columns = np.indices(pair.fixed.shape) // side
    is_other = (rows + columns) % 2 == 1
    for ax, name in zip(axes, ("moving", "warped"), strict=False):
        windows = ((getattr(pair, each), *look.windows[each]) for each in ("fixed", name))
        fixed, other = (((image - low) / max(high - low, 1e-12)).clip(0, 1) for image, low, high in windows)
        show_image(ax, np.where(is_other, other, fixed), f"fixed and {title_of(pair, name)}, in turns", 0.0, 1.0)


def show_image(
    ax: "Axes",
    image: Shaped[ndarray, "w h"],
    title: str,
    low: float,
    high: float,
    spacing: tuple[float, ...] = (1.0, 1.0),
) -> None:
    """An image in grey, `low` black and `high` white, its pixels as wide and as high as they are."""
    ax.imshow(image.T, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    ax.set_title(title, fontsize=10)
    ax.set_aspect(spacing[1] / spacing[0])


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
        # a name is shown as it is: dollars begin no mathematics, and a leading underscore hides nothing
        texts = {label: label_text(label, names).replace("$", r"\$").replace("\n", " ").lstrip("_") for label in seen}
        handles = [Line2D([], [], color=colour, label=texts[label]) for label, colour in seen.items()]
        ax.legend(handles=handles, loc="lower right", fontsize=8, handlelength=1)


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
    step = max(1, round(max(u.shape[1:]) / GRID_LINES))
    for i in range(0, across.shape[0], step):
        ax.plot(across[i], down[i], color=GRID, linewidth=0.6)
    for j in range(0, across.shape[1], step):
        ax.plot(across[:, j], down[:, j], color=GRID, linewidth=0.6)
    ax.set(xlim=(-0.5, u.shape[1] - 0.5), ylim=(u.shape[2] - 0.5, -0.5), aspect="equal")
    ax.set_title("deformed grid", fontsize=10)


def show_motion(
    ax: "Axes", u: Float[ndarray, "2 w h"], spacing: tuple[float, ...], rim_mm: float, unit: str = "mm"
) -> None:
    """Motion within the picture: direction is hue and length, up to the rim of the wheel in the corner, saturation."""
    across, down = u * np.reshape(spacing[:2], (2, 1, 1))
    ax.imshow(motion_colours(across, down, rim_mm).swapaxes(0, 1), interpolation="nearest")
    ax.set_title(f"displacement (rim {rim_mm:.3g} {unit})", fontsize=10)
    wheel = ax.inset_axes((0.8, 0.02, 0.18, 0.18))
    across, down = np.meshgrid(*[np.linspace(-1, 1, 101)] * 2, indexing="ij")
    disc = np.concatenate([motion_colours(across, down, 1.0), (np.hypot(across, down) <= 1)[..., None]], axis=-1)
    wheel.imshow(disc.swapaxes(0, 1), extent=(-1, 1, 1, -1))
    wheel.set_axis_off()


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


# Cards: what a notebook shows of a result, as HTML that needs nothing else. Names of files never become code.

CARD_SIDE_PIXELS = 176
"""The longer side of each picture of a card."""


@dataclass(frozen=True)
class Card:
    """What a card shows."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Names and values, one row each."""
    picture: bytes = b""
    """A PNG file."""
    caption: str = ""
    """What the picture shows."""
    verdict: Verdict | None = None

    def html(self) -> str:
        """The card, as a notebook takes it."""
        shown = {name: getattr(self, name) for name in ("title", "facts", "caption", "verdict")}
        return render_template("card.html", **shown, picture=b64encode(self.picture).decode())


def pair_card(result: PairResult) -> Card:
    """Fixed, moving, warped and motion in the main slice, with the verdict and the few numbers that say how good."""
    view = View.of(result)
    flat, size = main_cut(view), " x ".join(map(str, result.grid.shape))
    rows = measures.headline(result.measures, result.unit)
    return Card(
        title=f"Registration by {result.method}, {size} voxels",
        facts=[
            (row.name, row.after if row.before == measures.NO_VALUE else f"{row.before} → {row.after}") for row in rows
        ],
        picture=join_tiles([*image_tiles(flat), motion_tile(flat)], flat.grid.spacing, CARD_SIDE_PIXELS, gap=3),
        caption="From left to right: fixed, moving, warped, motion (hue is direction).",
        verdict=result.judged,
    )


def image_card(image: Image, title: str = "") -> Card:
    """The picture, or of a volume its middle slice."""
    flat, spacing = middle_slice(image.array, image.grid)
    return Card(
        title=title or repr(image),
        facts=[("range", f"{image.array.min():.4g} to {image.array.max():.4g}")],
        picture=join_tiles([quantise(flat, *window_of([flat], IMAGE_PERCENTILES))], spacing, CARD_SIDE_PIXELS),
        caption="" if image.array.ndim == 2 else "The middle slice.",
    )


def cine_card(cine: Cine) -> Card:
    """The first frame."""
    return image_card(cine.image(0), f"{cine!r}")


def transform_card(transform: Transform) -> Card:
    """The motion in the slice that moves most, and how far and how much it deforms."""
    whole, k = busiest_slice(transform)
    flat = whole if whole.fixed.ndim == 2 else whole.cut(k)
    length, det = np.linalg.norm(transform.displacement, axis=0), transform.jacobian()
    return Card(
        title=repr(transform),
        facts=[
            ("displacement", f"{length.mean():.3g} mm in the mean, {length.max():.3g} mm at most"),
            ("Jacobian determinant", f"{det.min():.3g} to {det.max():.3g}"),
        ],
        picture=join_tiles([motion_tile(flat)], flat.grid.spacing, CARD_SIDE_PIXELS),
        caption="Motion (hue is direction)" + ("." if whole.fixed.ndim == 2 else f", slice {k + 1}."),
    )


# Pictures of what is not a registered pair: an image, a cine, a transform.

IMAGE_PERCENTILES = (0.0, 99.5)
"""The percentiles of the intensities that are black and white."""
PLANES = {"axial": 2, "coronal": 1, "sagittal": 0}
"""The axis of LPS that slices of each plane lie across."""
PANEL_INCHES = 3.4
MAX_FRAMES = 6
"""Frames of a cine that are shown."""


def image_figure(image: Image) -> "Figure":
    """The picture; of a volume, the middle slice across each axis, by the name of its plane where the header says how
    the image lies."""
    window = window_of([image.array.astype(np.float32)], IMAGE_PERCENTILES)
    if image.array.ndim == 2:
        figure, (ax,) = panels(1, image.name)
        show_image(ax, image.array.astype(np.float32), "", *window, image.grid.spacing)
        return figure
    figure, axes = panels(3, image.name)
    for (name, across), ax in zip(PLANES.items(), axes, strict=True):
        flat, spacing = middle_slice(image.array, image.grid, across)
        axis = viewing_order(image.grid, across)[0][-1]
        show_image(ax, flat, name if image.grid.is_placed else f"across axis {axis}", *window, spacing)
    return figure


def cine_figure(cine: Cine) -> "Figure":
    """The middle slice at a few frames, evenly through the cycle."""
    numbers = np.unique(np.linspace(0, len(cine) - 1, min(MAX_FRAMES, len(cine))).round().astype(int)).tolist()
    window = window_of([cine.frames[numbers].astype(np.float32)], IMAGE_PERCENTILES)
    figure, axes = panels(len(numbers), cine.name)
    for ax, t in zip(axes, numbers, strict=True):
        when = f"frame {t + 1} of {len(cine)}" + (f", {cine.times_ms[t]:.0f} ms" if cine.times_ms else "")
        flat, spacing = middle_slice(cine.frames[t], cine.grid)
        show_image(ax, flat, when, *window, spacing)
    return figure


def transform_figure(transform: Transform) -> "Figure":
    """Deformed grid, motion and Jacobian determinant; for a volume, in the slice that moves most."""
    whole, k = busiest_slice(transform)
    flat = whole if whole.fixed.ndim == 2 else whole.cut(k)
    figure, axes = panels(3, str(transform) if whole.fixed.ndim == 2 else f"{transform}; slice {k + 1}")
    show_grid(axes[0], flat.field)
    longest = float(np.hypot(*(flat.field * np.reshape(flat.grid.spacing, (2, 1, 1)))).max()) or 1.0
    show_motion(axes[1], flat.field, flat.grid.spacing, longest)
    show_jacobian(axes[2], deformation(whole.field, k))
    for ax in axes:
        ax.set_aspect(flat.grid.spacing[1] / flat.grid.spacing[0])
    return figure


def busiest_slice(transform: Transform) -> tuple[View, int]:
    """A transform as a pair that shows nothing, turned as it is viewed, and the slice that moves most."""
    blank = np.zeros(transform.grid.shape, np.float32)
    whole = orient_for_viewing(View(blank, blank, blank, transform.in_voxels(), transform.grid))
    if whole.fixed.ndim == 2:
        return whole, 0
    return whole, int(np.square(whole.field).sum(axis=(0, 1, 2)).argmax())


def panels(count: int, title: str) -> tuple["Figure", list["Axes"]]:
    """A figure with pictures side by side, and no frames around them. A name is shown as it is: $ is no mathematics."""
    from vrnet.report.drawing import Picture

    figure = Picture(figsize=(PANEL_INCHES * count, PANEL_INCHES + 0.5), layout="constrained")
    figure.suptitle(title, parse_math=False, fontsize=11)
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for ax in axes:
        ax.set_axis_off()
    return figure, axes


def middle_slice(
    array: Shaped[ndarray, "*s"], grid: Grid, across: int | None = None
) -> tuple[Float[ndarray, "w h"], tuple[float, ...]]:
    """The picture; of a volume, its middle slice as radiologists view it; and the spacing.

    Slices lie across the axis of widest spacing, or nearest to this axis of LPS."""
    if array.ndim == 2:
        return array.astype(np.float32), grid.spacing
    order, signs = viewing_order(grid, across)
    turned = turn_array(array, order, signs)
    return turned[..., turned.shape[2] // 2].astype(np.float32), tuple(grid.spacing[axis] for axis in order[:2])


# A small picture of a registered pair: fixed, moving and warped in one slice, side by side.

THUMBNAIL = "thumbnail.png"
MAX_SIDE_PIXELS = 128
"""The longer side of each of the three images."""


def write_thumbnail(path: Path, pair: View) -> None:
    """Write the picture, three times as wide as one image; of a volume, the slice of the page's overview."""
    flat = main_cut(pair)
    write_bytes(join_tiles(image_tiles(flat), flat.grid.spacing, MAX_SIDE_PIXELS), path)


def main_cut(pair: View) -> View:
    """The pair as it is viewed; of a volume, its main slice."""
    shown = orient_for_viewing(pair)
    return shown if shown.fixed.ndim == 2 else shown.cut(shown.main_slice())


def image_tiles(flat: View) -> list[Tile]:
    """Fixed, moving and warped, in the greys of the page."""
    images = {name: getattr(flat, name) for name in ("fixed", "moving", "warped")}
    windows = grey_windows(images, WINDOW_PERCENTILES)
    return [quantise(image, *windows[name]) for name, image in images.items()]


def motion_tile(flat: View) -> Tile:
    """Motion within the picture: direction is hue and length saturation."""
    across, down = flat.field * np.reshape(flat.grid.spacing, (2, 1, 1))
    longest = float(np.hypot(across, down).max()) or 1.0
    return quantise(motion_colours(across, down, longest), 0.0, 1.0)
