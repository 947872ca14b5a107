"""The table has one row per subject of the list, in its order, whatever came of it; suspicion ranks them."""

import numpy as np
import pytest
from scipy import stats

from tests.cohort.works import RECIPE, Count, make_task, write_list
from vrnet.cohort.results import Result, add_suspicion, collect_rows, robust_z, summarise_rows
from vrnet.cohort.run import run_here, run_tasks
from vrnet.cohort.table import read_table


@pytest.fixture
def cohort(tmp_path):
    """Five subjects: three are done, one has failed, one is left."""
    table = read_table(write_list(tmp_path, 5))
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00001"})))
    run_tasks(task, table.subjects[:4], run_here)
    return task, table


def test_rows_are_those_of_the_list_with_what_came_of_them(cohort):
    task, table = cohort
    columns, _, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert [row["subject"] for row in rows] == [f"s{k:05d}" for k in range(5)]
    assert [row["status"] for row in rows] == ["done", "failed", "done", "done", "to do"]
    assert [row["group"] for row in rows] == ["x", "y", "x", "y", "x"]
    assert [row.get("length") for row in rows] == [10, None, 10, 10, None]
    assert columns[:2] == ["subject", "status"]
    assert rows[1]["reason"] == "ValueError: s00001 cannot be counted"
    summary = summarise_rows(rows, task.recipe)
    assert (summary["subjects"], summary["done"], summary["failed"], summary["left"]) == (5, 3, 1, 1)
    assert summary["verdicts"] == {"good": 3}
    assert summary["failures"] == {"ValueError: s00001 cannot be counted": 1}
    assert (summary["metrics"]["length"]["mean"], "suspicion" in summary["metrics"]) == (10, False)


def test_results_that_are_damaged_or_of_another_recipe_are_in_no_number_of_the_table(cohort):
    task, table = cohort
    (task.folder.subjects / "s00002" / "count.txt").unlink()
    _, _, rows, _ = collect_rows(task.folder, table, task.recipe)
    assert (rows[2]["status"], rows[2]["reason"], "length" in rows[2]) == ("damaged", "files are missing", False)
    assert summarise_rows(rows, task.recipe)["done"] == 2
    _, _, rows, _ = collect_rows(task.folder, table, {**RECIPE, "method": "other"})
    assert [row["status"] for row in rows] == ["changed", "to do", "changed", "changed", "to do"]
    assert (rows[0]["reason"], "length" in rows[0]) == ("method count → other", False)


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
        run_tasks(task, table.subjects[:1], run_here)
        return collect_rows(task.folder, table, task.recipe, "{subject}.html")[3]

    first, left = results("image", "")
    assert (first.has_page, left) == (False, Result("", has_page=False))
    (again, _), (other, _) = results("image", "page", step=1), results("another image", "page", step=2)
    assert (again, other.has_page) == (Result(first.version), True)
    assert other.version != first.version != ""


def test_robust_z_is_the_distance_from_the_median_in_normal_deviations():
    x = np.random.default_rng(0).normal(5, 2, 500)
    expected = (x - np.median(x)) / stats.median_abs_deviation(x, scale="normal")
    assert robust_z(x.tolist()) == pytest.approx(expected, rel=1e-4)


def test_values_that_are_missing_or_all_alike_say_nothing():
    assert robust_z([1.0] * 40).tolist() == [0.0] * 40
    assert robust_z([1.0, None, 5.0]).tolist() == [0.0] * 3
    assert robust_z([*map(float, range(40)), None, "x"])[-2:].tolist() == [0.0, 0.0]


def test_failures_come_before_verdicts_and_these_before_outliers():
    rows = [{"status": "done", "verdict": "good", "dice": 0.8 + 0.001 * k} for k in range(40)]
    rows += [
        {"status": "failed"},
        {"status": "done", "verdict": "failed", "dice": 0.81},
        {"status": "done", "verdict": "look", "dice": 0.81},
        {"status": "done", "verdict": "good", "dice": 0.1},
        {"status": "to do"},
    ]
    add_suspicion(rows, ["dice"])
    order = sorted(range(44), key=lambda k: -rows[k]["suspicion"])
    assert order[:4] == [40, 41, 42, 43]
    assert rows[43]["outlier"] == "dice"
    assert "suspicion" not in rows[44]
    assert not any("outlier" in row for row in rows[:40])


def test_few_subjects_are_ranked_by_a_measure_that_is_told_but_is_no_outlier():
    rows = [{"status": "done", "verdict": "good", "dice": dice} for dice in (0.90, 0.88, 0.60, 0.91)]
    add_suspicion(rows, ["dice"])
    assert max(range(4), key=lambda k: rows[k]["suspicion"]) == 2
    assert [row.get("suspicion_by") for row in rows] == [None, None, "dice", None]
    assert not any("outlier" in row for row in rows)


@pytest.mark.parametrize(
    ("measure", "values", "first"),
    [
        ("dice_after", [0.80, 0.99, 0.79, 0.70, 0.81], 3),  # and not the best, which lies as far out
        ("hausdorff_mm_after", [6.0, 1.0, 6.1, 9.0, 5.9], 3),
        ("mass_g", [100.0, 101.0, 30.0, 99.0, 102.0], 2),  # neither side is worse
        ("folding_percent", [0.0] * 4 + [40.0], 4),  # though the median deviation is 0
        ("mae_after", [1.0, 1.1, 0.9, 1.0, 1000.0], None),  # in the units of the images, which differ by scanner
    ],
)
def test_of_a_measure_with_a_worse_side_only_that_side_counts(measure, values, first):
    rows = [{"status": "done", "verdict": "good", measure: value} for value in values]
    add_suspicion(rows, [measure])
    suspicions = [row["suspicion"] for row in rows]
    assert {*suspicions} == {0.0} if first is None else suspicions.index(max(suspicions)) == first
