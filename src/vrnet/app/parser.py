"""From the words of a command line to a command: tyro, told how our dataclasses of options read.

The docstring below a field is its help. An option that is off, empty or None unless it is given shows no default: its
help says what happens without it. A command and an option that there is not, a number that makes none, and an option
without its value, are told in one line, as all bad input is.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from vrnet.docstrings import field_docstrings
from vrnet.errors import BadInput
from vrnet.wording import did_you_mean

registry = ConstructorRegistry()
NUMBERS = {int: "a whole number", float: "a number"}
HELP = "--help", "-h"
OF_TYRO = "--tyro-"
"""How options begin that write the completion of a shell."""
MAX_SHOWN = 40
"""Letters of a word that is told to be wrong."""


@runtime_checkable
class Command(Protocol):
    """A command whose arguments were read."""

    def run(self) -> None:
        """Do what was asked for; BadInput if that cannot be."""
        ...


def read_command(commands: Mapping[str, Callable[..., Command]]) -> Command:
    """The command that the words after `vrnet` ask for; SystemExit with status 2 where they make no sense, and BadInput
    where one of them should be a number."""
    try:
        return tyro.extras.subcommand_cli_from_dict(
            dict(commands),
            prog="vrnet",
            description="Deformable image registration for cardiac MR, in 2D and 3D.",
            config=(tyro.conf.FlagCreatePairsOff,),
            registry=registry,
        )
    except NoNumber as error:
        raise BadInput(str(error)) from None


def refuse_unknown_command(word: str, commands: Collection[str]) -> None:
    """BadInput for a first word that is no command, as in `vrnet regsiter`."""
    if word in HELP or word in commands or word.startswith(OF_TYRO):
        return
    meant = did_you_mean(word, (*commands, "--help", "--version"))
    raise BadInput(f"there is no command {shorten(word)}: {meant or '`vrnet --help` lists all'}")


def refuse_unknown_options(command: Callable[..., Command], words: Sequence[str]) -> None:
    """BadInput for an option that a command has not, as in `register --fixed-lables`; not after --help, nor after --,
    which files follow."""
    known = [option for option, _ in options_of(command)]
    for word in words:
        if word in (*HELP, "--"):
            return
        option = as_typed(word.partition("=")[0])
        if re.match("--.|-[a-zA-Z]", option) and option not in known and not option.startswith(OF_TYRO):
            meant = by_position(command, option) or did_you_mean(option, known)
            help_lists = f"`vrnet {words[0]} --help` lists all"
            raise BadInput(f"{words[0]} has no option {shorten(option)}: {meant or help_lists}")


def by_position(command: Callable[..., Command], option: str) -> str:
    """What is said of --fixed, where FIXED is given without a name; nothing of other options."""
    hints = get_type_hints(command, include_extras=True)
    for name, (_, *marks) in ((name, get_args(hint) or (hint,)) for name, hint in hints.items()):
        shown = next((mark.metavar for mark in marks if getattr(mark, "metavar", None)), name.upper())
        if tyro.conf.Positional in marks and option.strip("-") in (name, shown.partition(".")[0].lower()):
            return f"give {shown} without it"
    return ""


def refuse_bare_options(command: Callable[..., Command], words: Sequence[str]) -> None:
    """BadInput for an option without its value, as in `track cine.nii.gz --method`; not after --help."""
    options = dict(options_of(command))
    for word, value in zip_longest(words, words[1:]):
        if word in HELP:
            return
        if options.get(as_typed(word)) and (value is None or value.startswith("--") or value in HELP):
            raise BadInput(f"{word} has no value: `vrnet {words[0]} --help` says what it takes")


def options_of(kind: Any) -> Iterator[tuple[str, bool]]:
    """(option, whether it needs a value) of a command or a group; lists may be empty, and flags take none."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint, marks = bare_type(hints[field.name]), get_args(hints[field.name])[1:]
        if is_dataclass(hint):
            yield from options_of(hint)
        elif tyro.conf.Positional not in marks:
            is_repeated = tyro.conf.UseAppendAction in marks
            name = next((name for mark in marks if (name := getattr(mark, "name", None))), field.name)
            yield (
                as_typed(f"--no-{name}" if field.default is True else f"--{name}"),
                hint is not bool and (is_repeated or not is_list(hint)),
            )


def as_typed(option: str) -> str:
    """An option as help shows it: tyro also takes _ for -."""
    return option.replace("_", "-")


def shorten(word: str) -> str:
    """A word that is told to be wrong, or its beginning."""
    return word if len(word) <= MAX_SHOWN else f"{word[:MAX_SHOWN]}…"


class NoNumber(Exception):
    """A word that should be a number is none. Not a ValueError, of which tyro would tell in its own words."""


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
    if kind_of_number := number_type(hint):
        hint = Annotated[hint, number_reader(field.name, kind_of_number, is_list(hint))]
    return StructFieldSpec(field.name, hint, default, partial(help_text, kind, field.name))


def without_default(hint: Any) -> Any:
    """The type of an argument, with a mark not to show a default; what the type itself says has precedence."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
    return Annotated[kind, tyro.conf.DisallowNone, tyro.conf.arg(help_behavior_hint=""), *marks]


def help_text(kind: type, name: str) -> str | None:
    """The docstring below a field."""
    return field_docstrings(kind).get(name)


def number_type(hint: Any) -> type[int] | type[float] | None:
    """int or float where an argument takes such numbers; None of others."""
    kind = bare_type(hint)
    found = {kind, *get_args(kind)}
    return int if int in found else float if float in found else None


def is_list(hint: Any) -> bool:
    """Whether an argument takes any number of values."""
    return get_origin(bare_type(hint)) is tuple


def bare_type(hint: Any) -> Any:
    """A type without its marks."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def number_reader(name: str, kind: type[int] | type[float], takes_many: bool) -> PrimitiveConstructorSpec[Any]:
    """How the words of an option that takes a number, or several, are read and shown."""

    def read(word: str) -> int | float:
        try:
            return kind(word.replace("_", "?"))  # Python reads 1_0 as 10
        except ValueError:
            raise NoNumber(f"--{name.replace('_', '-')} is '{shorten(word)}': give {NUMBERS[kind]}") from None

    return PrimitiveConstructorSpec(
        nargs="*" if takes_many else 1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda words: tuple(map(read, words)) if takes_many else read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, tuple if takes_many else kind),
        str_from_instance=lambda value: [str(value)],
    )
