"""Lines of progress where nothing can be written over, as in a log: whoever reads it must see that the run lives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 60.0
"""Until the first line, and between two lines."""


@contextmanager
def from_time_to_time(say: Callable[[], None]) -> Iterator[None]:
    """Say something again and again meanwhile, also while nothing ends."""
    end = Event()

    def repeat() -> None:
        seconds = FIRST_LINE_SECONDS
        while not end.wait(seconds):
            seconds = LINE_SECONDS
            say()

    speaker = Thread(target=repeat, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        end.set()
        speaker.join()
