import re
import signal
import threading

import pytest
import torch
from torch import multiprocessing

from tests.training.conftest import QUICK
from vrnet.errors import BadInput
from vrnet.provenance import how_to_install
from vrnet.training.fit import catch_stop_signals, check_devices, is_first_process, launch_fabric, sum_over_processes
from vrnet.training.loss import Loss


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


def pairs_of_four():
    """Images and labels of four pairs, the fields of which depend on one number: the loss of them, or of some."""
    torch.manual_seed(0)
    I0, I1 = torch.rand(2, 4, 1, 16, 12)
    L0, L1 = torch.randint(4, (2, 4, 1, 16, 12), dtype=torch.uint8)
    L0[:3][L0[:3] == 3], L1[L1 == 3] = 0, 0  # one process alone has label 3, and neither 5
    direction = torch.randn(4, 2, 16, 12)
    return lambda loss, move, chosen: loss(*(part[chosen] for part in (I0, I1, move * direction, L0, L1)))


def train_as_one_of_two(rank, folder):
    """Write the loss of the pairs of this process, and its gradient."""
    where = f"file://{folder}/meeting"
    torch.distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
    move = torch.tensor(0.7, requires_grad=True)
    loss = Loss(0.1, labels_weight=0.6, batch_dice=0.4, labels=(1, 2, 3, 5), total=sum_over_processes)
    value = pairs_of_four()(loss, move, slice(rank, None, 2))
    value.backward()
    torch.save((value.detach(), move.grad), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_the_loss_of_two_processes_is_the_mean_of_theirs_and_so_is_its_gradient(tmp_path):
    """Also of batch Dice, whose sums go over all pairs: Lightning takes the mean of the gradients."""
    multiprocessing.spawn(train_as_one_of_two, (tmp_path,), nprocs=2)
    parts = [torch.stack(part) for part in zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)), strict=True)]
    move = torch.tensor(0.7, requires_grad=True)
    whole = pairs_of_four()(Loss(0.1, labels_weight=0.6, batch_dice=0.4, labels=(1, 2, 3, 5)), move, slice(None))
    whole.backward()
    for found, expected in zip(parts, (whole.detach(), move.grad), strict=True):
        torch.testing.assert_close(found.mean(), expected)
