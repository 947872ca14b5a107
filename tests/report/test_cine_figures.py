"""Pictures of a tracked cine: its curves, and the film for slides."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageSequence

from tests.cardiac.cines import exact_result, with_labels_of, without_labels
from vrnet.phantom import cycle
from vrnet.report.cine import Film
from vrnet.report.cine_figures import STRIP_PIXELS, curves_figure, draw_strip, write_film
from vrnet.report.drawing import GRID

FRAMES = 6


@pytest.fixture(scope="module")
def heart():
    return exact_result(cycle(2, (72, 64, 3), (2.4, 2.4, 10.0), frames=FRAMES))


def untimed(result):
    return replace(result, cine=replace(result.cine, times_ms=None))


def test_the_figure_has_what_was_measured(heart):
    assert [ax.get_title() for ax in curves_figure(heart, "a $title$ <b>").axes] == [
        "circumferential strain (Green), %", "radial strain (Green), %", "volume, ml", "peak circumferential strain, %"
    ]  # fmt: skip
    assert len(curves_figure(untimed(with_labels_of(heart, 2, 3)), "").axes) == 3


def test_the_bullseye_has_the_anterior_wall_on_top_and_the_septum_on_the_left(heart):
    ax = curves_figure(heart, "").axes[-1]
    *values, right, top, left, bottom = [text.get_text() for text in ax.texts]
    assert (right, top, left, bottom) == ("lateral", "anterior", "septum", "inferior")
    peaks = [heart.strain.peak("green_circumferential", f"segment {k}") for k in range(1, 17)]
    assert values == [f"{peak.percent:.0f}".replace("-", "−") if peak else "–" for peak in peaks]
    angles = np.degrees([text.get_position()[0] for text in ax.texts]) % 360
    assert angles[:6].round().tolist() == [90, 150, 210, 270, 330, 30]
    assert angles[12:].round().tolist() == [90, 180, 270, 0, 0, 90, 180, 270]


def test_levels_lie_over_the_global_curve_which_is_wider(heart):
    """So they are seen where they agree with it; without times frames are counted from 1."""
    whole, *levels = (line for line in curves_figure(heart, "").axes[0].lines if len(line.get_xdata()) == FRAMES)
    assert [line.get_label() for line in levels] == ["basal", "mid", "apical"]
    assert whole.get_label().startswith("global")
    assert whole.get_linewidth() > 2 * max(line.get_linewidth() for line in levels)
    (first, *_, last) = curves_figure(untimed(heart), "").axes[0].lines[0].get_xdata()
    assert (first, last) == (1, FRAMES)


def pictures_of(result, path):
    """Every picture of a film."""
    write_film(Film.of(result), path)
    with Image.open(path) as found:
        return [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(found)]


@pytest.fixture(scope="module")
def shown(heart, tmp_path_factory):
    return pictures_of(heart, tmp_path_factory.mktemp("film") / "cine.gif")


def test_the_film_repeats_for_ever_at_the_speed_of_the_heart(heart, shown, tmp_path):
    write_film(Film.of(heart), tmp_path / "cine.gif")
    with Image.open(tmp_path / "cine.gif") as found:
        assert (found.n_frames, found.info["loop"]) == (FRAMES, 0)
        assert abs(found.info["duration"] - np.diff(heart.cine.times_ms).mean()) <= 5
    first, later = shown[0], shown[2]
    is_coloured = np.ptp(later, axis=2) > 40
    half = later.shape[1] // 2
    assert is_coloured[:, half:].sum() > 2 * is_coloured[:, :half].sum() > 0  # contours, and contours with strain
    assert np.abs(later - first).mean() > 2
    assert (np.ptp(later[:, :half], axis=2) == 0).mean() > 0.9, "tissue is grey"
    assert max(later.shape[0] - STRIP_PIXELS, half) >= 400


def strips(pictures):
    """The lines below the pictures of each frame: left of the middle, and right of it."""
    return [np.split(picture[-STRIP_PIXELS:], [picture.shape[1] // 3], axis=1) for picture in pictures]


def test_the_film_says_its_frame_and_time_and_what_its_colours_mean(heart, shown, tmp_path):
    timed, plain = strips(shown), strips(pictures_of(untimed(heart), tmp_path / "cine.gif"))
    assert len({left.tobytes() for left, _ in timed}) == FRAMES  # each frame has its own
    for (with_time, bar), (without, _) in zip(timed, plain, strict=True):
        assert (with_time > 99).sum() > (without > 99).sum() > 0
        assert np.ptp(with_time, axis=2).max() == 0
        bar = bar[STRIP_PIXELS // 2][np.ptp(bar[STRIP_PIXELS // 2], axis=1) > 40]
        assert bar[0, 2] > bar[0, 0] + 80  # blue shortens
        assert bar[-1, 0] > bar[-1, 2] + 80  # red lengthens


@pytest.mark.parametrize("shape", [(80, 40), (40, 80)])
def test_the_words_of_a_narrow_film_do_not_meet(heart, shape):
    """There is black between the words on the left and those on the right."""
    picture = Image.new("RGB", tuple(5 * side for side in shape))
    draw_strip(picture, Film.of(heart), FRAMES - 1)
    gaps = np.diff(np.flatnonzero(np.asarray(picture, int).max((0, 2)) > 60))
    assert gaps.max() > picture.width / 30


def test_without_labels_the_film_shows_the_grid_and_no_colours_of_strain(heart, tmp_path):
    first, *_ = pictures = pictures_of(without_labels(heart), tmp_path / "cine.gif")
    red, _, blue = (int(GRID[i : i + 2], 16) for i in (1, 3, 5))
    is_line = first[..., 2] - first[..., 0] > (blue - red) / 4  # lines are smoothed into the greys beside them
    half = first.shape[1] // 2
    assert is_line[:, half:].mean() > 0.1
    assert not is_line[:, : half - 4].any()
    assert all(np.ptp(right, axis=2).max() == 0 for _, right in strips(pictures))
