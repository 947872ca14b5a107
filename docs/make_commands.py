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
What `vrnet COMMAND --help` prints, written by `docs/make_commands.py`. Options of an earlier command are only named.

Wrong input ends with one line that says what to do, and status 2. Status 3: all files are written, but the
[verdict](verdict.md) is `failed`, or subjects of a cohort or data set are not done. Ctrl-C ends with status 130.

## Completion by the shell
Run the lines of your shell once, and again after an update of vrnet; then open a new terminal:

```text
mkdir -p ~/.local/share/bash-completion/completions
vrnet --tyro-print-completion bash > ~/.local/share/bash-completion/completions/vrnet

mkdir -p ~/.zfunc
vrnet --tyro-print-completion zsh > ~/.zfunc/_vrnet
```
For zsh, `~/.zshrc` must hold `fpath+=~/.zfunc` and, after it, `autoload -Uz compinit && compinit`.
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


def without_known(text, known):
    """The help without options whose help was shown before; they are named in a last line."""
    head, *options = re.split(r"^(?=  (?:-h, )?--)", text, flags=re.M)
    new = [option for option in options if " ".join(option.split()) not in known]
    names = [re.match(r"\s*(?:-h, )?(--\S+)", option)[1] for option in options if option not in new]
    known.update(" ".join(option.split()) for option in new)
    shown = (head + "".join(new)).rstrip()
    return shown + fill(f"\n\nAs above: {', '.join(names)}.", WIDTH, replace_whitespace=False) if names else shown


def page():
    """The text of docs/commands.md."""
    from vrnet.app.main import COMMANDS

    known = set()
    texts = ((name, without_known(help_text((name,)), known)) for name in COMMANDS)
    return "\n".join([HEAD, *(f"## vrnet {name}\n```text\n{text}\n```\n" for name, text in texts)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
