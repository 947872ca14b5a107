from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageSequence

from tests.report.cines import beating_film, without_labels, without_rv
from vrnet.report.cine_figures import STRIP_PIXELS, curves_figure, draw_strip, write_film
from vrnet.report.drawing import GRID


@pytest.fixture(scope="module")
def film():
    return beating_film()


def test_the_figure_has_what_was_measured(film):
    assert [ax.get_title() for ax in curves_figure(film, "a $title$ <b>").axes] == [
        "circumferential strain (Green), %", "radial strain (Green), %", "volume, ml", "peak circumferential strain, %"
    ]  # fmt: skip
    assert len(curves_figure(without_rv(film), "").axes) == 3


def test_the_bullseye_has_the_anterior_wall_on_top_and_the_septum_on_the_left(film):
    ax = curves_figure(film, "").axes[-1]
    *values, right, top, left, bottom = [text.get_text() for text in ax.texts]
    assert (right, top, left, bottom) == ("lateral", "anterior", "septum", "inferior")
    peaks = [film.strain.peak("green_circumferential", f"segment {k}") for k in range(1, 17)]
    assert values == [f"{peak.percent:.0f}".replace("-", "−") if peak else "–" for peak in peaks]
    angles = np.degrees([text.get_position()[0] for text in ax.texts]) % 360
    assert angles[:6].round().tolist() == [90, 150, 210, 270, 330, 30]
    assert angles[12:].round().tolist() == [90, 180, 270, 0, 0, 90, 180, 270]


def test_levels_lie_over_the_global_curve_which_is_wider(film):
    """So they are seen where they agree with it; without times frames are counted from 1."""
    whole, *levels = (line for line in curves_figure(film, "").axes[0].lines if len(line.get_xdata()) == len(film))
    assert [line.get_label() for line in levels] == ["basal", "mid", "apical"]
    assert whole.get_label().startswith("global")
    assert whole.get_linewidth() > 2 * max(line.get_linewidth() for line in levels)
    (first, *_, last) = curves_figure(without_rv(film), "").axes[0].lines[0].get_xdata()
    assert (first, last) == (1, len(film))


def test_the_film_repeats_for_ever_at_the_speed_of_the_heart(film, tmp_path):
    write_film(tmp_path / "cine.gif", film)
    with Image.open(tmp_path / "cine.gif") as found:
        assert (found.n_frames, found.info["loop"]) == (len(film), 0)
        assert abs(found.info["duration"] - np.diff(film.times_ms).mean()) <= 5
        first = np.asarray(found.convert("RGB"), int)
        found.seek(2)
        later = np.asarray(found.convert("RGB"), int)
    is_coloured = np.ptp(later, axis=2) > 40
    half = later.shape[1] // 2
    assert is_coloured[:, half:].sum() > 2 * is_coloured[:, :half].sum() > 0  # contours, and contours with strain
    assert np.abs(later - first).mean() > 2


def strips(film, path):
    """The lines below the pictures of each frame: left of the middle, and right of it."""
    write_film(path, film)
    with Image.open(path) as found:
        frames = [np.asarray(frame.convert("RGB"), int)[-STRIP_PIXELS:] for frame in ImageSequence.Iterator(found)]
    return [(strip[:, : strip.shape[1] // 3], strip[:, strip.shape[1] // 3 :]) for strip in frames]


def test_the_film_says_its_frame_and_time_and_what_its_colours_mean(film, tmp_path):
    timed, plain = (strips(each, tmp_path / "cine.gif") for each in (film, replace(film, times_ms=None)))
    words = [left.tobytes() for left, _ in timed]
    assert len(set(words)) == len(film)  # each frame has its own
    assert all(
        (with_time > 99).sum() > (without > 99).sum() > 0
        for (with_time, _), (without, _) in zip(timed, plain, strict=True)
    )
    for left, right in timed:
        assert np.ptp(left, axis=2).max() == 0
        bar = right[STRIP_PIXELS // 2][np.ptp(right[STRIP_PIXELS // 2], axis=1) > 40]
        assert bar[0, 2] > bar[0, 0] + 80  # blue shortens
        assert bar[-1, 0] > bar[-1, 2] + 80  # red lengthens
    assert all(np.ptp(right, axis=2).max() == 0 for _, right in strips(without_labels(film), tmp_path / "cine.gif"))


@pytest.mark.parametrize("shape", [(80, 40), (40, 80)])
def test_the_words_of_a_narrow_film_do_not_meet(film, shape):
    """There is black between the words on the left and those on the right."""
    picture = Image.new("RGB", tuple(5 * side for side in shape))
    draw_strip(picture, film, len(film) - 1)
    is_inked = np.asarray(picture, int).max((0, 2)) > 60
    gaps = np.diff(np.flatnonzero(is_inked))
    assert gaps.max() > picture.width / 30


def test_tissue_in_the_film_is_grey(film, tmp_path):
    write_film(tmp_path / "cine.gif", film)
    with Image.open(tmp_path / "cine.gif") as found:
        found.seek(2)
        shown = np.asarray(found.convert("RGB"), int)
    tints = np.ptp(shown[:, : shown.shape[1] // 2], axis=2)
    assert (tints == 0).mean() > 0.9
    assert max(shown.shape[0] - STRIP_PIXELS, shown.shape[1] // 2) >= 400


def test_without_labels_the_film_shows_the_grid(film, tmp_path):
    write_film(tmp_path / "cine.gif", without_labels(film))
    with Image.open(tmp_path / "cine.gif") as found:
        shown = np.asarray(found.convert("RGB"), int)
    red, _, blue = (int(GRID[i : i + 2], 16) for i in (1, 3, 5))
    is_line = shown[..., 2] - shown[..., 0] > (blue - red) / 4  # lines are smoothed into the greys beside them
    half = shown.shape[1] // 2
    assert is_line[:, half:].mean() > 0.1
    assert not is_line[:, : half - 4].any()
