"""docs/commands.md, made of what every command says of itself: python docs/make_commands.py."""

import os
import re
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from textwrap import fill
from unittest.mock import patch

WIDTH = 88
PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Commands
What `vrnet COMMAND --help` prints, for every command. This page is made by `docs/make_commands.py`: change the
docstrings in `src/vrnet/cli.py` instead. The [tutorial](tutorial.md) shows the commands at work.

Bad input ends with one line that says what is wrong and what to do about it, exit status 2, and nothing half-written.
Ctrl-C ends with status 130. Progress goes to the error stream, results to the output, so that they can be piped.
"""


def said(words):
    """The help of a command, without colours and boxes. Paragraphs are filled here: tyro fills only what it lists."""
    from vrnet.app import cli

    found = StringIO()
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    as_if = patch.object(sys, "argv", ["vrnet", *words, "--help"]), patch.dict(os.environ, plain)
    with as_if[0], as_if[1], redirect_stdout(found), suppress(SystemExit):
        cli.main()
    lines = found.getvalue().strip().splitlines()
    return "\n".join(fill(line, WIDTH) if len(line) > WIDTH else line.rstrip() for line in lines)


def subcommands(text):
    """The names that a help lists as commands of their own."""
    _, _, listed = text.partition("\n subcommands\n")
    return re.findall(r"^\s+• (\S+)", listed, flags=re.M)


def sections(words=()):
    """A section a command, those of a command after it; the first help only lists them."""
    text = said(words)
    own = [f"## vrnet {' '.join(words)}\n```text\n{text}\n```\n"] if words else []
    return own + [part for name in subcommands(text) for part in sections((*words, name))]


def page():
    """docs/commands.md, as it should be."""
    return "\n".join([HEAD, *sections()])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
