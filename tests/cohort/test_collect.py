"""The table has one row per subject of the list, in its order, whatever came of it."""

import json

import pytest

from tests.cohort.works import RECIPE, Count, make_task, write_list
from vrnet.cohort.run import Here, Result, collect_rows, run_tasks, summarise_rows
from vrnet.cohort.table import read_table


@pytest.fixture
def cohort(tmp_path):
    """Five subjects: three are done, one has failed, one is left."""
    table = read_table(write_list(tmp_path, 5))
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00001"})))
    run_tasks(task, table.subjects[:4], Here())
    return task, table


def test_rows_are_those_of_the_list_with_what_came_of_them(cohort):
    task, table = cohort
    columns, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert [row["subject"] for row in rows] == [f"s{k:05d}" for k in range(5)]
    assert [row["status"] for row in rows] == ["done", "failed", "done", "done", "to do"]
    assert [row["group"] for row in rows] == ["x", "y", "x", "y", "x"]
    assert [row.get("length") for row in rows] == [10, None, 10, 10, None]
    assert columns[:2] == ["subject", "status"]
    assert rows[1]["reason"] == "ValueError: s00001 cannot be counted"


def test_results_of_another_recipe_do_not_count(cohort):
    task, table = cohort
    _, rows, _ = collect_rows(task.folder, table, {**RECIPE, "method": "other"})
    assert [row["status"] for row in rows] == ["changed", "to do", "changed", "changed", "to do"]
    assert rows[0]["reason"] == "method count → other"


def test_a_subject_whose_image_changed_is_no_result_until_the_image_is_as_it_was(tmp_path):
    """Its earlier result, of another image, is in no number of the table; of the image that is back, it is."""
    table, image = read_table(write_list(tmp_path, 2)), tmp_path / "a.nii"
    run_tasks(make_task(tmp_path / "out"), table.subjects, Here())
    image.rename(tmp_path / "away")
    image.write_text("another image")
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00001"})))
    run_tasks(task, table.subjects[1:], Here())
    _, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert [(row["status"], row.get("length")) for row in rows] == [("changed", None), ("failed", None)]
    (tmp_path / "away").replace(image)
    _, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert [(row["status"], row.get("length")) for row in rows] == [("done", 10), ("done", 10)]


def test_a_result_with_a_file_missing_is_damaged_and_in_no_number(cohort):
    task, table = cohort
    (task.folder.subjects / "s00002" / "count.txt").unlink()
    _, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert (rows[2]["status"], rows[2]["reason"], "length" in rows[2]) == ("damaged", "files are missing", False)
    assert summarise_rows(rows, task.recipe)["done"] == 2


@pytest.mark.parametrize("part", ["seconds", "row", "recipe"])
def test_a_record_without_a_part_is_a_damaged_result(cohort, part):
    task, table = cohort
    path = task.folder.subjects / "s00000" / "done.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != part}))
    _, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert (rows[0]["status"], rows[0]["reason"]) == ("damaged", "done.json cannot be read")


def test_a_result_is_another_when_its_images_are_and_has_the_page_that_is_in_its_folder(tmp_path):
    table = read_table(write_list(tmp_path, 2))

    def results(image, page, **recipe):
        def work(subject, folder):
            (folder / "warped.nii.gz").write_text(image)
            (folder / "metrics.json").write_text(page)
            if page:
                (folder / f"{subject.name}.html").write_text(page)
            return {}

        task = make_task(tmp_path / "out", work, **recipe)
        run_tasks(task, table.subjects[:1], Here())
        return collect_rows(task.folder, table, task.recipe, "{subject}.html").results

    first, left = results("image", "")
    assert (first.has_page, left) == (False, Result("", has_page=False))
    (again, _), (other, _) = results("image", "page", step=1), results("another image", "page", step=2)
    assert (again, other.has_page) == (Result(first.version), True)
    assert other.version != first.version != ""


def test_the_summary_counts_and_describes(cohort):
    task, table = cohort
    summary = summarise_rows(collect_rows(task.folder, table, task.recipe)[1], task.recipe)
    assert (summary["subjects"], summary["done"], summary["failed"], summary["left"]) == (5, 3, 1, 1)
    assert summary["verdicts"] == {"good": 3}
    assert summary["failures"] == {"ValueError: s00001 cannot be counted": 1}
    assert summary["metrics"]["length"]["mean"] == 10
    assert "suspicion" not in summary["metrics"]
