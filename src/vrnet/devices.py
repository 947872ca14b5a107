"""Devices, threads, streams and CUDA graphs: the only place that knows them."""

import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from itertools import chain
from threading import Lock

import torch
from torch import Tensor, nn

from vrnet.errors import BadInput
from vrnet.threads import in_main_thread, set_threads, use_threads
from vrnet.wording import counted

ONE_THREAD_UP_TO_VOXELS = 256 * 256
WARM_UP_CALLS = 3
"""Before a CUDA graph is recorded."""
CPU = torch.device("cpu")
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
Stream = torch.cuda.Stream
copying = Lock()
"""Held while a model is copied to another device."""


def renew_lock() -> None:
    """After a fork: who held the lock is not there to release it."""
    global copying
    copying = Lock()


os.register_at_fork(after_in_child=renew_lock)


def find_device(name: str, allowed: tuple[str, ...] = ("cpu", "cuda")) -> torch.device:
    """The device of a name; `auto` is CUDA where there is one, and where that is allowed."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f'there is no device "{name}": choose auto, cpu or cuda')
    if name == "cuda" and torch.cuda._is_in_bad_fork():
        raise BadInput("this process was forked from one that had used CUDA, which it cannot use then: "
                       "start processes by spawn, or choose the device cpu")  # fmt: skip
    if name == "cuda" and not has_cuda():
        raise BadInput('PyTorch finds no CUDA device here: choose `device="cpu"`, or auto')
    if name == "cuda" and "cuda" not in allowed:
        raise BadInput('this method computes on the CPU only: choose `device="cpu"`, or auto')
    return torch.device("cuda" if name != "cpu" and has_cuda() and "cuda" in allowed else "cpu")


def has_cuda() -> bool:
    """Whether there is a GPU that this process can use: not after a fork, if CUDA was used before it."""
    return torch.cuda.is_available() and not torch.cuda._is_in_bad_fork()


def check_gpus(count: int) -> None:
    """BadInput unless there are so many GPUs."""
    if count > torch.cuda.device_count():
        raise BadInput(f"there are {torch.cuda.device_count()} GPUs here, not {count}: choose fewer `devices`")


def describe_device(device: torch.device) -> str:
    """The name of a GPU; of a CPU, its architecture and how many threads PyTorch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {counted(torch.get_num_threads(), 'thread')}"


def free_memory(device: torch.device) -> float:
    """Bytes free on a GPU; elsewhere without limit."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")


class ModelOnDevices:
    """A model kept for reuse. It is never moved: each other device that asks gets one copy, which all threads share."""

    def __init__(self, model: nn.Module) -> None:
        first = next(chain(model.parameters(), model.buffers()), None)
        self._home = CPU if first is None else first.device
        self._copies = {self._home: model}

    def on(self, device: torch.device) -> nn.Module:
        """The model on a device."""
        place = with_index(device)
        with copying:
            if place not in self._copies:
                self._copies[place] = deepcopy(self._copies[self._home]).to(place)
            return self._copies[place]

    def __reduce__(self) -> tuple[type["ModelOnDevices"], tuple[nn.Module]]:
        """Pickling keeps the model itself, and no copies."""
        return ModelOnDevices, (self._copies[self._home],)


def with_index(device: torch.device) -> torch.device:
    """The device by its full name: "cuda" is the current GPU, such as "cuda:0"."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


def channels_last(model: nn.Module, d: int) -> nn.Module:
    """The model with channels last in memory, which GPUs convolve faster, and some CPUs in 2D."""
    return model.to(memory_format=CHANNELS_LAST[d])  # type: ignore[call-overload]


def record_graph(function: Callable[..., Tensor], *examples: Tensor) -> Callable[..., Tensor]:
    """A function of tensors shaped as the examples, as one CUDA graph, to be called on the current stream.

    The function must have run a few times before, on this stream, so that all it keeps is there. What it returns is
    overwritten by the next call."""
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
    """A function that changes nothing, such as a network in use, warmed up and recorded as `record_graph` does."""
    stream = Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_CALLS):
            function(*examples)
        replay = record_graph(function, *examples)
    torch.cuda.current_stream().wait_stream(stream)
    return replay


@contextmanager
def own_stream(device: torch.device) -> Iterator[Stream | None]:
    """Work on a new stream of a GPU, since graphs are not recorded on the default one; elsewhere there is none."""
    stream = new_stream(device)
    with on_stream(stream):
        yield stream


def new_stream(device: torch.device) -> Stream | None:
    """A stream of a GPU, which begins after all that the current one was asked for; elsewhere there is none."""
    if device.type != "cuda":
        return None
    stream = Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def on_stream(stream: Stream | None) -> AbstractContextManager[object]:
    """Work on a stream, if there is one."""
    return torch.cuda.stream(stream)


def hand_over(tensors: tuple[Tensor, ...], source: Stream | None) -> None:
    """Make tensors that a stream computes safe to use on the current one."""
    if source is None:
        return
    target = torch.cuda.current_stream(source.device)
    target.wait_stream(source)
    for tensor in tensors:
        tensor.record_stream(target)


def keep_pace(stream: Stream | None, before: torch.cuda.Event | None) -> torch.cuda.Event | None:
    """Let a stream that works ahead of the current one wait for an event of it; returns that to wait for the next time:
    so it is one turn ahead at most, and no more than that is held in memory."""
    if stream is None:
        return None
    if before is not None:
        stream.wait_event(before)
    return torch.cuda.current_stream(stream.device).record_event()


def synchronise(device: torch.device) -> None:
    """Wait for all that was asked of a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def side_by_side(function: Callable[[int], Tensor], numbers: range) -> Iterator[Tensor]:
    """function(n) of each number, in their order, computed by as many threads as PyTorch would give to one call.

    Threads that work on different numbers need not wait for each other within each convolution. Only calls from the
    main thread of Python are shared so: a host program that has threads of its own has shared its work already."""
    threads = torch.get_num_threads()
    workers = min(threads, len(numbers)) if in_main_thread() else 1
    if workers == 1:
        yield from map(function, numbers)
        return
    with ThreadPoolExecutor(workers, initializer=set_threads, initargs=(threads // workers,)) as pool:
        yield from pool.map(function, numbers)


def threads_for(is_network: bool, voxels: int) -> AbstractContextManager[None]:
    """All threads for a network, whose convolutions are worth sharing; otherwise few where there are few voxels."""
    return use_threads(torch.get_num_threads()) if is_network else few_threads(voxels)


def few_threads(voxels: int) -> AbstractContextManager[None]:
    """One thread for a small image: a second gains nothing, and waiting for a busy core costs several times more."""
    return use_threads(1 if voxels <= ONE_THREAD_UP_TO_VOXELS else torch.get_num_threads())
