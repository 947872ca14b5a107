"""Dask hands out the work; whatever ends meanwhile, each subject is done or has failed for a reason."""

import signal
from types import SimpleNamespace

import pytest

from tests.cohort.works import Count, make_task, results, write_list
from vrnet.cohort.dask_clusters import local_cluster
from vrnet.cohort.dask_executor import choose_gpu
from vrnet.cohort.engine import Here, run_tasks
from vrnet.cohort.table import read_table


def test_two_processes_find_what_one_finds_and_a_subject_that_ends_its_process_is_an_error(tmp_path):
    table = read_table(write_list(tmp_path, 60))
    work = Count(failing=frozenset({"s00003"}), deadly=frozenset({"s00009"}))
    with local_cluster(2) as executor:
        assert executor.workers == 2
        tally = run_tasks(make_task(tmp_path / "out", work), table.subjects, executor)
        blocked = executor.client.run(signal.pthread_sigmask, signal.SIG_BLOCK, ())
    assert blocked
    assert all(signal.SIGINT in found for found in blocked.values()), "Ctrl-C is for the parent alone"
    assert (tally.done, tally.left) == (58, 0)
    assert tally.reasons == {
        "s00003": "ValueError: s00003 cannot be counted",
        "s00009": "the process that did it died several times: too little memory?",
    }
    serial = make_task(tmp_path / "serial", Count(failing=frozenset({"s00003", "s00009"})))
    run_tasks(serial, table.subjects, Here())
    assert results(tmp_path / "out") == results(tmp_path / "serial")
    task = make_task(tmp_path / "out")
    assert task.folder.names_of_failures() == {"s00003", "s00009"}
    assert list(task.folder.working.iterdir()) == []


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
