"""What is written of all subjects together, by whom and when; and that the page names what ran."""

import os
from dataclasses import replace

import pytest

from tests.cohort.works import Count, make_task, write_list
from vrnet.app.cohort import has_current_tables, is_complete, methods_of, write_tables
from vrnet.cohort.run import Here, run_tasks
from vrnet.cohort.table import read_table

SHOWN = {"report": False, "bids": False, "label_names": {}}


def test_the_methods_that_ran_are_named_as_people_know_them_the_most_frequent_first():
    """What is asked for may be `default`, which comes to one method for stacks and to another for volumes."""
    rows = [{"method": "Gaussian-LNCC"}, {"method": "short-axis"}, {"status": "failed"}, {"method": "short-axis"}]
    assert methods_of(rows) == "short-axis (D-L2-3x1-half-w32), Gaussian-LNCC"
    assert methods_of([{"status": "to do"}]) == ""


@pytest.fixture
def cohort(tmp_path):
    """A task, and a list whose four subjects it has done."""
    task, table = make_task(tmp_path / "out", Count(), **SHOWN), read_table(write_list(tmp_path, 4))
    os.utime(table.path, (1, 1))
    run_tasks(task, table.subjects, Here())
    return task, table


def test_tables_are_current_until_a_subject_is_done_again_or_a_table_or_the_list_changes(cohort):
    task, table = cohort

    def is_current():
        return has_current_tables(task.folder, table, table.subjects[:2], task.recipe)

    assert not is_current()
    write_tables(task.folder, table, task.recipe)
    assert is_current()
    os.utime(task.folder.subjects / "s00003" / "done.json", (2**31, 2**31))
    assert is_current(), "that is for the shard to see that has done it"
    os.utime(task.folder.subjects / "s00001" / "done.json", (2**31, 2**31))
    assert not is_current()
    write_tables(task.folder, table, task.recipe)
    os.utime(task.folder.subjects / "s00001" / "done.json", (2, 2))
    assert is_current()
    os.utime(table.path, (2**31, 2**31))
    assert not is_current()
    os.utime(table.path, (1, 1))
    (task.folder.path / "cohort.csv").write_text("cut")
    assert not is_current()


def test_tables_of_other_subjects_are_not_current_however_old_the_list_is(cohort, tmp_path):
    task, table = cohort
    write_tables(task.folder, table, task.recipe)
    shorter = replace(table, subjects=table.subjects[:3])
    assert has_current_tables(task.folder, table, table.subjects, task.recipe)
    assert not has_current_tables(task.folder, shorter, shorter.subjects, task.recipe)


def test_whether_a_list_is_complete_is_told_by_names_where_that_suffices(cohort, tmp_path, monkeypatch):
    task, _ = cohort
    longer = read_table(write_list(tmp_path, 5))
    monkeypatch.setattr("vrnet.cohort.run.Survey.state", None)
    assert not is_complete(task.folder, longer, task.recipe)
