"""What one sees first of a tracked cine: contours on the image, its curves beside it, and letters that are known."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.report.browser import find_element, open_file, press
from tests.report.cines import TRACKED, beating_film, without_labels, without_rv
from tests.report.conftest import HOSTILE
from tests.report.test_cine_page import greys
from vrnet.images.grid import Grid
from vrnet.report.cine import look_at, smallest_cavity, write_cine_page
from vrnet.verdict.cine import Extreme


@pytest.fixture(scope="module")
def film():
    return beating_film()


@pytest.fixture(scope="module")
def open_cine(browser, film, tmp_path_factory):
    """Opens a page that stands still: of a heart, of one with a bad slice, of a heart without RV and with a long name,
    or of one 2D slice."""
    folder = tmp_path_factory.mktemp("cines")
    good = replace(TRACKED, verdict={"level": "good", "reasons": [], "try": []})
    write_cine_page(folder / "heart.html", film, good, {"cine": "cine.nii.gz"})
    doubtful = replace(TRACKED, verdict={"level": "failed", "reasons": [], "try": []}, worst=Extreme(1.0, 3, 0))
    write_cine_page(folder / "doubtful.html", film, doubtful, {})
    write_cine_page(folder / "wall.html", without_rv(film), TRACKED, {"cine": HOSTILE})
    bare, grid = without_labels(film), Grid.plain(film.grid.shape[:2], film.grid.spacing[:2])
    flat = replace(bare, frames=bare.frames[..., 1], fields=bare.fields[:, :2, ..., 1], grid=grid)
    write_cine_page(folder / "bare.html", flat, good, {})

    def open_and_wait(name, **screen):
        return open_file(browser, folder / f"{name}.html", "#when", reduced_motion="reduce", **screen)

    return open_and_wait


def test_the_film_starts_with_contours_alone_and_colour_lets_the_muscle_be_seen(open_cine, film):
    page = open_cine("heart")
    assert find_element(page, "#contours").is_selected()
    assert find_element(page, "input[name=wall][value=off]").is_selected()
    assert not find_element(page, "#ramp").is_displayed()
    assert "strain" in page.execute_script("return document.querySelector('[name=wall]').closest('fieldset').innerText")
    press(page, "c")
    plain = greys(page)
    press(page, "s")
    is_wall = film.slices.labels[..., film.slices.main] == film.slices.heart.wall
    at = [((np.arange(n) + 0.5) * size / n).astype(int) for n, size in zip(is_wall.shape, plain.shape, strict=True)]
    before, after = (shown[np.ix_(*at)][is_wall].std() for shown in (plain, greys(page)))
    assert 0.5 < after / before < 0.8  # in the reference all colour is one: what varies is the muscle


@pytest.mark.parametrize("name", ["heart", "wall"])
@pytest.mark.parametrize("screen", [(1400, 1000), (1280, 720)])
def test_the_film_and_its_curves_are_seen_together(open_cine, name, screen):
    page = open_cine(name, width=screen[0], height=screen[1])
    below = "return document.getElementById(arguments[0]).getBoundingClientRect().bottom"
    dock = page.execute_script("return document.querySelector('.dock').getBoundingClientRect().top")
    assert max(page.execute_script(below, each) for each in ("film", "strain", "volumes", "volumes-values")) <= dock
    film = find_element(page, "#film").size
    assert min(film["width"], film["height"]) >= 300
    drawn = "return [...document.querySelectorAll('.chart')].map((c) => c.viewBox.baseVal.width - c.clientWidth)"
    assert page.execute_script(drawn) == [0, 0]


def test_there_are_letters_of_directions_only_where_the_header_says_them(open_cine, film, tmp_path):
    page = open_cine("heart")
    said = "The header does not say how the image lies: anterior and inferior segments may be exchanged."
    assert find_element(page, ".unplaced").text == said
    assert page.find_elements("css selector", ".edge") == []
    assert open_cine("bare").find_elements("css selector", ".edge, .unplaced") == []
    placed = replace(film, grid=replace(film.grid, origin=(-80.0, 10.0, 5.0)))
    write_cine_page(tmp_path / "placed.html", placed, TRACKED, {})
    text = (tmp_path / "placed.html").read_text()
    assert re.findall(r'class="edge (\w+)" aria-hidden="true">(.)', text) == [
        ("left", "R"), ("right", "L"), ("top", "A"), ("bottom", "P")
    ]  # fmt: skip
    assert "how the image lies" not in text


def test_the_verdict_leads_to_where_outlines_are_least_sure(open_cine, film):
    page = open_cine("heart")
    find_element(page, "#look-at").click()
    smallest = int(film.volumes.lv_ml.argmin())
    assert find_element(page, "#when").text.startswith(f"frame {smallest + 1} of {len(film)}")
    assert find_element(page, "#number").text == f"slice {film.slices.main + 1} of {film.slices.depth}"
    bare = open_cine("bare").page_source
    assert "least sure" not in bare
    assert "Without labels the wall, the cavity and the strain are not checked." in bare


def test_the_verdict_leads_to_the_slice_and_the_frame_that_are_worst(open_cine, film):
    page = open_cine("doubtful")
    button = find_element(page, "#look-at")
    assert button.text == "slice 1, frame 4"
    button.click()
    assert find_element(page, "#when").text.startswith(f"frame 4 of {len(film)}")
    assert find_element(page, "#number").text == f"slice 1 of {film.slices.depth}"


def test_on_a_low_screen_the_verdict_brings_the_film_into_view(open_cine):
    page = open_cine("doubtful", width=390, height=300)
    top = "return document.getElementById('film').getBoundingClientRect().top"
    assert page.execute_script(top) > 300
    find_element(page, "#look-at").click()
    assert page.execute_script(top) < 300


def test_of_a_slice_that_is_not_shown_the_verdict_leads_to_the_nearest(film):
    """Of many slices a page shows some."""
    stack = replace(film, **{name: np.repeat(getattr(film, name), 20, -1) for name in ("frames", "fields", "labels")})
    stack = replace(stack, grid=Grid.plain(stack.labels.shape, film.grid.spacing))
    shown = stack.slices.numbers
    assert 31 not in shown or 32 not in shown
    for k in (31, 32):
        found = look_at(stack, replace(TRACKED, worst=Extreme(1.0, 3, k)))
        assert abs(shown[found.place] - k) == min(abs(number - k) for number in shown)
        assert found.text == f"slice {shown[found.place] + 1}, frame 4"


def test_where_something_is_found_the_smallest_cavity_is_not_looked_at(film):
    """Not even where what is found has no frame."""
    for level, frame in (("good", smallest_cavity(film)), ("look", None), ("failed", None)):
        found = look_at(film, replace(TRACKED, verdict={"level": level, "reasons": [], "try": []}))
        assert (found and found.frame) == frame


def test_no_frame_is_least_sure_where_outlines_were_given_or_there_are_none(film):
    smallest = smallest_cavity(film)
    assert smallest == film.volumes.lv_ml.argmin() != film.reference
    assert smallest_cavity(replace(film, reference=smallest)) is None
    assert smallest_cavity(without_labels(film)) is None
    assert smallest_cavity(replace(film, volumes=replace(film.volumes, lv_ml=0 * film.volumes.lv_ml))) is None
