"""Every snippet of the documents that a reader may copy runs as it stands: shell, Python and, as pairs.csv, CSV.

Blocks of text (batch jobs, folders) and py (algorithms) are not run. Training is cut to one step of narrow networks.
What pages say of commands, layers and presets is what the code says, their links lead somewhere, and they make a site.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copy, copytree

import numpy as np
import pytest
import yaml

import vrnet
from tests.reader import write_pairs
from vrnet.app import main as cli
from vrnet.methods.names import FOLDER, parse_trainable
from vrnet.training.settings import PRESETS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
DOCUMENTS = ["README.md", *(f"docs/{page}" for page in PAGES)]
NOTES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "results").glob("**/*.md"))]
LINKED = [*DOCUMENTS, "CONTRIBUTING.md", *NOTES, *(f"src/vrnet/weights/{path.name}" for path in FOLDER.glob("*.md"))]


def snippets(document):
    """(language, code) of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / document).read_text(), flags=re.M | re.S)


def vrnet_commands(code):
    """The words of each vrnet command of a shell block."""
    lines = (shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines())
    return [words[1:] for words in lines if words and Path(words[0]).name == "vrnet"]


def test_git_ignores_every_folder_that_a_document_has_results_in():
    """They hold images of patients: who copies a line in a checkout must not commit them by `git add .`."""
    texts = [(ROOT / document).read_text() for document in DOCUMENTS]
    folders = {name for text in texts for name in re.findall(r"--out ([a-z][\w/-]*)(?![\w./-])", text)}
    assert {"result", "page", "tracked", "study", "run", "quick"} <= folders
    if not (ROOT / ".git").exists():
        return
    inside = [f"{name}/metrics.json" for name in sorted(folders)]
    asked = subprocess.run(["git", "check-ignore", *inside], cwd=ROOT, capture_output=True, text=True, check=False)
    assert asked.stdout.split() == inside


@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("document", [name for name in DOCUMENTS if snippets(name)])
def test_every_snippet_runs(document, registries, reader):
    known = {}
    for language, code in snippets(document):
        for words in vrnet_commands(code) if language == "sh" else []:
            reader.setattr(sys, "argv", ["vrnet", *words])
            cli.main()
        if language == "python":
            exec(compile(code, document, "exec"), known)
        if language == "csv":
            write_pairs(code)


@pytest.mark.release
def test_the_presets_are_those_of_the_document():
    text = (ROOT / "docs" / "training.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \| (\d+) \| ([\d.e-]+) \| ([\d.e-]+) \|", text, flags=re.M)
    found = {name: [float(value.replace(",", "")) for value in values] for name, *values in rows}
    assert found == {name: [how.steps, how.batch, how.rate, how.alpha] for name, how in PRESETS.items()}


@pytest.mark.release
def test_the_names_of_the_document_are_names():
    """As they stand, or after R-L1-3x2."""
    text = (ROOT / "docs" / "training.md").read_text()
    table = text[text.index("## Names") :].split("\n\n")[0]
    names = re.findall(r"`([^`]+)`", "".join(line.split(" | ")[0] for line in table.splitlines()))
    whole = {
        "U-…": "U-L1-3x2",
        "C-…": "C-L1-3x2",
        "D-…": "D-L1-3x2",
        "…-L2-…": "R-L2-3x2",
        "…-none-…": "R-none-3x2",
        "-T1": "R-L1-3x2-T1",
    }
    for name in names:
        assert parse_trainable(whole.get(name, name.replace("…", "R-L1-3x2")))
    assert len(names) > 10


@pytest.mark.release
def test_the_four_tools_of_the_conventions_agree(reader, capsys):
    """The point that vrnet prints is SimpleITK's; the voxel that nibabel counts is the one that we count."""
    known = {}
    reader.setattr(sys, "argv", ["vrnet", "register", "ed.nii.gz", "es.nii.gz", "--out", "result"])
    cli.main()
    capsys.readouterr()
    images = []
    for language, code in snippets("docs/conventions.md"):
        if language == "python":
            exec(compile(code, "conventions", "exec"), known)
            images.append(known["warped"])
    ours, itk, by_hand = capsys.readouterr().out.strip().split("\n")[-3:]
    numbers = [[float(x) for x in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", text)] for text in (ours, itk, by_hand)]
    np.testing.assert_allclose(numbers[0][3:], numbers[1], atol=1e-3)
    transform, moving = known["vrnet"].Transform.load("result/transform.nii.gz"), known["vrnet"].read_image("es.nii.gz")
    expected = moving.grid.index(transform.points(transform.grid.points(np.array([[10.0, 12.0, 3.0]]))))
    np.testing.assert_allclose(numbers[2][:3], expected[0], atol=1e-2)
    warped = [images[0].array, known["sitk"].GetArrayFromImage(images[1]).T, images[2].numpy()]
    for other in warped[1:]:
        np.testing.assert_allclose(other[6:-6, 6:-6], warped[0][6:-6, 6:-6], atol=2e-3)


def run_python(*words, cwd=ROOT):
    plain = {"PYTHONIOENCODING": "utf-8", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", env={**os.environ, **plain})


@pytest.mark.release
def test_the_page_of_commands_is_what_the_commands_say():
    """If it is not: python docs/make_commands.py. (In a process of its own: checks of types change docstrings.)"""
    script = f"import runpy; print(runpy.run_path({str(DOCS / 'make_commands.py')!r})['page'](), end='')"
    made = run_python("-c", script).stdout
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == made
    assert {"## vrnet register", "## vrnet train"} < set(made.splitlines())


def pages_of(entries):
    """The pages of a list of entries, those of its sections too."""
    for entry in entries:
        for place in entry.values():
            yield from [place] if isinstance(place, str) else pages_of(place)


def test_every_page_is_in_the_navigation_and_nothing_else_is():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    notebooks = [f"notebook_{path.stem}.md" for path in (DOCS / "notebooks").glob("*.ipynb")]
    assert sorted(pages_of(nav)) == sorted([*PAGES, *notebooks])


def test_every_public_name_is_in_the_reference():
    """But for the former name of CineResult, and for a module of which the functions are there."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: vrnet\.(\w+)$", page, flags=re.M)) | set(re.findall(r"__\w+__", page))
    assert set(vrnet.__all__) <= listed | {"Tracking", "phantom"}


@pytest.mark.parametrize("document", ["README.md", "docs/architecture.md", "docs/guarantees.md"])
def test_files_that_a_page_names_are_there(document):
    """As src/vrnet/fields.py, tests/data/ or, below the package, variational/cascade.py."""
    named = re.findall(r"`([\w/]+(?:\.py|/))`", (ROOT / document).read_text(encoding="utf-8"))
    places = [ROOT, ROOT / "src" / "vrnet", ROOT / "src" / "vrnet" / "variational"]
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
    assert named


def prose(document):
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(document):
    """What the headings of a document can be linked by."""
    headings = re.findall(r"^#+ (.*)$", prose(document), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", LINKED)
def test_links_lead_to_files_and_headings_that_are_there(document):
    for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", prose(document)):
        file, _, anchor = target.partition("#")
        path = (ROOT / document).parent / file if file else ROOT / document
        assert path.exists(), target
        assert not anchor or anchor in anchors(path.resolve().relative_to(ROOT)), target


def test_the_layers_of_the_page_are_those_of_the_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    section = (DOCS / "architecture.md").read_text(encoding="utf-8").split("## Layers")[1]
    block = re.search(r"```text\n(.*?)```", section, flags=re.S)[1]
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert [re.split(r"\s{2,}", line)[0] for line in block.splitlines()] == layers


@pytest.mark.release
def test_the_site_builds_without_a_warning_and_asks_nothing_of_others(tmp_path):
    """No page loads a script, font or picture from elsewhere; what a page shows of results/ is copied to the site."""
    pytest.importorskip("mkdocs", reason="needs vrnet[docs]")
    for folder in ("docs", "results"):
        copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "src").symlink_to(ROOT / "src")
    copy(ROOT / "mkdocs.yml", tmp_path)
    added = "![a](../results/figures/added.jpg) [b](../results/tuning.csv) [c](protocols.md#acdc) [d](../Makefile)"
    (tmp_path / "results" / "figures").mkdir(exist_ok=True)
    copy(ROOT / "docs" / "images" / "report.jpg", tmp_path / "results" / "figures" / "added.jpg")
    with (tmp_path / "docs" / "results.md").open("a", encoding="utf-8") as file:
        file.write(f"\n{added}\n")
    made = tmp_path / "build" / "gallery" / "cohort" / "index.html"
    made.parent.mkdir(parents=True)
    made.write_text("the page of a cohort")
    done = run_python("-m", "mkdocs", "build", "--strict", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in PAGES:
        html = (tmp_path / "site" / page).with_suffix(".html").read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|iframe)[^>]+src=[\"']?(?:https?:)?//", html)
        assert not re.findall(r"\| *:?---", html), f"a table of {page} needs an empty line before it"
        assert not re.findall(r"<p>(?:(?!</p>).)*\n[-*] ", html, flags=re.S), f"a list of {page} needs one too"
        assert not re.findall(r"<link[^>]+href=[\"']?(?:https?:)?//", html)
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert "(d, *s), in voxels" in reference, "docstrings are not read as Markdown"
    shown = (tmp_path / "site" / "results.html").read_text(encoding="utf-8")
    assert 'id="the-papers-claims"' in shown, "a link to results/README.md is its content only on a line of its own"
    assert "protocols.html#acdc" in shown
    assert "Makefile" not in shown.rsplit("added.jpg", 1)[1].split("</p>")[0]
    gallery = (tmp_path / "site" / "gallery.html").read_text(encoding="utf-8")
    assert re.findall(r'href="gallery/([^"]+)"><img', gallery) == ["cohort/index.html"]
    assert (tmp_path / "site" / "gallery" / "cohort" / "index.html").read_text() == made.read_text()
    for part in ("results/figures/added.jpg", "results/tuning.csv"):
        assert part in shown
        assert (tmp_path / "site" / part).is_file()
