"""The tables of results/ are what the files of the subjects beside them say."""

from pathlib import Path

import pytest

from tests.paper.recomputation import compare_table, compare_times

pytestmark = pytest.mark.release
RESULTS = Path(__file__).parents[1] / "results"
TABLES = sorted((RESULTS / "tables").glob("*.csv"))


def test_there_are_tables_each_in_three_forms():
    assert TABLES
    for table in TABLES:
        assert table.with_suffix(".md").is_file()
        assert table.with_suffix(".tex").is_file()


@pytest.mark.parametrize("table", TABLES, ids=[table.stem for table in TABLES])
def test_a_table_is_made_of_the_files_of_its_subjects(table):
    assert (compare_times if table.stem == "runtime" else compare_table)(table, RESULTS) >= 9
