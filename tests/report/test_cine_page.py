"""The page of a cine in a browser: it plays, follows what is asked, and runs nothing that it was given."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.report.browser import find_element, open_file, press, set_range
from tests.report.cines import SHAPE, TRACKED, beating_film, wall_alone, without_labels, without_rv
from tests.report.conftest import HOSTILE, SCRIPT
from vrnet.images.grid import Grid
from vrnet.report.cine import Film, write_cine_page

PAGES = ["heart", "wall", "bare"]
READ_CAPTIONS = "return [...document.querySelectorAll('#printed-frames figcaption')].map(words => words.textContent)"
QUOTES = "\"'\n</script><script>document.title = 'run'</script>`${alert(1)}"


@pytest.fixture(scope="module")
def film():
    return beating_film()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, film):
    folder = tmp_path_factory.mktemp("cines")
    write_cine_page(folder / "heart.html", film, TRACKED, {"cine": "a/cine.nii.gz", "method": "TV-L1"})
    write_cine_page(
        folder / "wall.html", without_rv(film), TRACKED, {"cine": HOSTILE, "method": QUOTES, QUOTES: SCRIPT}
    )
    write_cine_page(folder / "ring.html", wall_alone(film), TRACKED, {})
    flat = without_labels(film)
    flat = replace(
        flat, frames=flat.frames[..., 1], fields=flat.fields[:, :2, ..., 1], grid=Grid.plain(SHAPE[:2], (2.4, 2.4))
    )
    write_cine_page(folder / "bare.html", flat, TRACKED, {})
    return folder


@pytest.fixture
def open_cine(browser, pages):
    """Opens a page that stands still, as for those who want less motion."""

    def open_and_wait(name, reduced_motion="reduce", **screen):
        return open_file(browser, pages / f"{name}.html", "#when", reduced_motion=reduced_motion, **screen)

    return open_and_wait


def test_a_cine_that_failed_says_so_in_title_and_header(film, tmp_path):
    verdict = {"level": "failed", "reasons": [f"Points end far off {SCRIPT}"], "try": ["--method TV-L1"]}
    write_cine_page(tmp_path / "bad.html", film, replace(TRACKED, verdict=verdict), {"cine": "c", "method": "m"})
    text = (tmp_path / "bad.html").read_text()
    assert "<title>✗ Failed: m: c</title>" in text
    assert '<section class="verdict failed"' in text
    assert "Points end far off &lt;script&gt;" in text
    assert SCRIPT not in text.split("</header>")[0]


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


@pytest.mark.parametrize("name", PAGES)
def test_the_page_opens_from_disk_without_errors_or_network(open_cine, pages, name):
    page = open_cine(name)
    for key in ("g", "s", "s", "s", "c", "v", "j", "k", " ", " "):
        press(page, key)
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(address.startswith("data:") for address in loaded)
    text = (pages / f"{name}.html").read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:src|href)=.(?:https?:)?//", text)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(open_cine, name):
    page = open_cine(name, width=360, height=740)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
    script = """return [...document.querySelectorAll('main *, .dock *')].filter((e) => !e.closest('.scroll, svg'))
    .filter((e) => e.getBoundingClientRect().right > 360).map((e) => e.outerHTML)"""
    assert page.execute_script(script) == []


def test_a_dark_screen_gets_a_dark_page(open_cine):
    script = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert sum(open_cine("heart", color_scheme="light").execute_script(script)) > 3 * 200
    assert sum(open_cine("heart", color_scheme="dark").execute_script(script)) < 3 * 60


def test_names_are_text_and_never_run(open_cine):
    page = open_cine("wall")
    assert find_element(page, "h1").text == HOSTILE
    assert page.title.startswith("\"' </script><script>document.title")
    assert SCRIPT in find_element(page, ".run").text
    assert page.find_elements("css selector", "h1 *, .method *, .run dd *:not(wbr), .run dt *, .definitions b") == []
    assert page.execute_script("return document.scripts.length") == 3


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


def test_a_slower_film_takes_longer(open_cine):
    """A tenth of the speed shows a tenth of the frames in the same time, to within two."""
    page = open_cine("heart")
    count = """const done = arguments[1], [speed, when] = ["speed", "when"].map((id) => document.getElementById(id));
    speed.value = arguments[0];
    let frames = 0;
    const look = new MutationObserver(() => frames++);
    look.observe(when, {childList: true, subtree: true, characterData: true});
    document.getElementById("play").click();
    setTimeout(() => { document.getElementById("play").click(); look.disconnect(); done(frames); }, 1200)"""
    fast, slow = (page.execute_async_script(count, speed) for speed in ("1", "0.1"))
    assert slow <= fast / 10 + 2
    assert fast >= 4


def test_keys_and_the_slider_step_and_the_cycle_closes(open_cine, film):
    from selenium.webdriver.common.keys import Keys

    page = open_cine("heart")
    press(page, Keys.ARROW_LEFT)
    assert frame_of(page) == len(film) - 1
    press(page, Keys.ARROW_RIGHT)
    assert frame_of(page) == 0
    set_range(page, "frame", 3)
    assert find_element(page, "#when").text == f"frame 4 of {len(film)} · {film.times_ms[3]:.0f} ms"


@pytest.mark.parametrize("t", [0, 2, 4])
def test_the_film_shows_the_frame_that_is_asked_for(open_cine, film, t):
    page = open_cine("heart")
    press(page, "c")  # neither contours nor, as at first, strain
    set_range(page, "frame", t)
    shown = greys(page)
    frames = film.slices.frames[..., film.slices.main]
    low, high = np.percentile(film.slices.frames, (0.5, 99.5))
    at = [((np.arange(n) + 0.5) * size / n).astype(int) for n, size in zip(frames.shape[1:], shown.shape, strict=True)]
    expected = (255 * (frames - low) / (high - low)).clip(0, 255)
    errors = np.abs(shown[np.ix_(*at)] - expected).mean((1, 2))
    assert errors[t] < 4
    assert errors.argmin() == t


def test_what_is_drawn_over_the_film_can_be_chosen(open_cine):
    page = open_cine("heart")
    set_range(page, "frame", 2)
    everything = greys(page)
    changes = []
    for key in ("c", "s", "s", "g"):
        before = greys(page)
        press(page, key)
        changes.append(np.abs(greys(page) - before).mean())
    assert min(changes) > 0.2
    press(page, "g")
    press(page, "s")
    press(page, "c")
    assert (greys(page) == everything).all()


def test_a_wall_without_strain_has_a_colour_and_the_legend_says_so(open_cine, film):
    """In the reference, where all strain is 0: without contours, colours are those of the wall. Where it is not
    coloured, there is no legend of its colours."""
    page = open_cine("heart")
    assert frame_of(page) == film.reference
    press(page, "s")
    assert f"0, as everywhere in frame {film.reference + 1}" in find_element(page, "#no-strain").text
    press(page, "c")
    count = """const c = document.getElementById("film");
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    let n = 0;
    for (let i = 0; i < d.length; i += 4) n += Math.abs(d[i] - d[i + 2]) > 20;  // red and blue of a grey are equal
    return n / (c.width * c.height)"""
    wall = (film.slices.labels[..., film.slices.main] == film.slices.heart.wall).mean()
    assert page.execute_script(count) == pytest.approx(wall, rel=0.2)
    press(page, "s")
    press(page, "s")
    assert page.execute_script(count) == 0
    assert not find_element(page, "#ramp").is_displayed()


def test_dragging_over_a_chart_moves_the_film(open_cine, film):
    from selenium.webdriver import ActionChains

    page = open_cine("heart", height=1600)
    for chart in ("#strain", "#volumes"):
        svg = find_element(page, chart)
        wide = svg.size["width"]
        ActionChains(page).move_to_element(svg).click_and_hold().move_by_offset(wide // 2 - 12, 0).release().perform()
        assert frame_of(page) == len(film) - 1
        ActionChains(page).move_to_element(svg).click_and_hold().move_by_offset(45 - wide // 2, 0).release().perform()
        assert frame_of(page) == 0
        cursor = page.execute_script(f"return document.querySelector('{chart} .cursor').getAttribute('x1')")
        assert float(cursor) == 42


def test_the_values_at_the_cursor_are_those_that_were_measured(open_cine, film):
    page = open_cine("heart")
    set_range(page, "frame", 2)
    value = film.strain.curve("green_circumferential")[2]
    assert f"global {value:.1f}".replace("-", "−") in find_element(page, "#strain-values").text
    assert f"LV {film.volumes.lv_ml[2]:.1f} ml" in re.sub(r" +", " ", find_element(page, "#volumes-values").text)


def test_a_segment_that_is_chosen_shows_its_curve(open_cine, film):
    page = open_cine("heart", height=1600)
    set_range(page, "frame", 2)
    assert page.find_elements("css selector", "#strain .chosen") == []
    sector = find_element(page, '[data-region="segment 9"]')
    sector.send_keys("\n")
    value = f"{film.strain.curve('green_circumferential', 'segment 9')[2]:.1f}".replace("-", "−")
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


def test_without_an_rv_there_is_no_bullseye_and_the_page_says_why(open_cine):
    page = open_cine("wall")
    assert page.find_elements("css selector", "#bullseye") == []
    assert "Segments are not known" in find_element(page, ".tables").text


def test_paper_has_a_row_of_frames_with_the_smallest_ventricle_and_the_screen_stays_where_it_was(open_cine, film):
    page = open_cine("heart")
    smallest = int(np.argmin(film.volumes.lv_ml))
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert frame_of(page) == smallest
    first, *_, last = page.execute_script(READ_CAPTIONS)[:3]
    assert first == f"frame {film.reference + 1} of {len(film.frames)}, reference"
    assert last == f"frame {smallest + 1} of {len(film.frames)}, smallest LV"
    painted = "return [...document.querySelectorAll('#printed-frames canvas')].map(c => c.toDataURL())"
    pictures = page.execute_script(painted)
    assert len(set(pictures)) == len(pictures) >= 3
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert frame_of(page) == film.reference


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


def test_another_measure_is_drawn_with_its_definition(open_cine, film):
    from selenium.webdriver.support.ui import Select

    page = open_cine("heart")
    Select(find_element(page, "#measure")).select_by_value("wall_thickness")
    set_range(page, "frame", 2)
    assert "thickness T" in find_element(page, "#definition").text
    assert f"global {film.strain.curve('wall_thickness')[2]:.1f}" in find_element(page, "#strain-values").text


def test_numbers_are_in_the_page_with_what_they_mean(open_cine, film):
    page = open_cine("heart")
    header = find_element(page, "header").text
    assert f"{film.volumes.lv_ejection_fraction_percent:.1f} %" in header
    assert f"{film.strain.peak('green_radial').percent:.1f} %" in header
    assert "0.34 mm" in header
    definitions = find_element(page, ".definitions").text
    assert "Lagrangian Green strain E = ½ (FᵀF − I), F = I + ∇u in mm" in definitions
    assert "_" not in definitions, "people read no names of columns"
    assert "how far <b>round</b>" in definitions


def test_a_page_of_ten_slices_and_thirty_frames_is_below_15_mb(tmp_path):
    """Noise, which nothing compresses, and no labels, so that nothing is cut away."""
    shape = (160, 160, 10)
    frames = np.random.default_rng(0).uniform(0, 1, (30, *shape)).astype(np.float32)
    film = Film(frames, np.zeros((30, 3, *shape), np.float32), Grid.plain(shape, (1.4, 1.4, 8.0)))
    write_cine_page(tmp_path / "report.html", film, TRACKED, {})
    assert (tmp_path / "report.html").stat().st_size < 15e6
