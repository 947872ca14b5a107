"""The numeric options of every command, found in their types, and numbers that make no sense for one."""

from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

from vrnet.app.main import COMMANDS

HUGE = "1" + "0" * 30
ABSURD = (f"-{HUGE}", "-1", HUGE, "9" * 5000, "1000000000000", "nan", "inf", "-inf", "1e308", "1e30", "", "0x10", "one")
DISTINCT = tuple(value for value in ABSURD if value not in (HUGE, "inf"))
"""Those that are different numbers, where 1e30 is one, too: the two left out are written in another way among them."""


def numeric_options(kind, numbers=(int, float)):
    """The names of the options of a command, or of a group of options, that take numbers of these types."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from numeric_options(hint, numbers)
        elif {*numbers} & {hint, *get_args(hint)}:
            yield field.name


OPTIONS = [(command, name) for command, kind in COMMANDS.items() for name in numeric_options(kind)]
WHOLE = [(command, name) for command, kind in COMMANDS.items() for name in numeric_options(kind, (int,))]
