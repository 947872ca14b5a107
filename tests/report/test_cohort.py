"""The page of a cohort: all subjects in its data, few in the page, the most suspicious first."""

import numpy as np
import pytest

from tests.report.browser import find_element, set_screen
from tests.report.conftest import SCRIPT
from vrnet.cohort.results import Result
from vrnet.report.cohort import Links, index_data, write_index

COLUMNS = ["subject", "status", "verdict", "suspicion", "dice_after", "group", "reason"]
COUNT = 5000


def row(k):
    verdict = "failed" if k % 100 == 7 else "good"
    suspicion = 200.0 if verdict == "failed" else k / COUNT
    return dict(zip(COLUMNS, (f"s{k:04d}", "done", verdict, suspicion, k / COUNT, "ab"[k % 2], ""), strict=True))


ROWS = [*map(row, range(COUNT)), {"subject": "broken", "status": "failed", "suspicion": 300.0, "reason": SCRIPT}]
SUMMARY = {"subjects": len(ROWS), "failures": {SCRIPT: 1}, "recipe": {"method": SCRIPT, "vrnet": "0.2.0"}}
LINKS = Links("subjects", "report.html", "thumbnail.png")
pytestmark = pytest.mark.release


@pytest.fixture
def page(browser, tmp_path):
    write_index(tmp_path / "index.html", index_data(COLUMNS, ROWS, ["group"], LINKS), SUMMARY)
    browser.get_log("browser")
    set_screen(browser)
    browser.get((tmp_path / "index.html").as_uri())
    return browser


def shown(page):
    """The names of the subjects whose rows are in the page."""
    script = "return [...document.querySelectorAll('.row')].map(row => row.children[1].textContent)"
    return page.execute_script(script)


def test_few_rows_are_in_the_page_and_scrolling_brings_the_others(page):
    assert shown(page)[0] == "broken"
    assert shown(page)[1] == "s0007"
    assert len(shown(page)) < 100
    page.execute_script("document.getElementById('table').scrollTop = 1e9")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert shown(page)[-1] == "s0000"
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_click_sorts_and_words_find(page):
    page.execute_script("document.querySelectorAll('#head .cell')[1].click()")
    assert shown(page)[:2] == ["broken", "s0000"]
    page.execute_script(
        "const e = document.getElementById('find'); e.value = 'S0123'; e.dispatchEvent(new Event('input'))"
    )
    assert shown(page) == ["s0123"]
    page.execute_script("document.getElementById('clear').click()")
    assert find_element(page, "#shown").text.startswith("5,001 of 5,001")


def test_a_count_shows_only_its_subjects(page):
    counts = [button.text for button in page.find_elements("css selector", "#counts button")]
    assert counts == ["1 could not be done", "50 verdict failed", "4,950 good"]
    page.find_elements("css selector", "#counts button")[1].click()
    assert find_element(page, "#shown").text.startswith("50 of 5,001")


def test_what_was_looked_at_is_remembered_until_it_is_done_again(page, tmp_path):
    """And only of the subject that was: marks of the others stay."""
    page.execute_script("localStorage.clear()")
    for place in (1, 2):
        page.execute_script("document.querySelectorAll('.row')[arguments[0]].querySelector('button').click()", place)
    pressed = "return [...document.querySelectorAll('.row')].map(row => !!row.querySelector('[aria-pressed=true]'))"
    results = [Result("", has_page=False) if row["subject"] == "broken" else Result() for row in ROWS]
    for again, expected in ((None, [False, True, True]), (7, [False, False, True])):
        if again is not None:
            results[again] = Result("redone")
        write_index(tmp_path / "index.html", index_data(COLUMNS, ROWS, ["group"], LINKS, results=results), SUMMARY)
        page.refresh()
        assert page.execute_script(pressed)[:3] == expected


def test_links_lead_to_the_page_of_a_subject_or_to_its_numbers_and_to_the_traceback_of_an_error(page, tmp_path):
    script = "return [...document.querySelectorAll('.row a')].map(a => a.getAttribute('href'))"
    assert page.execute_script(script)[:2] == ["failures/broken.txt", "subjects/s0007/report.html"]
    results = [Result("", has_page=k != 7) for k in range(len(ROWS))]
    write_index(tmp_path / "index.html", index_data(COLUMNS, ROWS, ["group"], LINKS, results=results), SUMMARY)
    page.refresh()
    links = page.execute_script(script)
    assert links[1:3] == ["subjects/s0007/metrics.json", "subjects/s0107/report.html"]


def test_the_whole_reason_is_told_of_the_subject_in_focus(page):
    """Also of one that is not done, and has no picture; one that is good has no reason."""
    focus = "document.querySelectorAll('.row')[arguments[0]].querySelector('.marks button').focus()"
    page.execute_script(focus, 0)
    assert find_element(page, "#preview").text == f"broken\n{SCRIPT}"
    page.execute_script(focus, 1)
    assert not find_element(page, "#preview").is_displayed()


def test_names_and_reasons_are_shown_and_never_run(page):
    assert SCRIPT in find_element(page, "header").text
    assert page.execute_script("return document.querySelectorAll('script').length") == 1


def test_numbers_are_brief_and_groups_are_columns_of_few_values():
    data = index_data(COLUMNS, [*ROWS, row(0) | {"dice_after": 0.123456789}], ["group"], LINKS)
    assert data["values"]["dice_after"].pop() == 0.12346
    assert data["groups"] == ["group"]
    assert data["values"]["dice_after"][-1] is None


def test_headings_are_words_with_units_and_the_name_of_the_column_is_their_tooltip(page):
    script = "return [...document.querySelectorAll('#head .cell')].map(cell => [cell.textContent, cell.title])"
    heads = page.execute_script(script)
    assert ["Dice after", "dice_after: click to sort"] in heads
    assert ["Group", "group: click to sort"] in heads
    titles = page.execute_script("return [...document.querySelectorAll('#plots b')].map(b => [b.textContent, b.title])")
    assert titles == [["Dice after", "dice_after"]]


def test_columns_of_the_list_keep_their_names_but_for_a_capital_and_empty_columns_are_left_out():
    rows = [{"subject": "a", "status": "done", "seconds": 1.0, "mass_g": 3.0, "notes": ""}]
    data = index_data(["subject", "status", "mass_g", "seconds", "notes"], rows, ["mass_g"], LINKS)
    assert data["headings"] == {"subject": "Subject", "status": "Status", "mass_g": "Mass_g", "seconds": "Time (s)"}


MEASURED = (
    "ncc_before", "ncc_after", "mae_before", "mae_after", "dice_before", "dice_after", "hausdorff_mm_before",
    "hausdorff_mm_after", "surface_mm_before", "surface_mm_after", "dice_1", "dice_2", "dice_3", "folding_percent",
    "folding_strict_percent", "jacobian_gradient", "seconds",
)  # fmt: skip
WIDE = ["subject", "status", "verdict", "suspicion", "suspicion_by", *MEASURED, "group", "reason"]


@pytest.fixture
def wide(browser, tmp_path):
    """Opens a page of few subjects with all that is measured of pairs with labels."""
    rows = [
        {"subject": f"s{k}", "status": "done", "verdict": "look", "suspicion": 100.0 + k, "group": "ab"[k % 2],
         "suspicion_by": "surface_mm_after", "reason": "The motion is large. " * 20,
         **dict.fromkeys(MEASURED, 0.5 + k / 7)}
        for k in range(6)
    ]  # fmt: skip
    summary = SUMMARY | {"subjects": len(rows), "failures": {}}
    write_index(tmp_path / "index.html", index_data(WIDE, rows, ["group"], LINKS), summary, "short-axis (C-L2)")

    def open_wide(width, height=900):
        set_screen(browser, width, height)
        browser.get((tmp_path / "index.html").as_uri())
        browser.execute_script("localStorage.clear()")
        browser.refresh()
        return browser

    return open_wide


def heads(page):
    return page.execute_script("return [...document.querySelectorAll('#head .cell')].map(cell => cell.textContent)")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_columns_shown_first_fit_the_screen_and_others_are_shown_when_chosen(wide, width):
    page = wide(width)
    fits = "const t = document.getElementById('table'); return t.scrollWidth <= t.clientWidth"
    assert page.execute_script(fits)
    first = ["Looked at", "Subject", "Verdict", "Suspicion", *(["Farthest out in"] if width > 700 else [])]
    assert heads(page)[: len(first)] == first
    assert find_element(page, ".row").text.count("Surface distance after (mm)") == (width > 700)
    assert ("Dice after" in heads(page), "Time (s)" in heads(page)) == (width > 700, False)
    page.execute_script("document.querySelector('#choices [title=seconds] input').click()")
    assert heads(page)[-1 if width < 700 else -3] == "Time (s)", "in the order of the table"
    page.refresh()
    assert "Time (s)" in heads(page), "it is remembered"


def test_on_a_phone_the_reason_is_a_second_line_of_the_row(wide):
    """Within the screen and the row, and below the name: a wide screen has a column for it."""
    measure = """
        const line = document.querySelector('.row .line'), box = (e) => e.getBoundingClientRect();
        if (!line) return null;
        const row = box(line.parentElement), next = box(document.querySelectorAll('.row')[1]);
        return [line.textContent, box(line).right, box(line).top - box(line.parentElement.children[1]).top,
                row.bottom - box(line).bottom, next.top - row.bottom];"""
    words, right, below, inside, apart = wide(390).execute_script(measure)
    assert words.startswith("The motion is large.")
    assert right <= 390
    assert below > 15
    assert inside >= 0
    assert apart == pytest.approx(0, abs=1)
    assert wide(1280).execute_script(measure) is None


def test_the_list_comes_before_the_distributions_which_are_folded_on_a_phone(wide):
    is_before = "const [a, b] = ['table', 'plots'].map(id => document.getElementById(id)); " \
        "return Boolean(a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING)"  # fmt: skip
    is_open = "return document.getElementById('distributions').open"
    page = wide(390)
    assert (page.execute_script(is_before), page.execute_script(is_open)) == (True, False)
    assert wide(1280).execute_script(is_open)


def test_the_page_has_the_words_of_the_terminal_and_the_method_that_ran(wide):
    page = wide(1280)
    cells = page.execute_script("return [...document.querySelectorAll('.row')].map(row => row.children[2].textContent)")
    assert {*cells} == {"look at it"}
    assert find_element(page, "#counts").text == "6 look at it"
    assert "short-axis (C-L2)" in find_element(page, "header").text
    assert page.title == "short-axis (C-L2): 6 subjects"


def test_numbers_of_a_column_have_the_same_digits_after_the_point(wide):
    page = wide(1280)
    place = heads(page).index("Dice after")
    script = "return [...document.querySelectorAll('.row')].map(row => row.children[arguments[0]].textContent)"
    assert page.execute_script(script, place) == [f"{0.5 + k / 7:.3f}" for k in reversed(range(6))]
    columns = {"a": [300.0, 4.14, 1.84, None], "b": [0.0, 0.0, 0.0312, 0.0], "c": [30, 25.0, None, 1], "d": [*"abcd"]}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    assert index_data([*columns], rows, [], LINKS)["decimals"] == {"a": 2, "b": 4, "c": 0}


@pytest.mark.parametrize("carried", [["group"], []])
def test_all_subjects_and_each_group_have_the_percentiles_of_summary_json(browser, tmp_path, carried):
    """Those of NumPy, which lie between two subjects where there are few. Without groups there are those of all."""
    dice = [0.8, 0.9, 0.5, 0.7, 0.6]
    rows = [{"subject": f"s{k}", "status": "done", "dice_after": d, "group": "aabbb"[k]} for k, d in enumerate(dice)]
    write_index(tmp_path / "index.html", index_data(COLUMNS, rows, carried, LINKS), SUMMARY)
    set_screen(browser)
    browser.get((tmp_path / "index.html").as_uri())
    script = "return [...document.querySelectorAll('#groups tr')].map(row => [...row.children].map(c => c.textContent))"
    head, line = browser.execute_script(script)
    parts = [dice, dice[:2], dice[2:]] if carried else [dice]
    assert head == ["", "all (5)", "a (2)", "b (3)"][: 1 + len(parts)]
    expected = [np.percentile(part, (50, 5, 95)) for part in parts]
    assert line == ["Dice after", *(f"{middle:.3f} ({low:.3f} to {high:.3f})" for middle, low, high in expected)]


def test_a_median_of_fewer_subjects_than_its_column_is_headed_with_says_of_how_many(browser, tmp_path):
    """One has no labels, and one failed: its old numbers do not count."""
    rows = [
        {"subject": f"s{k}", "status": "failed" if k == 4 else "done", "group": "aabbb"[k], "ncc_after": 0.5}
        | ({} if k == 2 else {"dice_after": 0.75})
        for k in range(5)
    ]
    columns = ["ncc_after", *COLUMNS]
    write_index(tmp_path / "index.html", index_data(columns, rows, ["group"], LINKS), SUMMARY)
    set_screen(browser)
    browser.get((tmp_path / "index.html").as_uri())
    script = "return [...document.querySelectorAll('#groups tr')].map(row => [...row.children].map(c => c.textContent))"
    head, *lines = browser.execute_script(script)
    assert head == ["", "all (5)", "a (2)", "b (3)"]
    correlation, dice = (f"{value} ({value} to {value})" for value in ("0.500", "0.750"))
    assert lines == [
        ["Correlation after", f"{correlation}, of 4", correlation, f"{correlation}, of 2"],
        ["Dice after", f"{dice}, of 3", dice, "0.750, of 1"],
    ]


def test_each_of_few_subjects_is_a_dot_where_its_value_lies_and_a_click_shows_it(wide):
    """From the least at the left to the greatest at the right. Dots of the same place lie above each other."""
    page = wide(1280)
    figure = page.find_elements("css selector", "#plots figure")[0]
    assert figure.text.split() == ["Correlation", "before", "0.500", "1.214"]
    dots = figure.find_elements("css selector", "circle")
    across = [float(dot.get_attribute("cx")) for dot in dots]
    assert np.allclose(np.diff(across), (across[-1] - across[0]) / 5, atol=0.1)
    for k, dot in enumerate(dots):
        page.execute_script("arguments[0].dispatchEvent(new Event('click'))", dot)
        assert shown(page) == [f"s{k}"]


def test_dots_that_would_cover_each_other_are_stacked(browser, tmp_path):
    dice = [0.8, 0.8001, 0.8002, 0.4]
    rows = [{"subject": f"s{k}", "status": "done", "dice_after": value} for k, value in enumerate(dice)]
    write_index(tmp_path / "index.html", index_data(COLUMNS, rows, [], LINKS), SUMMARY)
    set_screen(browser)
    browser.get((tmp_path / "index.html").as_uri())
    script = (
        "return [...document.querySelectorAll('#plots circle')].map(c => ['cx', 'cy'].map(k => +c.getAttribute(k)))"
    )
    places = np.array(browser.execute_script(script))
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)[~np.eye(4, dtype=bool)]
    assert len(places) == 4
    assert apart.min() > 9.9, "no closer than the width of a dot"


def test_paper_has_every_row(page):
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert len(shown(page)) == 2000
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert len(shown(page)) < 100
