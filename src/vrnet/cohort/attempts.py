"""Attempts at a subject that were begun and never ended: their process was killed, or there was too little memory.

The lock file of a subject holds their number. Who ends an attempt removes the file; a killed process leaves it behind,
and the next one reads it there. So a subject that kills its process blocks nobody behind it: it is done last, and after
three times it is a failure."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vrnet.locks import acquire_lock, closing

MAX_UNENDED = 3
"""Attempts at a subject that may be begun and never end."""
MAX_COUNT = 9
"""What one digit can say."""


@contextmanager
def begin_attempt(lock: Path) -> Iterator[int]:
    """Hold the lock of a subject meanwhile, and yield how many attempts before never ended; BlockingIOError if another
    process is at it.

    One that is stopped has not ended: the run that is stopped takes it back."""
    descriptor = acquire_lock(lock)
    with closing(descriptor):
        unended = read_count(descriptor)
        write_count(descriptor, unended + 1)
        try:
            yield unended
        except Exception:
            lock.unlink(missing_ok=True)
            raise
        lock.unlink(missing_ok=True)


def take_back(lock: Path) -> None:
    """Count one attempt less at a subject that no process is at."""
    with suppress(OSError), closing(descriptor := acquire_lock(lock, is_needed=True)):
        write_count(descriptor, read_count(descriptor) - 1)


def read_count(descriptor: int) -> int:
    """The number in a lock file; 0 if there is none."""
    text = os.pread(descriptor, 1, 0)
    return int(text) if text.isdigit() else 0


def write_count(descriptor: int, count: int) -> None:
    """Write the number in a lock file. On a full disk it is not counted: the attempt itself will say so."""
    with suppress(OSError):
        if count > 0:
            os.pwrite(descriptor, str(min(count, MAX_COUNT)).encode(), 0)
        else:
            os.ftruncate(descriptor, 0)


def count_unended(lock: str) -> int:
    """How many attempts never ended, or are under way, by what a lock file says; 0 if it is not there."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    with closing(descriptor):
        return read_count(descriptor)
