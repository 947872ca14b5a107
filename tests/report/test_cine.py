"""The report of a tracked cine: what its page holds and says, and its pictures."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image as Picture
from PIL import ImageSequence

from tests.cardiac.cines import CLOSED, exact_result, with_labels_of, without_labels
from tests.phantoms import cycle
from tests.report.conftest import SCRIPT
from vrnet import Cine, CineResult, Grid, Image, InputWarning
from vrnet.cardiac.wall import HeartLabels
from vrnet.report.cine import (
    ASSUMED_CYCLE_MS,
    BOX_MARGIN,
    MAX_SLICES,
    STRAIN_RANGE,
    STRIP_PIXELS,
    Film,
    cine_data,
    curves_figure,
    headline,
    in_percent,
    look_at,
    material_points,
    shown_frame,
    shown_pair,
    smallest_cavity,
    tracking_card,
    tracking_figure,
    what_was_run,
    write_film,
    write_page,
)
from vrnet.report.drawing import GRID
from vrnet.verdict.cine import CineEvidence, Extreme
from vrnet.verdict.rules import Verdict

SHAPE, SPACING = (72, 64, 3), (2.4, 2.4, 10.0)


@pytest.fixture(scope="module")
def heart():
    return exact_result(cycle(2, SHAPE, SPACING, frames=6))


@pytest.fixture(scope="module")
def film(heart):
    return Film.of(heart)


@pytest.fixture(scope="module")
def data(film):
    return cine_data(film)


def judged(result, level="good", worst=None, reasons=(), to_try=()):
    """The same with another verdict, of which a slice is worst."""
    found, slices = replace(result), () if worst is None else ({"unmatched": worst},)
    vars(found)["verdict"] = Verdict(level, tuple(reasons), tuple(to_try))
    vars(found)["evidence"] = CineEvidence(frames=(), closure_mm=0.0, slices=slices)
    return found


def one_slice(result, k=1):
    """The same of slice k alone, without labels."""
    grid = Grid.plain(result.cine.grid.shape[:2], result.cine.grid.spacing[:2])
    cine = replace(result.cine, frames=result.cine.frames[..., k], grid=grid)
    return replace(without_labels(result), cine=cine, fields=result.fields[:, :2, ..., k], slice_axis=None)


# What is shown: the part around the heart, oriented, and the points of tissue that all drawing is made of.

SQUARE = (40, 30, 3)


def film_of(frames, fields, grid, labels=None, heart=None):
    """What is shown of a cine that was tracked so."""
    given = None if labels is None else Image(labels, grid)
    return Film.of(
        CineResult(Cine(frames, grid), 0, fields, CLOSED, None, "truth", reference_labels=given, heart=heart)
    )


def moving_square(direction):
    """A bright square that moves by (2, -3, 0) voxels of the array from frame 0 to frame 1."""
    frames, labels, fields = np.full((2, *SQUARE), 0.001), np.zeros(SQUARE, np.uint8), np.zeros((2, 3, *SQUARE))
    labels[12:20, 14:22] = frames[0, 12:20, 14:22] = 1
    frames[1, 14:22, 11:19] = 1
    fields[1, 0], fields[1, 1] = 2, -3
    return film_of(frames, fields, Grid(SQUARE, (1.0, 1.0, 9.0), (0.0, 0.0, 0.0), tuple(direction.ravel())), labels)


@pytest.mark.parametrize(("swap", "signs"), [(False, (1, 1, 1)), (True, (1, -1, -1)), (True, (-1, 1, 1))])
def test_outlines_follow_what_moves_however_the_file_is_stored(swap, signs):
    direction = np.diag(signs).astype(float)
    film = moving_square(direction[:, [1, 0, 2]] if swap else direction)
    points = material_points(film, 1)
    ((_, first, length),) = points.outlines
    for t in (0, 1):
        line = points.moved[t, :, first : first + length]
        bright = np.argwhere(film.frames[t, ..., 1] > 0.5)
        assert_allclose(line.mean(1), bright.mean(0) + 0.5, atol=0.05)
        assert_allclose([line.min(1), line.max(1)], [bright.min(0), bright.max(0) + 1], atol=0.3)
    margin = round(BOX_MARGIN * 8)
    assert film.frames.shape == (2, 8 + 2 * margin, 8 + 2 * margin, 3), "the part around the labels"
    assert (film.numbers, film.depth) == ([0, 1, 2], 3)


def test_an_image_is_one_slice_and_many_slices_are_thinned():
    noise = np.random.default_rng(0).random((2, 9, 8, 100))
    flat = film_of(noise[..., 0], np.zeros((2, 2, 9, 8)), Grid.plain((9, 8), (1.0, 1.0)))
    assert (flat.frames.shape, flat.motion.shape, flat.depth) == ((2, 9, 8, 1), (2, 2, 9, 8, 1), 1)
    deep = film_of(noise, np.zeros((2, 3, 9, 8, 100)), Grid.plain((9, 8, 100), (1.0, 1.0, 3.0)))
    assert len(deep.numbers) <= MAX_SLICES
    assert deep.depth == 100


def test_a_part_of_the_heart_has_one_colour_whatever_its_number(film):
    def colours(values, heart):
        labels = np.array(values).reshape(-1, 1, 1)
        arrays = {"frames": labels[None], "motion": np.zeros((1, 2, *labels.shape)), "labels": labels}
        return dict(replace(film, result=replace(film.result, heart=heart), **arrays).structures.values())

    usual = colours([0, 1, 2, 3], HeartLabels())
    assert usual == colours([0, 7, 5, 9], HeartLabels(rv=9, wall=7, lv=5))
    assert colours([0, 2, 3, 8], HeartLabels(rv=-1)).items() >= {k: usual[k] for k in ("wall", "cavity")}.items()
    assert len(set(colours([1, 2, 3, 8, 9], HeartLabels()).values())) == 5


def test_the_outline_of_a_ring_is_two_circles(film):
    radius = np.hypot(*(np.indices((50, 50)) - 24.5))
    still = {"frames": np.zeros((1, 50, 50, 1)), "motion": np.zeros((1, 2, 50, 50, 1)), "spacing": (1.0, 1.0)}
    ring = ((radius > 10) & (radius < 18)).astype(int)[..., None]
    points = material_points(replace(film, **still, labels=ring, numbers=[0], depth=1), 0)
    lengths = [np.hypot(*(points.moved[0, :, first : first + n] - 25)) for _, first, n in points.outlines]
    assert_allclose(sorted(length.mean() for length in lengths), [10, 18], atol=0.15)
    assert all(np.ptp(length) < 1.0 for length in lengths)  # less than the steps of voxels


def test_corners_of_voxels_and_lines_of_the_grid_are_where_they_belong_and_move(film):
    x, y = np.indices((50, 50)) - 24.5
    radius, motion = np.hypot(x, y), np.zeros((2, 2, 50, 50, 1))
    labels = np.select([radius < 10, radius < 18], [3, 2])[..., None]
    motion[1] = 0.1 * np.stack([x, y])[..., None]
    frames = np.zeros((2, 50, 50, 1))
    growing = replace(film, frames=frames, motion=motion, labels=labels, spacing=(1.0, 1.0), numbers=[0], depth=1)
    points = material_points(growing, 0)
    middles, voxels = points.moved[..., points.corners].mean(-1), growing.strain.index[:2]
    assert_allclose(middles[0], voxels + 0.5)
    assert_allclose(middles[1], 25 + 1.1 * (voxels - 24.5), atol=1e-6)
    nodes = points.moved[0][:, : np.prod(points.grid)].reshape(2, *points.grid)
    assert_array_equal(np.diff(nodes[0, :, 0]), 2)
    assert_array_equal(nodes % 1, 0.5)


# What the scripts of the page read.


def test_the_page_holds_the_points_to_a_hundredth_of_a_pixel(film, data):
    low, high = data["range"]
    for k, held in enumerate(data["points"]):
        words = np.frombuffer(b64decode(held["moved"]), "<u2").reshape(len(film.frames), 2, held["count"])
        assert_allclose(low + words * ((high - low) / 65535), material_points(film, k).moved, atol=0.01)


def test_the_page_holds_the_strain_of_voxels_to_half_a_percent(film, data):
    held = np.frombuffer(b64decode(data["points"][1]["strain"]["circumferential"]), np.uint8)
    low, high = STRAIN_RANGE
    expected = film.strain.circumferential[:, film.strain.index[2] == 1]
    assert_allclose(low + held.reshape(expected.shape) * (high - low) / 255, expected, atol=0.51)


def test_a_sheet_holds_every_frame_of_its_slice(film, data):
    low, high = np.percentile(film.frames, (0.5, 99.5))
    sheet = np.asarray(Picture.open(BytesIO(b64decode(data["sheets"][2].partition(",")[2]))), float)
    tiles = data["tiles"]
    for t in range(len(film.frames)):
        row, column = divmod(t, tiles["columns"])
        tile = sheet[row * tiles["height"] :, column * tiles["width"] :][: tiles["height"], : tiles["width"]]
        expected = (255 * (film.frames[t, ..., 2].T - low) / (high - low)).clip(0, 255)
        assert np.abs(tile - expected).mean() < 4


def test_what_is_not_known_is_left_out(heart):
    blind = with_labels_of(heart, 2, 3)
    blind = cine_data(Film.of(replace(blind, cine=replace(blind.cine, times_ms=None))))
    assert (blind["segments"], blind["times"], blind["cycle"]) == ([], None, ASSUMED_CYCLE_MS)
    assert blind["volumes"].keys() == {"LV", "wall"}
    assert not any(region.startswith("segment") for region in blind["strain"]["green_radial"]["regions"])
    bare = cine_data(Film.of(without_labels(heart)))
    assert (bare["strain"], bare["volumes"], bare["labels"]) == (None, None, [])
    assert all(points["strain"] is None for points in bare["points"])


def test_one_slice_has_one_level_and_no_number_that_json_lacks(heart):
    flat, labels = one_slice(heart), heart.reference_labels
    labels = replace(labels, array=labels.array[..., 1], grid=flat.cine.grid)
    cine = replace(flat.cine, times_ms=(100.0, 300.0, 500.0, 700.0, 900.0, 1100.0))
    data = cine_data(Film.of(replace(flat, cine=cine, reference_labels=labels, heart=HeartLabels())))
    assert json.loads(json.dumps(data, allow_nan=False))["depth"] == 1
    assert data["cycle"] == 1200.0, "it lasts until the frame after the last"
    levels = {name for name in data["strain"]["green_radial"]["regions"] if not name.startswith("segment")}
    assert levels == {"global", "mid"}


# Where the verdict leads to.


def test_of_a_slice_that_is_not_shown_the_verdict_leads_to_the_nearest(film):
    """Of many slices a page shows some."""
    shown = list(range(0, 60, 3))
    for k in (31, 32):
        found = look_at(replace(film, result=judged(film.result, worst=Extreme(1.0, 3, k)), numbers=shown))
        place = found["place"]
        assert abs(shown[place] - k) == min(abs(number - k) for number in shown)
        assert found["text"] == f"slice {shown[place] + 1}, frame 4"


def test_where_something_is_found_the_smallest_cavity_is_not_looked_at(film):
    """Not even where what is found has no frame."""
    for level, frame in (("good", smallest_cavity(film.result)), ("look", None), ("failed", None)):
        found = look_at(replace(film, result=judged(film.result, level)))
        assert (found and found["frame"]) == frame


# The page and the pictures.


@pytest.mark.release
def test_a_report_is_a_page_with_pictures_beside_it_or_the_page_alone(heart, tmp_path):
    heart = judged(heart)
    page = heart.report(tmp_path / "new" / "folder")
    assert page == tmp_path / "new" / "folder" / "report.html"
    assert sorted(path.name for path in page.parent.iterdir()) == ["cine.gif", "report.html", "strain.png"]
    text = page.read_text()
    assert "<title>truth: heart.nii.gz</title>" in text
    assert f"{max(heart.closure_mm.values()):.2f} mm" in text
    with Picture.open(page.parent / "cine.gif") as gif:
        assert gif.n_frames == 6
    bare = judged(without_labels(heart))
    bare.report(tmp_path / "bare")
    assert sorted(path.name for path in (tmp_path / "bare").iterdir()) == ["cine.gif", "report.html"]
    assert bare.report(tmp_path / "alone" / "page.html") == tmp_path / "alone" / "page.html"
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["page.html"]


def test_labels_without_a_wall_have_volumes_alone_and_the_page_says_why(heart, tmp_path):
    """The cavity alone: no strain is measured, and the page and the picture do without."""
    with pytest.warns(InputWarning, match="no strain is measured"):
        said = judged(with_labels_of(heart, 3, heart=HeartLabels(rv=None, wall=None))).report(tmp_path).read_text()
    assert "Ejection fraction, LV" in said
    assert "Peak strain" not in said
    assert "Not measured: the wall of the left ventricle is not labelled, and strain needs it." in said
    assert (tmp_path / "strain.png").exists()


def test_the_page_says_what_was_run(heart):
    said = what_was_run(replace(heart, turned_by="TV-L1"))
    assert (said["cine"], said["method"], said["slices"]) == ("a/heart.nii.gz", "truth", "each by itself")
    assert said["frames"] == "6 of 72 x 64 x 3 voxels of 2.4 x 2.4 x 10 mm"
    assert said["reference"] == "frame 1 of 6"
    assert "frame 1 here is frame 0 there" in said["in files"]
    assert ("turns found by" in said, "refined by" in said) == (True, False)


def test_a_cine_that_failed_or_may_be_none_says_so_in_title_and_header(heart, tmp_path):
    bad = replace(heart, cine=replace(heart.cine, doubt="BEWARE: it is <b>"))
    bad = judged(bad, "failed", reasons=[f"Points end far off {SCRIPT}"], to_try=['`method="TV-L1"`'])
    text = write_page(Film.of(bad), tmp_path / "bad.html").read_text()
    assert "<title>✗ Failed: truth: heart.nii.gz</title>" in text
    header = text.split("</header>")[0]
    assert '<section class="verdict failed"' in header
    assert "Points end far off &lt;script&gt;" in header
    assert "--method TV-L1" in header
    assert "BEWARE: it is &lt;b&gt;." in header
    assert SCRIPT not in header


def test_there_are_letters_of_directions_only_where_the_header_says_them(heart, tmp_path):
    text = write_page(Film.of(judged(heart)), tmp_path / "page.html").read_text()
    assert "The header does not say how the image lies: anterior and inferior segments may be exchanged." in text
    assert 'class="edge' not in text
    grid = replace(heart.cine.grid, origin=(-80.0, 10.0, 5.0))
    placed = replace(heart, cine=replace(heart.cine, grid=grid), reference_labels=None, heart=None)
    text = write_page(Film.of(judged(placed)), tmp_path / "page.html").read_text()
    assert re.findall(r'class="edge (\w+)" aria-hidden="true">(.)', text) == [
        ("left", "R"), ("right", "L"), ("top", "A"), ("bottom", "P")
    ]  # fmt: skip
    assert "how the image lies" not in text
    assert "Without labels the wall, the cavity and the strain are not checked." in text


@pytest.mark.release
def test_a_page_of_ten_slices_and_thirty_frames_is_below_15_mb(tmp_path):
    """Noise, which nothing compresses, and no labels, so that nothing is cut away."""
    shape = (160, 160, 10)
    frames = np.random.default_rng(0).uniform(0, 1, (30, *shape)).astype(np.float32)
    fields = np.zeros((30, 3, *shape), np.float32)
    noise = CineResult(Cine(frames, Grid.plain(shape, (1.4, 1.4, 8.0))), 0, fields, CLOSED, 2, "none")
    write_page(Film.of(judged(noise)), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 15e6


def test_the_ejection_fractions_of_both_ventricles_stand_together(heart):
    """One entry, so that the page's first line stays short; without the LV it is that of the RV."""
    name, _, detail = headline(heart)[0]
    assert (name, detail) == ("Ejection fraction, LV", f"RV {in_percent(heart.volumes.rv_ejection_fraction_percent)}")
    name, _, detail = headline(with_labels_of(heart, 1, 2))[0]
    assert (name, detail) == ("Ejection fraction, RV", "")


# What notebooks and the pages of cohorts show: the reference, and the frame where most has happened.


def test_with_labels_the_frame_of_the_smallest_cavity_is_shown_and_else_the_farthest(heart):
    jump, fields = 5, heart.fields.copy()
    fields[jump, 0] += 3.0
    tracked = replace(heart, fields=fields)
    smallest = shown_frame(tracked)
    assert smallest == tracked.volumes.lv_ml.argmin()
    assert smallest not in (0, jump)
    assert shown_frame(without_labels(tracked)) == jump
    assert shown_frame(with_labels_of(tracked, 2)) == jump, "no cavity is labelled"
    assert smallest_cavity(without_labels(heart)) is None


@pytest.mark.release
def test_figure_card_and_thumbnail_show_the_same_frame_counted_from_1(heart):
    k = shown_frame(heart)
    assert (shown_pair(heart).moving == heart.cine.frames[k]).all()
    titles = [ax.get_title() for ax in tracking_figure(heart).axes]
    assert titles[:2] == ["frame 1 of 6 (reference)", f"frame {k + 1} of 6"]
    assert f"Frame {k + 1} of 6, as it has moved from frame 1." in tracking_card(heart)


# Curves, and the film for slides.

FRAMES = 6


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
    with Picture.open(path) as found:
        return [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(found)]


def strips(pictures):
    """The lines below the pictures of each frame: left of the middle, and right of it."""
    return [np.split(picture[-STRIP_PIXELS:], [picture.shape[1] // 3], axis=1) for picture in pictures]


@pytest.mark.release
def test_the_film_repeats_at_the_speed_of_the_heart_and_says_its_frame_and_what_its_colours_mean(heart, tmp_path):
    shown = pictures_of(heart, tmp_path / "cine.gif")
    with Picture.open(tmp_path / "cine.gif") as found:
        assert (found.n_frames, found.info["loop"]) == (FRAMES, 0)
        assert abs(found.info["duration"] - np.diff(heart.cine.times_ms).mean()) <= 5
    later, half = shown[2], shown[2].shape[1] // 2
    is_coloured = np.ptp(later, axis=2) > 40
    assert is_coloured[:, half:].sum() > 2 * is_coloured[:, :half].sum() > 0  # contours, and contours with strain
    assert (np.ptp(later[:, :half], axis=2) == 0).mean() > 0.9, "tissue is grey"
    timed, plain = strips(shown), strips(pictures_of(untimed(heart), tmp_path / "cine.gif"))
    assert len({left.tobytes() for left, _ in timed}) == FRAMES  # each frame has its own
    for (with_time, bar), (without, _) in zip(timed, plain, strict=True):
        assert (with_time > 99).sum() > (without > 99).sum() > 0
        bar = bar[STRIP_PIXELS // 2][np.ptp(bar[STRIP_PIXELS // 2], axis=1) > 40]
        assert bar[0, 2] > bar[0, 0] + 80  # blue shortens
        assert bar[-1, 0] > bar[-1, 2] + 80  # red lengthens


def test_without_labels_the_film_shows_the_grid_and_no_colours_of_strain(heart, tmp_path):
    first, *_ = pictures = pictures_of(without_labels(heart), tmp_path / "cine.gif")
    red, _, blue = (int(GRID[i : i + 2], 16) for i in (1, 3, 5))
    is_line = first[..., 2] - first[..., 0] > (blue - red) / 4  # lines are smoothed into the greys beside them
    half = first.shape[1] // 2
    assert is_line[:, half:].mean() > 0.1
    assert not is_line[:, : half - 4].any()
    assert all(np.ptp(right, axis=2).max() == 0 for _, right in strips(pictures))
