"""What the package raises when the caller must act, and what it warns of when the caller should know."""


class BadInput(ValueError):
    """The input cannot be used. The message is one line: what is wrong, and what to do."""


class InputWarning(UserWarning):
    """The input is used, and something about it should be known. Commands print the message after "Note:"."""
