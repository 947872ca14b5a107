"""A cluster that is not there is told; Ctrl-C ends one in order."""

import os
import signal

import pytest

from vrnet import BadInput
from vrnet.cohort.dask_clusters import existing_cluster, one_interrupt


def test_a_second_interrupt_does_not_disturb_the_end():
    with one_interrupt() as ignore_more:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        ignore_more()
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers"),
        ("none.json", "there is no none.json"),
        ("nonsense://x", "no Dask scheduler answers"),
    ],
)
def test_a_scheduler_that_is_not_there_is_told(address, words, monkeypatch):
    monkeypatch.setattr("vrnet.cohort.dask_clusters.CONNECT_SECONDS", 1.0)
    with pytest.raises(BadInput, match=words), existing_cluster(address):
        pass
