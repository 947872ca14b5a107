"""What a page of a cine says of its controls: one choice of strain, its keys, its speed, and slices without labels."""

from dataclasses import replace

import pytest

from tests.report.browser import find_element, open_file, press, set_range
from tests.report.cines import TRACKED, beating_film, without_labels, without_rv
from vrnet.report.cine import write_cine_page

ESCAPE = "\ue00c"


@pytest.fixture(scope="module")
def film():
    return beating_film()


@pytest.fixture(scope="module")
def open_cine(browser, film, tmp_path_factory):
    """Opens a page that stands still: of a heart, of one without RV and times, without labels, or with a bare slice."""
    folder = tmp_path_factory.mktemp("cines")
    partly = film.labels.copy()
    partly[..., 2] = 0
    films = {
        "heart": film, "untimed": without_rv(film), "bare": without_labels(film), "partly": replace(film, labels=partly)
    }  # fmt: skip
    for name, each in films.items():
        write_cine_page(folder / f"{name}.html", each, TRACKED, {})

    def open_and_wait(name, **screen):
        return open_file(browser, folder / f"{name}.html", "#when", reduced_motion="reduce", **screen)

    return open_and_wait


def choose_measure(page, name):
    from selenium.webdriver.support.ui import Select

    Select(find_element(page, "#measure")).select_by_value(name)


def shown_strain(page):
    """(colour of the wall, measure of the curves, end of the bullseye's colours)."""
    wall = find_element(page, "input[name=wall]:checked").get_attribute("value")
    return wall, find_element(page, "#measure").get_attribute("value"), find_element(page, "#bullseye-high").text


@pytest.mark.parametrize("pressed", ["#on", "#grid", "input[name=wall][value=circumferential]"])
def test_keys_go_on_after_a_click(open_cine, pressed):
    page = open_cine("heart", height=1600)
    find_element(page, pressed).click()
    before = int(find_element(page, "#frame").get_attribute("value"))
    press(page, "\ue014")
    assert int(find_element(page, "#frame").get_attribute("value")) == before + 1
    assert find_element(page, "input[name=wall]:checked").get_attribute("value") != "radial"


def test_the_key_of_strain_changes_wall_curves_and_segments_together(open_cine):
    page = open_cine("heart", height=1600)
    assert shown_strain(page) == ("off", "green_circumferential", "30 %")
    press(page, "s")
    assert shown_strain(page) == ("circumferential", "green_circumferential", "30 %")
    press(page, "s")
    assert shown_strain(page) == ("radial", "green_radial", "120 %")
    assert find_element(page, "#bullseye-title").text == "radial strain (Green), %"
    assert "away from the LV centre" in find_element(page, "#definition").text
    press(page, "s")
    assert shown_strain(page) == ("off", "green_radial", "120 %")


@pytest.mark.parametrize(("measure", "wall", "limit"), [
    ("green_radial", "radial", "120 %"), ("wall_thickness", "radial", "120 %"),
    ("green_radial_middle", "radial", "120 %"), ("midwall_length", "circumferential", "30 %"),
])  # fmt: skip
def test_the_wall_has_the_colours_of_the_measure_that_is_chosen(open_cine, measure, wall, limit):
    page = open_cine("heart", height=1600)
    press(page, "s")
    choose_measure(page, measure)
    assert shown_strain(page) == (wall, measure, limit)
    assert find_element(page, "#high").text == f"+{limit}"


def test_a_measure_leaves_a_wall_without_colours_as_it_is(open_cine):
    page = open_cine("heart", height=1600)
    choose_measure(page, "wall_thickness")
    assert shown_strain(page) == ("off", "wall_thickness", "120 %")
    find_element(page, "input[name=wall][value=radial]").click()
    assert shown_strain(page) == ("radial", "wall_thickness", "120 %"), "it is radial already"
    find_element(page, "input[name=wall][value=circumferential]").click()
    assert shown_strain(page) == ("circumferential", "green_circumferential", "30 %")


@pytest.mark.parametrize("screen", [{}, {"width": 390, "height": 844}])
def test_a_page_names_its_keys_when_it_is_asked(open_cine, screen):
    page = open_cine("heart", **screen)
    keys, button = find_element(page, "#keys"), find_element(page, "#help")
    assert not keys.is_displayed()
    button.click()
    named = {each.text for each in page.find_elements("css selector", "#keys kbd")}
    assert named == {"space", "←", "→", "K", "J", "V", "C", "G", "S", "?", "Esc"}
    assert keys.rect["x"] >= 0
    assert keys.rect["x"] + keys.rect["width"] <= page.execute_script("return innerWidth")
    assert button.get_attribute("aria-expanded") == "true"
    press(page, ESCAPE)
    assert not keys.is_displayed()
    press(page, "?")
    assert keys.is_displayed()
    find_element(page, "#film").click()
    assert not keys.is_displayed()
    assert button.get_attribute("aria-expanded") == "false"


def test_keys_are_named_that_do_something(open_cine):
    page = open_cine("bare")
    press(page, "?")
    named = {each.text for each in page.find_elements("css selector", "#keys kbd")}
    assert named == {"space", "←", "→", "K", "J", "V", "G", "?", "Esc"}


def test_the_speed_says_what_it_is_a_multiple_of(open_cine, film):
    seconds = film.times_ms[1] * len(film) / 1000
    page = open_cine("heart")
    assert find_element(page, "#pace").text == f"real time, {seconds:.2g} s per cycle"
    assert find_element(page, "#speed").get_attribute("title").startswith("1× is real time")
    press(page, "v")
    assert find_element(page, "#pace").text == f"{2 * seconds:.2g} s per cycle"
    page = open_cine("untimed")
    assert find_element(page, "#pace").text == "1 s per cycle, assumed"
    said = "The times of frames are not known: 1× assumes a cycle of 1 s."
    assert find_element(page, "#speed").get_attribute("title") == said


def test_a_slice_without_labels_says_so(open_cine):
    page = open_cine("partly")
    notice = find_element(page, "#unlabelled")
    set_range(page, "slice", 1)
    assert not notice.is_displayed()
    set_range(page, "slice", 2)
    assert notice.text == "No labels in this slice"
    press(page, "s")
    assert not find_element(page, "#absent").is_displayed(), "there is no wall that could be open"
    assert open_cine("bare").find_elements("css selector", "#unlabelled") == []
