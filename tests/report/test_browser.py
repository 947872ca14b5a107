"""A page in a browser: its pictures, controls and tables, on screens of any size and on paper."""

import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from matplotlib.colors import hsv_to_rgb, to_rgb
from numpy.testing import assert_allclose, assert_array_equal

from tests.report.browser import (
    expected_greys,
    find_element,
    open_file,
    panel_colours,
    press,
    set_range,
    show_only,
    write_report,
)
from tests.report.conftest import FOLDED, HOSTILE, METRICS, MOTIONS, SCRIPT, SHAPE
from vrnet.fields.folds import Repair
from vrnet.report.drawing import FOLD

pytestmark = pytest.mark.release


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


def test_slider_keys_and_wheel_change_the_slice_of_every_picture(open_page, volume):
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    page = open_page("volume")
    show_only(page, 0)

    def at(k):
        assert find_element(page, "#number").text == f"slice {k + 1} of 5"
        assert find_element(page, "#slice").get_attribute("value") == str(k)
        assert_allclose(panel_colours(page, "warped")[..., 0], expected_greys(volume.warped[..., k], volume), atol=1.5)

    start = volume.main_slice()
    at(start)
    press(page, Keys.ARROW_RIGHT)
    at(start + 1)
    press(page, Keys.ARROW_LEFT * 4)
    at(0)
    set_range(page, "slice", 3)
    at(3)
    ActionChains(page).scroll_from_origin(ScrollOrigin.from_element(find_element(page, "#main")), 0, 100).perform()
    at(4)
    assert page.execute_script("return scrollY") == 0


def test_flicker_shows_one_image_then_the_other_by_itself(open_page):
    from selenium.webdriver.support.ui import WebDriverWait

    page = open_page("heart")
    press(page, " ")
    assert find_element(page, "#flicker").get_attribute("aria-pressed") == "true"
    seen = set()
    WebDriverWait(page, 5, 0.1).until(
        lambda _: seen.add(find_element(page, "#fade").get_attribute("value")) or len(seen) == 2
    )
    assert seen == {"0", "100"}
    press(page, " ")
    assert find_element(page, "#flicker").get_attribute("aria-pressed") == "false"


def test_zoom_enlarges_the_structures(open_page, volume):
    page = open_page("heart")
    before = panel_colours(page, "labels-after", (60, 60))
    press(page, "z")
    after = panel_colours(page, "labels-after", (60, 60))
    tinted = [(np.ptp(shown, axis=-1) > 0).mean() for shown in (before, after)]
    assert tinted[1] > 2 * tinted[0]


def test_the_pointer_reads_the_values_of_the_files(open_page, volume):
    from selenium.webdriver import ActionChains

    page = open_page("volume")
    set_range(page, "slice", 1)
    canvas = find_element(page, "#main")
    x, y = 12, 10  # the middle of the canvas, all of it in view, lies where these voxels begin
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(page).move_to_element_with_offset(canvas, 6, 6).perform()
    text = find_element(page, "#readout").text.replace("−", "-")
    shown = {name: float(value) for name, value in re.findall(r"(fixed|moving|warped) ([\d.]+)", text)}
    for name, value in shown.items():
        assert_allclose(value, getattr(volume, name)[x, y, 1].clip(5, 995), atol=5)
    assert len(shown) == 3
    assert "u (0.0, 2.0, 0.0) mm · det 1.00 · label -2" in text


def test_every_control_has_a_label_and_can_be_reached_by_key(open_page):
    page = open_page("volume")
    unlabelled = (
        "return [...document.querySelectorAll('input')].filter((e) => !e.labels.length).map((e) => e.outerHTML)"
    )
    assert page.execute_script(unlabelled) == []
    assert page.execute_script("return document.querySelectorAll('[tabindex]').length") == 0
    unnamed = "return [...document.querySelectorAll('canvas')].filter((e) => !e.ariaLabel).length"
    assert page.execute_script(unnamed) == 0
    assert page.execute_script("return document.documentElement.lang") == "en"


PHONE = {"width": 390, "height": 844}


def shown_slice(page):
    """The number of the slice that the dock, the strip and the table say is shown: all of them the same."""
    numbers = page.execute_script("""
        const strip = document.querySelector('.strip thead .shown'), row = document.querySelector('#by-slice tr.shown');
        return [document.getElementById('number').value, strip.textContent, row.cells[0].textContent];""")
    (number,) = {int(re.search(r"\d+", text)[0]) for text in numbers}
    return number


def column(page, table, n):
    """The texts of a column, from top to bottom."""
    rows = "[...document.querySelectorAll(arguments[0] + ' tbody tr')]"
    return page.execute_script(f"return {rows}.map((row) => row.cells[arguments[1]].textContent)", table, n)


def test_the_strip_shows_the_slice_that_is_chosen_by_click_or_key(open_page):
    from selenium.webdriver import Keys

    page = open_page("volume")
    start = shown_slice(page)
    page.execute_script("document.querySelector('.strip tbody tr').cells[5].click()")
    assert shown_slice(page) == 5
    page.execute_script("document.querySelector('.strip input:checked').focus()")
    press(page, Keys.ARROW_LEFT)  # of radio buttons, which are one stop for the tab key
    assert shown_slice(page) == 4
    set_range(page, "slice", start - 1)
    assert shown_slice(page) == start


def test_the_worst_slice_is_one_press_away(open_page, volume):
    """The labels after are those of fixed but in no slice worse than another: the first that has any."""
    page = open_page("volume")
    page.execute_script("document.getElementById('worst').focus()")
    press(page, " ")
    expected = int(np.flatnonzero(volume.fixed_labels.any((0, 1)))[0]) + 1
    assert shown_slice(page) == expected
    assert find_element(page, "#worst").text == f"Worst slice: {expected}"
    find_element(page, f"#by-slice [aria-label='Show slice {FOLDED[2] + 1}']").send_keys(" ")
    assert shown_slice(page) == FOLDED[2] + 1


def test_tables_sort_by_click_and_key_and_say_so(open_page):
    page = open_page("volume")
    headings = page.find_elements("css selector", "#by-slice th[aria-sort]")
    folds = next(n for n, heading in enumerate(headings) if "Folded" in heading.text)
    assert column(page, "#by-slice", 0) == ["1", "2", "3", "4", "5"]
    headings[folds].find_element("css selector", "button").send_keys(" ")
    assert headings[folds].get_attribute("aria-sort") == "ascending"
    assert column(page, "#by-slice", 0) == ["1", "2", "3", "5", "4"]  # equal ones stay in their order
    headings[folds].find_element("css selector", "button").send_keys(" ")
    assert column(page, "#by-slice", 0) == ["4", "1", "2", "3", "5"]
    headings[1].find_element("css selector", "button").click()
    assert column(page, "#by-slice", 1)[-2:] == ["–", "–"], "what has no value comes last"
    assert [heading.get_attribute("aria-sort") for heading in headings].count("none") == len(headings) - 1
    page.execute_script("document.querySelectorAll('.blocks .sort')[0].click()")
    assert column(page, ".blocks table", 0) == ["label -2", "label 7"]


WORSE = """
return [...document.querySelectorAll('.tables tbody tr, .blocks tbody tr')].map((row) => {
  const cell = row.cells[2];
  return [row.cells[0].textContent, cell.innerText, getComputedStyle(cell).color];
});"""


def test_values_that_became_worse_say_so_in_words_and_colour_on_screens_and_paper(browser, heart, tmp_path):
    """And a column with such words is still sorted by its numbers."""
    dice = {"before": {"1": 0.5, "2": 0.9, "3": 0.6}, "after": {"1": 0.8, "2": 0.7, "3": 0.75}}
    write_report(tmp_path / "page.html", heart, METRICS | {"dice": dice}, [], {})
    for scheme, media in (("light", ""), ("dark", ""), ("dark", "print")):
        page = open_file(browser, tmp_path / "page.html", "#folds", color_scheme=scheme)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        rows = {name: (text.split(), colour) for name, text, colour in page.execute_script(WORSE)}
        assert rows["label 2"][0] == ["worse", "0.700"]
        assert (rows["label 1"][0], rows["label 3"][0]) == (["0.800"], ["0.750"])
        assert rows["label 2"][1] != rows["label 1"][1] == rows["label 3"][1]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.execute_script("document.querySelectorAll('.blocks .sort')[2].click()")
    assert column(page, ".blocks table", 0) == ["label 2", "label 3", "label 1"]


@pytest.mark.parametrize("name", ["volume", "heart"])
def test_on_a_phone_the_picture_and_its_sliders_fit_one_screen(open_page, name):
    page = open_page(name, **PHONE)
    page.execute_script("document.querySelector('.viewer').scrollIntoView()")
    top, bottom, dock = page.execute_script("""
        const box = (selector) => document.querySelector(selector).getBoundingClientRect();
        return [box('#main').top, box('#fade').bottom, box('.dock').top];""")
    assert 0 <= top < bottom <= dock


def test_paper_is_white_and_has_every_picture_and_table(open_page):
    """Whatever is folded on the screen is open on paper, and a picture is never cut in two."""
    page = open_page("single", color_scheme="dark")
    assert page.execute_script("return document.querySelectorAll('details:not([open])').length") > 0
    page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    assert page.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    kept = page.execute_script("""
        const style = (e) => getComputedStyle(e);
        return [style(document.body).backgroundColor, style(document.querySelector('.dock')).display,
                [...document.querySelectorAll('.panels figure')].every((e) => style(e).breakInside === 'avoid')];""")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert kept == ["rgb(255, 255, 255)", "none", True]


@pytest.mark.parametrize(("level", "reasons"), [("good", 0), ("failed", 5)])
def test_the_picture_lies_above_the_dock_when_the_page_opens(browser, heart, tmp_path, level, reasons):
    """Also where a note tells of repaired folds, and where there are many reasons: all of the picture is seen on a
    common screen, without scrolling."""
    repair = asdict(Repair(0.0, 0.05, 0.05, 0.2, 0.1, 0.4, (0, 0)))
    said = ["The images are less alike after than before: local correlation (squared) 0.43, then 0.17."] * reasons
    metrics = METRICS | {"verdict": {"level": level, "reasons": said, "try": said[:3]}, "repair": repair}
    write_report(tmp_path / "good.html", heart, metrics, [], {"fixed": "a.nii", "moving": "b.nii"})
    page = open_file(browser, tmp_path / "good.html", "#folds", width=1280, height=900)
    picture, dock, height = page.execute_script("""
        const box = (selector) => document.querySelector(selector).getBoundingClientRect();
        return [box('#main').bottom, box('.dock').top, box('#main').height];""")
    assert picture < dock
    assert height >= 320, "and it is never small"


def test_a_structure_in_one_mask_alone_has_a_dash_in_strip_and_table(browser, volume, tmp_path):
    """Label -2 is missing in moving in slice 3, which is then not a naked 0; and the header says what was repaired."""
    labels = volume.fixed_labels.copy()
    labels[..., 2][labels[..., 2] == -2] = 0
    pair = replace(volume, moving_labels=labels, warped_labels=labels)
    repair = asdict(Repair(1.5, 3.0, 0.1, 0.5, 0.2, 1.0, (0, 0, 0)))
    write_report(tmp_path / "page.html", pair, METRICS | {"repair": repair}, [], {})
    page = open_file(browser, tmp_path / "page.html", "#folds")
    find = "return [...document.querySelectorAll('.strip tbody tr')].find((row) => row.textContent.includes('-2'))"
    cells = page.execute_script(find).find_elements("css selector", "td")
    assert cells[2].text == "–"
    assert "1.5 % of the voxels were folded" in find_element(page, "header .repair").text
