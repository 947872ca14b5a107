"""Ctrl-C ends what is under way, also where it comes while Python cleans up an object."""

import signal
import sys
import time

import pytest

from vrnet.app.console import repeat_lost_interrupts


class Closing:
    """Something whose clean-up is interrupted."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # here the signal is handled


@pytest.fixture
def lost(monkeypatch):
    """What was printed and forgotten."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda said: found.append(said.exc_type))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield found
    signal.signal(signal.SIGINT, before)


def test_python_loses_an_interrupt_in_the_clean_up_of_an_object(lost):
    """The reason why it is repeated: should this fail some day, it need not be."""
    Closing()
    time.sleep(0.2)
    assert lost == [KeyboardInterrupt]


def test_an_interrupt_that_is_lost_comes_again(lost):
    def work():
        with repeat_lost_interrupts():
            Closing()
            time.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lost == []


def test_other_errors_of_clean_ups_are_told_as_before(lost):
    class Broken:
        def __del__(self):
            raise ValueError

    hook = sys.unraisablehook
    with repeat_lost_interrupts():
        Broken()
    assert (lost, sys.unraisablehook) == ([ValueError], hook)
