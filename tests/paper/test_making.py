from dataclasses import replace
from pathlib import Path

import pytest

from tests.paper.recomputed import compare, compare_times, rows_of
from vrnet.data.source import Source
from vrnet.errors import BadInput
from vrnet.paper.budget import small
from vrnet.paper.figures import FIGURES
from vrnet.paper.making import NAMES, PaperRequest, make_figure, make_table, study_of
from vrnet.paper.tables import RUNTIME, TABLES


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_with_all_its_rows_of_what_was_measured(name, quick, heard):
    made, written = make_table(name, quick, heard.stage, heard.say)
    phantom = "phantom3d" if name in ("cmr3d", "hippocampus", "phantom3d") else "phantom"
    stem = f"{name}_quick" if name == phantom else f"{name}_{phantom}_quick"
    assert [path.name for path in written] == [f"{stem}{ending}" for ending in (".md", ".csv", ".tex")]
    assert len(made.rows) == len(TABLES[name].methods)
    assert compare(written[1], quick.out) >= 2 * len(made.rows)


@pytest.mark.slow
def test_the_table_of_times_is_made_with_all_its_rows(quick, heard):
    made, written = make_table("runtime", quick, heard.stage, heard.say)
    assert [row[0] for row in made.rows] == list(RUNTIME)
    assert all(float(row[1]) > 0 for row in made.rows)
    shapes = {d: small(d).shape for d in (2, 3)}
    assert written[1].name == "runtime_quick.csv"
    assert compare_times(written[1], quick.out, shapes) >= 2 * len(RUNTIME) - 3


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_with_its_numbers_beside_it(name, quick, heard):
    picture, numbers = make_figure(name, quick, heard.stage, heard.say)
    assert picture == quick.out / "figures" / f"{name}_phantom_quick.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert numbers == picture.with_suffix(".csv")
    assert len(rows_of(numbers)) >= 5


@pytest.mark.slow
def test_a_figure_is_drawn_in_space_where_volumes_are_named(quick, heard):
    asked = replace(quick, source=replace(quick.source, data="phantom3d"))
    picture, numbers = make_figure("denoising", asked, heard.stage, heard.say)
    assert picture.name == "denoising_phantom3d_quick.png"
    assert len(rows_of(numbers)) == 2 * (2 + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("table", "initialisation"), ("figure", "parameterisations")])
def test_the_command_makes_it_and_says_where(kind, name, quick, vrnet):
    words = "--quick", "--device", "cpu", "--out", quick.out, "--cache", quick.source.cache
    status, out, err = vrnet("paper", kind, name, *words)
    assert status == 0, err
    assert f"Wrote {name}_phantom_quick." in out
    if kind == "table":
        assert "measured on phantom, not on acdc" in out
        assert 'budget "quick"' in out
        assert [word for word in TABLES[name].methods if word in out] == list(TABLES[name].methods)


@pytest.mark.parametrize("kind", NAMES)
def test_what_is_not_in_the_paper_is_refused_with_what_is(kind, quick, heard):
    make = {"table": make_table, "figure": make_figure}[kind]
    with pytest.raises(BadInput, match=f'there is no {kind} "tables": choose one of {", ".join(NAMES[kind])}'):
        make("tables", quick, heard.stage, heard.say)


def asked(data, root=None):
    return PaperRequest(Source(data, root), Path("results"), "short", "cpu")


@pytest.mark.parametrize(
    ("given", "found"),
    [(asked(""), "phantom"), (asked("", Path("biobank")), "ukbb"), (asked("acdc", Path("hearts")), "acdc")],
)
def test_a_table_is_of_its_own_data_of_what_is_named_or_of_phantoms_instead(given, found, heard):
    assert study_of(given, "ukbb", "phantom", heard.stage, heard.say).data == found


def test_what_has_no_phantoms_instead_is_of_its_own_data(heard):
    assert study_of(asked(""), "hippocampus", None, heard.stage, heard.say).data == "hippocampus"


def test_data_of_another_dimension_is_refused(heard):
    with pytest.raises(BadInput, match=r"not made of phantom3d: choose one of acdc, ukbb, phantom, or"):
        study_of(asked("phantom3d"), "acdc", None, heard.stage, heard.say)
