"""What the pictures of the page show."""

import numpy as np
import pytest
from matplotlib.colors import hsv_to_rgb, to_rgb
from numpy.testing import assert_allclose, assert_array_equal

from tests.report.browser import expected_greys, find_element, panel_colours, press, set_range, show_only
from tests.report.conftest import FOLDED, MOTIONS, SHAPE
from vrnet.report.drawing import FOLD

PAGES = ["volume", "single", "heart", "bare"]


@pytest.mark.parametrize("name", PAGES)
def test_no_picture_is_blank(open_page, name):
    page = open_page(name)
    if name == "volume":
        set_range(page, "slice", FOLDED[2])  # others move as a whole, and have one colour
    panels = page.execute_script("return [...document.querySelectorAll('[data-panel]')].map((f) => f.dataset.panel)")
    assert len(panels) == (7 if name == "bare" else 9)
    for panel in panels:
        shown = panel_colours(page, panel, (50, 50)).reshape(-1, 3)
        assert len(np.unique(shown, axis=0)) > 1, panel


def test_pixels_are_those_of_the_image_and_the_fade_mixes_them(open_page, volume):
    page = open_page("volume")
    k = volume.main_slice()
    fixed, warped, moving = (
        expected_greys(getattr(volume, name)[..., k], volume) for name in ("fixed", "warped", "moving")
    )
    for fade, expected in ((0, fixed), (100, warped), (25, 0.75 * fixed + 0.25 * warped)):
        show_only(page, fade)
        assert_allclose(panel_colours(page, "main"), np.stack([expected] * 3, axis=-1), atol=1.5)
    press(page, "m")
    set_range(page, "fade", 100)
    assert_allclose(panel_colours(page, "main")[..., 0], moving, atol=1.5)
    assert find_element(page, "input[value=moving]").is_selected()


def test_the_checkerboard_shows_both_images_in_turn(open_page, volume):
    page = open_page("volume")
    show_only(page, 50)
    press(page, "c")
    shown = panel_colours(page, "main")[..., 0]
    is_fixed, is_warped = (
        np.abs(shown - expected_greys(getattr(volume, name)[..., volume.main_slice()], volume)) < 1.5
        for name in ("fixed", "warped")
    )
    assert (is_fixed | is_warped).all()
    assert is_fixed[:3, :3].all()
    assert is_warped[3:6, :3].all()
    assert is_warped[:3, 3:6].all()
    assert 0.4 < is_fixed.mean() < 0.6
    assert not find_element(page, "#fade").is_enabled()


def test_differences_share_a_scale_and_fade_with_the_registration(open_page, heart):
    page = open_page("heart")
    before, after = (
        panel_colours(page, f"difference-{when}", heart.fixed.shape).sum(-1).mean() for when in ("before", "after")
    )
    assert after < before
    bars = page.execute_script("return [...document.querySelectorAll('.bar')].map((bar) => bar.lastChild.textContent)")
    assert bars[-1] == bars[-2]


def test_hue_is_the_direction_and_saturation_the_length_of_motion(open_page):
    """Right, down and left, in mm; the longest is fully saturated."""
    page = open_page("volume")
    spacing = np.array((1.5, 2.0))
    for k, motion in MOTIONS.items():
        set_range(page, "slice", k)
        across, down = motion * spacing
        saturation = np.hypot(across, down) / 3.0
        expected = 255 * hsv_to_rgb((np.arctan2(down, across) / (2 * np.pi) % 1, saturation, 1.0))
        # the scale is a percentile of the voxels, and the fold is longer than all of them
        assert_allclose(panel_colours(page, "motion")[2, 2], expected, atol=4)
    set_range(page, "slice", 4)
    assert (panel_colours(page, "motion") == 255).all()


def test_a_fold_is_marked_where_it_is(open_page):
    page = open_page("volume")
    set_range(page, "slice", FOLDED[2])
    is_marked = (panel_colours(page, "jacobian") == np.rint(np.multiply(to_rgb(FOLD), 255))).all(-1)
    x, y, _ = FOLDED
    expected = np.zeros(SHAPE[:2], bool)
    expected[x : x + 2, y] = True  # 1 + u(x+1) - u(x) = -3: behind the voxel itself and before its neighbour
    assert_array_equal(is_marked, expected)
    assert find_element(page, "#folds").text == "2"
    set_range(page, "slice", 0)
    assert find_element(page, "#folds").text == "0"


def test_structures_are_filled_and_outlined(open_page, volume):
    """Where moving has a structure and fixed has none, the picture before is tinted, and the one after is not."""
    page = open_page("volume")
    k = volume.main_slice()
    for when, name in (("before", "moving"), ("after", "warped")):
        shown = panel_colours(page, f"labels-{when}")
        is_tinted = np.ptp(shown, axis=-1) > 0
        has_label = getattr(volume, f"{name}_labels")[..., k] != 0
        assert is_tinted[has_label].all()
        assert not is_tinted[:3].any()
    assert [item.text for item in page.find_elements("css selector", ".legend li") if item.is_displayed()] == [
        "label -2",
        "label 7",
    ]


def test_outlines_run_along_the_borders_of_structures(open_page, volume):
    """Between voxels 3 and 4, and 15 and 16, across: no line crosses the row elsewhere but between the two labels."""
    page = open_page("volume")
    page.execute_script("document.querySelector('[value=moving]').click(); document.getElementById('fade').value = 0")
    set_range(page, "fade", 0)
    row = page.execute_script(
        "const c = document.getElementById('main'), y = Math.floor(8.5 * c.height / 20);"
        "return [...c.getContext('2d').getImageData(0, y, c.width, 1).data]"
    )
    row = np.reshape(row, (-1, 4))[:, :3]
    lines = np.flatnonzero(np.ptp(row, axis=-1) > 60) / len(row) * SHAPE[0]
    borders = {4.0, 10.0, 16.0} | {6.0, 12.0, 18.0}
    assert {min(borders, key=lambda border: abs(border - x)) for x in lines} >= {4.0, 10.0, 16.0}
    assert all(min(abs(x - border) for border in borders) < 0.3 for x in lines)


def test_pixels_have_the_shape_of_voxels(open_page):
    page = open_page("volume")
    width, height = page.execute_script("const c = document.getElementById('main'); return [c.width, c.height]")
    assert_allclose(width / height, (24 * 1.5) / (20 * 2.0), rtol=0.01)
