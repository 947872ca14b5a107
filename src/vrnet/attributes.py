"""Attributes that are computed when they are first asked for."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801
    """`functools.cached_property` without its lock, as Python has it from 3.12.

    That lock is one for all objects of a class: threads wait for each other, and a process that is forked while another
    thread holds it waits for ever. Without it, two threads that ask at once both compute, to the same end."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "cached_property[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "cached_property[T] | T":
        if instance is None:
            return self
        value = self.compute(instance)
        instance.__dict__[self.name] = value  # which is found before this is, from now on
        return value
