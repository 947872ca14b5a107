"""The parameters of a method: printed in its name where they were changed, and set by their names."""

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from numbers import Real
from textwrap import dedent
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

from vrnet.errors import BadInput, did_you_mean


@cache
def field_docstrings(cls: type) -> dict[str, str]:
    """{field: the docstring below it}, on one line each."""
    try:
        (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # a class written at a prompt has no source file
        return {}
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for line, below in zip(definition.body, definition.body[1:], strict=False):
        text = getattr(below.value, "value", None) if isinstance(below, ast.Expr) else None
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(text, str):
            found[line.target.id] = " ".join(text.split())
    return found


T = TypeVar("T")


@dataclass(frozen=True)
class PerDimension(Generic[T]):
    """A parameter that is not the same in 2D and in 3D; written {2: x, 3: y}."""

    plane: T
    volume: T

    def __repr__(self) -> str:
        return f"{{2:{format_value(self.plane)},3:{format_value(self.volume)}}}"


def value_in(parameter: T | PerDimension[T], d: int) -> T:
    return (parameter.plane if d == 2 else parameter.volume) if isinstance(parameter, PerDimension) else parameter


@dataclass(frozen=True)
class Parameter:
    """One that can be set."""

    name: str
    value: Any
    meaning: str


def parameters(method: Any, fixed: tuple[str, ...] = ()) -> list[Parameter]:
    """The parameters of a method that can be set; the fixed ones are said by its name."""
    meanings = field_docstrings(type(method))  # type: ignore[arg-type]
    names = [field.name for field in fields(method) if field.init and field.name not in fixed]
    return [Parameter(name, getattr(method, name), meanings.get(name, "")) for name in names]


def changes(method: Any, default: Any, fixed: tuple[str, ...] = ()) -> str:
    """(lam=0.15,warps=20): what differs from the default, as the name shows it; nothing where nothing does."""
    own = [parameter for parameter in parameters(method, fixed) if parameter.value != getattr(default, parameter.name)]
    changed = [f"{parameter.name}={format_value(parameter.value)}" for parameter in own]
    return f"({','.join(changed)})" if changed else ""


def format_value(value: Any) -> str:
    """A value as a name has it, which reads back to the same."""
    if isinstance(value, (list, tuple)):
        inner = ",".join(map(format_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Real) and not isinstance(value, (bool, int)):
        return repr(float(value))
    return value if isinstance(value, str) else repr(value).replace(" ", "")


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    """("TV-L1", {"lam": 0.15}) of "TV-L1(lam=0.15)"; BadInput if the brackets are not closed."""
    base, bracket, rest = name.strip().partition("(")
    if bracket and not rest.endswith(")"):
        raise BadInput(f'"{name}" lacks a closing bracket: write {base}(NAME=VALUE)')
    return base.strip(), assignments(rest[:-1]) if bracket else {}


def assignments(text: str) -> dict[str, Any]:
    """{"lam": 0.15, "warps": 20} of "lam=0.15,warps=20"; BadInput if it is not written so."""
    named = re.sub(r"(^|,)\s*(\w+)\s*=", r"\1_\2=", text)  # a name such as lambda is a word of Python's
    try:
        call = ast.parse(f"_({named})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args or not call.keywords:
            raise ValueError(text)
        said = [(word.arg, word.value) for word in call.keywords if word.arg]
        words = [(k.removeprefix("_"), v.id if isinstance(v, ast.Name) else ast.literal_eval(v)) for k, v in said]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f'"{text}" sets no parameter: write NAME=VALUE, such as lam=0.15') from error
    if "#" in text or len(dict(words)) < len(call.keywords):
        raise BadInput(f'"{text}" sets a parameter twice, or holds what is no value: write NAME=VALUE, each once')
    return dict(words)


def with_parameters(method: T, given: Mapping[str, Any], fixed: tuple[str, ...] = ()) -> T:
    """The method with other values; BadInput names what it has where there is no such parameter, or no such value."""
    import msgspec

    from vrnet.files import check_plain  # which loads NumPy; the help of commands does without

    known = {parameter.name: parameter.value for parameter in parameters(method, fixed)}
    hints, values = get_type_hints(type(method)), {}
    for name, value in given.items():
        if name in fixed:
            raise BadInput(f"{name} of {method} is said by its name: give the method of another name")
        if name not in known:
            meant, has = did_you_mean(name, known), f"has {', '.join(sorted(known)) or 'none'}"
            raise BadInput(f'{method} has no parameter "{name}": {f"{meant} It" if meant else "it"} {has}')
        written = value
        if isinstance(value, dict) and value.keys() == {2, 3}:
            written = {"plane": value[2], "volume": value[3]}
        elif get_origin(hints[name]) is tuple and isinstance(value, Real):  # radii=4 is radii=(4,)
            written = (value,)
        try:
            check_plain(written)
            values[name] = msgspec.convert(written, hints[name])
        except (TypeError, ValueError, OverflowError) as error:
            said = f"{name} of {method} cannot be {format_value(value)}"
            raise BadInput(f"{said}: give a value such as {format_value(known[name])}") from error
    return replace(method, **values) if values else method  # type: ignore[type-var]
