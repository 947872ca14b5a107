from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from tests.report.test_sheets import decode
from vrnet.images.grid import Grid
from vrnet.report.page import BOX_MARGIN, edge_letters, page_data
from vrnet.report.pair import View, appearance, slice_pair


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
    return page_data(pair, slice_pair(pair), appearance(pair), edge_letters(pair.grid), names)


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
    assert BOX_MARGIN == 0.25
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
