"""How many threads PyTorch computes with, changed for the calling thread of Python alone; and one after a fork.

torch.set_num_threads counts for the whole process: a thread of the host program that first computes meanwhile would
keep that number for ever. The libraries below PyTorch, OpenMP and on Intel's processors MKL, count for each thread."""

import ctypes
import multiprocessing as mp
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import current_thread, main_thread
from typing import TypeVar

import torch

T = TypeVar("T")
SPAWNED = "SpawnProcess", "ForkServerProcess"


def in_main_thread() -> bool:
    """Whether this is the thread of Python that may handle signals."""
    return current_thread() is main_thread()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let PyTorch compute with so many threads, in this thread of Python alone."""
    before = torch.get_num_threads()
    of_mkl, may_be_fewer = set_threads(count)
    try:
        yield
    finally:
        set_threads(before, of_mkl, may_be_fewer)


def share(function: Callable[[T], None], parts: Iterable[T]) -> None:
    """function(part) of each part, without gradients, by as many threads as PyTorch has, each of which computes alone.

    They wait for each other once, at the end. Within every small operation that would take far longer than the
    operation itself where cores are busy. A thread of a host program, which has shared its work, does all alone."""
    parts, inference = list(parts), torch.is_inference_mode_enabled()
    workers = min(torch.get_num_threads(), len(parts)) if in_main_thread() else 1

    def compute(part: T) -> None:
        with torch.inference_mode(inference), torch.no_grad():  # which hold for the thread that enters them alone
            function(part)

    if workers <= 1:
        with use_threads(1):
            for part in parts:
                compute(part)
        return
    with ThreadPoolExecutor(workers, initializer=set_threads, initargs=(1,)) as pool:
        for _ in pool.map(compute, parts):
            pass


def set_threads(count: int, of_mkl: int | None = None, may_be_fewer: bool | None = None) -> tuple[int, bool]:
    """Let PyTorch compute with so many threads, in this thread of Python, and MKL too, if not with others.

    A library below it may ask for a number of its own: ARM's convolutions ask for all cores. If OpenMP may give fewer,
    it gives no more than this number. It may where that is 1, and nowhere else, if not told otherwise: OpenBLAS waits
    for ever for the threads that it asked for and did not get. Returns MKL's number from before, where 0 stands for
    that of the process, and whether OpenMP might give fewer."""
    torch.get_num_threads()  # which gives this thread the number of the process, if it has none yet
    library = thread_library()
    if library is None:
        if in_main_thread():
            torch.set_num_threads(count)
        return 0, False
    might_be_fewer = bool(library.omp_get_dynamic())
    library.omp_set_num_threads(count)
    library.omp_set_dynamic(count == 1 if may_be_fewer is None else may_be_fewer)
    has_mkl = hasattr(library, "MKL_Set_Num_Threads_Local")
    before = library.MKL_Set_Num_Threads_Local(count if of_mkl is None else of_mkl) if has_mkl else 0
    return before, might_be_fewer


@cache
def thread_library() -> ctypes.CDLL | None:
    """The OpenMP that PyTorch was built with; None if it was built with another way to share work."""
    library = ctypes.CDLL(torch._C.__file__)  # in which its dependencies are found, too
    return library if hasattr(library, "omp_set_num_threads") else None


def compute_alone() -> None:
    """Let PyTorch compute with one thread in the whole process.

    The threads of a process are not copied by a fork: whatever waits for one in the copy waits for ever."""
    torch.set_num_threads(1)
    set_threads(1)  # a number of MKL's that was set for the thread that forked counts for more


def is_forked() -> bool:
    """Whether multiprocessing made this process as a copy of another."""
    process = mp.current_process()
    if mp.parent_process() is None or type(process).__name__ in SPAWNED:
        return False
    return type(process).__name__ == "ForkProcess" or mp.get_start_method() == "fork"


os.register_at_fork(after_in_child=compute_alone)
if is_forked():
    compute_alone()
