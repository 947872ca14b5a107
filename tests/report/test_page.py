"""What a page holds: sheets of slices, measures of each slice, the curve of energies."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from tests.report.browser import write_report
from tests.report.conftest import FOLDED, MOTIONS, SHAPE, bare
from tests.report.test_drawing import decode
from vrnet.evaluation.metrics import dice
from vrnet.images.grid import Grid
from vrnet.report.page import MAX_STRUCTURES, page_data, render_page, slice_table
from vrnet.report.pair import PageSlices, View, edge_letters, orient_for_viewing

WORDS = "mask: inside it the images were compared"


def test_the_line_of_energies_falls_and_a_step_that_overshoots_is_a_dot_off_it(volume):
    page = render_page(volume, {}, [4.0, 2.0, 3.0, 1.0, np.nan, 1.5], {})
    (line,) = re.findall(r'<polyline points="([^"]*)"', page)
    least = [tuple(map(float, point.split(","))) for point in line.split()]
    dots = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="3"', page)]
    assert_allclose(least, [(0, 0), (80, 100), (160, 100), (240, 150), (320, 150)])
    assert_allclose(dots, [(0, 0), (80, 100), (160, 50), (240, 150), (320, 125)])
    assert "from 4 to 1 in 4 linearisations" in page
    for energies, count in (([1.0], 0), ([1.0, 1.0], 1)):
        assert render_page(volume, {}, energies, {}).count("<polyline") == count


def test_a_page_replaces_another_whole(tmp_path, heart):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(path, heart, {"method": None, "extra": {"deep": {"er": [1]}}, "seconds": None}, [np.nan, 1.0], {})
    assert path.read_text().lstrip().startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_the_page_says_which_slices_and_voxels_it_leaves_out(tmp_path):
    shape = (400, 4, 200)
    image, u = np.zeros(shape), np.zeros((3, *shape))
    write_report(tmp_path / "large.html", View(image, image, image, u, Grid.plain(shape, (1.0, 1.0, 1.0))), {}, [], {})
    text = (tmp_path / "large.html").read_text()
    assert "one slice in 4 is shown" in text
    assert "a pixel is 2 × 1 voxels" in text


@pytest.mark.release
def test_a_page_of_a_stack_is_small(tmp_path, random):
    """Ten slices of noise, which nothing compresses, below 3 MB."""
    shape = (160, 160, 10)
    images = random(3, *shape).numpy()
    u = torch.nn.functional.interpolate(random(1, 3, 8, 8, 5), shape, mode="trilinear")[0].numpy()
    write_report(tmp_path / "report.html", View(*images, u, Grid.plain(shape, (1.8, 1.8, 10.0))), {}, [], {})
    assert (tmp_path / "report.html").stat().st_size < 3e6


@pytest.fixture
def pair(d, random):
    """Random images and field, with a structure in the middle."""
    shape = SHAPES[d]
    labels = np.zeros(shape, int)
    labels[4:8, 3:7] = 1000
    fixed, moving, warped = random(3, *shape).numpy()
    return View(fixed, moving, warped, random(d, *shape).numpy(), Grid.plain(shape, (1.5, 2.0, 4.0)[:d]), labels)


def data_of(pair, names=None):
    """What the page of a pair holds."""
    return page_data(PageSlices(pair), edge_letters(pair.grid), names or {})


def slice_of(data, name, k=0):
    """Slice k of a sheet, across and down."""
    w, h = data["tiles"]["width"], data["tiles"]["height"]
    row, column = divmod(k, data["tiles"]["columns"])
    return decode(data["sheets"][name])[row * h : row * h + h, column * w : column * w + w].T


def test_all_images_have_one_grey_window_of_percentiles(pair):
    data = data_of(pair)
    low, high = np.percentile([pair.fixed, pair.moving], (0.5, 99.5))
    assert_allclose([*data["windows"].values()], [(low, high)] * 3)
    for name in ("fixed", "moving", "warped"):
        image = getattr(pair, name)
        image = image[..., 2] if image.ndim == 3 else image
        found = slice_of(data, name, 2 if pair.fixed.ndim == 3 else 0)
        assert_allclose(found, (255 * (image - low) / (high - low)).clip(0, 255), atol=0.5)


def test_motion_is_recovered_from_its_root(pair):
    data = data_of(pair)
    for i, u in enumerate(pair.field):
        root = (slice_of(data, f"u{i}") - 128.0) / 127
        u = u[..., 0] if u.ndim == 3 else u
        # half a step of the root, 1/254, is this much of the motion
        step = 2 * np.sqrt(np.abs(u) * data["largest"][i]) / 254 + data["largest"][i] / 254**2
        assert (np.abs(root * np.abs(root) * data["largest"][i] - u) <= step + 1e-12).all()


def test_a_pair_without_motion_and_contrast_has_scales_above_zero():
    still = View(*np.ones((3, 4, 4)), np.zeros((2, 4, 4)), Grid.plain((4, 4), (1.0, 1.0)))
    data = data_of(still)
    assert data["scale"] == 1.0
    assert all(high > low for low, high in data["windows"].values())


def test_the_determinant_of_the_identity_is_exact(pair):
    still = View(pair.fixed, pair.moving, pair.warped, 0 * pair.field, pair.grid)
    assert (slice_of(data_of(still), "det") / 64 - 1 == 1).all()


def test_the_box_holds_the_structures_with_a_margin(pair):
    assert data_of(pair)["box"] == (3, 2, 6, 6)


def test_only_a_volume_that_is_placed_has_anatomical_edges(pair, d):
    assert data_of(pair)["edges"] == {}
    placed = replace(pair, grid=replace(pair.grid, origin=(-90.0, 40.0, 7.0)[:d]))
    expected = {} if d == 2 else {"left": "R", "right": "L", "top": "A", "bottom": "P"}
    assert data_of(placed)["edges"] == expected


@pytest.mark.parametrize("signs", [(1.0, 1.0, 1.0), (-1.0, -1.0, 1.0)])
def test_edges_are_those_of_the_picture_and_not_of_the_file(signs):
    grid = Grid((4, 5, 6), (1.0, 1.0, 8.0), (3.0, 0.0, 0.0), tuple(np.diag(signs).ravel().tolist()))
    assert "".join(edge_letters(grid).values()) == "RLAP"
    assert edge_letters(replace(grid, origin=(0.0, 0.0, 0.0))) == {}


def test_without_labels_there_is_no_box_and_no_sheet_of_them(pair):
    data = data_of(View(pair.fixed, pair.moving, pair.warped, pair.field, pair.grid))
    assert data["box"] is None
    assert not data["labels"]
    assert not [name for name in data["sheets"] if "labels" in name]


def test_labels_have_their_names_or_their_numbers(pair):
    assert [label["name"] for label in data_of(pair)["labels"]] == ["label 1000"]
    assert [label["name"] for label in data_of(pair, {"1000": "wall", "7": "none"})["labels"]] == ["wall"]


def test_the_page_starts_at_the_main_slice(random):
    shape = (4, 4, 200)  # one slice in 4 is shown, from the second
    labels = np.zeros(shape, int)
    labels[1, 1, 57] = 1
    image, u = random(*shape).numpy(), random(3, *shape).numpy()
    data = data_of(View(image, image, image, u, Grid.plain(shape, (1.0, 1.0, 1.0)), labels))
    assert data["slices"][data["start"]] == 58
    assert data["depth"] == 200


def table_of(pair, names=None):
    return slice_table(PageSlices(pair), names or {})


def values(table, name):
    (measure,) = [measure for measure in table["measures"] if measure["name"] == name]
    return [np.nan if cell["value"] is None else cell["value"] for cell in measure["cells"]]


@pytest.fixture
def moved(volume):
    """The volume with labels that were not brought all the way."""
    return replace(volume, warped_labels=np.roll(volume.fixed_labels, 1, 1))


def test_every_slice_has_its_own_measures(moved):
    table = table_of(moved, names={"7": "RV"})
    for label, name in ((7, "Dice RV"), (-2, "Dice label -2")):
        maps = moved.fixed_labels == label, moved.warped_labels == label
        expected = [dice(*(mask[..., k] for mask in maps)) for k in range(SHAPE[2])]
        assert_allclose(values(table, name), expected, atol=1e-6)
    pairs = [(moved.fixed[..., k].ravel(), moved.warped[..., k].ravel()) for k in range(SHAPE[2])]
    assert_allclose(values(table, "Correlation"), [np.corrcoef(*both)[0, 1] for both in pairs], atol=1e-6)
    folded = [100 * 2 / (SHAPE[0] * SHAPE[1]) if k == FOLDED[2] else 0 for k in range(SHAPE[2])]
    assert_allclose(values(table, "Folded, strict (%)"), folded, atol=1e-6)
    lengths = {k: np.hypot(1.5 * motion[0], 2.0 * motion[1]) for k, motion in MOTIONS.items()}
    assert_allclose([values(table, "Mean motion (mm)")[k] for k in lengths], [*lengths.values()], atol=1e-6)


def test_what_cannot_be_measured_is_a_dash_without_a_bar(moved):
    cell = table_of(moved)["measures"][0]["cells"][0]
    assert (cell["text"], cell["part"], cell["value"]) == ("–", None, None)


def test_the_worst_slice_is_that_of_least_overlap(moved):
    """Slices 1 to 3 have labels; in the last of them the map was carried away."""
    labels = moved.warped_labels.copy()
    labels[..., 3] = np.roll(moved.fixed_labels[..., 3], 9, 1)
    table = table_of(replace(moved, warped_labels=labels))
    assert (table["worst"], table["why"]) == (3, "lowest mean Dice, 0.000")


def test_where_one_mask_alone_shows_a_structure_there_is_no_dice(moved):
    """Slice 4 has label 7 in moving alone, slice 2 has label -2 in fixed alone: they count neither in the mean of a
    slice nor as the worst one."""
    labels = moved.warped_labels.copy()
    labels[4:10, 5:12, 4] = 7
    labels[..., 2][labels[..., 2] == -2] = 0
    table = table_of(replace(moved, moving_labels=labels, warped_labels=labels), names={"7": "RV"})
    assert np.isnan(values(table, "Dice RV")[4])
    assert np.isnan(values(table, "Dice label -2")[2])
    assert values(table, "Dice, mean")[2] == values(table, "Dice RV")[2] > 0.5
    assert np.isnan(values(table, "Dice, mean")[4])
    assert table["worst"] in (1, 2, 3)


def test_a_structure_that_the_motion_lost_is_the_fault_of_the_motion_unless_it_may_have_left_its_slice(moved):
    lost = moved.warped_labels.copy()
    lost[..., 3] = 0
    within = table_of(replace(moved, warped_labels=lost))
    assert values(within, "Dice label 7")[3] == 0
    across = moved.field.copy()
    across[2] += 0.5
    through = table_of(replace(moved, warped_labels=lost, field=across))
    assert np.isnan(values(through, "Dice label 7")[3])


def test_the_tip_of_a_structure_is_not_the_worst_slice(moved):
    """One voxel, which was missed."""
    fixed, warped = moved.fixed_labels.copy(), moved.warped_labels.copy()
    fixed[3, 3, 4], warped[4, 3, 4] = 7, 7
    table = table_of(replace(moved, fixed_labels=fixed, moving_labels=warped, warped_labels=warped))
    assert values(table, "Dice, mean")[4] == 0
    assert table["worst"] != 4
    assert table["why"].endswith("slices that show a tip of the structures are not ranked")
    assert "ranked" not in table_of(moved)["why"]


def test_without_labels_the_worst_is_the_most_folded_and_else_the_least_alike(volume):
    bare = replace(volume, fixed_labels=None, moving_labels=None, warped_labels=None)
    table = table_of(bare)
    assert table["worst"] == FOLDED[2]
    assert [measure["name"] for measure in table["measures"] if measure["in_strip"]] == [
        "Correlation", "Folded, strict (%)", "Mean motion (mm)",
    ]  # fmt: skip
    still = table_of(replace(bare, field=0 * bare.field))
    assert still["worst"] == int(np.argmin(values(still, "Correlation")))


def test_of_many_structures_there_is_the_mean_alone(moved):
    generator = np.random.default_rng(0)
    maps = generator.integers(0, MAX_STRUCTURES + 2, (2, *SHAPE))
    many = replace(moved, fixed_labels=maps[0], moving_labels=maps[1], warped_labels=maps[1])
    table = table_of(many)
    assert [measure["name"] for measure in table["measures"]][:2] == ["Dice, mean", "Dice, mean, before"]
    assert_allclose(values(table, "Dice, mean"), values(table, "Dice, mean, before"))


def test_one_slice_needs_no_table(single, heart):
    assert table_of(heart) is None


def test_the_sheets_of_a_stack_have_the_mask(masked):
    shown = orient_for_viewing(masked)
    data = page_data(PageSlices(shown), {}, {})
    for k in range(SHAPE[2]):
        assert np.array_equal(slice_of(data, "mask", k), shown.mask[..., k])


def test_the_legend_says_what_the_line_is_where_there_is_one(masked):
    assert WORDS in render_page(masked, {}, [], {})
    assert WORDS not in render_page(replace(masked, mask=None), {}, [], {})


def test_slices_are_compared_inside_the_mask_and_the_worst_is_one_that_has_it(masked):
    shown = bare(orient_for_viewing(replace(masked, field=0 * masked.field)))
    table = table_of(shown)
    alike = next(measure for measure in table["measures"] if measure["name"] == "Correlation in mask")
    fixed, warped = (image[shown.mask] for image in (shown.fixed, shown.warped))
    known = [cell["value"] for cell in alike["cells"] if cell["value"] is not None]
    assert known == [pytest.approx(np.corrcoef(fixed, warped)[0, 1], abs=1e-5)]
    assert shown.mask[..., table["worst"]].any()


@pytest.mark.parametrize(
    ("percent", "voxels", "mm", "is_told"),
    [(0.0005, 0.1, 0.0082, False), (0.0005, 0.004, None, False), (0.02, 0.1, 0.0082, True), (0.0005, 0.2, None, True)],
)
def test_a_repair_is_told_unless_it_changed_next_to_nothing(heart, percent, voxels, mm, is_told):
    moves = {"mean_move_voxels": voxels, "max_move_voxels": voxels, "mean_move_mm": mm, "max_move_mm": mm}
    repair = {"folded_percent": percent, "changed_percent": percent, "farthest_voxel": (1, 2), **moves}
    assert ("Repaired: " in render_page(bare(heart), {"repair": repair}, [], {})) == is_told
