"""Ctrl-C that Python loses is given again.

A signal is handled between any two steps of Python code; where these belong to the clean-up of an object, what is
raised there is printed and forgotten. While modules are imported, such clean-ups come by the thousand."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
from typing import Any

AGAIN_SECONDS = 0.05
"""Until the clean-up that lost it has ended."""


@contextmanager
def repeat_lost_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt again, as often as it is lost."""
    before = sys.unraisablehook

    def hook(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            again = Timer(AGAIN_SECONDS, signal.pthread_kill, (main_thread().ident, signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            before(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
