"""Pictures of a registration. Axis 0 of an array runs across the picture and axis 1 down it, as in ITK and NIfTI."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from vrnet.data.labels import label_text
from vrnet.files import write_bytes
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.images.transforms import Transform
from vrnet.registration.pair import PairResult
from vrnet.report import drawing, measures
from vrnet.report.drawing import Picture, Tile, Window, join_tiles, motion_colours, quantise, window_of
from vrnet.report.pair import Deformation, PageSlices, View, deformation, orient_for_viewing, turn_array, viewing_order
from vrnet.verdict.rules import WORDS, Verdict

GRID_LINES, CHECKERS = 40, 8  # of the deformed grid, and squares of a checkerboard, along the longer side of a picture
MAX_LEGEND_LABELS = 8
LabelMap = Integer[ndarray, "w h"]
Mask = Bool[ndarray, "w h"] | None


def pair_figure(result: PairResult, title: str = "") -> Figure:
    """The overview of a registered pair; without a title, by its method and verdict."""
    title = title or f"{result.method}; verdict: {WORDS[result.verdict.level]}"
    is_opposite = measures.is_contrast_opposite(result.measures)
    return overview(View.of(result), title, result.measures.get("label_names"), is_opposite)


def write_overview(path: Path, result: PairResult) -> None:
    """Write the overview as a file, with what the registration gained in its title."""
    gain, level = "", result.verdict.level
    if result.measures.get("dice"):
        before, after = measures.values(result.measures)["dice"]
        gain = f": mean {measures.title('dice', result.measures)} {before:.3f} → {after:.3f}"
    worth = "" if level == "good" else f"; verdict: {WORDS[level]}"
    save(pair_figure(result, f"{result.method}{gain}{worth}"), path)


def overview(pair: View, title: str, names: Mapping[str, str] | None = None, is_opposite: bool = False) -> Figure:
    """Images, structures where there are any, differences, grid, motion and Jacobian determinant of the main slice, in
    the greys and colours of the page; `names` are what labels are called. For opposite contrasts differences would mean
    nothing: checkerboards are shown instead."""
    whole = orient_for_viewing(pair)
    look = PageSlices(whole)
    k, windows = look.numbers[look.start], look.windows
    flat, spacing = whole.cut(k), whole.grid.spacing
    moving = "moving, aligned" if pair.is_aligned else "moving"

    is_labelled = flat.fixed_labels is not None
    figure = drawing.Picture(figsize=(16 if is_labelled else 13, 7.2), layout="constrained")
    start = "; after the affine start" if pair.is_aligned else ""
    shown = f"; shown: slice {k + 1} of {whole.depth}" if whole.fixed.ndim == 3 else ""
    masked = "" if flat.mask is None else "; dotted: the mask"
    figure.suptitle(f"{title}{start}{shown}{masked}", parse_math=False)  # a file's name may hold dollars
    upper, lower = figure.subplots(2, 5 if is_labelled else 4, subplot_kw={"xticks": [], "yticks": []})

    for ax, (name, image) in zip(upper, flat.images.items(), strict=False):
        show_image(ax, image, moving if name == "moving" else name, windows[name])
        draw_mask(ax, flat.mask)
    compared = ("moving", moving, "aligned" if pair.is_aligned else "before"), ("warped", "warped", "after")
    for column, (name, called, when) in enumerate(compared):
        image = flat.images[name]
        if flat.fixed_labels is not None:
            ax = upper[3 + column]
            show_image(ax, image, f"outlines: fixed —, {called} - -", windows[name])
            maps = {"solid": flat.label_maps.get("fixed_labels"), "dashed": flat.label_maps.get(f"{name}_labels")}
            there = {style: map_ for style, map_ in maps.items() if map_ is not None}
            show_outlines(ax, there, look.colours, names or {})
        if is_opposite:
            # squares of one and the other image, each in its own greys: edges meet where they should
            both = (flat.fixed, windows["fixed"]), (image, windows[name])
            fixed, other = (((grey - low) / max(high - low, 1e-12)).clip(0, 1) for grey, (low, high) in both)
            rows, columns = np.indices(fixed.shape) // max(max(fixed.shape) // CHECKERS, 1)
            squares = np.where((rows + columns) % 2 == 1, other, fixed)
            show_image(lower[column], squares, f"fixed and {called}, in turns", (0.0, 1.0))
        else:
            low, high = windows["fixed"]
            difference = np.abs(image - flat.fixed)
            show_difference(lower[column], difference, f"|{name} − fixed|, {when}", high - low, flat.mask)
    show_grid(lower[2], flat.field)
    show_motion(lower[3] if is_labelled else upper[3], flat.motion_mm, look.rim_mm, pair.unit)
    show_jacobian(lower[-1], deformation(whole.field, k))
    for ax in (*upper, *lower):
        ax.set_axis_off()
        ax.set_aspect(spacing[1] / spacing[0])
    return figure


def show_image(ax: Axes, image: Shaped[ndarray, "w h"], title: str, window: Window) -> None:
    ax.imshow(image.T, cmap="gray", vmin=window[0], vmax=window[1], interpolation="nearest")
    ax.set_title(title, fontsize=10)


def show_outlines(ax: Axes, maps: Mapping[str, LabelMap], colours: Mapping[int, str], names: Mapping[str, str]) -> None:
    """The outline of each label in its colour, of each map in the line style by which it is given, with a legend."""
    there = np.unique(np.stack(list(maps.values()))).tolist()
    seen = {label: colour for label, colour in colours.items() if label in there}
    for style, map_ in maps.items():
        draw_contours(ax, map_, seen, style)
    if 0 < len(seen) <= MAX_LEGEND_LABELS:
        # a name is shown as it is: dollars begin no mathematics, and a leading underscore hides nothing
        texts = {label: label_text(label, names).replace("$", r"\$").replace("\n", " ").lstrip("_") for label in seen}
        handles = [Line2D([], [], color=colour, label=texts[label]) for label, colour in seen.items()]
        ax.legend(handles=handles, loc="lower right", fontsize=8, handlelength=1)


def draw_contours(ax: Axes, labels: LabelMap, colours: dict[int, str], style: str) -> None:
    for label, colour in colours.items():
        mask = labels == label
        if mask.any() and not mask.all():
            ax.contour(mask.T, levels=[0.5], colors=[colour], linewidths=1.2, linestyles=style)


def draw_mask(ax: Axes, mask: Mask) -> None:
    if mask is not None:
        draw_contours(ax, mask.astype(np.uint8), {1: drawing.MASK}, "dotted")


def show_difference(ax: Axes, difference: Float[ndarray, "w h"], title: str, high: float, mask: Mask = None) -> None:
    """A difference with its mean in the title, inside a mask that shows here; half of `high` and more is brightest."""
    ax.imshow(difference.T, cmap=drawing.DIFFERENCE_MAP, vmin=0, vmax=high / 2, interpolation="nearest")
    draw_mask(ax, mask)
    inside = None if mask is None or not mask.any() else difference[mask]
    mean = f"mean {difference.mean():.3g}" if inside is None else f"mean inside {inside.mean():.3g}"
    ax.set_title(f"{title} ({mean})", fontsize=10)


def show_grid(ax: Axes, u: Float[ndarray, "2 w h"]) -> None:
    """Grid lines of fixed as they lie in moving: the curves x + u(x)."""
    across, down = (np.indices(u.shape[1:]) + u).astype(float)
    step = max(1, round(max(u.shape[1:]) / GRID_LINES))
    for i in range(0, across.shape[0], step):
        ax.plot(across[i], down[i], color=drawing.GRID, linewidth=0.6)
    for j in range(0, across.shape[1], step):
        ax.plot(across[:, j], down[:, j], color=drawing.GRID, linewidth=0.6)
    ax.set(xlim=(-0.5, u.shape[1] - 0.5), ylim=(u.shape[2] - 0.5, -0.5), aspect="equal")
    ax.set_title("deformed grid", fontsize=10)


def show_motion(ax: Axes, mm: Float[ndarray, "2 w h"], rim_mm: float, unit: str = "mm") -> None:
    """Motion within the picture: direction is hue and length, up to the rim of the wheel in the corner, saturation."""
    across, down = mm
    ax.imshow(motion_colours(across, down, rim_mm).swapaxes(0, 1), interpolation="nearest")
    ax.set_title(f"displacement (rim {rim_mm:.3g} {unit})", fontsize=10)
    wheel = ax.inset_axes((0.8, 0.02, 0.18, 0.18))
    across, down = np.meshgrid(*[np.linspace(-1, 1, 101)] * 2, indexing="ij")
    disc = np.concatenate([motion_colours(across, down, 1.0), (np.hypot(across, down) <= 1)[..., None]], axis=-1)
    wheel.imshow(disc.swapaxes(0, 1), extent=(-1, 1, 1, -1))
    wheel.set_axis_off()


def show_jacobian(ax: Axes, deformed: Deformation, bar: bool = True) -> None:
    """det(I + ∇u): blue shrinks, red grows, green is folded."""
    low, high = drawing.JACOBIAN_RANGE
    image = ax.imshow(deformed.det.T, cmap=drawing.JACOBIAN_MAP, vmin=low, vmax=high, interpolation="nearest")
    ax.imshow(np.where(deformed.folded, 1.0, np.nan).T, cmap=ListedColormap([drawing.FOLD]), interpolation="nearest")
    if bar:
        ax.figure.colorbar(image, ax=ax, shrink=0.7)
    ax.set_title("Jacobian determinant (strict folds green)", fontsize=10)


def save(figure: Figure, path: Path) -> None:
    picture = BytesIO()
    figure.savefig(picture, dpi=130, format=path.suffix.removeprefix("."))
    write_bytes(picture.getvalue(), path)


# Cards: what a notebook shows of a result, as HTML that needs nothing else. Names of files never become code.

CARD_SIDE_PIXELS = 176  # of the longer side of each picture of a pair


def card(title: str, facts: Mapping[str, str], png: bytes, caption: str = "", verdict: Verdict | None = None) -> str:
    """A title, a verdict, a PNG file with what it shows, and a table of names and values."""
    shown = {"picture": drawing.data_address(png), "caption": caption}
    return drawing.render_template("card.html", title=title, facts=facts, verdict=verdict, **shown)


def pair_card(result: PairResult) -> str:
    """Fixed, moving, warped and motion in the main slice, with the verdict and the few numbers that say how good."""
    flat, size = main_cut(View.of(result)), " x ".join(map(str, result.grid.shape))
    rows = measures.headline(result.measures, result.unit, result.compares_structure)
    across, down = flat.motion_mm
    motion = quantise(motion_colours(across, down, float(np.hypot(across, down).max()) or 1.0), 0.0, 1.0)
    return card(
        f"Registration by {result.method}, {size} voxels",
        {row.name: row.after if row.before == measures.NO_VALUE else f"{row.before} → {row.after}" for row in rows},
        join_tiles([*image_tiles(flat), motion], flat.grid.spacing, CARD_SIDE_PIXELS, gap=3),
        "From left to right: fixed, moving, warped, motion (hue is direction).",
        result.verdict,
    )


def image_card(image: Image, title: str = "") -> str:
    """The picture, or of a volume its middle slices."""
    facts = {"range": f"{image.array.min():.4g} to {image.array.max():.4g}"}
    return card(title or repr(image), facts, image_figure(image).png())


def transform_card(transform: Transform) -> str:
    """The slice that moves most, and how far and how much all of it deforms."""
    length, det = np.linalg.norm(transform.displacement, axis=0), transform.jacobian()
    facts = {
        "displacement": f"{length.mean():.3g} mm in the mean, {length.max():.3g} mm at most",
        "Jacobian determinant": f"{det.min():.3g} to {det.max():.3g}",
    }
    return card(repr(transform), facts, transform_figure(transform).png())


# Pictures of what is not a registered pair: an image, a cine, a transform.

IMAGE_PERCENTILES = (0.0, 99.5)  # of the intensities, that are black and white
PLANES = {"axial": 2, "coronal": 1, "sagittal": 0}  # the axis of LPS that slices of each plane lie across
PANEL_INCHES = 3.4
MAX_FRAMES = 6  # of a cine that are shown


def image_figure(image: Image | Cine) -> Picture:
    """The picture; of a volume, the middle slice across each axis, by the name of its plane where the header says how
    the image lies; of a cine, the middle slice at a few frames, evenly through the cycle."""
    shown, grid = {}, image.grid
    if isinstance(image, Cine):
        numbers = np.unique(np.linspace(0, len(image) - 1, MAX_FRAMES).round().astype(int)).tolist()
        array = image.frames[numbers]
        for t in numbers:
            when = f"frame {t + 1} of {len(image)}" + (f", {image.times_ms[t]:.0f} ms" if image.times_ms else "")
            shown[when] = middle_slice(image.frames[t], grid)
    else:
        array = image.array
        for plane, across in PLANES.items() if array.ndim == 3 else [("", None)]:
            name = plane if grid.is_placed or not plane else f"across axis {viewing_order(grid, across)[0][-1]}"
            shown[name] = middle_slice(array, grid, across)
    window = window_of([array.astype(np.float32)], IMAGE_PERCENTILES)
    figure, axes = panels(len(shown), image.name)
    for ax, (name, (flat, spacing)) in zip(axes, shown.items(), strict=True):
        show_image(ax, flat, name, window)
        ax.set_aspect(spacing[1] / spacing[0])
    return figure


def transform_figure(transform: Transform) -> Picture:
    """Deformed grid, motion and Jacobian determinant; for a volume, in the slice that moves most."""
    blank = np.zeros(transform.grid.shape, np.float32)
    whole = orient_for_viewing(View(blank, blank, blank, transform.in_voxels(), transform.grid))
    is_flat = whole.fixed.ndim == 2
    k = 0 if is_flat else int(np.square(whole.field).sum(axis=(0, 1, 2)).argmax())
    flat = whole.cut(k)
    figure, axes = panels(3, str(transform) if is_flat else f"{transform}; slice {k + 1}")
    show_grid(axes[0], flat.field)
    show_motion(axes[1], flat.motion_mm, float(np.hypot(*flat.motion_mm).max()) or 1.0)
    show_jacobian(axes[2], deformation(whole.field, k))
    for ax in axes:
        ax.set_aspect(flat.grid.spacing[1] / flat.grid.spacing[0])
    return figure


def panels(count: int, title: str) -> tuple[Picture, list[Axes]]:
    """A figure with pictures side by side, and no frames around them. A name is shown as it is: $ is no mathematics."""
    figure = Picture(figsize=(PANEL_INCHES * count, PANEL_INCHES + 0.5), layout="constrained")
    figure.suptitle(title, parse_math=False, fontsize=11)
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for ax in axes:
        ax.set_axis_off()
    return figure, axes


def middle_slice(
    array: Shaped[ndarray, "*s"], grid: Grid, across: int | None = None
) -> tuple[Float[ndarray, "w h"], tuple[float, ...]]:
    """The picture; of a volume, its middle slice as radiologists view it, across the axis of widest spacing, or nearest
    to this axis of LPS; and the spacing."""
    if array.ndim == 2:
        return array.astype(np.float32), grid.spacing
    order, signs = viewing_order(grid, across)
    turned = turn_array(array, order, signs)
    return turned[..., turned.shape[2] // 2].astype(np.float32), tuple(grid.spacing[axis] for axis in order[:2])


MAX_SIDE_PIXELS = 128  # of the longer side of each of the three images


def write_thumbnail(path: Path, pair: View) -> None:
    """Write fixed, moving and warped side by side; of a volume, the slice of the page's overview."""
    flat = main_cut(pair)
    write_bytes(join_tiles(image_tiles(flat), flat.grid.spacing, MAX_SIDE_PIXELS), path)


def main_cut(pair: View) -> View:
    """The pair as it is viewed; of a volume, its main slice."""
    shown = orient_for_viewing(pair)
    return shown.cut(shown.main_slice())


def image_tiles(flat: View) -> list[Tile]:
    """Fixed, moving and warped, in the greys of the page."""
    windows = drawing.grey_windows(flat.images)
    return [quantise(image, *windows[name]) for name, image in flat.images.items()]
