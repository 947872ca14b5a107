import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.report.browser import find_element, open_file, write_report
from tests.report.conftest import HOSTILE, METRICS, SCRIPT
from vrnet.images.grid import Grid
from vrnet.report.page import energy_curve
from vrnet.report.pair import View

PAGES = ["volume", "single", "heart", "bare"]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_opens_from_disk_without_errors_or_network(open_page, pages, name):
    page = open_page(name)
    assert page.current_url.startswith("file:")
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(address.startswith("data:") for address in loaded)
    assert not re.findall(r"(?:https?:)?//[a-z]+\.", (pages / f"{name}.html").read_text())


def test_a_dark_screen_gets_a_dark_page(open_page):
    def background(page):
        return sum(
            map(int, re.findall(r"\d+", page.execute_script("return getComputedStyle(document.body).backgroundColor")))
        )

    assert background(open_page("heart", color_scheme="light")) > 3 * 200
    assert background(open_page("heart", color_scheme="dark")) < 3 * 60


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(open_page, name):
    page = open_page(name, width=360, height=740)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
    overflowing = (  # wide tables are scrolled by themselves
        "return [...document.querySelectorAll('main *:not(.scroll *)')]"
        ".filter((e) => e.getBoundingClientRect().right > 360).map((e) => e.outerHTML)"
    )
    assert page.execute_script(overflowing) == []


def test_a_hostile_file_name_is_text(open_page):
    page = open_page("bare")
    assert HOSTILE in find_element(page, "h1").text
    assert HOSTILE in page.title
    assert SCRIPT in find_element(page, ".run").text
    assert page.find_elements("css selector", "h1 *:not(.arrow), .run dd *:not(wbr)") == []


def test_measures_and_files_are_in_the_page(open_page):
    page = open_page("volume")
    assert find_element(page, "h1").text == "ED.nii ← ES.nii"
    assert "0.500 → 0.750" in find_element(page, ".headline").text
    cells = [
        [cell.text for cell in row.find_elements("css selector", "th, td")]
        for row in page.find_elements("css selector", ".blocks tbody tr")
    ]
    assert cells == [["label 7", "0.500", "0.750"], ["label -2", "–", "–"]]
    assert find_element(page, "svg polyline").is_displayed()


def test_a_volume_whose_header_does_not_say_how_it_lies_has_no_letters(open_page, tmp_path, volume):
    page = open_page("volume")
    assert find_element(page, ".unplaced").text == "The header does not say how the image lies."
    assert page.find_elements("css selector", ".edge") == []
    assert open_page("heart").find_elements("css selector", ".unplaced") == []
    write_report(tmp_path / "page.html", replace(volume, grid=replace(volume.grid, origin=(9.0, 0.0, 0.0))), {}, [], {})
    text = (tmp_path / "page.html").read_text()
    assert text.count('class="edge ') == 4
    assert "how the image lies" not in text


def test_the_verdict_is_in_the_header_by_word_and_colour(open_page):
    """Reasons are text; what has no verdict has no such part."""
    header = find_element(open_page("volume"), "header")
    assert header.find_element("css selector", ".verdict h2").text.endswith("Look at it")
    assert "The motion is <large>." in header.text
    assert "Try:\n--affine affine\na mask" in header.text
    colours = {
        name: open_page("volume", color_scheme=name).execute_script(
            "return getComputedStyle(document.querySelector('.verdict h2')).color"
        )
        for name in ("light", "dark")
    }
    assert colours["light"] != colours["dark"]
    assert open_page("bare").find_elements("css selector", ".verdict") == []


def test_the_curve_falls_as_the_energies_do():
    drawn = energy_curve([4.0, 2.0, 1.0])
    (x0, y0), (x1, y1), (x2, y2) = drawn.points
    assert x1 - x0 == x2 - x1 > 0
    assert y0 == 0  # the largest on top
    assert_allclose((y1 - y0) / (y2 - y1), 2, rtol=0.01)
    assert energy_curve([1.0]) is None
    assert energy_curve([1.0, 1.0]).points[0][1] == 0


def test_a_step_that_overshoots_is_a_dot_off_the_line_which_never_rises():
    drawn = energy_curve([4.0, 2.0, 3.0, 1.0, 1.5])
    assert [y for _, y in drawn.least_so_far] == sorted(y for _, y in drawn.least_so_far)
    assert (drawn.first, drawn.least) == ("4", "1")
    assert [a == b for a, b in zip(drawn.points, drawn.least_so_far, strict=True)] == [True, True, False, True, False]


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


def test_a_page_of_a_stack_is_small(tmp_path, random):
    """Ten slices of noise, which nothing compresses, below 3 MB."""
    shape = (160, 160, 10)
    images = random(3, *shape).numpy()
    u = torch.nn.functional.interpolate(random(1, 3, 8, 8, 5), shape, mode="trilinear")[0].numpy()
    write_report(tmp_path / "report.html", View(*images, u, Grid.plain(shape, (1.8, 1.8, 10.0))), {}, [], {})
    assert (tmp_path / "report.html").stat().st_size < 3e6


def test_opposite_contrasts_begin_with_a_checkerboard_and_without_differences(browser, tmp_path, heart):
    """A blend of both would be grey all over."""
    path = tmp_path / "page.html"
    for correlation, mode, count in ((-0.9, "checkerboard", 0), (0.9, "fade", 2)):
        similarity = {"ncc_before": correlation, "ncc_after": correlation}
        write_report(path, heart, METRICS | {"similarity": similarity}, [], {})
        page = open_file(browser, path, "#folds")
        assert find_element(page, "[name=mode]:checked").get_attribute("value") == mode
        assert len(page.find_elements("css selector", "[data-panel^=difference]")) == count
        assert find_element(page, "#fade").is_enabled() == (mode == "fade")
        assert ("contrast is opposite" in find_element(page, "main").text) == (mode == "checkerboard")


def test_notices_are_in_line_with_the_page(browser, tmp_path, heart):
    path = tmp_path / "page.html"
    write_report(path, replace(heart, is_aligned=True), METRICS, [], {})
    page = open_file(browser, path, "#folds")
    notice, viewer = (find_element(page, name).rect for name in (".notice.aligned", ".viewer"))
    assert (notice["x"], notice["width"]) == pytest.approx((viewer["x"], viewer["width"]), abs=1)
