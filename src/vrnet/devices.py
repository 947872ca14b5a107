"""Devices, threads, streams and CUDA graphs: the only place that knows them."""

import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import deepcopy
from itertools import chain
from math import ceil
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.errors import BadInput, counted

# The number of threads is set in the libraries below PyTorch, OpenMP and on Intel's processors MKL, for the calling
# thread of Python alone. torch.set_num_threads counts for the whole process: a thread of the host program that first
# computes meanwhile would keep that number for ever.

T = TypeVar("T")
CPU = torch.device("cpu")
ONE_THREAD_UP_TO_VOXELS = 256 * 256
LIBRARY = ctypes.CDLL(torch._C.__file__)  # in which the OpenMP that PyTorch was built with is found, too


def in_main_thread() -> bool:
    return current_thread() is main_thread()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let PyTorch compute with `count` threads, in this thread of Python alone."""
    before = torch.get_num_threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def side_by_side(function: Callable[[int], T], numbers: range) -> Iterator[T]:
    """function(n) of each number, in order, by as many threads as PyTorch would use; by one outside the main thread of
    Python, since a host program with threads of its own has shared its work already."""
    threads = torch.get_num_threads()
    workers = min(threads, len(numbers)) if in_main_thread() else 1
    if workers <= 1:
        yield from map(function, numbers)
        return
    with ThreadPoolExecutor(workers, initializer=set_threads, initargs=(threads // workers,)) as pool:
        yield from pool.map(function, numbers)


PIXELS_AT_ONCE = {"cpu": 2**18, "cuda": 2**21}
"""Of slices that are worked on together: of a lone one some convolutions are slow, and all would need memory."""


def in_batches(function: Callable[[slice], Tensor], images: Tensor) -> Iterator[Tensor]:
    """function(part) of all images of a batch, some at a time, the same however many threads there are: of slices on a
    CPU two at least, by four parts or eight or so, side by side. Volumes go one by one, each by all threads."""
    n = parts = len(images)
    are_shared = images.device == CPU and images.dim() == 4
    if images.dim() == 4:
        parts = ceil(n * images[0, 0].numel() / PIXELS_AT_ONCE[images.device.type])
    if are_shared:
        parts = max(1, min(4 * ceil(parts / 4), n // 2))

    @torch.inference_mode()  # which holds for the thread that enters it alone
    def find(k: int) -> Tensor:
        return function(slice(k * n // parts, (k + 1) * n // parts))

    yield from side_by_side(find, range(parts)) if are_shared else map(find, range(parts))


def threads_for(is_network: bool, voxels: int) -> AbstractContextManager[None]:
    """All threads, but one for a small image without a network: waiting for a busy core costs more than it gains."""
    return use_threads(1 if voxels <= ONE_THREAD_UP_TO_VOXELS and not is_network else torch.get_num_threads())


def set_threads(count: int) -> None:
    """Let PyTorch, and the libraries below it, compute with `count` threads in this thread of Python. OpenMP may give
    fewer than ARM's convolutions ask for if that is 1: else OpenBLAS waits for ever for threads that it did not get."""
    torch.get_num_threads()  # which gives this thread the number of the process, if it has none yet
    if hasattr(LIBRARY, "omp_set_num_threads"):  # else PyTorch was built with another way to share work
        LIBRARY.omp_set_num_threads(count)
        LIBRARY.omp_set_dynamic(count == 1)
        if hasattr(LIBRARY, "MKL_Set_Num_Threads_Local"):
            LIBRARY.MKL_Set_Num_Threads_Local(count)
    elif in_main_thread():
        torch.set_num_threads(count)


def compute_alone() -> None:
    """One thread in the whole process. Threads are not copied by a fork: what waits for one there waits for ever."""
    torch.set_num_threads(1)
    set_threads(1)  # a number of MKL's that was set for the thread that forked counts for more


os.register_at_fork(after_in_child=compute_alone)
VOXELS_AT_ONCE = 2**17  # few enough that intermediate results stay in the cache


def in_parts(I: Tensor) -> bool:
    """Whether I is better processed in parts: on a CPU, and without gradients, which need it whole."""
    return I.device.type == "cpu" and not torch.is_grad_enabled()


def make_rows(make: Callable[[slice], Tensor], like: Float[Tensor, "b c *s"]) -> Float[Tensor, "b c *s"]:
    """make(rows) for all rows of the first spatial axis, in the shape of `like`; in parts where that is faster."""
    n = like.shape[2]
    if not in_parts(like):
        return make(slice(0, n))
    rows = max(VOXELS_AT_ONCE // max(len(like) * like.shape[3:].numel(), 1), 1)
    if rows < n:  # else one part is small enough, and threads would wait for each other longer than they compute
        rows = min(rows, ceil(n / torch.get_num_threads()))
    out, inference = like.new_empty(like.shape), torch.is_inference_mode_enabled()

    def fill(k: int) -> None:
        part = slice(k * rows, min((k + 1) * rows, n))
        with use_threads(1), torch.inference_mode(inference), torch.no_grad():  # of the thread that enters them alone
            out[:, :, part] = make(part)

    list(side_by_side(fill, range(ceil(n / rows))))
    return out


WARM_UP_CALLS = 3  # before a CUDA graph is recorded
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
Stream = torch.cuda.Stream
copying = Lock()  # held while a model is copied to another device


def find_device(name: str, allowed: tuple[str, ...] = ("cpu", "cuda")) -> torch.device:
    """The device of a name; `auto` is CUDA where there is one, and where that is allowed."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f'there is no device "{name}": choose auto, cpu or cuda')
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput('PyTorch finds no CUDA device here: choose `device="cpu"`, or auto')
    if name == "cuda" and "cuda" not in allowed:
        raise BadInput('this method computes on the CPU only: choose `device="cpu"`, or auto')
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() and "cuda" in allowed else "cpu")


def describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {counted(torch.get_num_threads(), 'thread')}"


class ModelOnDevices:
    """A model kept for reuse. It is never moved: each other device that asks gets one copy, which all threads share."""

    def __init__(self, model: nn.Module) -> None:
        first = next(chain(model.parameters(), model.buffers()), None)
        self._home = CPU if first is None else first.device
        self._copies = {self._home: model}

    def on(self, device: torch.device) -> nn.Module:
        """The model on a device; "cuda" is the current GPU."""
        if device == torch.device("cuda"):
            device = torch.device("cuda", torch.cuda.current_device())
        with copying:
            if device not in self._copies:
                self._copies[device] = deepcopy(self._copies[self._home]).to(device)
            return self._copies[device]

    def __reduce__(self) -> tuple[type["ModelOnDevices"], tuple[nn.Module]]:
        """Pickling keeps the model itself, and no copies."""
        return ModelOnDevices, (self._copies[self._home],)


def channels_last(model: nn.Module, d: int) -> nn.Module:
    """The model with channels last in memory, which GPUs convolve faster, and some CPUs in 2D."""
    return model.to(memory_format=CHANNELS_LAST[d])  # type: ignore[call-overload]


def record_graph(function: Callable[..., Tensor], *examples: Tensor) -> Callable[..., Tensor]:
    """A function of tensors shaped as the examples, as one CUDA graph, to be called on the current stream, on which it
    must have run a few times. What it returns is overwritten by the next call."""
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
    with torch.cuda.stream(stream := new_stream(device)):
        yield stream


def new_stream(device: torch.device) -> Stream | None:
    """A stream of a GPU, which begins after all that the current one was asked for; elsewhere there is none."""
    if device.type != "cuda":
        return None
    stream = Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


class Lookahead:
    """Calls a function on a stream of its own, at most one call ahead of the current one; without a GPU, directly."""

    def __init__(self, device: torch.device) -> None:
        self._stream = new_stream(device)
        self._last_call: torch.cuda.Event | None = None

    def call(self, function: Callable[..., tuple[Tensor, ...]], *given: Any) -> tuple[Tensor, ...]:
        """What the function returns, safe to use on the current stream."""
        if self._stream is None:
            return function(*given)
        current = torch.cuda.current_stream(self._stream.device)
        if self._last_call is not None:
            self._stream.wait_event(self._last_call)
        self._last_call = current.record_event()
        with torch.cuda.stream(self._stream):
            tensors = function(*given)
        current.wait_stream(self._stream)
        for tensor in tensors:
            tensor.record_stream(current)
        return tensors


def check_memory(path: Path, needed_bytes: int) -> None:
    """BadInput if what a file holds needs more memory than is there."""
    need, free = 2 * needed_bytes, available_memory()  # held as the bytes of the file, and as the array made of them
    if need > free:
        raise BadInput(f"{path} needs {need / 1e9:.3g} GB of memory, and {free / 1e9:.3g} are free: use a smaller one")


def available_memory() -> float:
    """Bytes that the machine, and the container, have left; without limit where they do not say."""
    left = [float("inf")]
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        left.append(1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):  # no container, or its limit is "max"
        limit, used = (Path("/sys/fs/cgroup", name).read_text() for name in ("memory.max", "memory.current"))
        left.append(float(limit) - float(used))
    return min(left)
