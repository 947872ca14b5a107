import re
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import runtime
from benchmarks.collect import collect

from tests.paper.recomputation import compare_table, compare_times, read_csv
from vrnet.app.arguments import DeviceOptions, SourceOptions
from vrnet.app.paper import Paper, make_figure, make_table, plan_study
from vrnet.errors import BadInput
from vrnet.paper.figures import ALPHAS, CASCADE_LINES
from vrnet.paper.pictures import FIGURES
from vrnet.paper.specs import BUDGETS, TABLES, TIMED_METHODS

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


@pytest.mark.release
@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_of_what_was_measured_of_its_rows(name, quick, reader):
    asked = quick("table", name)
    table, written = make_table(asked, reader.stage, reader.say)
    phantom = "phantom3d" if name in ("cmr3d", "acdc3d", "hippocampus", "hippocampus_half") else "phantom"
    assert [path.name for path in written] == [f"{name}_{phantom}_quick{end}" for end in (".md", ".csv")]
    assert tuple(table.methods) == TABLES[name].methods
    collect(asked.out)
    assert compare_table(written[1], asked.out) >= 2 * len(table.methods)


def test_every_row_of_every_table_can_be_planned_and_built(quick, reader):
    for name, methods in ROWS.items():
        spec = replace(TABLES[name], methods=methods)
        study = plan_study(quick("table", name), spec.data, spec.fallback, reader.stage, reader.say)
        entries = [study.results.entry(name) for name in spec.methods]
        assert len({study.results.folder(entry) for entry in entries}) == len(spec.methods)
        for entry in entries:
            assert study.d in entry.method.dimensions


@pytest.mark.release
def test_the_table_of_times_is_made_with_all_its_rows(quick, reader):
    asked = replace(quick("table", "runtime"), source_options=SourceOptions(), device_options=DeviceOptions())
    runtime.measure_all(asked.out, BUDGETS["quick"], "cpu", 0.0)
    table, written = make_table(asked, reader.stage, reader.say)
    assert tuple(table.methods) == TIMED_METHODS
    assert all(float(table.columns[0].cells[name]) > 0 for name in TIMED_METHODS)
    assert written[1].name == "runtime_quick.csv"
    assert compare_times(written[1], asked.out, BUDGETS["quick"].phantoms) >= 2 * len(TIMED_METHODS) - 3


@pytest.mark.release
@pytest.mark.parametrize("name", [*FIGURES])
def test_every_figure_is_drawn_with_its_numbers_beside_it(name, quick, reader):
    asked = quick("figure", name)
    picture, numbers = make_figure(asked, reader.stage, reader.say)
    assert picture == asked.out / "figures" / f"{name}_phantom_quick.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert numbers == picture.with_suffix(".csv")
    assert len(read_csv(numbers)) >= 5


@pytest.mark.release
def test_a_figure_is_drawn_of_volumes_where_they_are_named(quick, reader):
    picture, numbers = make_figure(quick("figure", "denoising", data="phantom3d"), reader.stage, reader.say)
    assert picture.name == "denoising_phantom3d_quick.png"
    assert len(read_csv(numbers)) == 2 * (2 + 1)


@pytest.mark.release
@pytest.mark.parametrize(("kind", "name"), [("table", "initialisation"), ("figure", "parameterisations")])
def test_the_command_makes_it_and_says_where(kind, name, quick, vrnet):
    asked = quick(kind, name)
    words = "--quick", "--device", "cpu", "--out", asked.out, "--cache", asked.source_options.cache
    status, out, err = vrnet("paper", kind, name, *words)
    assert status == 0, err
    assert f"Wrote {name}_phantom_quick." in out
    if kind == "table":
        assert "measured on phantom, not on acdc" in out
        assert 'budget "quick"' in out
        assert all(method in out for method in TABLES[name].methods)
        made = (asked.out / "tables" / f"{name}_phantom_quick.md").read_text(encoding="utf-8")
        assert all(f"| {method} |" in made for method in TABLES[name].methods)


@pytest.mark.parametrize(
    ("kind", "name", "options", "said"),
    [
        ("table", "tables", {}, f'there is no table "tables": choose one of {", ".join(ROWS)}, runtime'),
        ("figure", "boxplot", {}, 'there is no figure "boxplot": did you mean boxplots?'),
        ("table", "acdc", {"alphas": (0.1, -0.1)}, "one of `alphas` is -0.1: give a number of 0 or more"),
        ("table", "acdc", {"alphas": (0.1,), "measured_only": True}, "leave out `alphas` or `measured_only`"),
        ("table", "acdc", {"seeds": 0}, "`seeds` is 0: give a number of 1 or more"),
        ("table", "acdc", {"measured_only": True, "out": Path("nowhere")}, "nothing of this table is measured"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(kind, name, options, said, quick, reader):
    with pytest.raises(BadInput, match=re.escape(said)):
        (make_table if kind == "table" else make_figure)(
            replace(quick(kind, name), **options), reader.stage, reader.say
        )


@pytest.mark.parametrize(
    ("data", "root", "own", "found"),
    [
        ("", None, "ukbb", "phantom"),
        ("", Path("biobank"), "ukbb", "ukbb"),
        ("acdc", Path("hearts"), "ukbb", "acdc"),
        ("", None, "hippocampus", "hippocampus"),
    ],
)
def test_a_table_is_of_the_data_named_of_its_own_or_of_phantoms(data, root, own, found, reader):
    assert plan_study(request_of(data, root), own, TABLES[own].fallback, reader.stage, reader.say).data == found


def test_data_of_another_dimension_is_refused(reader):
    with pytest.raises(BadInput, match=r"not made of phantom3d: choose one of acdc, ukbb, phantom, or"):
        plan_study(request_of("phantom3d"), "acdc", None, reader.stage, reader.say)


def request_of(data, root=None):
    given = {"source_options": SourceOptions(root=root), "device_options": DeviceOptions()}
    return Paper(kind="table", name="any", data=data, **given)
