"""Dask hands out the work; whatever ends meanwhile, each subject is done or has failed for a reason."""

import os
import signal
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.cohort.works import Count, make_task, results, write_list
from vrnet import BadInput
from vrnet.cohort import dask
from vrnet.cohort.dask import DaskExecutor, choose_gpu, existing_cluster, local_cluster
from vrnet.cohort.run import Executor, Outcome, run_tasks
from vrnet.cohort.table import read_table


@pytest.fixture(scope="module")
def two_processes():
    """A cluster of two processes of this machine."""
    with local_cluster(2) as executor:
        yield executor


def test_two_processes_find_what_one_finds_also_where_one_is_killed_and_one_subject_fails(tmp_path, two_processes):
    table = read_table(write_list(tmp_path, 60))
    work = Count(failing=frozenset({"s00003"}), deadly=frozenset({"s00009"}), spared=str(tmp_path / "killed"))
    assert two_processes.workers == 2
    tally = run_tasks(make_task(tmp_path / "out", work), table.subjects, two_processes)
    blocked = two_processes.client.run(signal.pthread_sigmask, signal.SIG_BLOCK, ())
    assert blocked
    assert all(signal.SIGINT in found for found in blocked.values()), "Ctrl-C is for the parent alone"
    assert (tally.done, tally.left, (tmp_path / "killed").exists()) == (59, 0, True)
    assert tally.reasons == {"s00003": "ValueError: s00003 cannot be counted"}
    serial = make_task(tmp_path / "serial", Count(failing=frozenset({"s00003"})))
    run_tasks(serial, table.subjects, Executor())
    assert results(tmp_path / "out") == results(tmp_path / "serial")
    task = make_task(tmp_path / "out")
    assert task.folder.names_of_failures() == {"s00003"}
    assert list(task.folder.working.iterdir()) == []


def test_workers_that_cannot_import_what_they_are_to_do_end_the_run_and_no_subject_is_a_failure(
    tmp_path, two_processes, monkeypatch
):
    """The module is one of this process alone, as vrnet is where workers have not installed it."""
    module = ModuleType("only_here")
    exec("class Work:\n    def __call__(self, subject, folder):\n        return {}", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    task = make_task(tmp_path / "out", module.Work())
    with pytest.raises(BadInput, match=r"no worker .*: .*No module named 'only_here'\): install the same vrnet"):
        run_tasks(task, read_table(write_list(tmp_path, 20)).subjects, DaskExecutor(two_processes.client, "it"))
    assert task.folder.names_of_failures() == set()


class FakeFuture:
    """What became of a batch: an answer, or an error."""

    def __init__(self, key, answer):
        self.key, self.answer, self.status = key, answer, "finished"

    def add_done_callback(self, call):
        call(self)

    def result(self, timeout):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeClient:
    """A cluster that is none: it runs what is handed out at once, here, as its workers would, in turn. `answer(worker,
    task, batch)` is what comes of a batch; `handed_out` has the names of each."""

    def __init__(self, answer, workers=("a",)):
        self.answer, self.alive, self.handed_out = answer, list(workers), []

    def map(self, run, packed, pure, workers=None, allow_other_workers=False):
        assert allow_other_workers or not workers, "what one worker alone may do waits for ever once that is gone"
        return [self.submit(pickled, workers or self.alive) for pickled in packed]

    def submit(self, pickled, workers):
        _, task, batch = dask.pickle.loads(pickled)
        self.handed_out.append([one.name for one in batch])
        answer = self.answer(workers[len(self.handed_out) % len(workers)], task, batch)
        return FakeFuture(str(len(self.handed_out)), answer)

    def scheduler_info(self, n_workers):
        return {"workers": {address: {"nthreads": 1} for address in self.alive}}

    def retire_workers(self, addresses):
        self.alive = [one for one in self.alive if one not in addresses]

    def cancel(self, futures, force):
        pass


def run_with(client, task, subjects):
    """{name: outcome}, and the workers that were stopped."""
    executor = DaskExecutor(client, "the cluster")
    return {one.name: one for one in executor.map(task, subjects)}, executor.stopped


@pytest.fixture
def cohort(tmp_path):
    return make_task(tmp_path / "out"), read_table(write_list(tmp_path, 6)).subjects


def test_a_subject_whose_outcome_never_comes_is_a_failure_after_three_tries_and_keeps_nobody_waiting(cohort):
    def answer(worker, task, batch):
        if any(one.name == "s00001" for one in batch):
            return TypeError("cannot be sent")
        return worker, [task(one) for one in batch]

    client, (task, subjects) = FakeClient(answer), cohort
    found, _ = run_with(client, task, subjects)
    assert {name for name, one in found.items() if one.status == "done"} == {one.name for one in subjects} - {"s00001"}
    assert found["s00001"] == Outcome("s00001", "failed", 0.0, "TypeError: cannot be sent")
    assert task.folder.failure("s00001")["reason"] == "TypeError: cannot be sent"
    assert sum("s00001" in batch for batch in client.handed_out) == 3
    assert client.handed_out[-1] == ["s00001"]


def test_subjects_that_no_worker_can_do_are_left_and_neither_failures_nor_the_fault_of_a_worker(cohort):
    gone = {"s00002", "s00004"}

    def answer(worker, task, batch):
        return worker, [Outcome(one.name, "unable", 0.0, "gone") if one.name in gone else task(one) for one in batch]

    found, stopped = run_with(FakeClient(answer), *cohort)
    assert {name for name, one in found.items() if one.status == "unable"} == gone
    assert (sum(one.status == "done" for one in found.values()), stopped) == (4, {})


def unfit(bad):
    """Workers of which some can do nothing: they end every batch at once."""

    def answer(worker, task, batch):
        return worker, "no files here" if worker in bad else [task(one) for one in batch]

    return answer


def test_a_worker_that_can_do_nothing_is_stopped_and_the_others_do_its_subjects(cohort):
    client, (task, subjects) = FakeClient(unfit({"bad"}), workers=("bad", "good")), cohort
    found, stopped = run_with(client, task, subjects)
    assert {one.status for one in found.values()} == {"done"}
    assert (client.alive, stopped) == (["good"], {"bad": "no files here"})
    assert task.folder.names_of_failures() == set()


@pytest.mark.parametrize("has_worked", [False, True])
def test_a_cluster_of_which_no_worker_is_left_is_given_up_and_the_cause_is_told(cohort, has_worked):
    executor = DaskExecutor(FakeClient(unfit({"a", "b"}), workers=("a", "b")), "the cluster")
    executor.has_worked = has_worked
    words = "all workers of the cluster had to be stopped" if has_worked else "no worker of the cluster can do anything"
    with pytest.raises(BadInput, match=f"{words}: no files here"):
        list(executor.map(*cohort))


def test_a_scheduler_that_goes_away_ends_the_run(cohort):
    class Lost(FakeClient):
        def submit(self, pickled, workers):
            future = FakeFuture("1", None)
            future.status = "cancelled"
            return future

    with pytest.raises(BadInput, match="the cluster went away: start it again, then this command"):
        list(DaskExecutor(Lost(None), "the cluster").map(*cohort))


def test_many_subjects_are_handed_out_together_and_few_one_by_one(tmp_path):
    subjects, sizes = read_table(write_list(tmp_path, 300)).subjects, []

    def answer(worker, task, batch):
        sizes.append(len(batch))
        return worker, [Outcome(one.name, "done") for one in batch]

    for count in (40, 300):
        run_with(FakeClient(answer, "ab"), make_task(tmp_path / "out"), subjects[:count])
    assert sizes == [1] * 40 + [3] * 100


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


def test_a_cluster_that_ends_slowly_is_no_failure_of_the_run_and_a_second_interrupt_does_not_disturb_it(monkeypatch):
    closed = []

    class Slow(SimpleNamespace):
        def scheduler_info(self, n_workers):
            return {"workers": {}}

        def close(self):
            closed.append(self.name)
            os.kill(os.getpid(), signal.SIGINT)
            raise TimeoutError

    made = {name: lambda *_, name=name, **__: Slow(name=name) for name in ("LocalCluster", "Client")}
    monkeypatch.setattr(dask, "import_distributed", lambda: SimpleNamespace(**made))
    with pytest.raises(KeyboardInterrupt), local_cluster(2):
        os.kill(os.getpid(), signal.SIGINT)
    assert closed == ["Client", "LocalCluster"]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("address", "content", "words"),
    [
        ("tcp://127.0.0.1:1", None, "no Dask scheduler answers"),
        ("nonsense://x", None, "no Dask scheduler answers"),
        ("none.json", None, "there is no none.json"),
        ("file.json", '{"address": 3}', "names no address of a scheduler"),
        ("file.json", "[]", "names no address of a scheduler"),
        ("file.json", "no JSON", "it should be a JSON file"),
    ],
)
def test_a_scheduler_that_is_not_there_is_told(address, content, words, monkeypatch, tmp_path):
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / address).write_text(content)
    with pytest.raises(BadInput, match=words), existing_cluster(address):
        pass
