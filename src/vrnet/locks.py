"""Locks that end with their process, and temporary folders that go with it.

The lock is flock, which the system releases however a process ends. A lock file is removed by its holder; one that a
killed process left behind is free, and taken over by the next. Where a file system has no locks, nobody is kept out,
and nothing is taken for left behind."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import uniform
from tempfile import mkdtemp
from time import monotonic, sleep

PARTIAL = ".partial-"
"""How the names of temporary folders begin."""
ORDINARY = ".ordinary"
"""The lock file of a temporary folder; it also has the permissions of an ordinary file."""
RETRY_SECONDS = 0.02
SHARING_SECONDS = 10.0
"""How long to wait for who looks at a lock that is shared: that takes microseconds, and on a busy file system more."""


@contextmanager
def hold_lock(path: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock file meanwhile; BlockingIOError if another holds it for longer than this process is patient."""
    with closing(wait_for_lock(path, patience_seconds)):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def closing(descriptor: int) -> Iterator[None]:
    """Close a descriptor at the end, which frees its lock."""
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def share_lock(path: Path) -> Iterator[None]:
    """Hold a lock file meanwhile together with others who share it; who wants it alone finds it held.

    It stays where it is, since others may hold it: whoever finds it free removes it. He holds it alone for that moment,
    as does whoever looks whether it is held: this one waits for them."""
    with closing(wait_for_lock(path, SHARING_SECONDS, is_shared=True)):
        yield


def wait_for_lock(path: Path, patience_seconds: float, is_shared: bool = False) -> int:
    """A descriptor that holds a lock file; BlockingIOError if others hold it for longer than one is patient."""
    end = monotonic() + patience_seconds
    while True:
        try:
            return acquire_lock(path, is_shared=is_shared)
        except BlockingIOError:
            if monotonic() > end:
                raise
            sleep(uniform(0.0, RETRY_SECONDS))  # by chance: who holds it again and again may do so in step


def acquire_lock(path: Path, is_needed: bool = False, is_shared: bool = False) -> int:
    """A descriptor that holds a lock file until it is closed; BlockingIOError if another process holds it.

    Where there are no locks, one that is needed is an OSError; any other is taken for held."""
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if is_same_file(path, descriptor):  # and not one that its last holder has just removed
                return descriptor
            os.close(descriptor)
        except OSError as error:
            if not is_needed and not isinstance(error, BlockingIOError):
                return descriptor
            os.close(descriptor)
            raise


def is_same_file(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether a living process holds a lock file."""
    if not path.exists():
        return False
    try:
        os.close(acquire_lock(path))
    except OSError:
        return True
    return False


@contextmanager
def partial_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder in a folder, which is removed at the end; if this process is killed, by the next run."""
    while True:
        folder = Path(mkdtemp(prefix=PARTIAL, dir=parent))
        with suppress(FileNotFoundError):  # another process took it for left behind before it was locked
            descriptor = acquire_lock(folder / ORDINARY)
            break
    with closing(descriptor):
        try:
            yield folder
        finally:
            remove_partial(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders that killed processes left in a folder; those of living ones stay."""
    for place in folder.glob(f"{PARTIAL}*"):
        with suppress(OSError):  # in use, or not ours, or not to be removed: it stays
            if place.is_symlink() or not (place / ORDINARY).exists():
                place.rmdir()  # which removes an empty folder alone
                continue
            with closing(acquire_lock(place / ORDINARY, is_needed=True)):
                remove_partial(place)


def remove_partial(folder: Path) -> None:
    """Remove a temporary folder: its lock file last, so that what a stop leaves of it is known as such."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != ORDINARY:
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)
