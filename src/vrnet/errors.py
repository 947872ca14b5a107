"""What the package raises when the caller must act, and what it warns of when the caller should know."""

import sys
import warnings


class BadInput(ValueError):
    """The input cannot be used. The message is one line: what is wrong, and what to do.

    Arguments are written as in Python, between backticks: `slices` or `slices=each`. On the command line a reader sees
    --slices and --slices each."""


class UnfitMachine(BadInput):
    """What is asked for can be done, but not by this process: it has another version, or does not see the files."""


class InputWarning(UserWarning):
    """The input is used, and something about it should be known. Commands print the message after "Note:"."""


def warn_of_input(said: str) -> None:
    """Warn of an input at the line, outside this package, that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "vrnet":
        frame, level = frame.f_back, level + 1
    warnings.warn(said, InputWarning, stacklevel=level)
