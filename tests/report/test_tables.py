"""The strip of slices, tables that sort, and a page that stays as it is on small screens and on paper."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.report.browser import find_element, open_file, press, set_range, write_report
from tests.report.conftest import FOLDED, METRICS, TOUCH, start_browser

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


def test_nothing_moves_when_values_are_read(open_page):
    from selenium.webdriver import ActionChains

    boxes = "['.dock', '#slice', 'main'].map((name) => document.querySelector(name).getBoundingClientRect())"
    measure = f"return JSON.stringify({boxes})"
    for screen in ({}, PHONE):
        page = open_page("volume", **screen)
        ActionChains(page).move_to_element(find_element(page, "h1")).perform()
        page = open_page("volume", **screen)
        canvas = find_element(page, "#main")
        page.execute_script("arguments[0].scrollIntoView({block: 'end'})", canvas)
        assert find_element(page, "#readout").text.startswith("Point at")
        before = page.execute_script(measure)
        ActionChains(page).move_to_element(canvas).perform()
        assert "fixed" in find_element(page, "#readout").text
        assert page.execute_script(measure) == before


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
    repair = {"folded_percent": 0.0, "changed_percent": 0.05, "mean_move_mm": 0.1, "max_move_mm": 0.4}
    said = ["The images are less alike after than before: local correlation (squared) 0.43, then 0.17."] * reasons
    metrics = METRICS | {"verdict": {"level": level, "reasons": said, "try": said[:3]}, "repair": repair}
    write_report(tmp_path / "good.html", heart, metrics, [], {"fixed": "a.nii", "moving": "b.nii"})
    page = open_file(browser, tmp_path / "good.html", "#folds", width=1280, height=900)
    picture, dock, height = page.execute_script("""
        const box = (selector) => document.querySelector(selector).getBoundingClientRect();
        return [box('#main').bottom, box('.dock').top, box('#main').height];""")
    assert picture < dock
    assert height >= 320, "and it is never small"


def test_paper_is_no_wider_than_a_sheet_however_many_slices_there_are(open_page):
    """Between the margins of A4 are 186 mm. Of what is wider, a browser shrinks the whole page."""
    page = open_page("volume", width=703, height=1032)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    width = page.execute_script("""
        const strip = document.querySelector('.strip');
        strip.classList.add('narrow');
        strip.style.setProperty('--slices', 64);
        return document.documentElement.scrollWidth;""")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert width <= 703


def test_a_page_of_a_phantom_fits_few_sheets_of_a4(open_page):
    page = open_page("heart")
    made = page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})["data"]
    sizes = re.findall(rb"/MediaBox ?\[([^\]]+)\]", base64.b64decode(made))
    assert 1 <= len(sizes) <= 4
    width, height = (float(part) for part in sizes[0].split()[2:])
    assert (round(width), round(height)) == (595, 842)


def test_on_paper_the_slices_are_on_the_sheet_of_the_picture(open_page):
    """Also with a third structure, and a note of two lines on folds, which this page has not. Between the margins of A4
    are 273 mm, at 96 pixels to 25.4 mm."""
    page = open_page("volume", width=703, height=1032)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    bottom, row = page.execute_script("""
        const strip = document.querySelector('.strip'), box = (e) => e.getBoundingClientRect();
        return [box(strip.closest('.card')).bottom + scrollY, box(strip.rows[1]).height];""")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    note = 40
    assert bottom + row + note < 273 / 25.4 * 96


def test_what_is_cut_says_that_there_is_more_until_it_is_scrolled_to_its_end(open_page):
    hint = "const h = document.querySelector('.strip').closest('.scroll').nextElementSibling; " \
        "return h.checkVisibility() && h.textContent"  # fmt: skip
    assert not open_page("volume").execute_script(hint)
    page = open_page("volume", **PHONE)
    page.execute_script("document.querySelector('.strip').style.minWidth = '700px'; dispatchEvent(new Event('resize'))")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    page.execute_script("document.querySelector('.strip').closest('.scroll').dispatchEvent(new Event('scroll'))")
    assert "more" in page.execute_script(hint)
    page.execute_script("document.querySelector('.strip').closest('.scroll').scrollLeft = 9999")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert not page.execute_script(hint)


def test_a_screen_without_a_keyboard_lists_no_keys(open_page, pages, tmp_path_factory):
    visible = "return [...document.querySelectorAll('.keys, .by-pointer')].some((e) => e.checkVisibility())"
    assert open_page("heart").execute_script(visible)
    for browser in start_browser(tmp_path_factory.mktemp("touch"), ("--disable-gpu", TOUCH)):
        page = open_file(browser, pages / "heart.html", "#folds", **PHONE)
        assert not page.execute_script(visible)
        assert find_element(page, "#readout").text.startswith("Touch a picture")


def test_a_structure_in_one_mask_alone_is_named_in_strip_and_table(browser, volume, tmp_path):
    """Label -2 is missing in moving in slice 3, which is then not a naked 0; and the header says what was repaired."""
    labels = volume.fixed_labels.copy()
    labels[..., 2][labels[..., 2] == -2] = 0
    pair = replace(volume, moving_labels=labels, warped_labels=labels)
    repair = {
        "folded_percent": 1.5, "changed_percent": 3.0, "mean_move_voxels": 0.1, "max_move_voxels": 0.5,
        "mean_move_mm": 0.2, "max_move_mm": 1.0,
    }  # fmt: skip
    write_report(tmp_path / "page.html", pair, METRICS | {"repair": repair}, [], {})
    page = open_file(browser, tmp_path / "page.html", "#folds")
    told = page.execute_script("return [...document.querySelectorAll('.one-sided')].map((cell) => cell.textContent)")
    assert told == ["only in fixed"] * 2
    assert "1.5 % of the voxels were folded" in find_element(page, "header .repair").text
