"""The processes that train a model: Lightning's Fabric in each, on one device or many, and signals that ask to stop."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vrnet.devices import check_gpus, find_device, has_cuda
from vrnet.errors import BadInput
from vrnet.provenance import how_to_install
from vrnet.threads import in_main_thread
from vrnet.training.settings import Training

if TYPE_CHECKING:
    from lightning.fabric import Fabric

MAX_DEVICES = 1024
"""Of one machine, and machines: each device is a process."""


def check_devices(batch: int, devices: int, nodes: int) -> None:
    """BadInput unless all devices have the same part of a batch."""
    if devices < 1 or nodes < 1:
        raise BadInput("there is nothing to compute on: `devices` and `nodes` are 1 at least")
    if max(devices, nodes) > MAX_DEVICES:
        raise BadInput(f"`devices` and `nodes` are {MAX_DEVICES} at most")
    if batch % (devices * nodes):
        raise BadInput(f"{devices * nodes} devices cannot share a batch of {batch}: choose a multiple")


def check_lightning() -> None:
    """BadInput where Lightning, which training needs, is not installed."""
    try:
        import lightning.fabric  # noqa: F401
    except ImportError as error:
        raise BadInput(f"training needs Lightning: {how_to_install('train')}") from error


def launch_fabric(device: str, devices: int, nodes: int, settings: Training) -> "Fabric":
    """Lightning's Fabric, on one device or in one process of many; the other processes of this machine start here."""
    check_lightning()
    from lightning.fabric import Fabric

    for logger in lightning_loggers():
        logger.setLevel(logging.WARNING)
    on_gpu = find_device(device).type == "cuda"
    if on_gpu:
        check_gpus(devices)
    torch.set_float32_matmul_precision("high")
    fabric = Fabric(
        accelerator="cuda" if on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision="bf16-mixed" if on_gpu and settings.precision == "bf16" else "32-true",
    )
    fabric.launch()
    return fabric


def lightning_loggers() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in ("lightning.fabric", "lightning.pytorch")]


@contextmanager
def keep_settings() -> Iterator[None]:
    """Afterwards the random numbers and the precision of PyTorch, and what Lightning tells, are as they were."""
    precision, levels = torch.get_float32_matmul_precision(), [logger.level for logger in lightning_loggers()]
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count() if has_cuda() else 0)):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for logger, level in zip(lightning_loggers(), levels, strict=True):
            logger.setLevel(level)


class SumOverProcesses(torch.autograd.Function):
    """y = Σ x over all processes: the loss of each depends on every x, so the gradient by one x is Σ ∂ℒ/∂y over all.

    Where the losses are equal and Lightning takes the mean of the gradients, that is the gradient of one process.
    (The all_reduce of torch.distributed.nn does the same, and is deprecated.)"""

    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        total = value.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return SumOverProcesses.forward(ctx, gradient)


def sum_over_processes(value: Tensor) -> Tensor:
    """The sum of the values of all processes that train one model, in each of them; each must call this."""
    return SumOverProcesses.apply(value)  # type: ignore[no-untyped-call]


def is_first_process() -> bool:
    """Whether this is the first of the processes that train one model, by what Lightning, torchrun or SLURM told it."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


@contextmanager
def catch_stop_signals() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C or SIGTERM came, so that the step under way is finished first.

    A second Ctrl-C stops at once."""
    caught: list[int] = []
    if not in_main_thread():
        yield lambda: False
        return

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
