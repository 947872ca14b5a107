"""A subject that kills its process blocks nobody behind it, and is a failure in the end."""

import os
import signal
from contextlib import suppress
from multiprocessing import get_context

import pytest

from tests.cohort.works import Count, make_task, subject, write_list
from vrnet.cohort.results import begin_attempt, count_unended
from vrnet.cohort.run import Here, forgiving, make_plan, open_folder, run_tasks
from vrnet.cohort.table import read_table


def run(out, pairs):
    """Do what is to do in a process of its own, which ends itself at s00001: its status, and the order of subjects."""
    task = make_task(out, Count(deadly=frozenset({"s00001"})))
    subjects = make_plan(task.folder, read_table(pairs).subjects, task.recipe).to_do(retry=False)
    process = get_context("fork").Process(target=run_tasks, args=(task, subjects, Here()))
    process.start()
    process.join()
    return process.exitcode, [one.name for one in subjects]


def left_by_killed(task, name, count):
    """What processes leave that were killed during a subject."""
    task.folder.lock(name).write_text(str(count))


def test_a_subject_that_kills_its_process_goes_last_and_is_a_failure_after_three_times(tmp_path):
    pairs, out = write_list(tmp_path, 4), tmp_path / "out"
    assert run(out, pairs) == (1, ["s00000", "s00001", "s00002", "s00003"])
    assert run(out, pairs) == (1, ["s00002", "s00003", "s00001"]), "those behind it are done first"
    assert run(out, pairs) == (1, ["s00001"])
    assert run(out, pairs) == (0, ["s00001"])
    task = make_task(out)
    plan = make_plan(task.folder, read_table(pairs).subjects, task.recipe)
    assert (len(plan.done), [one.name for one in plan.failed]) == (3, ["s00001"])
    reason = task.folder.failure("s00001")["reason"]
    assert reason.startswith("the process ended 3 times during this subject: where the memory does not suffice")
    assert task(plan.failed[0]).status == "done", "asked for again, it is tried again"


def test_counts_of_killed_processes_outlast_tidying_until_the_subject_has_ended(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    left_by_killed(task, "s1", 2)
    task.folder.tidy()
    assert task.folder.unended() == {"s1": 2}
    assert task(one).status == "done"
    assert task.folder.unended() == {}
    os.utime(task.folder.subjects / "s1" / "done.json")
    left_by_killed(task, "s1", 1)
    os.utime(task.folder.lock("s1"), (1, 1))  # killed after its result was in place
    task.folder.tidy()
    assert task.folder.unended() == {}


def stop_at(lock, unended, count):
    assert (unended, count_unended(str(lock))) == (count, count + 1)
    os.kill(os.getpid(), signal.SIGINT)


def test_an_attempt_that_a_person_stops_does_not_count_and_those_before_it_still_do(tmp_path):
    folder = make_task(tmp_path / "out").folder
    lock = folder.lock("s1")
    for count in (0, 1, 2):
        lock.write_text(str(count))
        with pytest.raises(KeyboardInterrupt), open_folder(folder, {}), begin_attempt(lock) as unended:
            stop_at(lock, unended, count)
        assert count_unended(str(lock)) == count
    with pytest.raises(ValueError, match="wrong"), begin_attempt(lock):
        raise ValueError("wrong")
    assert not lock.exists(), "an attempt that fails has ended"


def test_processes_that_a_stopped_run_ends_did_not_kill_themselves(tmp_path):
    task = make_task(tmp_path / "out")
    left_by_killed(task, "before", 1)
    os.utime(task.folder.lock("before"), (1, 1))
    with suppress(KeyboardInterrupt), forgiving(task.folder):
        left_by_killed(task, "once", 1)
        left_by_killed(task, "twice", 2)
        raise KeyboardInterrupt
    assert task.folder.unended() == {"before": 1, "twice": 1}


def test_a_run_on_a_disk_where_nothing_is_counted_goes_on(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    task = make_task(tmp_path / "out", Count())
    assert run_tasks(task, [subject(tmp_path)], Here()).done == 1
