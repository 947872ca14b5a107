"""Names of files, names of labels and cells of tables that look like code: every page shows them, and runs none."""

from dataclasses import replace

import pytest

from tests.cardiac.cines import exact_result
from tests.phantoms import cycle
from tests.report.browser import open_file, write_report
from tests.report.conftest import METRICS
from vrnet.report.cine import Film, write_page
from vrnet.report.cohort import Links, index_data, write_index

pytestmark = pytest.mark.release
RUN = "window.ran=1"
HOSTILE = {
    "image": f'"><img src=x onerror="{RUN}">',
    "script": f"</script><script>{RUN}</script>",
    "quotes": f"';{RUN};\"+{RUN}+`${{{RUN}}}`",
    "newline": f"first\n;{RUN};\n--><svg onload={RUN}>",
    "template": "{{ 7 * 7 }}{% raw %}<!--",
}
ALL = "".join(HOSTILE.values())


def pair_page(path, heart, volume):
    """A stack, for there is a strip and a table of its slices."""
    names = {"7": HOSTILE["image"], "-2": ALL}
    verdict = {"level": "failed", "reasons": [ALL], "try": [HOSTILE["script"]]}
    metrics = METRICS | {"method": ALL, "label_names": names, "verdict": verdict, ALL: 1.0}
    run = {"fixed": HOSTILE["quotes"], "moving": HOSTILE["newline"], "configuration": ALL, ALL: ALL}
    write_report(path, volume, metrics, [2.0, 1.0], run)


def cine_page(path, heart, volume):
    result = exact_result(cycle(2, (72, 64, 3), (2.4, 2.4, 10.0), frames=2))
    names = {1: HOSTILE["image"], 2: ALL, 3: HOSTILE["script"]}
    cine = replace(result.cine, name=HOSTILE["quotes"])
    write_page(Film.of(replace(result, cine=cine, method=ALL, refined_by=ALL, label_names=names)), path)


def cohort_page(path, heart, volume):
    columns = ["subject", "status", "verdict", "suspicion", "dice_1", ALL, "reason"]
    rows = [
        dict(zip(columns, (text, "done", text, 1.0, 0.5 + k / 10, text, text), strict=True))
        for k, text in enumerate(HOSTILE.values())
    ]
    rows += [{"subject": ALL, "status": "failed", "suspicion": 3.0, "reason": ALL}]
    summary = {"subjects": len(rows), "failures": {ALL: 1}, "recipe": {"method": ALL, "vrnet": ALL}}
    links = Links("subjects", "report.html", "thumbnail.png")
    write_index(path, index_data(columns, rows, [ALL], links, {"1": ALL}), summary)


@pytest.mark.parametrize(("write", "ready"), [(pair_page, "#folds"), (cine_page, "#when"), (cohort_page, "#shown")])
def test_what_looks_like_code_is_shown_and_never_run(browser, tmp_path, heart, volume, write, ready):
    write(tmp_path / "page.html", heart, volume)
    page = open_file(browser, tmp_path / "page.html", ready)
    text = page.execute_script("return document.body.textContent.replace(/\\s+/g, ' ')")
    for shown in HOSTILE.values():
        assert " ".join(shown.split()) in text
    page.execute_script("document.querySelectorAll('button, td, .row, .cell').forEach((e) => e.click())")
    page.execute_script("document.querySelectorAll('.row, canvas').forEach((e) => e.onmouseenter?.())")
    page.execute_async_script("setTimeout(arguments[0], 200)")
    assert page.execute_script("return window.ran === undefined")
    assert page.execute_script("return document.querySelectorAll('img, svg[onload]').length") == 0
    errors = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert [error for error in errors if "thumbnail.png" not in error] == []  # of subjects that have no folder
