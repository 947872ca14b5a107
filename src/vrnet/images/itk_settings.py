"""Settings of ITK hold for the whole process: changed only while a thread needs it, and then as they were before."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock, get_ident


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
