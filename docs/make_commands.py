"""Write docs/commands.md from the help of every command: python docs/make_commands.py."""

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
What `vrnet COMMAND --help` prints, for every command. `docs/make_commands.py` writes this page: to change it, edit the
docstrings in `src/vrnet/app/commands`. The [tutorial](tutorial.md) shows the commands at work.

Bad input ends with one line that says what is wrong and what to do about it, exit status 2, and nothing half-written.
A registration whose [verdict](verdict.md) is `failed` ends with status 3, and all its files are written; with `good`
and `look` the status is 0. Of a cohort or a data set, status 3 says that subjects are not done.
Ctrl-C ends with status 130. Progress goes to the error stream, results to the output, so that they can be piped.

`vrnet` alone says where to begin, and `vrnet doctor` whether everything is installed as it should be.

## Completion by the shell
bash and zsh complete commands, options and their choices, once they are told how; both need `python3` for it. Run the
lines of your shell once, and open a new terminal:

```text
mkdir -p ~/.local/share/bash-completion/completions
vrnet --tyro-print-completion bash > ~/.local/share/bash-completion/completions/vrnet

mkdir -p ~/.zfunc
vrnet --tyro-print-completion zsh > ~/.zfunc/_vrnet
```
For zsh, `~/.zshrc` must hold `fpath+=~/.zfunc` and, after it, `autoload -Uz compinit && compinit`. After an update of
vrnet, run them again.
"""


def help_text(words):
    """The help of a command, without colours and boxes. Paragraphs are filled here: tyro fills only its lists."""
    from vrnet.app import main as cli

    printed = StringIO()
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    given = patch.object(sys, "argv", ["vrnet", *words, "--help"])
    with given, patch.dict(os.environ, plain), redirect_stdout(printed), suppress(SystemExit):
        cli.main()
    lines = printed.getvalue().strip().splitlines()
    return "\n".join(fill(line, WIDTH) if len(line) > WIDTH else line.rstrip() for line in lines)


def subcommands(text):
    """The names that a help lists as commands of their own."""
    _, _, listed = text.partition("\n subcommands\n")
    return re.findall(r"^\s+• (\S+)", listed, flags=re.M)


def sections(words):
    """The section of a command, followed by those of its own commands."""
    text = help_text(words)
    own = [f"## vrnet {' '.join(words)}\n```text\n{text}\n```\n"]
    return own + [part for name in subcommands(text) for part in sections((*words, name))]


def page():
    """The text of docs/commands.md."""
    from vrnet.app.main import COMMANDS

    return "\n".join([HEAD, *(part for name in COMMANDS for part in sections((name,)))])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
