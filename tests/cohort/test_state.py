"""One answer to what there is of a subject, by which plans, tables, shards and tasks go."""

import json

import pytest

from tests.cohort.works import Count, make_task, subject
from vrnet.cohort.results import stamps
from vrnet.cohort.run import Survey, Task, describe_inputs


@pytest.fixture
def cohort(tmp_path):
    """A task, and a subject that it has done."""
    task, one = make_task(tmp_path / "out", report=False), subject(tmp_path)
    assert task(one).status == "done"
    return task, one


def state(task, one):
    kind, why, _ = Survey(task.folder, task.recipe).state(one)
    return kind, why


def test_a_result_counts_while_recipe_inputs_and_files_are_as_they_were(cohort, tmp_path):
    task, one = cohort
    assert state(task, one) == ("done", "")
    assert state(make_task(tmp_path / "out", report=False, method="x"), one) == ("changed", "method count → x")
    subject(tmp_path, text="another image")
    assert state(task, one) == ("changed", "newer or other inputs")
    (tmp_path / "s1.nii").unlink()
    assert state(task, one) == ("changed", "inputs are missing")
    subject(tmp_path)
    task(one)
    (task.folder.subjects / "s1" / "count.txt").unlink()
    assert state(task, one) == ("damaged", "files are missing")
    (task.folder.subjects / "s1" / "done.json").write_text("{")
    assert state(task, one) == ("damaged", "done.json cannot be read")


def test_a_folder_without_a_record_is_no_result(cohort):
    task, one = cohort
    (task.folder.subjects / "s1" / "done.json").unlink()
    assert state(task, one) == ("to do", "")


def test_an_error_counts_for_its_recipe_and_its_inputs_alone(tmp_path):
    task, one = make_task(tmp_path / "out", Count(failing=frozenset({"s1"}))), subject(tmp_path)
    task(one)
    assert state(task, one) == ("failed", "ValueError: s1 cannot be counted")
    assert state(make_task(tmp_path / "out", method="x"), one) == ("to do", "")
    subject(tmp_path, text="another image")
    assert state(task, one) == ("to do", "")


def test_a_page_that_is_not_asked_for_any_more_is_no_change(cohort, tmp_path):
    """Whoever leaves out --report when going on does not lose what is done; whoever adds it wants the pages."""
    task, one = cohort
    with_page = make_task(tmp_path / "out", report=True)
    assert state(with_page, one) == ("changed", "report False → True")
    with_page(one)
    assert state(with_page, one) == state(task, one) == ("done", "")


def test_a_commit_that_one_of_both_does_not_know_is_no_change(tmp_path):
    one = subject(tmp_path)
    known, unknown, other = (make_task(tmp_path / "out", commit=commit) for commit in ("a" * 40, None, "b" * 40))
    assert make_task(tmp_path / "out2", commit=None)(one).status == "done"
    assert state(make_task(tmp_path / "out2", commit="a" * 40), one) == ("done", "")
    Task(known.folder, known.work, known.recipe).make(one, describe_inputs(one, stamps(one)), 0.0)
    assert state(known, one) == state(unknown, one) == ("done", "")
    assert state(other, one) == ("changed", f"commit {'a' * 40} → {'b' * 40}")
    changed = make_task(tmp_path / "out", method="x", commit=None)
    assert state(changed, one) == ("changed", "method count → x"), "a commit that is not known is not told"


def test_what_the_images_chose_is_what_is_asked_for_by_its_name(tmp_path):
    """`default` came to a method; whoever asks for that one has its results, and whoever asks for `default` has not."""
    one = subject(tmp_path)
    task = make_task(tmp_path / "out", lambda subject, folder: {"method": "short-axis"}, method="default")
    task(one)
    assert state(make_task(tmp_path / "out", method="short-axis"), one) == ("done", "")
    assert state(make_task(tmp_path / "out", method="TV-L1"), one) == ("changed", "method default → TV-L1")
    task = make_task(tmp_path / "out2", lambda subject, folder: {"method": "short-axis"}, method="short-axis")
    task(one)
    assert state(make_task(tmp_path / "out2", method="default"), one) == ("changed", "method short-axis → default")


def test_weights_that_the_images_did_not_choose_do_not_count_and_those_of_another_model_do(tmp_path):
    one = subject(tmp_path)
    for name, asked in (("Gaussian-LNCC", None), ("short-axis", "aa")):
        out = tmp_path / name
        work = lambda subject, folder, name=name: {"method": name}  # noqa: E731
        make_task(out, work, method="default", weights="aa")(one)
        assert state(make_task(out, method=name, weights=asked), one) == ("done", "")
    newer = make_task(tmp_path / "short-axis", method="default", weights="bb")
    assert state(newer, one) == ("changed", "weights aa → bb")


def test_a_result_with_a_damaged_record_is_made_again_and_a_file_of_others_beside_it_stays(cohort):
    task, one = cohort
    place = task.folder.subjects / "s1"
    (place / "done.json").write_text("")
    assert task(one).status == "done"
    assert json.loads((place / "done.json").read_text())["subject"] == "s1"
    (place / "done.json").write_text("")
    (place / "mine.txt").write_text("mine")
    assert task(one).status == "failed"
    assert (place / "mine.txt").read_text() == "mine"
