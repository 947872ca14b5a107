"""The command line: `vrnet COMMAND --help` explains each command.

A new command is a file in `vrnet/app/commands` and a line in COMMANDS.
"""

import sys
import unicodedata
from collections.abc import Callable

from vrnet.app.commands.cohort import Cohort
from vrnet.app.commands.demo import Demo
from vrnet.app.commands.doctor import Doctor
from vrnet.app.commands.evaluate import Evaluate
from vrnet.app.commands.methods import Methods
from vrnet.app.commands.paper import Paper
from vrnet.app.commands.prepare import Prepare
from vrnet.app.commands.register import Register
from vrnet.app.commands.report import Report
from vrnet.app.commands.template import Template
from vrnet.app.commands.track import Track
from vrnet.app.commands.train import Train
from vrnet.app.commands.transforms import Apply, Invert, Points, refuse_more_files
from vrnet.app.console import notes
from vrnet.app.endings import UNREAD_STATUS, as_options, close_streams, describe, is_unread, prepare_terminal, show
from vrnet.app.interrupts import repeat_lost_interrupts
from vrnet.app.loading import load_libraries
from vrnet.app.parser import Command, read_command
from vrnet.app.start import commands_text, start_text
from vrnet.app.words import HELP, asks_for_help, check_arguments, refuse_unknown_command
from vrnet.errors import BadInput
from vrnet.provenance import __version__

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
