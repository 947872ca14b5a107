"""A subject is done whole, or it is not done; whatever goes wrong is its failure alone."""

import errno
import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.cohort.works import RECIPE, Count, make_task, results, subject
from tests.disks import full_disk
from vrnet import BadInput
from vrnet.cohort.results import CohortFolder, find_unseen
from vrnet.cohort.run import Survey, make_plan
from vrnet.cohort.table import Subject
from vrnet.files import hold_lock


def left_behind(path):
    """What is in the working folder."""
    return sorted(file.name for file in (path / ".working").iterdir())


def test_a_result_comes_with_a_record_of_inputs_recipe_and_files(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    assert task(one).status == "done"
    done = json.loads((tmp_path / "out" / "subjects" / "s1" / "done.json").read_text())
    assert done["recipe"] == task.recipe
    assert done["inputs"]["fixed"]["path"] == str(tmp_path / "s1.nii")
    assert set(done["files"]) == {"count.txt", "parts/content.bin"}
    assert left_behind(tmp_path / "out") == []


def test_what_is_done_is_not_done_again_unless_recipe_input_or_files_changed(tmp_path):
    calls = []

    def work(subject, folder):
        calls.append(subject.name)
        return Count()(subject, folder)

    task, one = make_task(tmp_path / "out", work), subject(tmp_path)
    for _ in range(2):
        assert task(one).status == "done"
    assert calls == ["s1"]
    os.utime(tmp_path / "s1.nii", (1, 1))  # another time, the same content
    assert (task(one).status, len(calls)) == ("done", 1)
    subject(tmp_path, text="another")
    assert (task(one).status, len(calls)) == ("done", 2)
    assert (make_task(tmp_path / "out", work, method="other")(one).status, len(calls)) == ("done", 3)
    (tmp_path / "out" / "subjects" / "s1" / "count.txt").unlink()
    assert (make_task(tmp_path / "out", work, method="other")(one).status, len(calls)) == ("done", 4)
    assert left_behind(tmp_path / "out") == []


def test_another_value_beside_files_is_another_input(tmp_path):
    calls = []

    def work(subject, folder):
        calls.append(subject.values["frame"])
        return {}

    task, one = make_task(tmp_path / "out", work), subject(tmp_path)
    for frame in ("3", "3", "4"):
        given = replace(one, values={"frame": frame})
        assert task(given).status == "done"
        assert make_plan(task.folder, [given], task.recipe).done == [given]
    assert calls == ["3", "4"]
    assert make_plan(task.folder, [one], task.recipe).changes == {"newer or other inputs": 1}


def test_files_of_others_in_the_folder_of_a_result_are_never_lost(tmp_path):
    one, out = subject(tmp_path), tmp_path / "out"
    make_task(out)(one)
    (out / "subjects" / "s1" / "mine.txt").write_text("mine")
    before, calls = results(out), []
    outcome = make_task(out, lambda *given: calls.append(given), method="other")(one)
    assert (outcome.status, calls) == ("failed", []), "it is refused before the work"
    assert "mine.txt is not as this cohort wrote it" in outcome.reason
    assert results(out) == before


def test_a_failure_is_kept_with_its_reason_and_traceback_until_the_subject_is_done(tmp_path):
    one, out = subject(tmp_path), tmp_path / "out"
    outcome = make_task(out, Count(failing=frozenset({"s1"})))(one)
    assert (outcome.status, outcome.reason) == ("failed", "ValueError: s1 cannot be counted")
    assert json.loads((out / "failures" / "s1.json").read_text())["reason"] == outcome.reason
    assert "in __call__" in (out / "failures" / "s1.txt").read_text()
    assert not (out / "subjects" / "s1").exists()
    assert make_task(out)(one).status == "done"
    assert list((out / "failures").iterdir()) == []


@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_whenever_a_process_is_killed_there_is_a_result_or_the_failure(tmp_path, monkeypatch, step):
    """At the n-th call of the system that renames or removes something."""
    one, out = subject(tmp_path), tmp_path / "out"
    do, kills = getattr(os, step), 0
    for calls in range(1, 9):
        make_task(out, Count(failing=frozenset({"s1"})), method=str(calls))(one)
        left = [calls]

        def kill_at_last(*arguments, left=left, **options):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return do(*arguments, **options)

        monkeypatch.setattr(os, step, kill_at_last)
        with suppress(KeyboardInterrupt):
            make_task(out, method=str(calls))(one)
        monkeypatch.undo()
        kills += left[0] <= 0
        assert Survey(CohortFolder(out), {**RECIPE, "method": str(calls)}).state(one).kind in ("done", "failed")
    assert kills


def test_an_earlier_result_goes_back_where_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    one, out, rename = subject(tmp_path), tmp_path / "out", os.rename
    make_task(out)(one)
    before = results(out)

    def refuse_new(source, target):
        if "subjects" in str(target) and not str(source).endswith("old"):
            raise OSError(errno.EIO, "Input/output error", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse_new)
    assert make_task(out, method="other")(one).status == "failed"
    assert results(out) == before != {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadInput("p is constant: give another"), "p is constant: give another"),
        (MemoryError(), "there was too little memory"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "/x: No space left on device"),
        (OSError(errno.EPERM, "Operation not permitted", "/temporary", None, "/x"), "/x: Operation not permitted"),
        (RuntimeError(), "RuntimeError: no message"),
    ],
)
def test_reasons_are_one_line(tmp_path, error, reason):
    def work(subject, folder):
        raise error

    outcome = make_task(tmp_path / "out", work)(subject(tmp_path))
    assert outcome.reason.startswith(reason)
    assert left_behind(tmp_path / "out") == []


def test_a_reason_names_the_file_of_a_result_and_not_its_temporary_folder(tmp_path):
    def work(subject, folder):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "transform.nii.gz"))

    outcome = make_task(tmp_path / "out", work)(subject(tmp_path))
    assert outcome.reason == "transform.nii.gz: No space left on device"


def test_an_input_that_is_replaced_meanwhile_is_a_failure_and_then_done(tmp_path):
    one = subject(tmp_path)

    def work(given, folder):
        os.utime(tmp_path / "s1.nii", (7, 7))
        return Count()(given, folder)

    outcome = make_task(tmp_path / "out", work)(one)
    assert (outcome.status, "was replaced while" in outcome.reason) == ("failed", True)
    assert results(tmp_path / "out") == {}
    assert make_task(tmp_path / "out")(one).status == "done"


def test_an_input_that_was_missing_is_a_failure_and_one_that_is_missing_here_alone_is_none(tmp_path):
    """A node whose file system is not mounted would make failures of all subjects."""
    task, one = make_task(tmp_path / "out"), Subject("s1", {"fixed": str(tmp_path / "none.nii")})
    outcome = task(one)
    assert (outcome.status, "none.nii, which was there when" in outcome.reason) == ("unable", True)
    assert list(task.folder.failures.iterdir()) == []
    outcome = replace(task, known_missing=frozenset({"s1"}))(one)
    assert (outcome.status, outcome.is_recorded, "there is no" in outcome.reason) == ("failed", True, True)


def test_a_folder_with_a_link_to_nowhere_is_a_failure_that_names_the_link(tmp_path):
    (tmp_path / "dicom").mkdir()
    (tmp_path / "dicom" / "1.dcm").symlink_to(tmp_path / "gone.dcm")
    one, task = Subject("s1", {"fixed": str(tmp_path / "dicom")}), make_task(tmp_path / "out")
    outcome = replace(task, known_missing=find_unseen([one, subject(tmp_path, "s2")]))(one)
    assert (outcome.status, "dicom/1.dcm" in outcome.reason) == ("failed", True)
    assert find_unseen([subject(tmp_path, "s2")]) == set()


def test_a_result_that_was_cut_short_is_told_so_and_what_to_do(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    task(one)
    file = task.folder.subjects / "s1" / "count.txt"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:7])
    assert make_plan(task.folder, [one], task.recipe).changes == {"files are cut short, or were changed": 1}
    assert f"it has 7 of {size:,} bytes; remove it if it is damaged" in task(one).reason
    file.unlink()
    assert task(one).status == "done"


def test_a_subject_that_another_process_is_at_is_left_to_it(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    with hold_lock(task.folder.lock("s1")):
        assert task(one).status == "elsewhere"
    assert task(one).status == "done"


def test_a_machine_that_does_not_see_the_folder_makes_none(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    shutil.rmtree(tmp_path / "out")
    outcome = task(one)
    assert (outcome.status, "does not see" in outcome.reason) == ("unable", True)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_goes_away_during_the_work_is_no_failure_of_the_subject(tmp_path):
    """As where a file system is taken away, and what is written goes to the empty folder below it."""

    def work(subject, folder):
        (tmp_path / "out").rename(tmp_path / "away")
        folder.mkdir(parents=True)
        return Count()(subject, folder)

    task, one = make_task(tmp_path / "out", work), subject(tmp_path)
    for _ in range(2):
        assert task(one).status == "unable", "the second time, a part of the folder is there again"
    assert not (tmp_path / "out" / "failures").exists()
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "away").rename(tmp_path / "out")
    assert make_task(tmp_path / "out")(one).status == "done"


def test_a_link_in_the_place_of_a_result_goes_and_what_it_leads_to_stays(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    (tmp_path / "linked").mkdir()
    (tmp_path / "out" / "subjects" / "s1").symlink_to(tmp_path / "linked")
    assert task(one).status == "done"
    assert left_behind(tmp_path / "out") == []
    assert (tmp_path / "linked").is_dir()


def test_another_version_of_vrnet_does_no_work(tmp_path):
    outcome = make_task(tmp_path / "out", vrnet="9.9")(subject(tmp_path))
    assert (outcome.status, "not 9.9" in outcome.reason) == ("unable", True)
    assert list((tmp_path / "out" / "failures").iterdir()) == [], "another machine may do it"


def test_another_commit_of_vrnet_does_no_work_and_one_that_is_not_known_does(tmp_path, monkeypatch):
    one = subject(tmp_path)
    monkeypatch.setattr("vrnet.cohort.run.commit", lambda: "a" * 40)
    outcome = make_task(tmp_path / "out", commit="b" * 40)(one)
    assert (outcome.status, f"not {'b' * 40}" in outcome.reason) == ("unable", True)
    monkeypatch.setattr("vrnet.cohort.run.commit", lambda: None)
    assert make_task(tmp_path / "out", commit="b" * 40)(one).status == "done"


def test_a_full_disk_is_a_failure_without_a_trace(tmp_path):
    (out := tmp_path / "out").mkdir()
    one = subject(tmp_path)
    with full_disk(out, 64) as is_full:
        if not is_full:
            pytest.skip("only the superuser can mount a full disk")
        task = make_task(out)
        (out / "filler").write_bytes(bytes(56 * 1024))
        outcome = task(one)
        assert (outcome.status, "No space left" in outcome.reason) == ("failed", True), outcome
        assert results(out) == {}
        assert left_behind(out) == []
        (out / "filler").unlink()
        assert task(one).status == "done"


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path):
    task = make_task(tmp_path / "out")
    for name in ("dead", "living"):
        (task.folder.working / f"{name}~0123").mkdir()
        (task.folder.lock(name)).touch()
    with hold_lock(task.folder.lock("living")):
        task.folder.tidy()
        assert left_behind(tmp_path / "out") == ["living.lock", "living~0123"]
    task.folder.tidy()
    assert left_behind(tmp_path / "out") == []
