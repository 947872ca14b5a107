"""The command line: which commands there are, how one is found, and how it ends.

A new command is a dataclass of options with a method `run`, in a file of this folder, and a line in COMMANDS. The file
is loaded only when its command is asked for. The list of all commands reads their docstrings without loading them.

An error is one line on the error stream. The exit status is 0: done; 2: the user, or the machine, must change
something; 3: all files are written, but the registration failed, as its verdict says, or subjects of a cohort are not
done; 130: Ctrl-C; 141: whoever read the output has gone; 1: a bug, with a traceback in a file.
"""

import ast
import errno
import gc
import os
import shutil
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from textwrap import wrap
from typing import Any

from vrnet.errors import BadInput, as_options, did_you_mean

COMMANDS = {
    "register": "vrnet.app.register:Register",
    "track": "vrnet.app.track:Track",
    "measure": "vrnet.app.track:Measure",
    "segment": "vrnet.app.track:Segment",
    "demo": "vrnet.app.register:Demo",
    "cohort": "vrnet.app.cohort:Cohort",
    "apply": "vrnet.app.transforms:Apply",
    "invert": "vrnet.app.transforms:Invert",
    "points": "vrnet.app.transforms:Points",
    "jacobian": "vrnet.app.transforms:Jacobian",
    "evaluate": "vrnet.app.evaluate:Evaluate",
    "report": "vrnet.app.register:Report",
    "prepare": "vrnet.app.train:Prepare",
    "train": "vrnet.app.train:Train",
    "paper": "vrnet.app.paper:Paper",
    "methods": "vrnet.app.methods:Methods",
    "doctor": "vrnet.app.doctor:Doctor",
}  # {command: module:class}, in the order of help

MIN_COLUMNS, MAX_COLUMNS = 40, 100
"""Columns of the terminal: in fewer than any word has, tyro would never end; longer lines are hard to read."""


def main() -> None:
    gc.disable()  # until libraries are loaded: what they make stays, and looking through it takes a tenth of the time
    status = 0
    try:
        for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a name shows part of it
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        run(sys.argv[1:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 2 if end.code else 0
        if isinstance(end.code, str):
            print_error(end.code)
    except BrokenPipeError:
        status = 141
    except BaseException as error:
        message, status = describe(error, "".join(sys.argv[1:2]))
        print_error(message)
    try:
        sys.stdout.flush()
    except OSError as error:
        with Path(os.devnull).open("w") as nowhere:  # Python would complain at its end that it cannot write
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        # A closed pipe, as in `vrnet methods | head -1`, is no failure.
        if not isinstance(error, BrokenPipeError) and not status:
            print_error(f"the output could not be written ({error.strerror}): its place is full, or gone")
            status = 2
    if status:
        sys.exit(status)


def run(words: list[str]) -> None:
    if not words or words[0] == "--version":
        from vrnet.provenance import __version__

        start = Path(__file__).with_name("start.txt").read_text(encoding="utf-8").rstrip()
        print(f"vrnet {__version__}" if words else start.format(version=__version__))
    elif words[0] in ("--help", "-h"):
        # every command with the first paragraph of its docstring, which is read from its source
        beside = max(map(len, COMMANDS)) + 4
        width = max(min(shutil.get_terminal_size().columns, MAX_COLUMNS) - beside, 20)
        print("usage: vrnet COMMAND [options]\n")
        for name, place in COMMANDS.items():
            module, _, cls = place.partition(":")
            source = Path(getattr(find_spec(module), "origin", "")).read_text(encoding="utf-8")
            nodes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == cls)
            first, *more = wrap((ast.get_docstring(next(nodes)) or "").partition("\n\n")[0], width)
            print(f"  {name:{beside - 2}}{first}", *(" " * beside + line for line in more), sep="\n")
        print("\nvrnet COMMAND --help explains one; vrnet alone says where to begin.")
    else:
        if shutil.get_terminal_size().columns < MIN_COLUMNS:
            os.environ["COLUMNS"] = str(MIN_COLUMNS)
        from vrnet.app.arguments import OPTIONS, read_command
        from vrnet.app.console import notes

        if words[0].startswith("--tyro-"):  # which prints the completion, and exits
            from tyro.extras import subcommand_cli_from_dict

            commands: dict[str, Any] = {name: load_command(name) for name in COMMANDS}
            subcommand_cli_from_dict(commands, args=words, prog="vrnet", **OPTIONS)
        command = read_command(words[0], load_command(words[0]), words[1:])
        if "nibabel" not in sys.modules:  # it would load pydicom and what that needs, for notes in headers of NIfTI
            sys.modules["pydicom"] = None  # type: ignore[assignment]
            import nibabel  # noqa: F401

            del sys.modules["pydicom"]
        with notes():
            command.run()


def load_command(name: str) -> type[Any]:
    """The class of a command; BadInput where there is none, as in `vrnet regsiter`."""
    if name not in COMMANDS:
        meant = did_you_mean(name, (*COMMANDS, "--help", "--version"))
        raise BadInput(f"there is no command {name}: {meant or '`vrnet --help` lists all'}")
    module, _, cls = COMMANDS[name].partition(":")
    return getattr(import_module(module), cls)


LACK_OF_MEMORY = (
    "allocate memory", "bad_alloc", "bad allocation", "out of memory", "not enough memory",
    "can't start new thread", "could not create a primitive", "multithreader",
)  # fmt: skip
"""How PyTorch and ITK say it, in a RuntimeError."""


def describe(error: BaseException, command: str = "") -> tuple[str, int]:
    """The line and the status that an error of a command ends with."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing is half-written", 130
    if isinstance(error, BadInput):
        return as_options(str(error), command), 2
    is_told = isinstance(error, RuntimeError) and any(words in str(error).lower() for words in LACK_OF_MEMORY)
    if is_told or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return "there is too little memory for this: take smaller images, a smaller batch, or a larger machine", 2
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        said = error.strerror or str(error) or type(error).__name__
        return f"{place}{said}: check the place, its room and your permission", 2
    if isinstance(error, ImportError):
        return f"{error}: `vrnet doctor` says what to install", 2
    message = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}: please report this"
    with (
        suppress(OSError),
        tempfile.NamedTemporaryFile("w", prefix="vrnet-", suffix=".txt", delete=False, encoding="utf-8") as file,
    ):
        file.writelines(traceback.format_exception(error))
        message += f", with {file.name}"
    return message, 1


def print_error(message: str) -> None:
    from vrnet.app.console import error_screen

    with suppress(OSError):
        error_screen.print(f"vrnet: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
