"""PyTorch is loaded once the words of a command are read, so that help, and what is wrong with the words, come at once.

Ctrl-C while something is loaded, or too little memory, ends in one line. Here only Python's own modules are imported:
nothing has to be loaded to tell what went wrong."""

import gc
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

MIN_MEMORY_BYTES = 1_250_000_000
"""Below this, PyTorch ends the process in words of its own while it is loaded."""


def load_libraries() -> None:
    """Import what every command computes with."""
    with loading():
        check_limit()
        import torch  # noqa: F401
    gc.freeze()  # PyTorch stays until the end: the collector need not look through it, now or then


@contextmanager
def loading() -> Iterator[None]:
    """End with a line if what is imported within cannot be, or if that is interrupted.

    Ctrl-C ends the process where it is met: raised, PyTorch would forget it, or end in words of its own."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell's script may have chosen that Ctrl-C is not for this process
        signal.signal(signal.SIGINT, lambda *_: stop("interrupted; nothing is half-written", 130))
    try:
        yield
    except ModuleNotFoundError as error:
        stop(f"it could not be loaded ({error}): `vrnet doctor` says what to install", 2)
    except (MemoryError, ImportError, OSError) as error:
        stop(f"it could not be loaded ({str(error) or 'too little memory'}): is there enough memory?", 2)
    finally:
        signal.signal(signal.SIGINT, before)


def check_limit() -> None:
    """MemoryError if `ulimit -v` allows too little to begin with."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_MEMORY_BYTES:
        raise MemoryError(f"ulimit -v allows {limit / 1e9:.3g} GB, and it needs {MIN_MEMORY_BYTES / 1e9:.3g} GB")


def stop(message: str, status: int) -> NoReturn:
    """End at once with a line on the error stream: what is half loaded may not be able to end in order."""
    os.write(2, f"vrnet: {message}\n".encode(errors="replace"))
    os._exit(status)
