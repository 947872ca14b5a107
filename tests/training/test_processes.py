import re
import signal
import threading

import pytest

from tests.training.conftest import QUICK
from vrnet.errors import BadInput
from vrnet.provenance import how_to_install
from vrnet.training.processes import catch_stop_signals, check_devices, is_first_process, launch_fabric


@pytest.mark.parametrize(
    ("told", "is_first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"SLURM_PROCID": "3", "LOCAL_RANK": "0"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "0"}, True),
    ],
)
def test_one_of_several_processes_is_the_first(told, is_first, monkeypatch):
    for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == is_first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_wish_to_stop_and_a_second_ctrl_c_is_not_waited_for(number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with catch_stop_signals() as stop_requested:
        assert not stop_requested()
        signal.raise_signal(number)
        assert stop_requested()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_thread_that_is_not_the_main_one_leaves_signals_alone():
    found = []

    def train():
        with catch_stop_signals() as stop_requested:
            found.append(stop_requested())

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found == [False]


@pytest.mark.parametrize(
    ("batch", "devices", "nodes", "answer"),
    [(2, 3, 1, "3 devices cannot share a batch of 2"), (2, 0, 1, "1 at least"), (2, 1, 0, "1 at least")],
)
def test_devices_that_cannot_share_a_batch_are_refused(batch, devices, nodes, answer):
    with pytest.raises(BadInput, match=answer):
        check_devices(batch, devices, nodes)


def test_without_lightning_training_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lightning.fabric", None)
    with pytest.raises(BadInput, match=re.escape(f"training needs Lightning: {how_to_install('train')}")):
        launch_fabric("cpu", 1, 1, QUICK)
