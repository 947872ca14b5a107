"""What is said of an argument that a function does not have: what it is called elsewhere, or where it belongs."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from vrnet.methods.names import method_with
from vrnet.wording import did_you_mean

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
    if name in OF_IMAGES and "spacing" in known:
        return f"arrays have no place in space; register_images(fixed, moving, {name}={value!r}) takes images"
    if "label" in name and "moving" in known:
        return "labels are compared afterwards, by result.metrics(fixed_labels, moving_labels)"
    if name in ("out", "report") and "affine" in known:
        return 'results are written afterwards, by result.report("page.html") and result.transform.save(file)'
    near, owner = did_you_mean(name, known), method_with(name)
    if owner and not near:
        return f'it is a parameter of methods: write method="{owner}({name}={value})"'
    return f"{near} It has {', '.join(known)}" if near else f"it has {', '.join(known)}"
