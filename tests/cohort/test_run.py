"""A subject is done whole, or it is not done; whatever goes wrong is its failure alone, and stops nobody else."""

import errno
import json
import os
import shutil
import threading
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

from tests.cohort.works import RECIPE, Count, make_task, results, subject, write_list
from tests.disks import full_disk
from vrnet import BadInput
from vrnet.cohort import run as engine
from vrnet.cohort.results import CohortFolder, Survey, make_plan
from vrnet.cohort.run import WORKERS_DIED, open_executor, run_by_dask, run_here, run_tasks
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
    framed = Subject(one.name, one.files, values={"frame": "4"})  # what it depends on beside files
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
    (place / "mine.txt").unlink()
    assert make_task(out, method="other")(one).status == "done"


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
        (MemoryError(), "there was too little memory"),
        (OSError(errno.EPERM, "Operation not permitted", "/temporary", None, "/x"), "/x: Operation not permitted"),
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
def test_whenever_a_process_is_stopped_nothing_half_done_counts_and_the_next_run_does_it(tmp_path, monkeypatch, step):
    """At the n-th call of the system that renames or removes something."""
    one, out = subject(tmp_path), tmp_path / "out"
    do, kills = getattr(os, step), 0
    for calls in range(1, 9):
        make_task(out, Count(failing=frozenset({"s1"})), method=str(calls))(one, is_last=True)
        left = [calls]

        def kill_at_last(*arguments, left=left, **options):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return do(*arguments, **options)

        monkeypatch.setattr(os, step, kill_at_last)
        with suppress(KeyboardInterrupt):
            make_task(out, method=str(calls))(one, is_last=True)
        monkeypatch.undo()
        kills += left[0] <= 0
        recipe = {**RECIPE, "method": str(calls)}
        assert Survey(CohortFolder(out), recipe).state(one).kind in ("done", "failed")
        assert make_task(out, method=str(calls))(one, is_last=True).status == "done"
    assert kills


def test_an_input_that_is_replaced_meanwhile_is_a_failure_and_then_done(tmp_path):
    one = subject(tmp_path)

    def work(given, folder):
        os.utime(tmp_path / "s1.nii", (7, 7))
        return Count()(given, folder)

    outcome = make_task(tmp_path / "out", work)(one)
    assert (outcome.status, "was replaced while" in outcome.reason) == ("failed", True)
    assert results(tmp_path / "out") == {}
    assert make_task(tmp_path / "out")(one).status == "done"


def test_a_missing_input_is_a_failure_that_does_not_count_once_it_is_there(tmp_path):
    task, one = make_task(tmp_path / "out"), Subject("s1", {"fixed": str(tmp_path / "s1.nii")})
    outcome = task(one)
    assert (outcome.status, "No such file" in outcome.reason) == ("failed", True)
    subject(tmp_path)
    assert Survey(task.folder, task.recipe).state(one).kind == "to do"


def test_a_folder_that_goes_away_during_the_work_ends_the_run_and_is_no_failure_of_the_subject(tmp_path):
    """As where a file system is taken away, and what is written goes to the empty folder below it."""

    def work(subject, folder):
        (tmp_path / "out").rename(tmp_path / "away")
        folder.mkdir(parents=True)
        return Count()(subject, folder)

    task, one = make_task(tmp_path / "out", work), subject(tmp_path)
    for _ in range(2):
        with pytest.raises(UnfitMachine, match="does not see"):
            task(one)
    assert not (tmp_path / "out" / "failures").exists()
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    (tmp_path / "away").rename(tmp_path / "out")
    assert make_task(tmp_path / "out")(one, is_last=True).status == "done"


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
    tally = run_tasks(task, subjects, run_here, lambda tally: shown.append((tally.done, tally.failed, tally.left)))
    assert (tally.done, tally.failed, tally.left) == shown[-1] == (19, 1, 0)
    assert tally.reasons == {"s00007": "ValueError: s00007 cannot be counted"}


def test_two_runs_at_once_share_the_work_and_each_ends_with_all_of_it(tmp_path, subjects):
    """Each in a thread, as two processes would be. What both were at in the end is done by either, and kept once."""
    calls, tallies = [], []

    def work(subject, folder):
        calls.append(subject.name)
        return Count(seconds=0.02)(subject, folder)

    def run():
        tallies.append(run_tasks(make_task(tmp_path / "out", work), subjects, run_here))

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
    task, one = make_task(tmp_path / "out"), subject(tmp_path)

    def slower(given, folder):
        row = Count()(given, folder)
        assert task(one, is_last=True).status == "done", "another process does it meanwhile, and clears what is begun"
        return row

    def slowest(given, folder):
        assert task(one, is_last=True).status == "done"
        return Count()(given, folder)

    for work in (slower, slowest):
        shutil.rmtree(tmp_path / "out" / "subjects" / "s1", ignore_errors=True)
        assert make_task(tmp_path / "out", work)(one, is_last=True).status == "done"
        assert (left_behind(tmp_path / "out"), task.folder.names_of_failures()) == ([], set())


def test_a_process_that_fails_leaves_another_at_the_same_subject_alone(tmp_path):
    task, one = make_task(tmp_path / "out"), subject(tmp_path)
    fails = make_task(tmp_path / "out", Count(failing=frozenset({"s1"})))

    def slower(given, folder):
        assert fails(one, is_last=True).status == "failed"
        return Count()(given, folder)

    assert make_task(tmp_path / "out", slower)(one).status == "done"
    assert (left_behind(tmp_path / "out"), task.folder.names_of_failures()) == ([], set())


def test_a_subject_that_kills_its_process_goes_last_so_that_those_behind_it_are_done(tmp_path):
    table, task = read_table(write_list(tmp_path, 4)), make_task(tmp_path / "out", Count(deadly=frozenset({"s00001"})))
    for expected in (["s00000", "s00001", "s00002", "s00003"], ["s00002", "s00003", "s00001"], ["s00001"]):
        to_do = make_plan(task.folder, table.subjects, task.recipe).to_do(retry=False)
        assert [one.name for one in to_do] == expected
        process = get_context("fork").Process(target=run_tasks, args=(task, to_do, run_here))
        process.start()
        process.join()
        assert process.exitcode == 1
    assert run_tasks(make_task(tmp_path / "out"), to_do, run_here).done == 1
    assert left_behind(tmp_path / "out") == []


def test_a_disk_on_which_not_even_a_failure_fits_ends_the_run(tmp_path, subjects, monkeypatch):
    def refuse(*arguments):
        raise BadInput("cannot write")

    task = make_task(tmp_path / "out", Count(failing=frozenset({"s00002"})))
    monkeypatch.setattr(engine, "write_bytes", refuse)
    with pytest.raises(BadInput, match="check its room and your permission, then start again"):
        run_tasks(task, subjects, run_here)
    assert {name.partition("/")[0] for name in results(tmp_path / "out")} == {"s00000", "s00001"}


# Dask: workers that are threads of this process, which start at once.


@pytest.fixture(scope="module")
def cluster():
    """Makes a cluster of two workers, which is closed at the end."""
    from distributed import Client, LocalCluster

    quick = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **quick) as cluster, Client(cluster, set_as_default=False) as client:
        yield partial(run_by_dask, client, "the cluster")


@pytest.fixture
def dies(cluster):
    """A cluster of its own, for tests that stop workers."""
    from distributed import Client, LocalCluster

    quick = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **quick) as own, Client(own, set_as_default=False) as client:
        yield partial(run_by_dask, client, "the cluster")


def test_dask_finds_what_one_process_finds_and_one_failure_stops_nobody(tmp_path, subjects, cluster, monkeypatch):
    work, seen = Count(failing=frozenset({"s00003"})), []
    monkeypatch.setattr(engine, "MAX_UNDER_WAY", 7)  # less than there are subjects
    tally = run_tasks(
        make_task(tmp_path / "out", work), subjects, cluster, lambda tally: seen.append(tally.has_workers)
    )
    assert (tally.done, tally.left, tally.reasons) == (19, 0, {"s00003": "ValueError: s00003 cannot be counted"})
    run_tasks(make_task(tmp_path / "serial", work), subjects, run_here)
    assert results(tmp_path / "out") == results(tmp_path / "serial")
    assert left_behind(tmp_path / "out") == []
    assert all(seen)


class NotThere:
    """Cannot be loaded where it is sent, as where workers have no vrnet."""

    def __call__(self, subject, folder):
        return {}

    def __reduce__(self):
        return int, ("x",)


@pytest.mark.release
@pytest.mark.parametrize("recipe", [None, {"commit": "b" * 40}])
def test_workers_that_are_unfit_end_the_run_and_no_subject_is_a_failure(tmp_path, subjects, dies, recipe, monkeypatch):
    """They have no vrnet, or another one."""
    monkeypatch.setattr(engine, "commit", lambda: "a" * 40)
    task = make_task(tmp_path / "out", NotThere() if recipe is None else None, **(recipe or {}))
    words = "ValueError: " if recipe is None else ".* has vrnet .*, commit aaaa.*, not .*bbbb"
    with pytest.raises(BadInput, match=f"a worker of the cluster can do nothing: {words}.*: stop that worker"):
        run_tasks(task, subjects, dies)
    assert task.folder.names_of_failures() == set()


def test_a_file_that_nobody_sees_is_the_failure_of_its_subject_and_no_fault_of_a_worker(tmp_path, subjects, cluster):
    gone = Subject("gone", {"fixed": str(tmp_path / "gone.nii")})
    tally = run_tasks(make_task(tmp_path / "out"), [gone, *subjects[:2]], cluster)
    assert (tally.done, [*tally.reasons]) == (2, ["gone"])


def test_a_scheduler_that_goes_away_ends_the_run(tmp_path, subjects, monkeypatch):
    import distributed

    def cancelled(timeout):
        raise distributed.CancelledError

    class Ended(list):
        add = list.append

    future = SimpleNamespace(key="1", result=cancelled)
    monkeypatch.setattr(distributed, "as_completed", lambda loop: Ended())
    client = SimpleNamespace(nthreads=dict, map=lambda run, packed, pure: [future for _ in packed], loop=None)
    with pytest.raises(BadInput, match="the cluster went away: start it again, then this command"):
        run_tasks(make_task(tmp_path / "out"), subjects[:1], partial(run_by_dask, client, "the cluster"))


@pytest.mark.release
def test_a_process_that_dies_is_started_again_and_a_subject_that_kills_four_is_a_failure(tmp_path):
    table, task = read_table(write_list(tmp_path, 20)), make_task(tmp_path / "out", Count(deadly=frozenset({"s00009"})))
    with open_executor(20, jobs=2) as executor:
        tally = run_tasks(task, table.subjects, executor)
    assert (tally.done, tally.reasons) == (19, {"s00009": WORKERS_DIED})
    assert left_behind(tmp_path / "out") == []


def test_no_more_processes_are_started_than_there_are_subjects(monkeypatch):
    started = []

    def start(n_workers, **options):
        started.append(n_workers)
        raise RuntimeError("not here")

    monkeypatch.setattr("distributed.LocalCluster", start)
    for subjects in (3, 20):
        with pytest.raises(BadInput, match="processes cannot be started here"), open_executor(subjects, jobs=8):
            pass
    for subjects in (1, 0):
        with open_executor(subjects, jobs=8) as executor:
            assert executor is run_here
    assert started == [3, 8]


@pytest.mark.release
@pytest.mark.parametrize(
    ("address", "content", "words"),
    [
        ("tcp://127.0.0.1:1", None, "no Dask scheduler answers"),
        ("none.json", None, "no Dask scheduler answers at none.json"),
        ("file.json", '{"other": 3}', "no Dask scheduler answers at file.json"),
    ],
)
def test_a_scheduler_that_is_not_there_is_told(address, content, words, monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / address).write_text(content)
    with pytest.raises(BadInput, match=words), open_executor(1, scheduler=address):
        pass
