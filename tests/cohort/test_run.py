"""A subject is done whole, or it is not done; whatever goes wrong is its failure alone, and stops nobody else."""

import errno
import json
import os
import shutil
import signal
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing import get_context
from time import process_time

import pytest

from tests.cohort.works import RECIPE, Count, make_task, results, subject, write_list
from tests.disks import full_disk
from vrnet import BadInput
from vrnet.cohort import run as engine
from vrnet.cohort.results import CohortFolder, Survey, make_plan, open_folder
from vrnet.cohort.run import KILLED, Executor, Outcome, Tally, duration, open_executor, run_tasks
from vrnet.cohort.table import Subject, read_table
from vrnet.errors import UnfitMachine


@pytest.fixture
def subjects(tmp_path):
    return read_table(write_list(tmp_path, 20)).subjects


def left_behind(path):
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
    calls, out = [], tmp_path / "out"

    def work(subject, folder):
        calls.append(subject.name)
        return Count()(subject, folder)

    task, one = make_task(out, work), subject(tmp_path)
    for _ in range(2):
        assert (task(one).status, len(calls)) == ("done", 1)
    os.utime(tmp_path / "s1.nii", (1, 1))  # another time, the same content
    assert (task(one).status, len(calls)) == ("done", 1)
    subject(tmp_path, text="another")
    assert (task(one).status, len(calls)) == ("done", 2)
    other = make_task(out, work, method="other")
    assert (other(one).status, len(calls)) == ("done", 3)
    (out / "subjects" / "s1" / "count.txt").unlink()
    assert (other(one).status, len(calls)) == ("done", 4)
    framed = replace(one, values={"frame": "4"})  # what it depends on beside files
    assert make_plan(other.folder, [framed], other.recipe).changes == {"newer or other inputs": 1}
    assert (other(framed).status, other(framed).status, len(calls)) == ("done", "done", 5)
    assert left_behind(out) == []


def test_files_of_others_in_the_folder_of_a_result_are_never_lost(tmp_path):
    one, out = subject(tmp_path), tmp_path / "out"
    make_task(out)(one)
    place = out / "subjects" / "s1"
    (place / "mine.txt").write_text("mine")
    before, calls = results(out), []
    outcome = make_task(out, lambda *given: calls.append(given), method="other")(one)
    assert (outcome.status, calls) == ("failed", []), "it is refused before the work"
    assert "mine.txt is not as this cohort wrote it" in outcome.reason
    assert results(out) == before
    (place / "done.json").write_text("")
    assert make_task(out)(one).status == "failed", "also beside a record that cannot be read"
    (place / "mine.txt").unlink()
    assert make_task(out)(one).status == "done"
    assert json.loads((place / "done.json").read_text())["subject"] == "s1"


def test_a_result_that_was_cut_short_is_told_so_and_what_to_do(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    task(one)
    file = task.folder.subjects / "s1" / "count.txt"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:7])
    assert f"it has 7 of {size:,} bytes; remove it if it is damaged" in task(one).reason
    file.unlink()
    assert task(one).status == "done"


def test_a_failure_is_kept_with_its_reason_and_traceback_until_the_subject_is_done(tmp_path):
    one, out = subject(tmp_path), tmp_path / "out"
    outcome = make_task(out, Count(failing=frozenset({"s1"})))(one)
    assert (outcome.status, outcome.reason) == ("failed", "ValueError: s1 cannot be counted")
    assert json.loads((out / "failures" / "s1.json").read_text())["reason"] == outcome.reason
    assert "in __call__" in (out / "failures" / "s1.txt").read_text()
    assert not (out / "subjects" / "s1").exists()
    assert make_task(out)(one).status == "done"
    assert list((out / "failures").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadInput("p is constant: give another"), "p is constant: give another"),
        (MemoryError(), "there was too little memory"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "/x: No space left on device"),
        (OSError(errno.EPERM, "Operation not permitted", "/temporary", None, "/x"), "/x: Operation not permitted"),
        (RuntimeError(), "RuntimeError: no message"),
        (None, "transform.nii.gz: No space left on device"),  # and not in which temporary folder
    ],
)
def test_reasons_are_one_line(tmp_path, error, reason):
    def work(subject, folder):
        raise error or OSError(errno.ENOSPC, "No space left on device", str(folder / "transform.nii.gz"))

    outcome = make_task(tmp_path / "out", work)(subject(tmp_path))
    assert outcome.reason.startswith(reason)
    assert left_behind(tmp_path / "out") == []


@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_whenever_a_process_is_stopped_there_is_a_result_or_the_failure(tmp_path, monkeypatch, step):
    """At the n-th call of the system that renames or removes something."""
    one, out = subject(tmp_path), tmp_path / "out"
    do, kills = getattr(os, step), 0
    for calls in range(1, 9):
        replace(make_task(out, Count(failing=frozenset({"s1"})), method=str(calls)), is_last=True)(one)
        left = [calls]

        def kill_at_last(*arguments, left=left, **options):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return do(*arguments, **options)

        monkeypatch.setattr(os, step, kill_at_last)
        with suppress(KeyboardInterrupt):
            replace(make_task(out, method=str(calls)), is_last=True)(one)
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


def test_a_link_in_the_place_of_a_result_goes_and_what_it_leads_to_stays(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    (tmp_path / "linked").mkdir()
    (tmp_path / "out" / "subjects" / "s1").symlink_to(tmp_path / "linked")
    assert task(one).status == "done"
    assert left_behind(tmp_path / "out") == []
    assert (tmp_path / "linked").is_dir()


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
    assert (outcome.status, "there is no" in outcome.reason) == ("failed", True)


def test_a_folder_with_a_link_to_nowhere_is_a_failure_that_names_the_link(tmp_path):
    (tmp_path / "dicom").mkdir()
    (tmp_path / "dicom" / "1.dcm").symlink_to(tmp_path / "gone.dcm")
    outcome = make_task(tmp_path / "out")(Subject("s1", {"fixed": str(tmp_path / "dicom")}))
    assert (outcome.status, "dicom/1.dcm" in outcome.reason) == ("failed", True)


def test_a_folder_that_goes_away_during_the_work_is_no_failure_of_the_subject(tmp_path):
    """As where a file system is taken away, and what is written goes to the empty folder below it."""

    def work(subject, folder):
        (tmp_path / "out").rename(tmp_path / "away")
        folder.mkdir(parents=True)
        return Count()(subject, folder)

    task, one = make_task(tmp_path / "out", work), subject(tmp_path)
    for _ in range(2):
        outcome = task(one)
        assert (outcome.status, "does not see" in outcome.reason) == ("unable", True), "also where a part is there"
    assert not (tmp_path / "out" / "failures").exists()
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert (task(one).status, (tmp_path / "out").exists()) == ("unable", False), "none is made"
    (tmp_path / "away").rename(tmp_path / "out")
    assert replace(make_task(tmp_path / "out"), is_last=True)(one).status == "done"


def test_another_version_or_commit_of_vrnet_does_no_work_and_one_that_is_not_known_does(tmp_path, monkeypatch):
    one, out = subject(tmp_path), tmp_path / "out"
    monkeypatch.setattr("vrnet.cohort.run.commit", lambda: "a" * 40)
    for other, words in (({"vrnet": "9.9"}, "not 9.9"), ({"commit": "b" * 40}, f"not {'b' * 40}")):
        outcome = make_task(out, **other)(one)
        assert (outcome.status, words in outcome.reason) == ("unable", True)
    assert list((out / "failures").iterdir()) == [], "another machine may do it"
    monkeypatch.setattr("vrnet.cohort.run.commit", lambda: None)
    assert make_task(out, commit="b" * 40)(one).status == "done"


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


def test_a_run_does_every_subject_and_one_failure_stops_nobody(tmp_path, subjects):
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00007"})))
    shown = []
    tally = run_tasks(task, subjects, Executor(), lambda tally: shown.append((tally.done, tally.failed, tally.left)))
    assert (tally.done, tally.failed, tally.left) == shown[-1] == (19, 1, 0)
    assert tally.reasons == {"s00007": "ValueError: s00007 cannot be counted"}
    assert "19 done, 1 failed, 0 left" in tally.line()


def test_two_runs_at_once_share_the_work_and_each_ends_with_all_of_it(tmp_path, subjects):
    """Each in a thread, as two processes would be. What both were at in the end is done by either, and kept once."""
    calls, tallies = [], []

    def work(subject, folder):
        calls.append(subject.name)
        return Count(seconds=0.02)(subject, folder)

    def run():
        tallies.append(run_tasks(make_task(tmp_path / "out", work), subjects, Executor()))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*calls} == {one.name for one in subjects}
    assert len(calls) <= len(subjects) + 4, "one at the beginning, where both begin at once, and some at the end"
    assert [(tally.done, tally.failed, tally.left) for tally in tallies] == [(20, 0, 0)] * 2
    task = make_task(tmp_path / "out")
    assert len(make_plan(task.folder, subjects, task.recipe).done) == 20
    assert left_behind(tmp_path / "out") == []


def test_of_two_that_do_one_subject_the_first_to_end_wins_and_the_other_takes_that_for_done(tmp_path):
    task, one = replace(make_task(tmp_path / "out"), is_last=True), subject(tmp_path)

    def slower(given, folder):
        row = Count()(given, folder)
        assert task(one).status == "done", "another process does it meanwhile, and clears what is begun"
        return row

    def slowest(given, folder):
        assert task(one).status == "done"
        return Count()(given, folder)

    for work in (slower, slowest):
        (tmp_path / "out" / "subjects" / "s1" / "done.json").unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "out" / "subjects" / "s1", ignore_errors=True)
        assert replace(task, work=work)(one).status == "done"
        assert (left_behind(tmp_path / "out"), task.folder.names_of_failures()) == ([], set())


def run_in_process(out, pairs):
    """Do what is to do in a process of its own, which ends itself at s00001: its status, and the order of subjects."""
    task = make_task(out, Count(deadly=frozenset({"s00001"})))
    todo = make_plan(task.folder, read_table(pairs).subjects, task.recipe).to_do(retry=False)
    process = get_context("fork").Process(target=run_tasks, args=(task, todo, Executor()))
    process.start()
    process.join()
    return process.exitcode, [one.name for one in todo]


def test_a_subject_that_kills_its_process_goes_last_and_is_a_failure_after_three_times(tmp_path):
    pairs, out = write_list(tmp_path, 4), tmp_path / "out"
    assert run_in_process(out, pairs) == (1, ["s00000", "s00001", "s00002", "s00003"])
    assert run_in_process(out, pairs) == (1, ["s00002", "s00003", "s00001"]), "those behind it are done first"
    assert run_in_process(out, pairs) == (1, ["s00001"])
    assert run_in_process(out, pairs) == (0, ["s00001"])
    task = make_task(out)
    plan = make_plan(task.folder, read_table(pairs).subjects, task.recipe)
    assert (len(plan.done), [one.name for one in plan.failed]) == (3, ["s00001"])
    assert task.folder.failure("s00001")["reason"] == KILLED.format(3)
    assert left_behind(out) == []
    assert task(plan.failed[0]).status == "done", "asked for again, it is tried again"


def test_a_process_that_a_person_stops_was_not_killed_nor_those_that_it_ended(tmp_path):
    task = make_task(tmp_path / "out", Count(deadly=frozenset({"s1"})))
    subjects, child = [subject(tmp_path, name) for name in ("s0", "s1")], get_context("fork").Process

    def interrupt(subject, folder):
        os.kill(os.getpid(), signal.SIGINT)

    def run_child():
        (worker := child(target=task, args=(subjects[1],))).start()
        worker.join()
        assert task.folder.begun() == {"s1": 1}

    def run(first):
        first()
        replace(task, work=interrupt)(subjects[0])

    plan = make_plan(task.folder, subjects, task.recipe)
    with pytest.raises(KeyboardInterrupt), open_folder(task.folder, plan):
        run(run_child)
    assert task.folder.begun() == {}
    run_child()
    with pytest.raises(KeyboardInterrupt), open_folder(task.folder, plan):
        run(list)
    assert task.folder.begun() == {"s1": 1}, "but what was killed before this run still was"


def test_a_subject_that_this_machine_cannot_do_is_left_and_told_and_three_in_turn_end_the_run(tmp_path, subjects):
    def sometimes(unable):
        def work(subject, folder):
            if subject.name in unable:
                raise UnfitMachine(f"no {subject.name} here")
            return Count()(subject, folder)

        return work

    names = [one.name for one in subjects]
    tally = run_tasks(make_task(tmp_path / "out", sometimes(names[:2] + names[5:7])), subjects, Executor())
    assert (tally.done, tally.failed, tally.left) == (16, 0, 4)
    assert tally.unable[names[1]] == f"no {names[1]} here"
    assert "4 put off" in tally.line()
    with pytest.raises(BadInput, match="no s00004 here"):
        run_tasks(make_task(tmp_path / "out2", sometimes(names[2:5])), subjects, Executor())


def test_a_disk_on_which_not_even_a_failure_fits_ends_the_run(tmp_path, subjects, monkeypatch):
    def refuse(*arguments):
        raise BadInput("cannot write")

    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00002"})))
    monkeypatch.setattr(type(task.folder), "record_failure", refuse)
    with pytest.raises(BadInput, match="check its room and your permission, then start again"):
        run_tasks(task, subjects, Executor())
    assert {name.partition("/")[0] for name in results(tmp_path / "out")} == {"s00000", "s00001"}


@pytest.mark.release
def test_planning_and_the_engine_itself_cost_little(tmp_path):
    """A hundred thousand subjects are planned in 10 s, and cost 3 ms each: here some of them, in computing time, by the
    best of three, and three times as long, since tests check types, and others use the machine too."""
    table, running, planning = read_table(write_list(tmp_path, 200)), [], []
    for k in range(3):
        task, start = make_task(tmp_path / f"out{k}"), process_time()
        run_tasks(task, table.subjects, Executor())
        running.append(process_time() - start)
        start = process_time()
        assert len(make_plan(task.folder, table.subjects, task.recipe).done) == 200
        planning.append(process_time() - start)
    assert min(running) < 200 * 0.009
    assert min(planning) < 200 * 0.0003


def test_no_more_processes_are_started_than_there_are_subjects(monkeypatch):
    started = []
    monkeypatch.setattr("vrnet.cohort.dask.local_cluster", lambda jobs: started.append(jobs) or nullcontext(Executor()))
    for subjects in (3, 20, 1, 0):
        with open_executor(subjects, jobs=8) as executor:
            assert isinstance(executor, Executor)
    assert started == [3, 8]


def test_the_line_of_a_run_under_way(monkeypatch):
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(engine, "monotonic", lambda: next(clock))
    run = Tally(40)
    for k in range(9):
        run.add(Outcome(f"p{k}", "done", 5.0 + k))
    run.add(Outcome("p9", "failed", 1.0, "no image"))
    line = run.line()
    assert line.startswith("9 done, 1 failed, 30 left, ")
    assert "slowest p8 (13 s)" in line
    assert "per minute" in line
    assert "min left" in line
    assert [duration(s) for s in (0.25, 45.0, 600.0, 9e3, 9e5)] == ["0.25 s", "45 s", "10 min", "2.5 h", "10 days"]
