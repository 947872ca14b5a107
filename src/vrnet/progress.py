"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[float], None]
"""Called with the part that is done, from 0 to 1."""
Stage = Callable[[str], Progress]
"""Called with what is done next; what it returns is then told how far that is."""
