"""From the words of a command line to a command: tyro, told how our dataclasses of options read.

The docstring below a field is its help. An option that is off, empty or None unless it is given shows no default: its
help says what happens without it. What is wrong with the words was told before, by `words.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from vrnet.docstrings import field_docstrings

registry = ConstructorRegistry()


@runtime_checkable
class Command(Protocol):
    """A command whose arguments were read."""

    def run(self) -> None:
        """Do what was asked for; BadInput if that cannot be."""
        ...


def read_command(commands: Mapping[str, Callable[..., Command]], words: Sequence[str]) -> Command:
    """The command that the words after `vrnet` ask for; SystemExit with status 2 where they make no sense."""
    return tyro.extras.subcommand_cli_from_dict(
        dict(commands),
        args=words,
        prog="vrnet",
        description="Deformable image registration for cardiac MR, in 2D and 3D.",
        config=(tyro.conf.FlagCreatePairsOff,),
        registry=registry,
    )


@registry.struct_rule
def dataclass_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    """A dataclass of ours as arguments, one per field; tyro has dataclasses of its own."""
    if not is_dataclass(info.type) or not info.type.__module__.startswith("vrnet."):
        return None
    hints = get_type_hints(info.type, include_extras=True)
    arguments = (argument(info.type, field, hints[field.name]) for field in fields(info.type))
    return StructConstructorSpec(info.type, tuple(arguments))


def argument(kind: type, field: Field[Any], hint: Any) -> StructFieldSpec:
    """A field as an argument. The help is looked up when it is shown."""
    default = tyro.MISSING_NONPROP if field.default is MISSING else field.default
    if default is None or default is False or default is True or default == ():
        hint = without_default(hint)
    return StructFieldSpec(field.name, hint, default, partial(help_text, kind, field.name))


def without_default(hint: Any) -> Any:
    """The type of an argument, with a mark not to show a default; what the type itself says has precedence."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
    return Annotated[kind, tyro.conf.DisallowNone, tyro.conf.arg(help_behavior_hint=""), *marks]


def help_text(kind: type, name: str) -> str | None:
    """The docstring below a field."""
    return field_docstrings(kind).get(name)
