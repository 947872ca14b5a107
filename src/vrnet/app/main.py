"""The command line: `vrnet COMMAND --help` explains each command.

A new command is a file in `vrnet/app/commands` and a line in COMMANDS.
"""

import re
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from inspect import getdoc
from itertools import islice, takewhile, zip_longest
from pathlib import PurePath
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

from vrnet.app.arguments import Command, read_command
from vrnet.app.cohort import Cohort
from vrnet.app.console import (
    UNREAD_STATUS,
    close_streams,
    describe,
    is_unread,
    notes,
    prepare_terminal,
    repeat_lost_interrupts,
    show,
)
from vrnet.app.doctor import Doctor
from vrnet.app.evaluate import Evaluate
from vrnet.app.loading import load_libraries
from vrnet.app.methods import Methods
from vrnet.app.paper import Paper
from vrnet.app.register import Demo, Register, Report
from vrnet.app.track import Track
from vrnet.app.train import Prepare, Template, Train
from vrnet.app.transforms import Apply, Invert, Points, refuse_more_files
from vrnet.errors import BadInput, as_options, did_you_mean, either
from vrnet.provenance import __version__

# What `vrnet` alone prints: what it does, where to begin, and where to read on; and `vrnet --help`: all commands.

WIDEST = 100
"""Columns of a line that is read with ease."""

START = """\
vrnet {version}: find the motion between two images of the heart, or through a
whole cine; in 2D and 3D, on your own files.

  vrnet demo
      a made-up heart registered: look at demo/report.html
  vrnet register ED.nii.gz ES.nii.gz --out pair --report
      two images; writes the transform, the warped image, a verdict, a page
  vrnet track CINE.nii.gz --labels ED_LABELS.nii.gz --out cine --report
      a beating heart: contours, volumes and strain of every frame
  vrnet doctor
      is everything installed as it should be?

All commands: vrnet --help          One of them: vrnet register --help
In Python:    import vrnet; help(vrnet)
Documentation: README.md and docs/ of the source; `make docs` makes a site."""


def start_text() -> str:
    """The text, for this version."""
    return START.format(version=__version__)


def commands_text(commands: Mapping[str, Callable[..., object]]) -> str:
    """Every command, with the first sentence of its help."""
    beside = max(map(len, commands)) + 4
    width = max(min(get_terminal_size().columns, WIDEST) - beside, 20)
    lines = ["usage: vrnet COMMAND [options]", ""]
    for name, command in commands.items():
        first, *more = wrap((getdoc(command) or "").partition("\n\n")[0], width)
        lines += [f"  {name:{beside - 2}}{first}", *(" " * beside + line for line in more)]
    return "\n".join([*lines, "", "vrnet COMMAND --help explains one; vrnet alone says where to begin."])


# What is wrong with the words of a command line, told in one line as all bad input is, before tyro reads them: a
# command, an option or a choice that there is not, a number that makes none, what is missing, and what is too much.
#
# What a command takes is read from the types of its fields, as tyro does.

NUMBERS = {int: "a whole number", float: "a number"}
HELP = "--help", "-h"
OF_TYRO = "--tyro-"
"""How options begin that write the completion of a shell."""
OUT_OF_A_FOLDER = {
    "DIR": "a folder", "RUN": "a folder", "PAGE.html|DIR": "a page (.html) or a folder",
    "FILE|DIR": "a .json file or a folder",
}  # fmt: skip
"""What --out is, by its placeholder, where it may be a folder: such a name would never be that of an image."""
SUFFIXES_OF_FILES = (
    ".nii", ".nii.gz", ".mha", ".mhd", ".nrrd", ".nhdr", ".hdr", ".img", ".dcm", ".png", ".jpg", ".jpeg",
    ".h5", ".tfm", ".txt", ".mat", ".xfm",
)  # fmt: skip
"""Of images and transforms."""
MAX_SHOWN = 40
"""Letters of a word that is told to be wrong."""


@dataclass(frozen=True)
class Argument:
    """What a command takes: an option, or a word by its position."""

    field: str
    name: str
    """--out, as typed; of one by its position, what help calls it: FIXED."""
    placeholder: str
    """What stands for its value: DIR."""
    is_positional: bool
    is_required: bool
    is_flag: bool
    is_list: bool
    """Whether any number of values may follow it."""
    choices: tuple[str, ...]
    """The words it may be; none where any will do."""
    number: type[int] | type[float] | None
    """Of which kind a value is, if it is a number."""

    @property
    def usage(self) -> str:
        """How it is written."""
        return self.placeholder if self.is_positional else f"{self.name} {self.placeholder}"

    def check(self, word: str, command: str) -> None:
        """BadInput for a value that it cannot have."""
        if self.is_flag:
            raise BadInput(f"{self.name} has no value: leave out '={shorten(word)}'")
        told = f"{command} has no" if self.is_positional else f"{self.name} is"
        if self.choices and word not in self.choices:
            says = f"`vrnet {command} --help` says what each means"
            raise BadInput(f"{told} '{shorten(word)}': give {either(self.choices)}. {says}")
        if self.number and not is_number(word, self.number):
            raise BadInput(f"{told} '{shorten(word)}': give {NUMBERS[self.number]}")
        if self.name == "--out" and (place := OUT_OF_A_FOLDER.get(self.placeholder)):
            refuse_name_of_file(place, word)


def arguments_of(kind: Any) -> Iterator[Argument]:
    """What a command, or a group of options, takes."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = bare_type(hints[field.name])
        if is_dataclass(hint):
            yield from arguments_of(hint)
        else:
            yield as_argument(field, hint, get_args(hints[field.name])[1:])


def as_argument(field: Field[Any], hint: Any, marks: Sequence[Any]) -> Argument:
    """A field as what is typed for it."""
    is_positional = tyro.conf.Positional in marks
    name, metavar = (next((found for mark in marks if (found := getattr(mark, key, None))), None)
                     for key in ("name", "metavar"))  # fmt: skip
    option = as_typed(f"--{'no-' if field.default is True else ''}{name or field.name}")
    choices = choices_of(hint)
    placeholder = metavar or "|".join(choices) or field.name.upper()
    return Argument(
        field=field.name,
        name=(metavar or either(choices) or placeholder) if is_positional else option,
        placeholder=placeholder,
        is_positional=is_positional,
        is_required=field.default is MISSING,
        is_flag=hint is bool,
        is_list=get_origin(hint) is tuple and tyro.conf.UseAppendAction not in marks,
        choices=choices,
        number=number_type(hint),
    )


def choices_of(hint: Any) -> tuple[str, ...]:
    """The words that a type is of; none of other types."""
    literals = (part for part in (hint, *get_args(hint)) if get_origin(part) is Literal)
    return tuple(word for literal in literals for word in get_args(literal))


def number_type(hint: Any) -> type[int] | type[float] | None:
    """int or float where a type is of such numbers; None of others."""
    found = {hint, *get_args(hint)}
    return int if int in found else float if float in found else None


def is_number(word: str, kind: type[int] | type[float]) -> bool:
    """Whether a word reads as a number of this kind."""
    try:
        kind(word.replace("_", "?"))  # Python reads 1_0 as 10
    except ValueError:
        return False
    return True


def bare_type(hint: Any) -> Any:
    """A type without its marks."""
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def as_typed(option: str) -> str:
    """An option as help shows it: tyro also takes _ for -."""
    return option.replace("_", "-")


def refuse_name_of_file(place: str, word: str) -> None:
    """BadInput for a folder called as an image or a transform: `register --out x.nii.gz` is meant to give a file."""
    name = PurePath(word).name.lower()
    if suffix := max((each for each in SUFFIXES_OF_FILES if name.endswith(each)), key=len, default=""):
        raise BadInput(f"--out is {place}: give a name without {suffix}")


def shorten(word: str) -> str:
    """A word that is told to be wrong, or its beginning."""
    return word if len(word) <= MAX_SHOWN else f"{word[:MAX_SHOWN]}…"


def refuse_unknown_command(word: str, commands: Collection[str]) -> None:
    """BadInput for a first word that is no command, as in `vrnet regsiter`."""
    if word in HELP or word in commands or word.startswith(OF_TYRO):
        return
    meant = did_you_mean(word, (*commands, "--help", "--version"))
    raise BadInput(f"there is no command {shorten(word)}: {meant or '`vrnet --help` lists all'}")


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether --help or -h is among the words; not after --, which files follow."""
    return any(word in HELP for word in takewhile(lambda word: word != "--", words))


def check_arguments(kind: Any, words: Sequence[str]) -> None:
    """BadInput for words that make no command of this kind; who asks for help is told no fault."""
    arguments = list(arguments_of(kind))
    command, *given = words
    if asks_for_help(words) or any(word.startswith(OF_TYRO) for word in given):
        return
    refuse_unknown_options(arguments, command, given)
    refuse_bare_options(arguments, command, given)
    filled = refuse_wrong_values(arguments, command, given)
    refuse_missing(arguments, command, filled)


def refuse_unknown_options(arguments: Sequence[Argument], command: str, words: Sequence[str]) -> None:
    """BadInput for an option that a command has not, as in `register --fixed-lables`; not after --, which files
    follow."""
    known = [each.name for each in arguments if not each.is_positional]
    for word in takewhile(lambda word: word != "--", words):
        option = as_typed(word.partition("=")[0])
        if re.match("--.|-[a-zA-Z]", option) and option not in known:
            meant = by_position(arguments, option) or did_you_mean(option, known)
            help_lists = f"`vrnet {command} --help` lists all"
            raise BadInput(f"{command} has no option {shorten(option)}: {meant or help_lists}")


def by_position(arguments: Sequence[Argument], option: str) -> str:
    """What is said of --fixed, where FIXED is given without a name; nothing of other options."""
    for each in arguments:
        if each.is_positional and option.strip("-") in (as_typed(each.field), each.name.partition(".")[0].lower()):
            return f"give {each.name} without it"
    return ""


def refuse_bare_options(arguments: Sequence[Argument], command: str, words: Sequence[str]) -> None:
    """BadInput for an option without its value, as in `track cine.nii.gz --method`; lists may be empty."""
    need_value = [each.name for each in arguments if not (each.is_positional or each.is_flag or each.is_list)]
    for word, value in zip_longest(words, words[1:]):
        if as_typed(word) in need_value and (value is None or value.startswith("--")):
            raise BadInput(f"{word} has no value: `vrnet {command} --help` says what it takes")


def refuse_wrong_values(arguments: Sequence[Argument], command: str, words: Sequence[str]) -> list[Argument]:
    """BadInput for a value that its argument cannot have, and for one too many; returns the arguments that have one."""
    filled = []
    for argument, word in match_values(arguments, words):
        if argument is None:
            takes = f"`vrnet {command} --help` says what it takes"
            raise BadInput(f"'{shorten(word)}' is one word too many: {takes}. Quote a name that holds a space")
        argument.check(word, command)
        filled.append(argument)
    return filled


def match_values(arguments: Sequence[Argument], words: Sequence[str]) -> Iterator[tuple[Argument | None, str]]:
    """Each value among the words with the argument that it is for; with None if there is none left.

    As tyro does, a list leaves the last words to those that are needed by their position."""
    options = {each.name: each for each in arguments if not each.is_positional}
    by_place = deque(each for each in arguments if each.is_positional)
    open_option, rest = None, deque(words)
    while rest and (word := rest.popleft()) != "--":
        name, equals, value = word.partition("=")
        needed = sum(each.is_required for each in by_place)
        if option := options.get(as_typed(name)):
            if equals:
                yield option, value
            open_option = option if option.is_list or not (equals or option.is_flag) else None
        elif open_option and (len(rest) >= needed or not open_option.is_list):
            yield open_option, word
            open_option = open_option if open_option.is_list else None
        else:
            open_option = None
            yield by_place.popleft() if by_place else None, word
    yield from zip_longest(islice(by_place, len(rest)), rest)  # after --


def refuse_missing(arguments: Sequence[Argument], command: str, filled: Collection[Argument]) -> None:
    """BadInput for what a command cannot do without, as in `register FIXED`."""
    needed = [each for each in arguments if each.is_required]
    if missing := [each.name for each in needed if each not in filled]:
        usage = " ".join(each.usage for each in arguments if each.is_positional or each in needed)
        lacks = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise BadInput(f"{command} lacks {lacks}: write `vrnet {command} {usage}`. `vrnet {command} --help` says more")


COMMANDS: dict[str, Callable[..., Command]] = {
    "register": Register,
    "track": Track,
    "demo": Demo,
    "cohort": Cohort,
    "apply": Apply,
    "invert": Invert,
    "points": Points,
    "evaluate": Evaluate,
    "report": Report,
    "prepare": Prepare,
    "train": Train,
    "template": Template,
    "paper": Paper,
    "methods": Methods,
    "doctor": Doctor,
}


def main() -> None:
    """Run a command. Whatever goes wrong is told in one line: bad input by status 2, Ctrl-C by 130, a bug by 1.

    A registration that failed has written its files, and ends with status 3."""
    try:
        prepare_terminal()
        with repeat_lost_interrupts():
            status = run(sys.argv[1:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException as error:
        message, status = describe(error, "".join(sys.argv[1:2]))
        if is_unread(error):
            status = UNREAD_STATUS
        else:
            show(message)
    if status := close_streams(status):
        sys.exit(status)


def run(words: list[str]) -> int:
    """Do what the words after `vrnet` ask for, and return the status."""
    if words[:1] == ["--version"]:
        print(f"vrnet {__version__}")
        return 0
    if not words:
        print(start_text())
        return 0
    check_words(words)
    if words[0] in HELP:
        print(commands_text(COMMANDS))
        return 0
    refuse_unknown_command(words[0], COMMANDS)
    if asks_for_help(words):
        words = [words[0], HELP[0]]
    refuse_more_files(words)
    if words[0] in COMMANDS:
        check_arguments(COMMANDS[words[0]], words)
    command = read_command({words[0]: COMMANDS[words[0]]} if words[0] in COMMANDS else COMMANDS, words)
    if not isinstance(command, Doctor):  # who says what is wrong with them
        load_libraries()
    with notes(as_options):
        command.run()
    return 0


def check_words(words: list[str]) -> None:
    """BadInput for a word with a character that a terminal obeys: what is wrong with a word is told by showing it."""
    for word in words:
        if any(unicodedata.category(c) == "Cc" for c in word):
            raise BadInput(f"the word {word!a} holds a control character: rename the file, or type it again")


if __name__ == "__main__":
    main()
