"""A cluster that is not there is told; Ctrl-C ends one in order."""

import os
import signal
from types import SimpleNamespace

import pytest

from vrnet import BadInput
from vrnet.cohort import dask as dask_clusters
from vrnet.cohort.dask import existing_cluster, local_cluster, one_interrupt


def test_a_second_interrupt_does_not_disturb_the_end():
    with one_interrupt() as ignore_more:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        ignore_more()
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_processes_that_do_not_end_in_time_are_no_failure_of_the_run(monkeypatch):
    closed = []

    class Slow(SimpleNamespace):
        def close(self):
            closed.append(self.name)
            raise TimeoutError

    made = {name: lambda *_, name=name, **__: Slow(name=name) for name in ("LocalCluster", "Client")}
    monkeypatch.setattr(dask_clusters, "import_distributed", lambda: SimpleNamespace(**made))
    with local_cluster(2) as executor:
        assert executor.client.name == "Client"
    assert closed == ["Client", "LocalCluster"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers"),
        ("none.json", "there is no none.json"),
        ("nonsense://x", "no Dask scheduler answers"),
    ],
)
def test_a_scheduler_that_is_not_there_is_told(address, words, monkeypatch):
    monkeypatch.setattr("vrnet.cohort.dask.CONNECT_SECONDS", 1.0)
    with pytest.raises(BadInput, match=words), existing_cluster(address):
        pass


@pytest.mark.parametrize("text", ["{}", "[]", '{"address": 3}', "no JSON"])
def test_a_file_that_no_scheduler_wrote_is_told(tmp_path, text):
    (tmp_path / "file.json").write_text(text)
    with (
        pytest.raises(BadInput, match=r"file\.json(: it should be a JSON file| names no address of a scheduler)"),
        existing_cluster(str(tmp_path / "file.json")),
    ):
        pass
