"""A tracked cine in pictures: its curves, a film for slides, and what notebooks show."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageChops, ImageDraw, ImageFont

from vrnet.cardiac.cine import CineResult
from vrnet.cardiac.strain import GLOBAL
from vrnet.errors import Progress
from vrnet.files import write_bytes
from vrnet.report import CURVES, GIF, REPORT
from vrnet.report import cine as page
from vrnet.report.cine import COLOUR_LIMITS, Film, MaterialPoints, frame_text, material_points
from vrnet.report.drawing import GRID, STRAIN_MAP, WINDOW_PERCENTILES, Picture, quantise, window_of
from vrnet.report.figures import card, save
from vrnet.report.pair import View
from vrnet.vocabulary import LEVELS, SEGMENTS

ROW_INCHES, CURVE_INCHES = 3.6, 4.6
CURVE_COLOURS = {GLOBAL: "#1f5fd0", "basal": "#b4560f", "mid": "#187a49", "apical": "#8240b8"}
LEVEL_LINES = dict(zip(LEVELS, ("-", "--", ":"), strict=True))
VOLUME_COLOURS = {"LV": "#d3222b", "RV": "#0f7ea3", "wall": "#9a6b00"}
PLOTTED = {"green_circumferential": "circumferential strain (Green), %", "green_radial": "radial strain (Green), %"}
FILM_SIDE_PIXELS = 440  # the longer side of each of the two pictures of a film
OVERSAMPLING = 2  # how many times larger pictures are drawn, so that lines are smooth once they are reduced
WALL_OPACITY = 0.6  # more than on the page: the picture beside it shows the wall without colour
STRIP_PIXELS, FONT_PIXELS, LEAST_EMS = 30, 15, 46  # of the strip below: height, letters, how many its words need
COLOURS, GREYS = 256, 96  # as many as GIF has; so many are greys that even tissue has neither blotches nor tints
TINT = 12  # how far apart red, green and blue are in a colour; what is below is a grey
DEFAULT_FRAME_MS = 40


def write_report(result: CineResult, place: Path, progress: Progress | None = None) -> Path:
    """Write the page alone, at a path that ends in .html; in a folder, the page and the pictures. Returns the page."""
    tell, film = progress or (lambda done: None), Film.of(result)
    if place.suffix == ".html":
        return page.write_page(film, place)
    page.write_page(film, place / REPORT)
    tell(1 / 3)
    if result.volumes is not None:
        save(curves_figure(result, Path(result.cine.name).name), place / CURVES)
    tell(2 / 3)
    write_film(film, place / GIF)
    return place / REPORT


def curves_figure(result: CineResult, title: str) -> Figure:
    """Curves of strain, where it was measured, and of volumes; the segments' peaks, where they are known."""
    strain = result.strain
    has_segments = strain is not None and strain.insertions is not None
    columns = (len(PLOTTED) if strain is not None else 0) + 1 + has_segments
    figure = Picture(figsize=(CURVE_INCHES * columns, 4.2), layout="constrained")
    figure.suptitle(title, parse_math=False)
    plot_curves([figure.add_subplot(1, columns, 1 + i) for i in range(columns - has_segments)], result)
    if strain is None or not has_segments:
        return figure

    # the peak circumferential strain of each segment, the anterior wall on top, the septum on the left
    ax: Any = figure.add_subplot(1, columns, columns, projection="polar")
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
    for k, (side, turn) in enumerate({"lateral": -90, "anterior": 0, "septum": 90, "inferior": 0}.items()):
        ax.text(k * np.pi / 2, 3.75, side, ha="center", va="center", fontsize=9, color="#5a6473", rotation=turn)
    ax.set_title("peak circumferential strain, %", fontsize=10)
    ax.set_axis_off()
    return figure


def tracking_figure(result: CineResult) -> Figure:
    """The reference and the frame farthest from it, with contours and strain, or the grid; below, the curves."""
    film, frames = Film.of(result), len(result.cine)
    points = material_points(film, film.main)
    curves = (len(PLOTTED) if result.strain is not None else 0) + (result.volumes is not None)
    rows = 2 if curves else 1
    figure = Picture(figsize=(CURVE_INCHES * max(curves, 3), ROW_INCHES * rows), layout="constrained")
    figure.suptitle(f"{Path(result.cine.name).name}, {result.method}", parse_math=False, fontsize=11)
    upper, *lower = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for ax, t in zip(upper.subplots(1, 2), (result.frame, shown_frame(result)), strict=True):
        ax.imshow(film_picture(film, points, t))
        ax.set_title(frame_text(t, frames) + (" (reference)" if t == result.frame else ""), fontsize=10)
        ax.set_axis_off()
    if lower:
        plot_curves(lower[0].subplots(1, curves, squeeze=False)[0].tolist(), result)
    return figure


def plot_curves(axes: list[Axes], result: CineResult) -> None:
    """Strain, where it was measured, and volumes over the cycle: in ms, or by the number of the frame from 1."""
    known, strain, volumes = result.cine.times_ms, result.strain, result.volumes
    times = np.arange(1.0, len(result.cine) + 1) if known is None else np.array(known)
    for ax, (measure, title) in zip(axes, PLOTTED.items() if strain is not None else (), strict=False):
        assert strain is not None
        # global, with its peak marked, is wide and pale, so that the levels are seen over it where they agree
        peak, colour = strain.peak(measure), CURVE_COLOURS[GLOBAL]
        label = f"global, peak {peak.percent:.1f} %".replace("-", "−") if peak else GLOBAL
        ax.plot(times, strain.curve(measure), color=colour, linewidth=6, alpha=0.35, label=label, solid_capstyle="butt")
        if peak:
            ax.plot(times[peak.frame], peak.percent, "o", color=colour)
        for region in LEVELS:
            if np.isfinite(curve := strain.curve(measure, region)).any():
                ax.plot(times, curve, LEVEL_LINES[region], color=CURVE_COLOURS[region], linewidth=1.5, label=region)
        ax.axhline(0, color="#999999", linewidth=0.8)
        ax.set_title(title, fontsize=10)
        ax.legend(fontsize=8)
    if volumes is not None:
        for name, curve in (("LV", volumes.lv_ml), ("RV", volumes.rv_ml), ("wall", volumes.wall_ml)):
            if curve.any():
                width = 2.6 if name == "LV" else 1.3
                axes[-1].plot(times, curve, color=VOLUME_COLOURS[name], linewidth=width, label=name)
        axes[-1].set_ylim(bottom=0)
        axes[-1].set_title("volume, ml", fontsize=10)
        axes[-1].legend(fontsize=8)
    for ax in axes:
        ax.set_xlabel("frame" if known is None else "ms")


def write_film(film: Film, path: Path) -> None:
    """Write the middle slice over the cycle as a GIF: with contours, and beside it with strain, or else the grid."""
    points, times, file, pictures = material_points(film, film.main), film.result.cine.times_ms, BytesIO(), []
    for t in range(len(film.frames)):
        picture = film_picture(film, points, t)
        # greys, and the colours that stand best for all that is not grey
        pixels = np.asarray(picture)
        is_coloured = np.ptp(pixels, axis=2) > TINT
        is_coloured[0, 0] = True  # there is one at least
        chosen = Image.fromarray(pixels[is_coloured][None]).quantize(COLOURS - GREYS, Image.Quantize.MAXCOVERAGE)
        palette, greys = Image.new("P", (1, 1)), np.linspace(0, 255, GREYS).astype(np.uint8).repeat(3)
        palette.putpalette([*greys.tolist(), *(chosen.getpalette() or [])])
        pictures.append(picture.quantize(palette=palette, dither=Image.Dither.NONE))
    duration = DEFAULT_FRAME_MS
    if times is not None:  # as long as it lasted; GIF counts in 10 ms, and browsers show none for less than 20
        duration = max(20, 10 * round((times[-1] - times[0]) / (len(times) - 1) / 10))
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
    write_bytes(file.getvalue(), path)


def film_picture(film: Film, points: MaterialPoints, t: int) -> Image.Image:
    """Two pictures of a frame of the main slice, side by side, and a strip below them."""
    low, high = window_of([film.frames[..., film.main]], WINDOW_PERCENTILES)
    still = quantise(film.frames[t, ..., film.main], low, high)
    sides = np.array(still.shape) * film.spacing  # pixels are square
    size = np.maximum(1, np.rint(sides * (FILM_SIDE_PIXELS / sides.max()))).astype(int) * OVERSAMPLING
    grey, scale = Image.fromarray(np.ascontiguousarray(still.T)).convert("RGB"), size / still.shape
    left = grey.resize((int(size[0]), int(size[1])), Image.Resampling.BICUBIC)
    right, moved = left.copy(), points.moved[t].T * scale
    if film.strain is None:
        pen, (across, down) = ImageDraw.Draw(right), points.grid
        nodes = moved[: across * down].reshape(across, down, 2)
        for line in (*nodes, *nodes.swapaxes(0, 1)):
            pen.line([*map(tuple, line)], fill=GRID, width=OVERSAMPLING)
    else:  # the circumferential strain of the wall as colour, half seen through, within its outlines
        percent = film.strain.circumferential[t, film.strain.index[2] == film.main]
        shades = mpl.colormaps[STRAIN_MAP](0.5 + percent / (2 * COLOUR_LIMITS["circumferential"]), bytes=True)
        covered, mask = right.copy(), Image.new("1", right.size)
        pen = ImageDraw.Draw(covered)
        for corners, shade in zip(points.corners, shades, strict=True):
            colour = tuple(map(int, shade[:3]))
            pen.polygon([*map(tuple, moved[corners])], fill=colour, outline=colour, width=2 * OVERSAMPLING)
        for label, first, length in points.outlines:
            if label == film.heart.wall:  # inside the outer line, and not inside the inner one
                inside = Image.new("1", mask.size)
                ImageDraw.Draw(inside).polygon([*map(tuple, moved[first : first + length])], fill=1)
                mask = ImageChops.logical_xor(mask, inside)
        right.paste(Image.blend(right, covered, WALL_OPACITY), mask=mask)
    for pen in (ImageDraw.Draw(left), ImageDraw.Draw(right)):
        for label, first, length in points.outlines:
            closed = [*map(tuple, moved[first : first + length]), tuple(moved[first])]
            pen.line(closed, fill=film.structures[label][1], width=2 * OVERSAMPLING, joint="curve")
    gap = 4 * OVERSAMPLING
    both = Image.new("RGB", (2 * left.width + gap, left.height + STRIP_PIXELS * OVERSAMPLING))
    both.paste(left, (0, 0))
    both.paste(right, (left.width + gap, 0))
    draw_strip(both, film, t)
    return both.reduce(OVERSAMPLING)


def draw_strip(picture: Image.Image, film: Film, t: int) -> None:
    """Along the bottom: the frame, its time where that is known, and on the right what the colours mean."""
    em = round(min(FONT_PIXELS * OVERSAMPLING, picture.width / LEAST_EMS))
    font = ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", em)
    pen, y = ImageDraw.Draw(picture), picture.height - STRIP_PIXELS * OVERSAMPLING // 2
    times = film.result.cine.times_ms
    time = "" if times is None else f" · {times[t]:.0f} ms"
    pen.text((em // 2, y), frame_text(t, len(film.frames)) + time, "white", font, anchor="lm")
    if film.strain is None:
        return
    limit = COLOUR_LIMITS["circumferential"]
    shades = mpl.colormaps[STRAIN_MAP](np.linspace(0, 1, 8 * em), bytes=True)[None, :, :3].repeat(em // 2, 0)
    right = picture.width - 4 * em
    left = right - 8 * em
    picture.paste(Image.fromarray(shades), (left, y - em // 4))
    pen.text((left - em // 2, y), f"circumferential strain  −{limit:.0f} %", "white", font, anchor="rm")
    pen.text((right + em // 2, y), f"{limit:.0f} %", "white", font, anchor="lm")


def shown_frame(result: CineResult) -> int:
    """The frame that a picture shows beside the reference: where the labels show the cavity of the left ventricle, that
    of its smallest volume; where they do not, or where the reference is that frame, the one that has moved farthest."""
    if (smallest := page.smallest_cavity(result)) is not None:
        return smallest
    spacing = np.reshape(result.cine.grid.spacing, (-1, *[1] * len(result.cine.grid.shape)))
    return int(np.argmax([float(np.square(field * spacing).mean()) for field in result.fields]))


def shown_pair(result: CineResult) -> View:
    """The reference, the frame that is shown beside it, and that frame brought back: what a thumbnail shows."""
    cine, k, reference = result.cine, shown_frame(result), result.reference_labels
    return View(
        fixed=cine.frames[result.frame].astype(np.float32),
        moving=cine.frames[k].astype(np.float32),
        warped=result.warped(k).array,
        field=result.fields[k],
        grid=cine.grid,
        fixed_labels=None if reference is None else reference.array,
    )


def tracking_card(result: CineResult) -> str:
    """The frame beside the reference, and the numbers that the page has on top."""
    film, t, file, frames = Film.of(result), shown_frame(result), BytesIO(), len(result.cine)
    film_picture(film, material_points(film, film.main), t).save(file, "PNG")
    facts = {name: f"{value} ({detail})" if detail else value for name, value, detail in page.headline(result)}
    title = f"{frames} frames of {Path(result.cine.name).name}, tracked by {result.method}"
    caption = f"{frame_text(t, frames).capitalize()}, as it has moved from frame {result.frame + 1}."
    return card(title, facts, file.getvalue(), caption, result.verdict)
