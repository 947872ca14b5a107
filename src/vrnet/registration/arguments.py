"""What is said of an argument that a function does not have: what it is called elsewhere, or where it belongs."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
OF_IMAGES = "affine", "slices", "match_intensities"
"""What `register_images` alone can be asked for, since arrays have no place in space."""


def name_unknown(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose TypeError for an argument that it does not have says what to write instead."""
    known = list(signature(function).parameters)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in kwargs.items():
            if name not in known:
                raise TypeError(f"{function.__name__}() has no argument {name}: {instead(name, value, known)}")
        return function(*args, **kwargs)

    return called


def instead(name: str, value: object, known: list[str]) -> str:
    """What to write instead of an argument that is none."""
    if name in OF_IMAGES:
        return f"arrays have no place in space; register_images(fixed, moving, {name}={value!r}) takes images"
    if close := get_close_matches(name, known, n=1, cutoff=0.8):
        return f"did you mean {close[0]}?"
    of_method = f'if it is a parameter of a method, write it as method="TV-L1({name}={value})"'
    return f"{of_method}; arguments are {', '.join(known)}"
