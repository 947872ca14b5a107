"""What is to do is read from the folder: what is done is not done twice, what changed is done again."""

import os

import pytest

from tests.cohort.works import Count, make_task, subject
from vrnet import BadInput
from vrnet.cohort.run import check_kept, make_plan


@pytest.fixture
def cohort(tmp_path):
    """Four subjects: s0 and s1 are done, s2 has failed, s3 is new."""
    subjects = [subject(tmp_path, f"s{k}") for k in range(4)]
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s2"})))
    for one in subjects[:3]:
        task(one)
    return task, subjects


def names(plan):
    return [[one.name for one in part] for part in (plan.done, plan.failed, plan.again, plan.new)]


def test_a_plan_sorts_subjects_by_what_the_folder_says(cohort):
    task, subjects = cohort
    plan = make_plan(task.folder, subjects, task.recipe)
    assert names(plan) == [["s0", "s1"], ["s2"], [], ["s3"]]
    assert [one.name for one in plan.to_do(retry=False)] == ["s3"]
    assert [one.name for one in plan.to_do(retry=True)] == ["s3", "s2"]


def test_another_recipe_asks_for_everything_again_and_says_why(cohort):
    task, subjects = cohort
    plan = make_plan(task.folder, subjects, {**task.recipe, "method": "other"})
    assert names(plan) == [[], [], ["s0", "s1"], ["s2", "s3"]]
    assert plan.changes == {"method count → other": 2}
    with pytest.raises(BadInput, match=r"2 results in .* method count → other \(2\)"):
        check_kept(plan, task.folder, {**task.recipe, "method": "other"})


def test_inputs_are_not_read_where_the_recipe_tells_already_that_results_are_replaced(cohort, monkeypatch):
    task, subjects = cohort
    recipe = {**task.recipe, "method": "other"}
    plan = make_plan(task.folder, subjects, recipe)
    monkeypatch.setattr("vrnet.cohort.run.digests", None)
    with pytest.raises(BadInput, match="2 results"):
        check_kept(plan, task.folder, recipe)


def test_other_inputs_and_results_that_are_not_whole_are_noticed(cohort, tmp_path):
    task, subjects = cohort
    (tmp_path / "s0.nii").write_text("another image")
    (tmp_path / "s2.nii").write_text("repaired")
    (task.folder.subjects / "s1" / "count.txt").write_text("shorter")
    plan = make_plan(task.folder, subjects, task.recipe)
    assert names(plan) == [[], [], ["s0", "s1"], ["s2", "s3"]]
    assert plan.changes == {"newer or other inputs": 1, "files are cut short, or were changed": 1}


def test_inputs_of_another_time_and_the_same_content_are_kept_and_remembered(cohort, tmp_path):
    task, subjects = cohort
    os.utime(tmp_path / "s0.nii", (1, 1))
    plan = make_plan(task.folder, subjects, task.recipe)
    assert names(plan)[2] == ["s0"]
    check_kept(plan, task.folder, task.recipe)
    before = (task.folder.subjects / "s0" / "count.txt").stat()
    task(subjects[0])
    assert names(make_plan(task.folder, subjects, task.recipe))[0] == ["s0", "s1"]
    assert (task.folder.subjects / "s0" / "count.txt").stat() == before


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"recipe": 1}', '{"inputs": [], "files": 3}'])
def test_a_damaged_record_is_no_result(cohort, damage):
    task, subjects = cohort
    (task.folder.subjects / "s0" / "done.json").write_text(damage)
    assert "s0" not in names(make_plan(task.folder, subjects, task.recipe))[0]
