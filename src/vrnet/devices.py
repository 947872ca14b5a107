"""Devices, threads, streams and CUDA graphs: the only place that knows them."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from threading import Lock, current_thread, main_thread
from typing import TypeVar

import torch
from torch import Tensor, nn

from vrnet.errors import BadInput

ONE_THREAD_UP_TO_VOXELS = 256 * 256
WARM_UP = 3
Stream = torch.cuda.Stream
T = TypeVar("T")
LAYOUTS = {2: torch.channels_last, 3: torch.channels_last_3d}


class ModelOnDevices:
    """A model kept for reuse: each device that asks gets one copy, and none is ever moved under another's feet."""

    def __init__(self, model: nn.Module) -> None:
        home = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self._copies = {home: model}
        self._home, self._lock = model, Lock()

    def on(self, device: torch.device) -> nn.Module:
        """The copy on a device; all who ask share it."""
        with self._lock:
            if device not in self._copies:
                self._copies[device] = deepcopy(self._home).to(device)
            return self._copies[device]


def channels_last(model: nn.Module, d: int) -> nn.Module:
    """The model with channels last in memory, which GPUs convolve faster, and some CPUs in 2D."""
    return model.to(memory_format=LAYOUTS[d])  # type: ignore[call-overload]


def record_graph(function: Callable[..., Tensor], *examples: Tensor) -> Callable[..., Tensor]:
    """The same function of tensors shaped as the examples, to be called on the current stream.

    It must have run a few times before, on this stream, so that all it keeps is there. What it returns is overwritten
    by the next call."""
    inputs = [example.clone() for example in examples]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        output = function(*inputs)

    def replay(*given: Tensor) -> Tensor:
        for held, new in zip(inputs, given, strict=True):
            held.copy_(new)
        graph.replay()
        return output

    return replay


def capture_graph(function: Callable[..., Tensor], *examples: Tensor) -> Callable[..., Tensor]:
    """The same, warmed up: for functions that change nothing, such as a network in use."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            function(*examples)
        replay = record_graph(function, *examples)
    torch.cuda.current_stream().wait_stream(stream)
    return replay


@contextmanager
def own_stream(device: torch.device) -> Iterator[Stream | None]:
    """A stream of its own on a GPU, since what is recorded must not run on the default one; none elsewhere."""
    if device.type != "cuda":
        yield None
        return
    stream = Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield stream


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f'there is no device "{name}": choose auto, cpu or cuda')
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("PyTorch finds no CUDA device here: choose --device cpu, or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def side_by_side(function: Callable[[int], Tensor], numbers: range) -> Iterator[Tensor]:
    """function of each, in their order, by as many threads as PyTorch would give to one.

    They need not wait for each other within each convolution: ten slices of 160x160 take two threads 2.8 s, instead of
    6.6 s, where another process keeps one of two cores busy."""
    threads = torch.get_num_threads()
    workers = min(threads, len(numbers)) if current_thread() is main_thread() else 1
    if workers == 1:
        yield from map(function, numbers)
        return
    with use_threads(threads // workers), ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, numbers)


def threads_for(is_network: bool, voxels: int) -> AbstractContextManager[None]:
    """All threads for a network, whose convolutions are worth sharing; otherwise few where there are few voxels."""
    return nullcontext() if is_network else few_threads(voxels)


def few_threads(voxels: int) -> AbstractContextManager[None]:
    """One thread for a small image: a second gains nothing, and waiting for a busy core costs several times more.

    PyTorch counts threads for the whole process, so only the main thread of Python may change it."""
    return use_threads(1) if voxels <= ONE_THREAD_UP_TO_VOXELS and current_thread() is main_thread() else nullcontext()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """PyTorch's threads, and those of the threads that start meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def synchronise(device: torch.device) -> None:
    """Wait for all that was asked of a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
