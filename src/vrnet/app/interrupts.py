"""Ctrl-C that Python loses is given again, and a process that is told to end says how to go on.

A signal is handled between any two steps of Python code; where these belong to the clean-up of an object, what is
raised there is printed and forgotten. While modules are imported, such clean-ups come by the thousand."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
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


@contextmanager
def last_words(words: Callable[[], str]) -> Iterator[None]:
    """Where the system ends this process (SIGTERM, SIGHUP), say these words; then it ends as it would have.

    So whoever started it sees that it was ended, and nothing is cleaned up: time may be short."""

    def end(number: int, frame: object) -> None:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{words()}\n".encode())  # safe amid any print
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)
