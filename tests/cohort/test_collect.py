"""The table has one row per subject of the list, in its order, whatever came of it."""

import pytest

from tests.cohort.works import RECIPE, Count, make_task, write_list
from vrnet.cohort.collect import collect_rows, summarise_rows
from vrnet.cohort.engine import Here, run_tasks
from vrnet.cohort.table import read_table


@pytest.fixture
def cohort(tmp_path):
    """Five subjects: three are done, one failed, one is left."""
    table = read_table(write_list(tmp_path, 5))
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00001"})))
    run_tasks(task, table.subjects[:4], Here())
    return task, table


def test_rows_are_those_of_the_list_with_what_came_of_them(cohort):
    task, table = cohort
    columns, rows = collect_rows(task.folder, table, task.recipe)
    assert [row["subject"] for row in rows] == [f"s{k:05d}" for k in range(5)]
    assert [row["status"] for row in rows] == ["done", "failed", "done", "done", "left"]
    assert [row["group"] for row in rows] == ["x", "y", "x", "y", "x"]
    assert [row.get("length") for row in rows] == [10, None, 10, 10, None]
    assert columns[:2] == ["subject", "status"]
    assert rows[1]["reason"] == "ValueError: s00001 cannot be counted"


def test_results_of_another_recipe_do_not_count(cohort):
    task, table = cohort
    _, rows = collect_rows(task.folder, table, {**RECIPE, "method": "other"})
    assert {row["status"] for row in rows} == {"left"}


def test_a_subject_that_fails_since_its_image_changed_has_failed_until_it_is_as_it_was(tmp_path):
    """Its earlier result, of another image, is no row of the table; of the image that is back, it is."""
    table, image = read_table(write_list(tmp_path, 2)), tmp_path / "a.nii"
    run_tasks(make_task(tmp_path / "out"), table.subjects, Here())
    image.rename(tmp_path / "away")
    image.write_text("another image")
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00001"})))
    run_tasks(task, table.subjects[1:], Here())
    _, rows = collect_rows(task.folder, table, task.recipe)
    assert [(row["status"], row.get("length")) for row in rows] == [("done", 10), ("failed", None)]
    (tmp_path / "away").replace(image)
    _, rows = collect_rows(task.folder, table, task.recipe)
    assert [(row["status"], row.get("length")) for row in rows] == [("done", 10), ("done", 10)]


def test_a_column_of_the_list_that_has_one_of_our_names_is_kept_under_another(tmp_path):
    path = write_list(tmp_path, 2)
    path.write_text(path.read_text().replace("group", "status"))
    task, table = make_task(tmp_path / "out"), read_table(path)
    _, rows = collect_rows(task.folder, table, task.recipe)
    assert [(row["status"], row["status_given"]) for row in rows] == [("left", "x"), ("left", "y")]


def test_the_summary_counts_and_describes(cohort):
    task, table = cohort
    summary = summarise_rows(collect_rows(task.folder, table, task.recipe)[1], task.recipe)
    assert (summary["subjects"], summary["done"], summary["failed"], summary["left"]) == (5, 3, 1, 1)
    assert summary["verdicts"] == {"good": 3}
    assert summary["failures"] == {"ValueError: s00001 cannot be counted": 1}
    assert summary["metrics"]["length"]["mean"] == 10
    assert "suspicion" not in summary["metrics"]
