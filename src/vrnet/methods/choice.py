"""A method as it is asked for: what a process needs to know to load it, and no model, which other processes would be
sent again and again."""

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vrnet.errors import UnfitMachine
from vrnet.file_sets import sha256
from vrnet.methods.method import Method
from vrnet.methods.names import choose


@dataclass(frozen=True)
class MethodChoice:
    """A name with what may come with it; `choose_method` makes one of a method that can be loaded."""

    name: str
    weights: Path | None = None
    settings: tuple[str, ...] = ()
    average: bool = False
    weights_sha256: str | None = None
    """Of the file of weights: one that was replaced is another choice."""

    def load(self) -> Method:
        """The method, whose model is read once per process, as long as no other is asked for."""
        return load_once(self)


def choose_method(
    name: str, weights: Path | None = None, settings: tuple[str, ...] = (), average: bool = False
) -> MethodChoice:
    """The choice of a method that is ready to register; BadInput as `choose` has it."""
    choose(name, weights, settings, average)
    if weights is None:
        return MethodChoice(name, None, settings, average)
    return MethodChoice(name, weights.absolute(), settings, average, sha256(weights))


def digest_or_none(path: Path) -> str | None:
    """The SHA-256 of a file; None if it cannot be read."""
    try:
        return sha256(path)
    except OSError:
        return None


@lru_cache(maxsize=1)
def load_once(choice: MethodChoice) -> Method:
    """The method of a choice; UnfitMachine if its file of weights is not the one that was chosen.

    A process that starts late, or on another machine, may find one that was replaced meanwhile."""
    if choice.weights is not None and choice.weights_sha256 != digest_or_none(choice.weights):
        raise UnfitMachine(
            f"{choice.weights} is not the file of weights that this run began with, as {platform.node()} sees it: put "
            "that back, or start again"
        )
    return choose(choice.name, choice.weights, choice.settings, choice.average)
