"""What is written of all subjects together, and when; what a cohort says adds up, and names what to look at."""

from dataclasses import replace

import pytest

from tests.cohort.works import Count, make_task, write_list
from vrnet.app import cohort_tables
from vrnet.app.cohort_tables import (
    ending_lines,
    failure_lines,
    has_rows_of,
    has_tables_of,
    is_complete,
    jobs_line,
    missing_lines,
    plan_lines,
    remove_tables,
    shard_lines,
    unable_lines,
    unlabelled_lines,
    write_tables,
)
from vrnet.cohort.results import Plan
from vrnet.cohort.run import Executor, Tally, run_tasks
from vrnet.cohort.table import Missing, Subject, read_table

SHOWN = {"report": False, "bids": False, "label_names": {}}


@pytest.fixture
def cohort(tmp_path):
    """A task, and a list whose four subjects it has done."""
    task, table = make_task(tmp_path / "out", Count(), **SHOWN), read_table(write_list(tmp_path, 4))
    run_tasks(task, table.subjects, Executor())
    return task, table


def test_tables_tell_of_one_recipe_and_of_one_list(cohort):
    task, table = cohort
    shorter, other = replace(table, subjects=table.subjects[:3]), {**task.recipe, "method": "other"}
    assert not has_tables_of(task.folder, task.recipe)
    write_tables(task.folder, table, task.recipe)
    assert (has_tables_of(task.folder, task.recipe), has_tables_of(task.folder, other)) == (True, False)
    assert (has_rows_of(task.folder, table), has_rows_of(task.folder, shorter)) == (True, False)
    remove_tables(task.folder, task.recipe)
    assert not has_tables_of(task.folder, task.recipe)
    assert not has_rows_of(task.folder, table)


def test_the_methods_that_ran_are_named_as_people_know_them_the_most_frequent_first(tmp_path):
    """What is asked for may be `default`, which comes to one method for stacks and to another for volumes."""
    table = read_table(write_list(tmp_path, 3))
    names = {"s00000": "Gaussian-LNCC", "s00001": "short-axis", "s00002": "short-axis"}
    task = make_task(tmp_path / "out", lambda subject, folder: {"method": names[subject.name]}, **SHOWN)
    run_tasks(task, table.subjects, Executor())
    write_tables(task.folder, table, task.recipe)
    assert "short-axis (D-L2-3x1-half-w32), Gaussian-LNCC" in (tmp_path / "out" / "index.html").read_text()


def test_whether_a_list_is_complete_is_told_by_names_where_that_suffices(cohort, tmp_path, monkeypatch):
    task, table = cohort
    assert is_complete(task.folder, table, task.recipe)
    monkeypatch.setattr("vrnet.cohort.results.Survey.state", None)
    assert not is_complete(task.folder, read_table(write_list(tmp_path, 5)), task.recipe)


def some(count):
    return [Subject(f"s{k}", {}) for k in range(count)]


def test_the_numbers_of_a_plan_add_up_with_and_without_failures():
    plan = Plan(done=some(4), failed=some(2), again=some(3), new=some(1))
    plan.changes.update({"method A → B": 3})
    first, second, third, last = plan_lines(plan, retry=False)
    assert first == "10 subjects: 4 done already, 2 failed, 4 to do (1 new, 3 again)."
    assert (second, "are replaced" in third, "--retry" in last) == ("Again, 3: method A → B.", True, True)
    first, *_ = plan_lines(plan, retry=True)
    assert first == "10 subjects: 4 done already, 6 to do (1 new, 3 again, 2 that failed before)."


def test_the_end_names_failures_failed_verdicts_and_what_is_left():
    summary = {"done": 2, "subjects": 4, "verdicts": {"good": 1, "failed": 1}, "recipe": {}}
    rows = [
        {"subject": "a", "status": "done", "verdict": "good"},
        {"subject": "b", "status": "done", "verdict": "failed"},
        {"subject": "c", "status": "failed", "reason": "no image"},
        {"subject": "d", "status": "to do"},
    ]
    said = list(ending_lines(summary, rows))
    assert said[:3] == [
        "2 of 4 subjects are done; verdicts: 1 failed, 1 good.",
        "Verdict failed: b.",
        "Could not be done, c: no image",
    ]
    assert said[3].endswith("meanwhile: d.")
    assert said[4].startswith("To see to what is left: vrnet")
    assert [*ending_lines(summary, rows, told={"d"})] == [*said[:3], said[4]]


def test_the_end_names_the_three_that_are_farthest_out_and_in_what():
    summary = {"done": 5, "subjects": 6, "verdicts": {}, "recipe": {"label_names": {"3": "LV"}}}
    rows = [
        {"subject": name, "status": "done", "suspicion": suspicion, "suspicion_by": by}
        for name, suspicion, by in (("a", 2.1, "ncc_after"), ("b", 6, "dice_3"), ("c", 0.5, None), ("d", 3, "mass_g"),
                                    ("e", 4, "surface_mm_after"))
    ] + [{"subject": "f", "status": "failed", "suspicion": 300.0, "reason": "no image"}]  # fmt: skip
    assert [*ending_lines(summary, rows)][1] == (
        "Look first at what is farthest from the others: b (Dice of LV after); e (Surface distance after (mm)); "
        "d (LV mass (g))."
    )
    assert not any("Look first" in line for line in ending_lines(summary, [rows[2]]))


def test_workers_that_were_stopped_and_subjects_that_no_machine_could_do_are_told_with_the_reason():
    tally = Tally(3, unable={"a": "no disk on node7", "b": "no disk on node7"}, stopped={"tcp://7": "no disk on node7"})
    assert list(unable_lines(tally)) == [
        "No more work was given to tcp://7: no disk on node7",
        "Left, a; b: no disk on node7",
    ]


def test_a_shard_tells_what_failed_before_too():
    plan, tally = Plan(done=some(3), failed=some(2)), Tally(total=1, done=1)
    assert next(shard_lines("2/4", plan, tally, 2, has_tables=False)) == "Shard 2/4: 4 done, 2 failed, 0 left."


def test_the_most_frequent_reasons_come_first_and_many_subjects_are_counted():
    reasons = {"x": "rare", **{f"s{k}": "frequent" for k in range(8)}}
    assert list(failure_lines(reasons)) == [
        "Could not be done, s0; s1; s2; s3; s4 and 3 more: frequent",
        "Could not be done, x: rare",
    ]


def test_more_jobs_are_advised_only_where_there_are_cores_and_subjects(monkeypatch):
    monkeypatch.setattr(cohort_tables.os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    assert "--jobs 3 would use more of the 4 cores" in next(jobs_line(3))
    assert list(jobs_line(1)) == []


def test_missing_files_come_with_what_to_do_unless_they_are_skipped():
    missing = [Missing(Subject("a", {}), "a.nii.gz", ""), Missing(Subject("b", {}), "b.nii.gz", "Permission denied")]
    *files, advice = missing_lines(missing, skip_broken=False)
    assert files == ["Missing, of a: a.nii.gz", "Cannot be read, of b: b.nii.gz (Permission denied)"]
    assert "--skip-broken" in advice
    assert [*missing_lines(missing, skip_broken=True)] == files
    assert [*missing_lines([], skip_broken=False)] == []


def test_subjects_without_labels_are_told_where_others_have_some():
    bare, full = Subject("bare", {"fixed": "f"}), Subject("full", {"fixed": "f", "fixed_labels": "l"})
    assert [*unlabelled_lines([full, bare])] == ["Without labels, which others have: bare."]
    assert [*unlabelled_lines([bare, bare])] == [*unlabelled_lines([full])] == []
