"""The page of a cine in a browser: it plays, follows what is asked, and runs nothing that it was given."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.cardiac.cines import with_labels_of
from tests.report.browser import find_element, open_file, press, set_range
from tests.report.conftest import HOSTILE, SCRIPT
from tests.report.test_cine import film, heart, judged, one_slice  # noqa: F401
from vrnet.report.cine import Film, write_page
from vrnet.verdict.cine import Extreme

pytestmark = pytest.mark.release

ESCAPE, LEFT, RIGHT = "\ue00c", "\ue012", "\ue014"
READ_CAPTIONS = "return [...document.querySelectorAll('#printed-frames figcaption')].map(words => words.textContent)"
QUOTES = "\"'\n</script><script>document.title = 'run'</script>`${alert(1)}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory, heart):  # noqa: F811
    """Pages of a heart; of one whose first slice is worst; without RV and times, with bad names; of the wall alone;
    with a slice without labels; and of one slice without any."""
    folder, hostile = tmp_path_factory.mktemp("cines"), with_labels_of(heart, 2, 3)
    hostile = replace(hostile, cine=replace(heart.cine, name=HOSTILE, times_ms=None), method=QUOTES, refined_by=SCRIPT)
    partly = heart.reference_labels.array.copy()
    partly[..., 2] = 0
    shown = {
        "heart": judged(heart),
        "doubtful": judged(heart, "failed", Extreme(1.0, 3, 0)),
        "wall": judged(hostile),
        "ring": with_labels_of(heart, 2),
        "partly": replace(heart, reference_labels=heart.reference_labels.with_array(partly)),
        "bare": judged(one_slice(heart)),
    }
    for name, result in shown.items():
        write_page(Film.of(result), folder / f"{name}.html")
    return folder


@pytest.fixture
def open_cine(browser, pages):
    """Opens a page that stands still, as for those who want less motion."""

    def open_and_wait(name, reduced_motion="reduce", **screen):
        return open_file(browser, pages / f"{name}.html", "#when", reduced_motion=reduced_motion, **screen)

    return open_and_wait


def frame_of(page):
    """The frame that is shown, counted from 0 as in arrays; the page counts from 1."""
    return int(re.match(r"frame (\d+) of", find_element(page, "#when").text)[1]) - 1


def greys(page):
    """The film as it is shown, in grey."""
    script = """const c = document.getElementById("film"), pen = c.getContext("2d");
    const d = pen.getImageData(0, 0, c.width, c.height).data;
    return [c.width, c.height, [...d].filter((_, i) => i % 4 === 1)]"""
    width, height, values = page.execute_script(script)
    return np.reshape(values, (height, width)).T


def at_voxels(picture, shape):
    """A picture where the middles of voxels are."""
    at = [((np.arange(n) + 0.5) * size / n).astype(int) for n, size in zip(shape, picture.shape, strict=True)]
    return picture[np.ix_(*at)]


@pytest.mark.parametrize("name", ["heart", "bare"])
def test_the_page_opens_from_disk_without_errors_or_network_and_fits_a_phone(open_cine, pages, name):
    page = open_cine(name)
    for key in ("g", "s", "s", "s", "c", "v", "j", "k", " ", " "):
        press(page, key)
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(address.startswith("data:") for address in loaded)
    text = (pages / f"{name}.html").read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:src|href)=.(?:https?:)?//", text)
    page = open_cine(name, width=360, height=740)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
    script = """return [...document.querySelectorAll('main *, .dock *')].filter((e) => !e.closest('.scroll, svg'))
    .filter((e) => e.getBoundingClientRect().right > 360).map((e) => e.outerHTML)"""
    assert page.execute_script(script) == []


def test_names_are_text_and_never_run(open_cine):
    page = open_cine("wall")
    assert find_element(page, "h1").text == HOSTILE
    assert page.title.startswith("\"' </script><script>document.title")
    assert SCRIPT in find_element(page, ".run").text
    assert page.find_elements("css selector", "h1 *, .method *, .run dd *:not(wbr), .run dt *, .definitions b") == []
    assert page.execute_script("return document.scripts.length") == 3


# Playing.


def test_it_plays_unless_less_motion_is_wanted_and_stops(open_cine):
    from selenium.webdriver.support.ui import WebDriverWait

    page = open_cine("heart", reduced_motion="no-preference")
    assert find_element(page, "#play").text == "Stop"
    seen = set()
    WebDriverWait(page, 10, 0.05).until(lambda _: seen.add(frame_of(page)) or len(seen) > 3)
    press(page, " ")
    assert find_element(page, "#play").text == "Play"
    stopped = frame_of(page)
    page.execute_async_script("setTimeout(arguments[0], 400)")
    assert frame_of(page) == stopped
    assert find_element(open_cine("heart"), "#play").text == "Play"


def test_the_speed_says_what_it_is_a_multiple_of(open_cine, heart):  # noqa: F811
    seconds = heart.cine.times_ms[1] * 6 / 1000
    page = open_cine("heart")
    assert find_element(page, "#pace").text == f"real time, {seconds:.2g} s per cycle"
    assert find_element(page, "#speed").get_attribute("title").startswith("1× is real time")
    press(page, "v")
    assert find_element(page, "#pace").text == f"{2 * seconds:.2g} s per cycle"
    page = open_cine("wall")
    assert find_element(page, "#pace").text == "1 s per cycle, assumed"
    said = "The times of frames are not known: 1× assumes a cycle of 1 s."
    assert find_element(page, "#speed").get_attribute("title") == said


def test_keys_and_the_slider_step_and_the_cycle_closes(open_cine, heart):  # noqa: F811
    page = open_cine("heart")
    press(page, LEFT)
    assert frame_of(page) == 5
    press(page, RIGHT)
    assert frame_of(page) == 0
    set_range(page, "frame", 3)
    assert find_element(page, "#when").text == f"frame 4 of 6 · {heart.cine.times_ms[3]:.0f} ms"


@pytest.mark.parametrize("pressed", ["#on", "input[name=wall][value=circumferential]"])
def test_keys_go_on_after_a_click(open_cine, pressed):
    page = open_cine("heart", height=1600)
    find_element(page, pressed).click()
    before = frame_of(page)
    press(page, RIGHT)
    assert frame_of(page) == before + 1
    assert find_element(page, "input[name=wall]:checked").get_attribute("value") != "radial"


# What is drawn over the film.


def test_the_film_shows_the_frame_that_is_asked_for(open_cine, film):  # noqa: F811
    t, page = 4, open_cine("heart")
    press(page, "c")  # neither contours nor, as at first, strain
    set_range(page, "frame", t)
    frames = film.frames[..., film.main]
    low, high = np.percentile(film.frames, (0.5, 99.5))
    expected = (255 * (frames - low) / (high - low)).clip(0, 255)
    errors = np.abs(at_voxels(greys(page), frames.shape[1:]) - expected).mean((1, 2))
    assert errors[t] < 4
    assert errors.argmin() == t


def test_the_film_starts_with_contours_alone_and_colour_lets_the_muscle_be_seen(open_cine, film):  # noqa: F811
    page = open_cine("heart")
    assert find_element(page, "#contours").is_selected()
    assert find_element(page, "input[name=wall][value=off]").is_selected()
    assert not find_element(page, "#ramp").is_displayed()
    assert "strain" in page.execute_script("return document.querySelector('[name=wall]').closest('fieldset').innerText")
    press(page, "c")
    plain = greys(page)
    press(page, "s")
    assert "0, as everywhere in frame 1" in find_element(page, "#no-strain").text
    is_wall = film.labels[..., film.main] == film.heart.wall
    before, after = (at_voxels(shown, is_wall.shape)[is_wall].std() for shown in (plain, greys(page)))
    assert 0.5 < after / before < 0.8  # in the reference all colour is one: what varies is the muscle
    count = """const c = document.getElementById("film");
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    let n = 0;
    for (let i = 0; i < d.length; i += 4) n += Math.abs(d[i] - d[i + 2]) > 20;  // red and blue of a grey are equal
    return n / (c.width * c.height)"""
    assert page.execute_script(count) == pytest.approx(is_wall.mean(), rel=0.2)
    press(page, "s")
    press(page, "s")
    assert page.execute_script(count) == 0
    assert not find_element(page, "#ramp").is_displayed()


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


# Curves and segments.


@pytest.mark.parametrize(("name", "screen"), [("heart", (1400, 1000)), ("wall", (1280, 720))])
def test_the_film_and_its_curves_are_seen_together(open_cine, name, screen):
    page = open_cine(name, width=screen[0], height=screen[1])
    below = "return document.getElementById(arguments[0]).getBoundingClientRect().bottom"
    dock = page.execute_script("return document.querySelector('.dock').getBoundingClientRect().top")
    assert max(page.execute_script(below, each) for each in ("film", "strain", "volumes", "volumes-values")) <= dock
    size = find_element(page, "#film").size
    assert min(size["width"], size["height"]) >= 300
    drawn = "return [...document.querySelectorAll('.chart')].map((c) => c.viewBox.baseVal.width - c.clientWidth)"
    assert page.execute_script(drawn) == [0, 0]


def test_dragging_over_a_chart_moves_the_film(open_cine):
    from selenium.webdriver import ActionChains

    page = open_cine("heart", height=1600)
    for chart in ("#strain", "#volumes"):
        svg = find_element(page, chart)
        wide = svg.size["width"]
        ActionChains(page).move_to_element(svg).click_and_hold().move_by_offset(wide // 2 - 12, 0).release().perform()
        assert frame_of(page) == 5
        ActionChains(page).move_to_element(svg).click_and_hold().move_by_offset(45 - wide // 2, 0).release().perform()
        assert frame_of(page) == 0
        cursor = page.execute_script(f"return document.querySelector('{chart} .cursor').getAttribute('x1')")
        assert float(cursor) == 42


def test_the_values_at_the_cursor_and_in_the_header_are_those_that_were_measured(open_cine, heart):  # noqa: F811
    from selenium.webdriver.support.ui import Select

    page = open_cine("heart")
    set_range(page, "frame", 2)
    value = heart.strain.curve("green_circumferential")[2]
    assert f"global {value:.1f}".replace("-", "−") in find_element(page, "#strain-values").text
    assert f"LV {heart.volumes.lv_ml[2]:.1f} ml" in re.sub(r" +", " ", find_element(page, "#volumes-values").text)
    header = find_element(page, "header").text
    assert f"{heart.volumes.lv_ejection_fraction_percent:.1f} %" in header
    assert f"{heart.strain.peak('wall_thickness').percent:.1f} %" in header
    definitions = find_element(page, ".definitions").text
    assert "Lagrangian Green strain E = ½ (FᵀF − I), F = I + ∇u in mm" in definitions
    assert "_" not in definitions, "people read no names of columns"
    Select(find_element(page, "#measure")).select_by_value("wall_thickness")
    assert "thickness T" in find_element(page, "#definition").text
    assert f"global {heart.strain.curve('wall_thickness')[2]:.1f}" in find_element(page, "#strain-values").text


def test_a_segment_that_is_chosen_shows_its_curve(open_cine, heart):  # noqa: F811
    page = open_cine("heart", height=1600)
    set_range(page, "frame", 2)
    assert page.find_elements("css selector", "#strain .chosen") == []
    sector = find_element(page, '[data-region="segment 9"]')
    sector.send_keys("\n")
    value = f"{heart.strain.curve('green_circumferential', 'segment 9')[2]:.1f}".replace("-", "−")
    assert f"segment 9 {value}" in find_element(page, "#strain-values").text
    assert sector.get_attribute("aria-pressed") == "true"
    assert find_element(page, "#segment").text == f"9, mid inferoseptal: {value} %"
    assert len(page.find_elements("css selector", "#strain .chosen")) == 1


def test_levels_are_drawn_over_the_global_curve_and_the_bullseye_says_what_and_where(open_cine):
    page = open_cine("heart")
    classes = page.execute_script(
        "return [...document.querySelectorAll('#strain polyline')].map((line) => line.classList[1])"
    )
    assert [name for name in classes if name != "faint"] == ["main", "basal", "mid", "apical"]
    sides = page.find_elements("css selector", "#bullseye .side")
    assert min(sides, key=lambda side: side.rect["y"]).text == "anterior"
    assert find_element(page, "#bullseye-title").text == "circumferential strain (Green), %"
    page = open_cine("wall")
    assert page.find_elements("css selector", "#bullseye") == []
    assert "Segments are not known" in find_element(page, ".tables").text


def shown_strain(page):
    """(colour of the wall, measure of the curves, end of the bullseye's colours)."""
    wall = find_element(page, "input[name=wall]:checked").get_attribute("value")
    return wall, find_element(page, "#measure").get_attribute("value"), find_element(page, "#bullseye-high").text


def test_wall_curves_and_segments_show_one_direction_of_strain(open_cine):
    """By the key, by the choice of a measure, and by that of a colour."""
    from selenium.webdriver.support.ui import Select

    page = open_cine("heart", height=1600)
    circumferential, radial = ("green_circumferential", "30 %"), ("green_radial", "120 %")
    assert shown_strain(page) == ("off", *circumferential)
    Select(find_element(page, "#measure")).select_by_value("wall_thickness")
    assert shown_strain(page) == ("off", "wall_thickness", "120 %")
    find_element(page, "input[name=wall][value=radial]").click()
    assert shown_strain(page) == ("radial", "wall_thickness", "120 %"), "it is radial already"
    find_element(page, "input[name=wall][value=circumferential]").click()
    assert shown_strain(page) == ("circumferential", *circumferential)
    press(page, "s")
    assert shown_strain(page) == ("radial", *radial)
    assert find_element(page, "#bullseye-title").text == "radial strain (Green), %"
    assert "away from the LV centre" in find_element(page, "#definition").text
    Select(find_element(page, "#measure")).select_by_value("midwall_length")
    assert shown_strain(page) == ("circumferential", "midwall_length", "30 %")
    assert find_element(page, "#high").text == "+30 %"


# The keys, the verdict, and paper.


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
    press(page, ESCAPE)
    assert not keys.is_displayed()
    press(page, "?")
    assert keys.is_displayed()
    find_element(page, "h1").click()
    assert not keys.is_displayed()
    assert button.get_attribute("aria-expanded") == "false"
    page = open_cine("bare")
    press(page, "?")
    named = {each.text for each in page.find_elements("css selector", "#keys kbd")}
    assert named == {"space", "←", "→", "V", "G", "?", "Esc"}, "one slice, without labels"


def test_the_verdict_leads_to_what_is_worst_or_least_sure(open_cine, heart, film):  # noqa: F811
    page = open_cine("heart")
    find_element(page, "#look-at").click()
    assert frame_of(page) == heart.volumes.lv_ml.argmin()
    assert find_element(page, "#number").text == f"slice {film.main + 1} of 3"
    page = open_cine("doubtful", width=390, height=300)
    top = "return document.getElementById('film').getBoundingClientRect().top"
    assert page.execute_script(top) > 300
    button = find_element(page, "#look-at")
    assert button.text == "slice 1, frame 4"
    button.click()
    assert page.execute_script(top) < 300
    assert (frame_of(page), find_element(page, "#number").text) == (3, "slice 1 of 3")


def test_paper_has_a_row_of_frames_with_the_smallest_ventricle_and_the_screen_stays_where_it_was(open_cine, heart):  # noqa: F811
    page = open_cine("heart")
    smallest = int(np.argmin(heart.volumes.lv_ml))
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert frame_of(page) == smallest
    first, *_, last = page.execute_script(READ_CAPTIONS)[:3]
    assert first == "frame 1 of 6, reference"
    assert last == f"frame {smallest + 1} of 6, smallest LV"
    painted = "return [...document.querySelectorAll('#printed-frames canvas')].map(c => c.toDataURL())"
    pictures = page.execute_script(painted)
    assert len(set(pictures)) == len(pictures) >= 3
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert frame_of(page) == 0


@pytest.mark.parametrize(("name", "has_curves"), [("ring", True), ("bare", False)])
def test_paper_tells_no_ventricle_that_is_not_labelled_and_no_curves_that_are_not_there(open_cine, name, has_curves):
    page = open_cine(name)
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert all(re.fullmatch(r"frame \d+ of 6", words) for words in page.execute_script(READ_CAPTIONS)[1:])
    words = page.execute_script("return document.getElementById('printed-words').textContent")
    assert ("Values beside the curves" in words) == has_curves


@pytest.mark.parametrize(("reduced_motion", "words"), [("no-preference", "Stop"), ("reduce", "Play")])
def test_a_film_that_was_playing_plays_on_after_it_was_printed(open_cine, reduced_motion, words):
    page = open_cine("heart", reduced_motion=reduced_motion)
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert find_element(page, "#play").text == "Play"
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert find_element(page, "#play").text == words
