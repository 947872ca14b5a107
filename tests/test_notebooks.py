"""The notebooks of the documents run from top to bottom, and what they were saved with is what they show."""

import json
import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
RUNNER = runpy.run_path(str(DOCS / "run_notebooks.py"))


def shown(notebook):
    """Of each cell of code: the kinds of what it shows, and what it prints with every number as 0."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [(cell["execution_count"], [kinds_and_words(output) for output in cell["outputs"]]) for cell in cells]


def kinds_and_words(output):
    return sorted(output.get("data", {})), re.sub(r"[-\d.e]+", "0", "".join(output.get("text", [])))


@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_was_saved_with(path, tmp_path, monkeypatch):
    """If it does not: python docs/run_notebooks.py."""
    monkeypatch.chdir(tmp_path)
    assert shown(RUNNER["run_notebook"](path)) == shown(json.loads(path.read_text(encoding="utf-8")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_names_no_place_of_the_machine_it_ran_on(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work)/", text)
    outputs = [output for cell in json.loads(text)["cells"] for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_of_a_notebook_has_every_cell_and_what_it_shows(path):
    page = RUNNER["page"](path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert page.count("```python\n") == len(code)
    assert page.count("data:image/png;base64,") >= 3
    assert "](../" not in page
    for link in re.findall(r"\]\((\w+\.md)", page):
        assert (DOCS / link).is_file()


def test_there_are_a_pair_and_a_cine():
    assert [path.stem for path in NOTEBOOKS] == ["cine", "pair"]


def test_a_cell_shows_the_value_of_its_last_line_unless_that_ends_in_a_semicolon():
    known = {}
    (output,) = RUNNER["run_cell"]("x = 3\nx + 1", known, 1)
    assert output["data"] == {"text/plain": ["4"]}
    assert RUNNER["run_cell"]("x;", known, 2) == []
    (printed,) = RUNNER["run_cell"]("print(x)", known, 3)
    assert printed["text"] == ["3\n"]
