"""What the controls of the page do."""

import re

import numpy as np
from numpy.testing import assert_allclose

from tests.report.browser import expected_greys, find_element, panel_colours, press, set_range, show_only


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


def test_keys_in_a_control_belong_to_the_control(open_page):
    from selenium.webdriver import Keys

    page = open_page("volume")
    before = find_element(page, "#number").text
    page.execute_script("document.getElementById('fade').focus()")
    press(page, Keys.ARROW_RIGHT)
    assert find_element(page, "#fade").get_attribute("value") == "51"
    assert find_element(page, "#number").text == before
    page.execute_script("document.getElementById('outlines').focus()")
    press(page, " ")
    assert not find_element(page, "#outlines").is_selected()
    assert find_element(page, "#flicker").get_attribute("aria-pressed") == "false"


def test_outlines_of_very_many_structures_are_drawn_when_asked_for(open_page):
    """45 of them would cover the picture: without them it is all grey."""
    coloured = """const c = document.getElementById("main");
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    return d.some((value, i) => i % 4 === 0 && value !== d[i + 1])"""
    assert open_page("heart").execute_script(coloured)
    page = open_page("single")
    assert not page.execute_script(coloured)
    find_element(page, "#outlines").click()
    assert page.execute_script(coloured)


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


def test_where_a_reader_wants_less_motion_nothing_moves_by_itself(open_page):
    page = open_page("heart", reduced_motion="reduce")
    for expected in ("100", "0", "100"):
        find_element(page, "#flicker").click()
        assert find_element(page, "#fade").get_attribute("value") == expected
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
