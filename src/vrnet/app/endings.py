"""How the command ends: one line on the error stream, and a status, whatever went wrong.

0: done; 2: what the user, or the machine, must change; 3: all files are written, but the registration failed, as its
verdict says, or subjects of a cohort are not done; 130: Ctrl-C; 141: who read the output has gone; 1: a bug, with a
traceback in a file."""

import errno
import os
import re
import select
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from vrnet.app.console import error_screen
from vrnet.errors import BadInput

NO_MEMORY_WORDS = (
    "allocate memory", "bad_alloc", "bad allocation", "out of memory", "not enough memory", "can't start new thread",
    "could not create a primitive", "multithreader",
)  # fmt: skip
"""In the messages of PyTorch, ITK and Python where memory did not suffice."""
UNREAD_STATUS = 141
"""As a shell tells of a command that wrote to a reader who had gone, and was ended by that."""
FAILED_STATUS = 3
"""The exit status of a command whose files are all written, but whose registration failed."""
STOPPED = "Stopped. What is done stays done: the same command goes on from there."
MIN_COLUMNS = 40
REGISTER = "vrnet register --{name} {value}"
OF_A_FILE = "method", "affine", "brightness", "match_intensities", "fixed_mask", "moving_mask", "folds"
"""What is advised of a transform in a file, and can only be had by a registration."""
FORMS = {
    "evaluate": {
        "method": "vrnet evaluate {value}",
        **dict.fromkeys(("affine", "brightness", "match_intensities"), REGISTER),
    },
    "evaluate FILE": dict.fromkeys(OF_A_FILE, REGISTER),
    "report": dict.fromkeys(OF_A_FILE, REGISTER),
    "demo": dict.fromkeys((*OF_A_FILE[1:], "slices"), REGISTER),
}
"""How commands that lack options of a registration say its arguments; `evaluate FILE` and `report` measure one."""
PYTHON = "python"
"""What stands for the command where there is none."""
TOO_LITTLE_MEMORY = "there is too little memory for this: take smaller images, a smaller batch, or a larger machine"


def describe(error: BaseException, command: str = "") -> tuple[str, int]:
    """The line and the status that an error of a command ends with."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing is half-written", 130
    if isinstance(error, BadInput):
        return as_options(str(error), command), 2
    if is_lack_of_memory(error):
        return TOO_LITTLE_MEMORY, 2
    if isinstance(error, OSError):
        return describe_system_error(error), 2
    message = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {message}: please report this{save_traceback(error)}", 1


def end_if_failed(verdict: Mapping[str, Any]) -> None:
    """Leave with a status of its own after a registration that failed, so that a script need not read the verdict."""
    if verdict["level"] == "failed":
        sys.exit(FAILED_STATUS)


def end_if_any(not_done: int) -> None:
    """Leave with a status of its own where subjects are not done."""
    if not_done:
        sys.exit(FAILED_STATUS)


def this_command() -> str:
    """The words that started this process, as a shell takes them."""
    return shlex.join(["vrnet", *sys.argv[1:]])


def as_options(message: str, command: str = "") -> str:
    """A message with its arguments as options of a command: `slices="each"` is --slices each.

    An argument that the command does not have is told as an option of `vrnet register`, which has all of them. To those
    who ask in Python, arguments stay arguments."""
    if command == PYTHON:
        return message

    def option(found: re.Match[str]) -> str:
        name, value = found[1], shell_word(found[2] or "")
        form = FORMS.get(command, {}).get(name, "--{name} {value}")
        return form.format(name=name.replace("_", "-"), value=value).rstrip()

    words = re.sub("`([a-z_]+)(?:=([^`]*))?`", option, message)
    return re.sub("(vrnet register .*?) and vrnet register ", r"\1 and ", words)


def shell_word(value: str) -> str:
    """A value as Python has it, as a shell takes it: "each" without its quotes, and True as nothing, of a flag."""
    bare = value.strip('"')
    return "" if value == "True" else bare if re.fullmatch(r"[\w+./=,-]*", bare) else value


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice, as Python, PyTorch and ITK say it."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY_WORDS)


def describe_system_error(error: OSError) -> str:
    """What the system refused, in words."""
    place = f"{error.filename}: " if error.filename is not None else ""
    return (
        f"{place}{error.strerror or str(error) or type(error).__name__}: check the place, its room and your permission"
    )


def is_unread(error: BaseException) -> bool:
    """Whether an error is that nobody reads the output any more, as in `vrnet --help | head -1`."""
    if not isinstance(error, BrokenPipeError) or not isinstance(sys.stdout, TextIOWrapper):
        return False
    output = select.poll()
    output.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def save_traceback(error: BaseException) -> str:
    """ ", with FILE", which says where in the code an error came up; nothing where no file can be written."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="vrnet-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return ""
    return f", with {file.name}"


def show(message: str) -> None:
    """Print a line on the error stream, if it can be."""
    with suppress(OSError):
        error_screen.print(f"vrnet: {message}", style="red", markup=False, highlight=False, soft_wrap=True)


def prepare_terminal() -> None:
    """A terminal that cannot show a name shows part of it; in one narrower than any word, tyro would never end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    if shutil.get_terminal_size().columns < MIN_COLUMNS:
        os.environ["COLUMNS"] = str(MIN_COLUMNS)


def close_streams(status: int) -> int:
    """Write out what was printed, and return the status: 2 where that failed and all else went well.

    A reader who has seen enough, as in `vrnet methods | head -1`, is no failure."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            discard(stream)
            if stream is sys.stdout and not isinstance(error, BrokenPipeError) and not status:
                show(f"the output could not be written ({error.strerror}): its place is full, or gone")
                status = 2
    return status


def discard(stream: object) -> None:
    """From now on, what is written to a stream goes nowhere: Python would complain at its end that it cannot."""
    if isinstance(stream, TextIOWrapper):
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
