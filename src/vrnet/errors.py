"""What the package raises when the caller must act, and what it warns of when the caller should know."""


class BadInput(ValueError):
    """The input cannot be used. The message is one line: what is wrong, and what to do.

    Arguments are written as in Python, between backticks: `slices` or `slices="each"`. On the command line one reads
    --slices and --slices each."""


class UnfitMachine(BadInput):
    """What is asked for can be done, but not by this process: it has another version, or does not see the files."""


class InputWarning(UserWarning):
    """The input is used, and something about it should be known. Commands print the message after "Note:"."""
