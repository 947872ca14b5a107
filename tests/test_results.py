"""The tables of results/ are what the files of the subjects beside them say, and are made from these files alone."""

import shutil
from pathlib import Path

import pytest

from tests.paper.recomputation import compare_table, compare_times
from vrnet.app.arguments import DeviceOptions, SourceOptions
from vrnet.app.paper import Paper, make_figure, make_table

pytestmark = pytest.mark.release
RESULTS = Path(__file__).parents[1] / "results"
TABLES = sorted((RESULTS / "tables").glob("*.csv"))
OPTIONS = {"source_options": SourceOptions(), "device_options": DeviceOptions()}
NAMES = [table.stem for table in TABLES]
ASKED = {
    **{f"{name}_consistent": (name, {"budget": "consistent"}) for name in ("matched", "matched_half")},
    "averaged_long": ("averaged", {"budget": "long"}),
    "acdc_cycles": ("acdc", {"budget": "cycles", "measured_only": True}),
    "smoothness": ("smoothness", {"alphas": (0.1,)}),
    "smoothness_central": ("smoothness", {"budget": "central"}),
    "hippocampus_half_consistent": ("hippocampus_half", {"budget": "consistent"}),
}
"""Tables that a plain request does not make: their names, and what is asked for besides."""
AS_TOLD = {
    "acdc": {"seeds": 3, "alphas": (0.05, 0.1)},
    "matched_consistent": {"seeds": 3, "alphas": (0.05, 0.2)},
    "matched_half_consistent": {"seeds": 3, "alphas": (0.02, 0.05)},
}
"""With which seeds and α the documents say that tables were made; who does not give them has the same table."""


def refuse(*words, **options):
    raise AssertionError("nothing is to be trained or measured")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The results without their tables and figures."""
    folder = tmp_path_factory.mktemp("copy") / "results"
    return shutil.copytree(RESULTS, folder, ignore=shutil.ignore_patterns("tables", "figures"))


def test_there_are_tables_each_in_two_forms():
    assert TABLES
    for table in TABLES:
        assert table.with_suffix(".md").is_file()


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_a_table_is_made_of_the_files_of_its_subjects(table):
    assert (compare_times if table.stem == "runtime" else compare_table)(table, RESULTS) >= 9


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in NAMES), *AS_TOLD.items()],
    ids=[*NAMES, *(f"{n}-told" for n in AS_TOLD)],
)
def test_a_table_is_made_again_byte_by_byte_without_images(name, options, copy):
    name, asked = ASKED.get(name, (name, {}))
    asked = Paper(kind="table", name=name, out=copy, **OPTIONS, **asked, **options)
    _, written = make_table(asked, lambda stage: lambda done: None, refuse)
    for path in written[:2]:
        assert path.read_bytes() == (RESULTS / "tables" / path.name).read_bytes()


def test_a_figure_of_fewer_subjects_is_drawn_again_without_images(copy):
    asked = Paper(kind="figure", name="efficiency", out=copy, **OPTIONS)
    _, numbers = make_figure(asked, lambda stage: lambda done: None, refuse)
    assert numbers.read_bytes() == (RESULTS / "figures" / numbers.name).read_bytes()
