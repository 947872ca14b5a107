"""The hearts of vrnet.phantom, each made once: every test has a copy of its own."""

from copy import deepcopy
from functools import cache, wraps

from vrnet import phantom as makers


def make_once(make):
    """The same function, that makes for the same arguments only once."""
    made = cache(make)

    @wraps(make)
    def copy(*args, **options):
        return deepcopy(made(*args, **options))

    return copy


phantom, cycle = make_once(makers.phantom), make_once(makers.cycle)
