"""A tracked cine for slides: its curves as a picture, and a film of the middle slice."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from vrnet.cardiac.strain import GLOBAL, Strain
from vrnet.cardiac.volumes import Volumes
from vrnet.files import write_bytes
from vrnet.report.cine import (
    COLOUR_LIMITS,
    WINDOW_PERCENTILES,
    Film,
    FilmSlices,
    MaterialPoints,
    frame_text,
    material_points,
    with_minus,
)
from vrnet.report.drawing import GRID, STRAIN_MAP, quantise, window_of
from vrnet.vocabulary import LEVELS, SEGMENTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

CURVE_COLOURS = {GLOBAL: "#1f5fd0", "basal": "#b4560f", "mid": "#187a49", "apical": "#8240b8"}
LEVEL_LINES = dict(zip(LEVELS, ("-", "--", ":"), strict=True))
VOLUME_COLOURS = {"LV": "#d3222b", "RV": "#0f7ea3", "wall": "#9a6b00"}
PLOTTED = {"green_circumferential": "circumferential strain (Green), %", "green_radial": "radial strain (Green), %"}
FILM_SIDE_PIXELS = 440
"""The longer side of each of the two pictures of a film."""
OVERSAMPLING = 2
"""How many times larger pictures are drawn, so that lines are smooth once they are reduced."""
WALL_OPACITY = 0.6
"""More than on the page: the picture beside it shows the wall without colour."""
STRIP_PIXELS, FONT_PIXELS, LEAST_EMS = 30, 15, 46
"""Of the strip below the pictures: its height, the size of its letters, and how many such sizes its words need."""
COLOURS, GREYS = 256, 96
"""Of each frame of a film: as many as GIF has. So many are greys that even tissue has neither blotches nor tints."""
TINT = 12
"""How far apart red, green and blue are in a colour; what is below is a grey."""
DEFAULT_FRAME_MS = 40


def curves_figure(film: Film, title: str) -> "Figure":
    """Curves of strain, where it was measured, and of volumes; the segments' peaks, where they are known."""
    from vrnet.report.drawing import Picture

    has_segments = film.strain is not None and film.strain.insertions is not None
    columns = (len(PLOTTED) if film.strain is not None else 0) + 1 + has_segments
    figure = Picture(figsize=(4.6 * columns, 4.2), layout="constrained")
    figure.suptitle(title, parse_math=False)
    axes = [figure.add_subplot(1, columns, 1 + i) for i in range(columns - has_segments)]
    if film.strain is not None:
        for ax, measure in zip(axes, PLOTTED, strict=False):
            plot_strain(ax, film.strain, measure, times_of(film))
    if film.volumes is not None:
        plot_volumes(axes[-1], film.volumes, times_of(film))
    for ax in axes:
        ax.set_xlabel("frame" if film.times_ms is None else "ms")
    if film.strain is not None and has_segments:
        draw_bullseye(figure.add_subplot(1, columns, columns, projection="polar"), film.strain)
    return figure


def times_of(film: Film) -> Float[ndarray, " t"]:
    """Where frames lie along a plot: in ms; where times are not known by their number, from 1."""
    return np.arange(1.0, len(film) + 1) if film.times_ms is None else np.array(film.times_ms)


def plot_strain(ax: "Axes", strain: Strain, measure: str, times: Float[ndarray, " t"]) -> None:
    """Global, with its peak marked; over it, where they are known, the levels: it is wide and pale, so that all are
    seen where they agree."""
    peak, colour = strain.peak(measure), CURVE_COLOURS[GLOBAL]
    label = f"global, peak {peak.percent:.1f} %".replace("-", "−") if peak else GLOBAL
    ax.plot(times, strain.curve(measure), color=colour, linewidth=6, alpha=0.35, label=label, solid_capstyle="butt")
    if peak:
        ax.plot(times[peak.frame], peak.percent, "o", color=colour)
    for region in LEVELS:
        if np.isfinite(curve := strain.curve(measure, region)).any():
            ax.plot(times, curve, LEVEL_LINES[region], color=CURVE_COLOURS[region], linewidth=1.5, label=region)
    ax.axhline(0, color="#999999", linewidth=0.8)
    ax.set_title(PLOTTED[measure], fontsize=10)
    ax.legend(fontsize=8)


def plot_volumes(ax: "Axes", volumes: Volumes, times: Float[ndarray, " t"]) -> None:
    """Of each structure that is labelled."""
    for name, curve in (("LV", volumes.lv_ml), ("RV", volumes.rv_ml), ("wall", volumes.wall_ml)):
        if curve.any():
            ax.plot(times, curve, color=VOLUME_COLOURS[name], linewidth=2.6 if name == "LV" else 1.3, label=name)
    ax.set_ylim(bottom=0)
    ax.set_title("volume, ml", fontsize=10)
    ax.legend(fontsize=8)


def draw_bullseye(ax: Any, strain: Strain) -> None:
    """The peak circumferential strain of each segment, the anterior wall on top, the septum on the left."""
    import matplotlib as mpl

    limit = COLOUR_LIMITS["circumferential"]
    for segment in SEGMENTS:
        peak = strain.peak("green_circumferential", f"segment {segment.number}")
        width, turn = 2 * np.radians(segment.half_width_deg), segment.number - 1 - 6 * segment.level
        angle, inner = np.pi / 2 + turn * width, 2.5 - segment.level
        colour = mpl.colormaps[STRAIN_MAP](0.5 + peak.percent / (2 * limit)) if peak else "#dddddd"
        ax.bar(angle, 1, width, inner, color=colour, edgecolor="white")
        is_dark = peak is not None and abs(peak.percent) > 0.75 * limit
        said = f"{peak.percent:.0f}".replace("-", "−") if peak else "–"
        ax.text(angle, inner + 0.5, said, ha="center", va="center", fontsize=9, color="white" if is_dark else "black")
    for angle, side in zip(np.arange(4) * np.pi / 2, ("lateral", "anterior", "septum", "inferior"), strict=True):
        turn = {"lateral": -90, "septum": 90}.get(side, 0)
        ax.text(angle, 3.75, side, ha="center", va="center", fontsize=9, color="#5a6473", rotation=turn)
    ax.set_title("peak circumferential strain, %", fontsize=10)
    ax.set_axis_off()


def write_film(path: Path, film: Film) -> None:
    """Write the middle slice over the cycle as an animated GIF: in grey with contours, and beside it with the strain of
    the wall or, without labels, with the grid."""
    points = material_points(film.slices, film.slices.main)
    pictures = [film_picture(film, points, t) for t in range(len(film))]
    file = BytesIO()
    first, *others = (reduce_colours(picture) for picture in pictures)
    first.save(file, "GIF", save_all=True, append_images=others, duration=frame_ms(film), loop=0)
    write_bytes(file.getvalue(), path)


def reduce_colours(picture: "Image") -> "Image":
    """A picture in the colours that a GIF can have: greys, and those that stand best for all that is not grey."""
    from PIL import Image

    pixels = np.asarray(picture)
    is_coloured = np.ptp(pixels, axis=2) > TINT
    is_coloured[0, 0] = True  # there is one at least
    chosen = Image.fromarray(pixels[is_coloured][None]).quantize(COLOURS - GREYS, Image.Quantize.MAXCOVERAGE)
    palette = Image.new("P", (1, 1))
    palette.putpalette([*np.linspace(0, 255, GREYS).astype(np.uint8).repeat(3).tolist(), *(chosen.getpalette() or [])])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def frame_ms(film: Film) -> int:
    """How long each frame is shown: as long as it lasted; GIF counts in 10 ms, and browsers show no less than 20."""
    if film.times_ms is None:
        return DEFAULT_FRAME_MS
    return max(20, 10 * round((film.times_ms[-1] - film.times_ms[0]) / (len(film) - 1) / 10))


def film_picture(film: Film, points: MaterialPoints, t: int) -> "Image":
    """Two pictures of a frame, side by side, and a strip below them."""
    from PIL import Image

    slices = film.slices
    low, high = window_of([slices.frames[..., slices.main]], WINDOW_PERCENTILES)
    still = quantise(slices.frames[t, ..., slices.main], low, high)
    left, scale = enlarge(still, slices.spacing)
    right = left.copy()
    moved = points.moved[t].T * scale
    if slices.strain is None:
        draw_grid(right, points, moved)
    else:
        draw_wall(right, slices, points, moved, t)
    for picture in (left, right):
        draw_outlines(picture, slices, points, moved)
    gap = 4 * OVERSAMPLING
    both = Image.new("RGB", (2 * left.width + gap, left.height + STRIP_PIXELS * OVERSAMPLING))
    both.paste(left, (0, 0))
    both.paste(right, (left.width + gap, 0))
    draw_strip(both, film, t)
    return both.reduce(OVERSAMPLING)


def draw_strip(picture: "Image", film: Film, t: int) -> None:
    """Along the bottom: the frame, its time where that is known, and on the right what the colours mean."""
    import matplotlib as mpl
    from PIL import Image, ImageDraw, ImageFont

    em = round(min(FONT_PIXELS * OVERSAMPLING, picture.width / LEAST_EMS))
    font = ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", em)
    pen, y = ImageDraw.Draw(picture), picture.height - STRIP_PIXELS * OVERSAMPLING // 2
    time = "" if film.times_ms is None else f" · {film.times_ms[t]:.0f} ms"
    pen.text((em // 2, y), frame_text(t, len(film)) + time, "white", font, anchor="lm")
    if film.slices.strain is None:
        return
    limit = COLOUR_LIMITS["circumferential"]
    shades = mpl.colormaps[STRAIN_MAP](np.linspace(0, 1, 8 * em), bytes=True)[None, :, :3].repeat(em // 2, 0)
    right = picture.width - 4 * em
    left = right - 8 * em
    picture.paste(Image.fromarray(shades), (left, y - em // 4))
    pen.text((left - em // 2, y), with_minus(f"circumferential strain  -{limit:.0f} %"), "white", font, anchor="rm")
    pen.text((right + em // 2, y), f"{limit:.0f} %", "white", font, anchor="lm")


def enlarge(still: UInt8[ndarray, "w h"], spacing: tuple[float, float]) -> tuple["Image", Float[ndarray, " 2"]]:
    """A picture with square pixels, and how many of them there are to one of the array's along either axis."""
    from PIL import Image

    sides = np.array(still.shape) * spacing
    size = np.maximum(1, np.rint(sides * (FILM_SIDE_PIXELS / sides.max()))).astype(int) * OVERSAMPLING
    picture = Image.fromarray(np.ascontiguousarray(still.T)).convert("RGB")
    return picture.resize((int(size[0]), int(size[1])), Image.Resampling.BICUBIC), size / still.shape


def draw_outlines(picture: "Image", slices: FilmSlices, points: MaterialPoints, moved: Float[ndarray, "m 2"]) -> None:
    """The outlines of the labels, each in its colour."""
    from PIL import ImageDraw

    pen, width = ImageDraw.Draw(picture), 2 * OVERSAMPLING
    for outline in points.outlines:
        line, colour = moved[outline.first : outline.first + outline.length], slices.structures[outline.label][1]
        pen.line([*map(tuple, line), tuple(line[0])], fill=colour, width=width, joint="curve")


def draw_grid(picture: "Image", points: MaterialPoints, moved: Float[ndarray, "m 2"]) -> None:
    """The lines of the grid."""
    from PIL import ImageDraw

    pen, (across, down) = ImageDraw.Draw(picture), points.grid
    nodes = moved[: across * down].reshape(across, down, 2)
    for line in (*nodes, *nodes.swapaxes(0, 1)):
        pen.line([*map(tuple, line)], fill=GRID, width=OVERSAMPLING)


def draw_wall(
    picture: "Image", slices: FilmSlices, points: MaterialPoints, moved: Float[ndarray, "m 2"], t: int
) -> None:
    """The circumferential strain of the wall as colour, half seen through, within its outlines."""
    import matplotlib as mpl
    from PIL import Image, ImageDraw

    assert slices.strain is not None
    percent = slices.strain.circumferential[t, slices.strain.index[2] == slices.main]
    shades = mpl.colormaps[STRAIN_MAP](0.5 + percent / (2 * COLOUR_LIMITS["circumferential"]), bytes=True)
    covered, mask = picture.copy(), Image.new("1", picture.size)
    pen = ImageDraw.Draw(covered)
    for corners, shade in zip(points.corners, shades, strict=True):
        colour = tuple(map(int, shade[:3]))
        pen.polygon([*map(tuple, moved[corners])], fill=colour, outline=colour, width=2 * OVERSAMPLING)
    for outline in points.outlines:
        if outline.label == slices.heart.wall:
            mask = invert_within(mask, moved[outline.first : outline.first + outline.length])
    picture.paste(Image.blend(picture, covered, WALL_OPACITY), mask=mask)


def invert_within(mask: "Image", line: Float[ndarray, "m 2"]) -> "Image":
    """A mask changed inside a closed line: what two lines enclose is inside the outer one and not inside the inner."""
    from PIL import Image, ImageChops, ImageDraw

    inside = Image.new("1", mask.size)
    ImageDraw.Draw(inside).polygon([*map(tuple, line)], fill=1)
    return ImageChops.logical_xor(mask, inside)
