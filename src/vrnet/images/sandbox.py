"""Readers in C++ that trust their files (DICOM, pictures, HDF5) run in another process, with limits.

What crashes, hangs or fills the memory there ends as BadInput here. That process starts with the first such file, and
ends with this one."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

from vrnet.images.checks import DAMAGED, available_memory, check_memory, reason_of, unreadable

CHILD = Path(__file__).with_name("sandbox_child.py")
BASE_MEMORY, MEMORY_PER_BYTE = 900_000_000, 40
"""What a reader may take: this, and so many times the file's size."""
BASE_SECONDS, BASE_WAITING_SECONDS, BYTES_PER_SECOND = 2, 8, 2_000_000
"""How long it may compute, and how long it may take in all, where disks are slow."""
SECONDS_PER_FILE = 0.05
ENDING_SECONDS = 0.05
THREAD_SETTINGS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX"
ONE_THREAD = dict.fromkeys((*THREAD_SETTINGS, "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), "1")
"""Each thread would reserve memory of its own."""
TOO_LARGE = "it asks for more memory than a file of its size should: it is damaged, or too large to be read"
NO_SANDBOX = "no process to read it in could be started: is there too little memory?"
MAX_ANSWER_LINE = 1 << 26
Answer = tuple[dict[str, Any], bytes]


class Sandbox:
    """A process that waits for requests; one per process of the user."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self.child = subprocess.Popen(
                [sys.executable, "-I", str(CHILD), str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def is_usable(self) -> bool:
        """Whether it runs."""
        return self.child.poll() is None

    def has_ended(self) -> bool:
        """Whether it is no longer there; it is given a moment, since its pipes close before it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(ENDING_SECONDS)
        return not self.is_usable

    def ask(self, request: dict[str, Any]) -> Answer:
        """The answer to a request: its line of JSON, and the bytes after it; ValueError if it is broken off."""
        (their_request, our_request), (our_answer, their_answer) = os.pipe(), os.pipe()
        with os.fdopen(our_answer, "rb") as answer:
            with os.fdopen(our_request, "wb") as file:
                try:
                    socket.send_fds(self.socket, [b"?"], [their_request, their_answer])
                finally:
                    os.close(their_request)
                    os.close(their_answer)
                file.write(json.dumps(request).encode())
            header = json.loads(answer.readline(MAX_ANSWER_LINE))
            return header, answer.read(header.get("bytes", 0))


running: list[Sandbox] = []
starting = Lock()


def forget_sandbox() -> None:
    """After a fork: the sandbox belongs to the process that started it, and who held the lock is not here."""
    global starting
    starting = Lock()
    for sandbox in running:
        sandbox.socket.close()
        sandbox.child.returncode = 0  # which is not for this process to wait for
    running.clear()


os.register_at_fork(after_in_child=forget_sandbox)


def current_sandbox() -> Sandbox:
    """The one that runs, or a new one."""
    with starting:
        if not (running and running[-1].is_usable):
            running[:] = [Sandbox()]
        return running[-1]


def start_sandbox(path: Path) -> Sandbox:
    """The sandbox to read a file in, or BadInput."""
    try:
        return current_sandbox()
    except OSError as error:
        raise unreadable(path, f"{NO_SANDBOX} ({error.strerror})") from error


def ask_sandbox(action: str, path: Path, files: list[Path], open_files: int = 16, **request: Any) -> Answer:
    """Do an action of `sandbox_child` on files, in another process; BadInput named after `path` if it fails."""
    size = sum(file.stat().st_size for file in files)
    check_memory(path, size)
    memory = int(min(BASE_MEMORY + MEMORY_PER_BYTE * size, BASE_MEMORY + available_memory()))
    more = int(size / BYTES_PER_SECOND + SECONDS_PER_FILE * len(files))
    limits = {"memory": memory, "files": open_files}
    limits |= {"seconds": BASE_SECONDS + more, "waiting_seconds": BASE_WAITING_SECONDS + more}
    sandbox = start_sandbox(path)
    try:
        header, data = sandbox.ask({"action": action, "limits": limits, **request})
    except (OSError, ValueError) as error:  # the reader crashed, or ran out of time; or the sandbox itself has ended
        raise unreadable(path, NO_SANDBOX if sandbox.has_ended() else DAMAGED) from error
    check_answer(header, data, path)
    return header, data


def check_answer(header: dict[str, Any], data: bytes, path: Path) -> None:
    """BadInput where the reader says that it failed, or broke off."""
    said = header.get("error")
    if said is None and len(data) == header["bytes"]:
        return
    if said is not None and ("alloc" in said or "memory" in said):
        raise unreadable(path, TOO_LARGE)
    raise unreadable(path, reason_of(said or ""))


# Settings of ITK hold for the whole process: changed only while a thread needs it, and then as they were before.


class Setting:
    """A setting of ITK's ProcessObject, by its name in SimpleITK, and the threads in blocks that change it."""

    def __init__(self, name: str) -> None:
        self.name, self.before, self.lock = name, 0, Lock()
        self.threads: list[int] = []
        """The thread of each block under way."""
        os.register_at_fork(after_in_child=self.start_anew)

    @contextmanager
    def changed_to(self, value: int) -> Iterator[None]:
        """The setting has this value meanwhile.

        Afterwards it is as it was before the first of the threads that are in here."""
        with self.lock:
            if not self.threads:
                self.before = self.get()
            self.set(value)
            self.threads.append(get_ident())
        try:
            yield
        finally:
            with self.lock:
                self.threads.remove(get_ident())
                if not self.threads:
                    self.set(self.before)

    def get(self) -> int:
        import SimpleITK as sitk

        value: int = getattr(sitk.ProcessObject, f"Get{self.name}")()
        return value

    def set(self, value: int) -> None:
        import SimpleITK as sitk

        getattr(sitk.ProcessObject, f"Set{self.name}")(value)

    def start_anew(self) -> None:
        """After a fork: of the threads that were in a block, only the one that forked is here to leave it."""
        self.lock = Lock()
        was_changed, self.threads = bool(self.threads), [one for one in self.threads if one == get_ident()]
        if was_changed and not self.threads:
            self.set(self.before)


warning_display, thread_count = Setting("GlobalWarningDisplay"), Setting("GlobalDefaultNumberOfThreads")


def silence_warnings(is_needed: bool) -> AbstractContextManager[None]:
    """Show no warnings of ITK meanwhile, if that is needed: what they are about is known, or ends in BadInput."""
    return warning_display.changed_to(False) if is_needed else nullcontext()


def one_thread() -> AbstractContextManager[None]:
    """While inside, what ITK makes has one thread."""
    return thread_count.changed_to(1)
