"""Shapes and types are enforced while the tests run, at the first calls of each function in each test.

A solver calls the same functions thousands of times, with tensors of the same shapes: to check each of these calls took
a third of the time of all tests.
"""

from collections import Counter
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from inspect import isclass, isgeneratorfunction
from typing import get_type_hints

import jaxtyping

CHECKED_CALLS = 3
"""Of each function, in each test; of none while tests are collected."""
check_every_call = jaxtyping.jaxtyped
calls: Counter | None = None
"""In this test, by function: a function within another is one, however often it is made."""


def begin():
    """Count the calls of a test from none on."""
    global calls
    calls = Counter()


def install():
    """Whatever is imported from vrnet hereafter is checked."""
    jaxtyping.jaxtyped = check_first_calls  # by this name the hook decorates functions and classes
    jaxtyping.install_import_hook("vrnet", "beartype.beartype")


def check_first_calls(fn=None, *, typechecker):
    """jaxtyping.jaxtyped, for the first calls only."""
    if fn is None:
        return partial(check_first_calls, typechecker=typechecker)
    if not isclass(fn):
        return at_first(lambda: check_in_one_pass(fn, typechecker), fn)
    plain = fn.__init__
    if is_dataclass(fn) and not hasattr(plain, "__wrapped__"):  # those written out are functions, met before
        fn.__init__ = at_first(lambda: check_in_one_pass(plain, typechecker), plain)
    return fn


def check_in_one_pass(plain, typechecker):
    """The function whose arguments and result are checked, within one scope for the names of axes.

    jaxtyping itself builds two functions, and checks the arguments in either, which takes twice as long. It does so
    here where a type is known to mypy alone, which it then leaves out, and for what yields, after the scope has ended.
    """
    if isgeneratorfunction(plain) or not has_known_types(plain):
        return check_every_call(plain, typechecker=typechecker)
    checked, scope = typechecker(plain), check_every_call("context")

    @wraps(plain)
    def call(*args, **kwargs):
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return plain(*args, **kwargs)
        with scope:
            return checked(*args, **kwargs)

    return call


def has_known_types(function):
    """Whether all its types are imported, and not only for mypy."""
    try:
        get_type_hints(function)
    except NameError:
        return False
    return True


def at_first(build, plain):
    """The checked function, and after some calls the plain one.

    It is built when it is called first: most functions are called by no test of a worker."""
    build, function = cache(build), id(plain.__code__)

    @wraps(plain)
    def call(*args, **kwargs):
        __tracebackhide__ = True
        if calls is None or calls[function] >= CHECKED_CALLS:
            return plain(*args, **kwargs)
        calls[function] += 1
        return build()(*args, **kwargs)

    return call
