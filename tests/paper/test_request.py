import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from benchmarks.collect import collect

from tests.paper.recomputation import compare_table, compare_times, read_csv
from vrnet.app.paper import Paper, PaperRequest, known_names, make_figure, make_table, plan_study
from vrnet.data.prepared import Source
from vrnet.errors import BadInput
from vrnet.paper.budget import small_phantoms
from vrnet.paper.figures import ALPHAS, CASCADE_LINES, FIGURES
from vrnet.paper.specs import TABLES, TIMED_METHODS
from vrnet.paper.tables import choose_entries
from vrnet.phantom.cycle import PATHOLOGIES

pytestmark = pytest.mark.usefixtures("as_users_run")

ROWS = {name: spec.methods for name, spec in TABLES.items()}
"""All rows of each table, taken before any are left out."""
FEW_ALPHAS = 0.0, 0.05
"""Without smoothness, and the α of this budget, which tables have, too."""


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    """Of methods that differ by how often they step, as 2xRC-Net and 3xRC-Net, the first and the last are measured.

    The figure of α has two of them, and wide networks are narrow. That each of `ROWS` can be planned and built as it
    is, is tested below."""
    with pytest.MonkeyPatch.context() as patch:
        for name, spec in TABLES.items():
            patch.setitem(TABLES, name, replace(spec, methods=tuple(map(narrow, first_and_last(spec.methods)))))
        for label, line in CASCADE_LINES.items():
            kept = first_and_last(line.values())
            patch.setitem(CASCADE_LINES, label, {n: name for n, name in line.items() if name in kept})
        patch.setitem(ALPHAS, 2, FEW_ALPHAS)
        yield


def narrow(method):
    """Of VoxelMorph-w32: VoxelMorph-w4."""
    return re.sub(r"-w\d+$", "-w4", method)


def first_and_last(methods):
    """Of R-L1-1x1, R-L1-1x2, R-L1-6x1 and FFD: all but the second."""
    alike = {}
    for method in methods:
        alike.setdefault(re.sub(r"^\d+x|\d+x\d+", "", method), []).append(method)
    ends = {end for group in alike.values() for end in (group[0], group[-1])}
    return tuple(method for method in methods if method in ends)


QUICK = ("initialisation",)
"""Tables that stand for the others, which are made so before a release."""


@pytest.mark.release
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.release] * (name not in QUICK)) for name in TABLES]
)
def test_every_table_is_made_of_what_was_measured_of_its_rows(name, quick, reader):
    table, written = make_table(name, quick, reader.stage, reader.say)
    phantom = "phantom3d" if name in ("cmr3d", "acdc3d", "hippocampus", "hippocampus_half") else "phantom"
    assert [path.name for path in written] == [f"{name}_{phantom}_quick{end}" for end in (".md", ".csv", ".tex")]
    assert len(table.rows) == len(TABLES[name].methods)
    collect(quick.out)
    assert compare_table(written[1], quick.out) >= 2 * len(table.rows)


def test_every_row_of_every_table_can_be_planned_and_built(quick, reader):
    for name, methods in ROWS.items():
        spec = replace(TABLES[name], methods=methods)
        study = plan_study(quick, spec.data, spec.fallback, reader.stage, reader.say)
        entries = choose_entries(spec, study.results, 1, {})
        assert tuple(entries) == spec.methods
        assert len({study.results.folder(entry) for (entry,) in entries.values()}) == len(spec.methods)
        for (entry,) in entries.values():
            assert study.d in entry.method.dimensions


@pytest.mark.release
def test_the_table_of_times_is_made_with_all_its_rows(quick, reader):
    table, written = make_table("runtime", quick, reader.stage, reader.say)
    assert [row[0] for row in table.rows] == list(TIMED_METHODS)
    assert all(float(row[1]) > 0 for row in table.rows)
    shapes = {d: small_phantoms(d).shape for d in (2, 3)}
    assert written[1].name == "runtime_quick.csv"
    assert compare_times(written[1], quick.out, shapes) >= 2 * len(TIMED_METHODS) - 3


@pytest.mark.release
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.release] * (name not in ("visual", "cascades"))) for name in FIGURES]
)
def test_every_figure_is_drawn_with_its_numbers_beside_it(name, quick, reader, monkeypatch):
    monkeypatch.setattr("vrnet.paper.strain.PATHOLOGIES", dict(islice(PATHOLOGIES.items(), 2)))
    picture, numbers = make_figure(name, quick, reader.stage, reader.say)
    assert picture == quick.out / "figures" / f"{name}_phantom_quick.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert numbers == picture.with_suffix(".csv")
    assert len(read_csv(numbers)) >= 5


@pytest.mark.release
def test_a_figure_is_drawn_of_volumes_where_they_are_named(quick, reader):
    request = replace(quick, source=replace(quick.source, data="phantom3d"))
    picture, numbers = make_figure("denoising", request, reader.stage, reader.say)
    assert picture.name == "denoising_phantom3d_quick.png"
    assert len(read_csv(numbers)) == 2 * (2 + 1)


@pytest.mark.release
@pytest.mark.parametrize(("kind", "name"), [("table", "initialisation"), ("figure", "parameterisations")])
def test_the_command_makes_it_and_says_where(kind, name, quick, vrnet):
    words = "--quick", "--device", "cpu", "--out", quick.out, "--cache", quick.source.cache
    status, out, err = vrnet("paper", kind, name, *words)
    assert status == 0, err
    assert f"Wrote {name}_phantom_quick." in out
    if kind == "table":
        assert "measured on phantom, not on acdc" in out
        assert 'budget "quick"' in out
        assert TABLES[name].methods[0] in out  # longer names wrap where the screen is narrow
        made = (quick.out / "tables" / f"{name}_phantom_quick.md").read_text(encoding="utf-8")
        assert all(f"| {method} |" in made for method in TABLES[name].methods)


def test_the_command_measures_nothing_where_it_is_told_so(tmp_path, vrnet):
    words = "--quick", "--measured-only", "--device", "cpu", "--out", tmp_path
    status, _, err = vrnet("paper", "table", "initialisation", *words)
    assert status == 2
    assert "nothing of this table is measured" in err


@pytest.mark.parametrize(
    ("make", "name", "hint"),
    [
        (make_table, "tables", f'there is no table "tables": choose one of {", ".join(known_names("table"))}'),
        (make_figure, "boxplot", 'there is no figure "boxplot": did you mean boxplots?'),
        (make_table, "boxplots", "boxplots is a figure: ask for `vrnet paper figure boxplots`"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_meant(make, name, hint, quick, reader):
    with pytest.raises(BadInput, match=f"^{re.escape(hint)}$"):
        make(name, quick, reader.stage, reader.say)


@pytest.mark.parametrize("kind", ["table", "figure"])
def test_the_help_names_every_table_and_figure(kind):
    tables, figures = " ".join(str(Paper.__doc__).split()).split("Tables: ")[1].split(". ")[:2]
    said = {"table": tables, "figure": figures.removeprefix("Figures: ").partition(" (")[0]}[kind]
    assert tuple(said.split(", ")) == known_names(kind)


@pytest.mark.parametrize(("make", "name"), [(make_table, "runtime"), (make_figure, "cascades")])
def test_what_is_made_whole_leaves_no_row_out(make, name, quick, reader):
    with pytest.raises(BadInput, match="is made whole: leave out `measured_only`"):
        make(name, replace(quick, measured_only=True), reader.stage, reader.say)


def request_of(data, root=None):
    return PaperRequest(Source(data, root), Path("results"), "short", "cpu")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (request_of(""), "phantom"),
        (request_of("", Path("biobank")), "ukbb"),
        (request_of("acdc", Path("hearts")), "acdc"),
    ],
)
def test_a_table_is_of_the_data_named_of_its_own_or_of_phantoms(given, found, reader):
    assert plan_study(given, "ukbb", "phantom", reader.stage, reader.say).data == found


def test_a_table_without_phantoms_to_fall_back_on_is_of_its_own_data(reader):
    assert plan_study(request_of(""), "hippocampus", None, reader.stage, reader.say).data == "hippocampus"


def test_data_of_another_dimension_is_refused(reader):
    with pytest.raises(BadInput, match=r"not made of phantom3d: choose one of acdc, ukbb, phantom, or"):
        plan_study(request_of("phantom3d"), "acdc", None, reader.stage, reader.say)
