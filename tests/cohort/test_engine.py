"""A run does every subject once, wherever it runs, and leaves to another run what that one is at."""

import threading
from time import process_time

import pytest

from tests.cohort.works import Count, make_task, results, write_list
from vrnet import BadInput
from vrnet.cohort import run as engine
from vrnet.cohort.run import Here, Outcome, make_plan, run_tasks
from vrnet.cohort.table import read_table
from vrnet.errors import UnfitMachine
from vrnet.files import hold_lock


@pytest.fixture
def subjects(tmp_path):
    return read_table(write_list(tmp_path, 20)).subjects


def test_a_run_does_every_subject_and_one_failure_stops_nobody(tmp_path, subjects):
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00007"})))
    shown = []
    tally = run_tasks(task, subjects, Here(), lambda tally: shown.append((tally.done, tally.failed, tally.left)))
    assert (tally.done, tally.failed, tally.left) == (19, 1, 0)
    assert tally.reasons == {"s00007": "ValueError: s00007 cannot be counted"}
    assert shown[-1] == (19, 1, 0)
    assert "19 done, 1 failed, 0 left" in tally.line()


def test_two_runs_at_once_share_the_work_and_do_nothing_twice(tmp_path, subjects):
    """Each in a thread with a claim of its own, as two processes would be."""
    calls = []

    def work(subject, folder):
        calls.append(subject.name)
        return Count(seconds=0.02)(subject, folder)

    tallies = []

    def run():
        tallies.append(run_tasks(make_task(tmp_path / "out", work), subjects, Here()))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == [one.name for one in subjects]
    assert [(tally.done, tally.left) for tally in tallies] == [(20, 0), (20, 0)]
    task = make_task(tmp_path / "out")
    assert len(make_plan(task.folder, subjects, task.recipe).done) == 20


def test_what_another_run_does_not_end_is_left_to_it(tmp_path, subjects, monkeypatch):
    monkeypatch.setattr(engine, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(engine, "LOOK_AGAIN_SECONDS", 0.05)
    task = make_task(tmp_path / "out")
    with hold_lock(task.folder.lock("s00003")):
        tally = run_tasks(task, subjects, Here())
    assert (tally.done, tally.elsewhere, tally.left) == (19, 1, 1)
    assert "1 by another run" in tally.line()


def test_a_failure_that_cannot_be_recorded_where_it_happened_is_recorded_here(tmp_path, subjects):
    class Elsewhere(Here):
        def map(self, task, subjects):
            yield Outcome(subjects[0].name, "failed", 1.0, "its process died", is_recorded=False)

    task = make_task(tmp_path / "out")
    tally = run_tasks(task, subjects[:1], Elsewhere())
    assert tally.failed == 1
    assert task.folder.failure("s00000")["reason"] == "its process died"


def test_a_subject_that_this_machine_cannot_do_is_left_and_told_and_three_in_turn_end_the_run(tmp_path, subjects):
    class Sometimes:
        def __init__(self, unable):
            self.unable = unable

        def __call__(self, subject, folder):
            if subject.name in self.unable:
                raise UnfitMachine(f"no {subject.name} here")
            return Count()(subject, folder)

    names = [one.name for one in subjects]
    tally = run_tasks(make_task(tmp_path / "out", Sometimes(names[:2] + names[5:7])), subjects, Here())
    assert (tally.done, tally.failed, tally.left) == (16, 0, 4)
    assert tally.unable[names[1]] == f"no {names[1]} here"
    assert "4 put off" in tally.line()
    with pytest.raises(BadInput, match="no s00004 here"):
        run_tasks(make_task(tmp_path / "out2", Sometimes(names[2:5])), subjects, Here())


def test_a_disk_on_which_not_even_a_failure_fits_ends_the_run(tmp_path, subjects, monkeypatch):
    def refuse(*arguments):
        raise BadInput("cannot write")

    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00002"})))
    monkeypatch.setattr(type(task.folder), "record_error", refuse)
    with pytest.raises(BadInput, match="check its room and your permission, then start again"):
        run_tasks(task, subjects, Here())
    assert {name.partition("/")[0] for name in results(tmp_path / "out")} == {"s00000", "s00001"}


def test_planning_and_the_engine_itself_cost_little(tmp_path):
    """A hundred thousand subjects are planned in 10 s, and cost 3 ms each: here some of them, in computing time, by the
    best of three, and three times as long, since tests check types, and others use the machine too."""
    table, running, planning = read_table(write_list(tmp_path, 200)), [], []
    for k in range(3):
        task, start = make_task(tmp_path / f"out{k}"), process_time()
        run_tasks(task, table.subjects, Here())
        running.append(process_time() - start)
        start = process_time()
        assert len(make_plan(task.folder, table.subjects, task.recipe).done) == 200
        planning.append(process_time() - start)
    assert min(running) < 200 * 0.009
    assert min(planning) < 200 * 0.0003
