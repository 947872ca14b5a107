"""The command line: `vrnet COMMAND --help` explains each command.

A new command is a file in `vrnet/app/commands` and a line in COMMANDS.
"""

import gc
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from io import TextIOWrapper

from vrnet.app.commands.demo import Demo
from vrnet.app.commands.evaluate import Evaluate
from vrnet.app.commands.methods import Methods
from vrnet.app.commands.paper import Paper
from vrnet.app.commands.prepare import Prepare
from vrnet.app.commands.register import Register
from vrnet.app.commands.train import Train
from vrnet.app.commands.transforms import Apply, Invert, Points
from vrnet.app.console import error_screen, notes
from vrnet.app.parser import Command, read_command
from vrnet.errors import BadInput
from vrnet.provenance import __version__

COMMANDS: dict[str, Callable[..., Command]] = {
    "register": Register,
    "demo": Demo,
    "apply": Apply,
    "invert": Invert,
    "points": Points,
    "evaluate": Evaluate,
    "prepare": Prepare,
    "train": Train,
    "paper": Paper,
    "methods": Methods,
}


def main() -> None:
    """Run a command. Whatever goes wrong is told in one line: bad input by status 2, Ctrl-C by 130, a bug by 1."""
    gc.freeze()  # what was imported stays until the end: the collector need not look through it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a name shows part of it
    if sys.argv[1:] == ["--version"]:
        print(f"vrnet {__version__}")
        return
    try:
        with notes():
            read_command(COMMANDS).run()
    except KeyboardInterrupt:
        stop("interrupted; nothing is half-written", 130)
    except BadInput as error:
        stop(as_options(str(error)), 2)
    except Exception as error:
        message = (str(error).strip() or "no message").splitlines()[0]
        stop(f"{type(error).__name__}: {message}: please report this, with {save_traceback(error)}", 1)


def as_options(message: str) -> str:
    """A message of BadInput with its arguments as options: `slices=each` is --slices each."""

    def option(found: re.Match[str]) -> str:
        return f"--{found[1].replace('_', '-')} {found[2] or ''}".rstrip()

    return re.sub("`([a-z_]+)(?:=([^`]*))?`", option, message)


def stop(message: str, status: int) -> None:
    """End with a line on the error stream."""
    error_screen.print(f"vrnet: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)


def save_traceback(error: Exception) -> str:
    """The name of a file, in the folder for temporary files, that says where in the code an error came up."""
    with tempfile.NamedTemporaryFile("w", prefix="vrnet-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return file.name


if __name__ == "__main__":
    main()
