"""Dask hands out the work; whatever ends meanwhile, each subject is done or has failed for a reason."""

import errno
import signal
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.cohort.clusters import FakeClient, run_all
from tests.cohort.works import RECIPE, Count, make_task, results, write_list
from vrnet import BadInput
from vrnet.cohort.dask import DaskExecutor, WorkerWatch, choose_gpu, local_cluster, run_batch
from vrnet.cohort.run import DEATHS, Here, Outcome, open_folder, run_tasks
from vrnet.cohort.table import read_table


@pytest.fixture(scope="module")
def two_processes():
    """A cluster of two processes of this machine."""
    with local_cluster(2) as executor:
        yield executor


def test_two_processes_find_what_one_finds_and_a_subject_that_ends_its_process_is_an_error(tmp_path, two_processes):
    table = read_table(write_list(tmp_path, 60))
    work = Count(failing=frozenset({"s00003"}), deadly=frozenset({"s00009"}))
    assert two_processes.workers == 2
    tally = run_tasks(make_task(tmp_path / "out", work), table.subjects, two_processes)
    blocked = two_processes.client.run(signal.pthread_sigmask, signal.SIG_BLOCK, ())
    assert blocked
    assert all(signal.SIGINT in found for found in blocked.values()), "Ctrl-C is for the parent alone"
    assert (tally.done, tally.left) == (58, 0)
    assert tally.reasons == {
        "s00003": "ValueError: s00003 cannot be counted",
        "s00009": DEATHS.format(3),
    }
    serial = make_task(tmp_path / "serial", Count(failing=frozenset({"s00003", "s00009"})))
    run_tasks(serial, table.subjects, Here())
    assert results(tmp_path / "out") == results(tmp_path / "serial")
    task = make_task(tmp_path / "out")
    assert task.folder.names_of_failures() == {"s00003", "s00009"}
    assert list(task.folder.working.iterdir()) == []


def test_workers_that_cannot_import_what_they_are_to_do_end_the_run_and_no_subject_is_a_failure(
    tmp_path, two_processes, monkeypatch
):
    """The module is one of this process alone, as vrnet is where workers have not installed it."""
    module = ModuleType("only_here")
    exec("class Work:\n    def __call__(self, subject, folder):\n        return {}", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    task = make_task(tmp_path / "out", module.Work())
    executor = DaskExecutor(two_processes.client, "the cluster")
    with pytest.raises(BadInput, match=r"no worker .*: .*No module named 'only_here'\): install the same vrnet"):
        run_tasks(task, read_table(write_list(tmp_path, 20)).subjects, executor)
    assert task.folder.names_of_failures() == set()


def test_a_subject_whose_outcome_never_comes_is_a_failure_after_three_attempts_and_keeps_nobody_waiting(tmp_path):
    def answer(task, batch):
        if any(one.name == "s00001" for one in batch):
            return TypeError("cannot be sent")
        return "a", [task(one) for one in batch]

    task, subjects = make_task(tmp_path / "out"), read_table(write_list(tmp_path, 6)).subjects
    client = FakeClient(answer)
    found = {one.name: one for one in run_all(client, task, subjects)}
    assert {name for name, one in found.items() if one.status == "done"} == {one.name for one in subjects} - {"s00001"}
    assert found["s00001"].reason.startswith("TypeError: cannot be sent")
    assert (found["s00001"].status, found["s00001"].is_recorded) == ("failed", False)
    assert sum("s00001" in batch for batch in client.handed_out) == 3
    assert client.handed_out[-1] == ["s00001"], "it is tried again after all others"


def test_subjects_that_no_worker_can_do_are_left_and_neither_failures_nor_the_fault_of_a_worker(tmp_path):
    gone = {"s00002", "s00004"}

    def answer(task, batch):
        return "a", [Outcome(one.name, "unable", 0.0, "gone") if one.name in gone else task(one) for one in batch]

    task, subjects = make_task(tmp_path / "out"), read_table(write_list(tmp_path, 6)).subjects
    client = FakeClient(answer)
    found = run_all(client, task, subjects)
    assert {one.name for one in found if one.status == "unable"} == gone
    assert (len(found), sum(one.status == "done" for one in found), client.retired) == (6, 4, [])


def test_a_worker_that_outlives_its_run_keeps_runs_of_another_recipe_out(tmp_path, monkeypatch):
    monkeypatch.setattr("vrnet.cohort.dask.choose_gpu", lambda: None)
    refused = []

    def work(subject, folder):
        with pytest.raises(BadInput, match="another run is at"), open_folder(task.folder, RECIPE | {"method": "other"}):
            pass
        refused.append(subject.name)
        return {}

    task = make_task(tmp_path / "out", work)
    (outcome,) = run_batch(task, read_table(write_list(tmp_path, 1)).subjects)
    assert (outcome.status, refused) == ("done", ["s00000"])
    with open_folder(task.folder, RECIPE | {"method": "other"}):
        pass


@pytest.mark.parametrize("part", ["share_run", "choose_gpu"])
def test_what_goes_wrong_before_the_first_subject_is_the_fault_of_the_machine(tmp_path, monkeypatch, part):
    """Such as a folder that is mounted to be read there alone; a worker elsewhere does the subjects."""

    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system", "out")

    task, subjects = make_task(tmp_path / "out"), read_table(write_list(tmp_path, 6)).subjects

    def answer(task, batch):
        with monkeypatch.context() as patch:
            patch.setattr("vrnet.cohort.dask.choose_gpu", lambda: None)
            is_bad = len(client.handed_out) % 2 == 1 and "bad" not in client.retired
            if is_bad:
                patch.setattr(f"vrnet.cohort.dask.{part}", refuse)
            return "bad" if is_bad else "good", run_batch(task, batch)

    client = FakeClient(answer, workers=("bad", "good"))
    watched = WorkerWatch(client, "the cluster")
    outcomes = run_all(client, task, subjects, watch=watched)
    assert {one.name for one in outcomes if one.status == "done"} == {one.name for one in subjects}
    assert watched.lost > 0, "a worker is blamed"
    assert task.folder.names_of_failures() == set()


def test_a_subject_is_tried_again_by_workers_that_have_not_been_unable_to_do_it(tmp_path):
    """One that can do nothing is idle, and first to ask for it again: it must not use up all attempts."""

    def answer(task, batch):
        worker = (client.preferred[-1] or ["bad"])[0]
        if worker == "bad":
            return worker, [Outcome(one.name, "unable", 0.0, "mounted to be read") for one in batch]
        return worker, [task(one) for one in batch]

    task, subjects = make_task(tmp_path / "out"), read_table(write_list(tmp_path, 1)).subjects
    client = FakeClient(answer, workers=("bad", "good"))
    (outcome,) = run_all(client, task, subjects)
    assert (outcome.status, client.preferred) == ("done", [None, ["good"]])


def test_batches_grow_by_what_is_done_quickly_and_not_by_what_fails_quickly(tmp_path):
    task, subjects = make_task(tmp_path / "out"), read_table(write_list(tmp_path, 200)).subjects
    seconds = {"quick": 0.001, "slow": 2.0}

    def sizes(kind, failing):
        def answer(task, batch):
            failed = [Outcome(one.name, "failed", 0.001, "no image") for one in batch]
            return "a", failed if failing else [Outcome(one.name, "done", seconds[kind]) for one in batch]

        client = FakeClient(answer)
        run_all(client, task, subjects)
        return {len(batch) for batch in client.handed_out}

    assert max(sizes("quick", failing=False)) == 64
    assert sizes("slow", failing=False) == sizes("slow", failing=True) == {1}


@pytest.mark.parametrize(("name", "gpus", "expected"), [("3", 2, [1]), ("3", 1, []), ("tcp://x", 2, [])])
def test_workers_of_a_machine_take_its_gpus_in_turn(monkeypatch, name, gpus, expected):
    import distributed
    import torch

    chosen = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(distributed, "get_worker", lambda: SimpleNamespace(name=name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    choose_gpu()
    assert chosen == expected
