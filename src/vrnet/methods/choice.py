"""A method as it is asked for: what a process needs to know to load it, and no model, which other processes would be
sent again and again."""

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vrnet.errors import UnfitMachine
from vrnet.file_sets import sha256
from vrnet.methods.boxed import BOXED, digest_of_boxed
from vrnet.methods.default import MODELS
from vrnet.methods.method import Images, Method
from vrnet.methods.names import choose, without_average
from vrnet.methods.parameters import split_name


@dataclass(frozen=True)
class MethodChoice:
    """A name with what may come with it; `choose_method` makes one of a method that can be loaded."""

    name: str
    weights: Path | None = None
    settings: tuple[str, ...] = ()
    average: bool = False
    weights_sha256: str | None = None
    """Of the file of weights, also where that is in the box: one that was replaced is another choice."""
    images: Images = "pair"

    def load(self) -> Method:
        """The method, whose model is read once per process, as long as no other is asked for."""
        return load_once(self)


def choose_method(
    name: str,
    weights: Path | None = None,
    settings: tuple[str, ...] = (),
    average: bool = False,
    images: Images = "pair",
) -> MethodChoice:
    """The choice of a method that is ready to register these images; BadInput as `choose` has it."""
    choose(name, weights, settings, average)
    if weights is None:
        return MethodChoice(name, None, settings, average, digest_in_the_box(name, images), images)
    return MethodChoice(name, weights.absolute(), settings, average, sha256(weights), images)


def digest_in_the_box(name: str, images: Images) -> str | None:
    """The SHA-256 of the weights in the box that a method uses, or may use as `default` does; None if it uses none."""
    base = split_name(without_average(name))[0].casefold()
    model = MODELS[images] if base == "default" else base
    return digest_of_boxed(model) if model in BOXED else None


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
    if choice.weights is None and choice.weights_sha256 not in (None, digest_in_the_box(choice.name, choice.images)):
        raise UnfitMachine(
            f"{platform.node()} has another model in the box for {choice.name} than this run began with: install the "
            "same vrnet everywhere"
        )
    if choice.weights is not None and choice.weights_sha256 != digest_or_none(choice.weights):
        raise UnfitMachine(
            f"{choice.weights} is not the file of weights that this run began with, as {platform.node()} sees it: put "
            "that back, or start again"
        )
    return choose(choice.name, choice.weights, choice.settings, choice.average)
