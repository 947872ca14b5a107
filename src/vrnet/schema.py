"""Values from outside, checked against a frozen dataclass: every key known, none missing, each value of its type. What
a type cannot say, such as a range, the dataclass checks itself, in `__post_init__`.

The card of a model, the state of a run, the index of a pack and the parameters of a method are all checked here."""

from collections.abc import Collection
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from reprlib import repr as short_repr
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vrnet.errors import BadInput, most_like

T = TypeVar("T")
MAX_TEXT_CHARACTERS = 1_000
"""More than any name or description of ours has."""
MAX_SHOWN_CHARACTERS = 80
"""Of a text from outside, in a message."""
MIN_COLUMN_SIMILARITY = 0.8
"""From 0 to 1: a column whose name is so similar to a known one is taken for a misspelling."""


@cache
def type_hints(schema: Any) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    return get_type_hints(schema)


def shown(text: str) -> str:
    """A text from outside as one line of a message can hold it."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: MAX_SHOWN_CHARACTERS + 1])
    return line if len(text) <= MAX_SHOWN_CHARACTERS else f"{line[:MAX_SHOWN_CHARACTERS]}..."


def refuse_misspelt(columns: Collection[str], known: Collection[str], path: Path) -> None:
    """BadInput for a column of a file that is nearly one of the known ones; any other may be the owner's own."""
    for name in columns:
        meant = most_like(name, {*known} - {*columns}, MIN_COLUMN_SIMILARITY)
        if meant and name not in known:
            raise BadInput(f'{path} has a column "{shown(name)}": did you mean {meant}?')


class WrongKey(ValueError):
    """The message says which key is wrong, and why."""


def read_record(values: Any, schema: type[T], path: Path, advice: str) -> T:
    """What a file holds, as this dataclass; BadInput names the file and the wrong key, and ends in the advice."""
    try:
        return convert_record(values, schema)
    except ValueError as error:
        raise BadInput(f"{path} is not as vrnet writes it, {error}: {advice}") from error


def convert_record(values: Any, schema: type[T]) -> T:
    """The values, {key: value}, as a dataclass; WrongKey or BadInput if they are not."""
    if not isinstance(values, dict):
        raise WrongKey(f"it holds {short_repr(values)} where keys and values should be")
    hints = type_hints(schema)  # type: ignore[arg-type]
    for key in values:
        if key not in hints:
            raise WrongKey(f"the key {short_repr(key)} is not known")
    for field in fields(schema):  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING and field.name not in values:
            raise WrongKey(f"{field.name} is missing")
    return schema(**{key: convert_key(key, value, hints[key]) for key, value in values.items()})


def convert_key(key: str, value: Any, hint: Any) -> Any:
    """The value of a key as its type; WrongKey if it is of another."""
    try:
        return convert(value, hint)
    except (WrongKey, BadInput) as error:  # of a record within
        raise WrongKey(f"in {key} {error}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongKey(f"{key} is {short_repr(value)} and should be {describe_type(hint)}") from error


def convert(value: Any, hint: Any) -> Any:
    """The value as the type that a field has; TypeError, ValueError or OverflowError if it is of another kind."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return convert_to_any(value, arguments)
    if kind is Literal:
        return arguments[arguments.index(value)]
    if hasattr(kind, "convert_from"):  # a generic type that knows how it is written
        return kind.convert_from(value, *arguments)
    if kind is tuple:
        return convert_tuple(value, arguments)
    if kind is dict:
        return convert_dict(value, *arguments)
    if hint is float:
        return convert_number(value)
    if hint is str:
        return convert_text(value)
    if isinstance(hint, type) and is_dataclass(hint) and not isinstance(value, hint):
        return convert_record(value, hint)
    if hint is Any or (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    raise TypeError(f"{short_repr(value)} is no {hint}")


def convert_number(value: Any) -> float:
    """A number that is finite, as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise TypeError(f"{short_repr(value)} is no finite number")
    return float(value)


def convert_text(value: Any) -> str:
    """Text that a line of a message or a table can hold."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT_CHARACTERS:
        raise TypeError(f"{short_repr(value)} is no line of text")
    return value


def convert_to_any(value: Any, hints: tuple[Any, ...]) -> Any:
    """As the first of several types that takes it."""
    for hint in hints:
        try:
            return convert(value, hint)
        except (TypeError, ValueError, KeyError):
            continue
    raise TypeError(f"{short_repr(value)} is none of {hints}")


def convert_tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{short_repr(value)} is not several values")
    each = hints[:1] * len(value) if hints[-1] is Ellipsis else hints
    return tuple(convert(item, hint) for item, hint in zip(value, each, strict=True))


def convert_dict(value: Any, key_hint: Any, hint: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{short_repr(value)} has no keys")
    return {convert(key, key_hint): convert(item, hint) for key, item in value.items()}


def describe_type(hint: Any) -> str:
    """What a field takes, in words."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(dict.fromkeys(describe_type(argument) for argument in arguments))
    if kind is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if hasattr(kind, "convert_from"):
        return kind.describe(*map(describe_type, arguments))
    if kind is tuple:
        inner = [describe_type(argument) for argument in arguments if argument is not Ellipsis]
        return f"({', '.join(inner)}{', ...' if arguments[-1] is Ellipsis else ''})"
    if kind is dict:
        return f"{{{': '.join(map(describe_type, arguments))}, ...}}"
    words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", NoneType: "None"}
    return words.get(hint, "keys and values" if is_dataclass(hint) else str(hint))
