"""The command `vrnet`, which is also `python -m vrnet`. The command line is loaded within, so that Ctrl-C meanwhile, or
too little memory, ends in one line."""

import sys
from pathlib import Path

from vrnet.app.loading import loading, stop


def main() -> None:
    """Load the command line and run it."""
    with loading():
        check_folder()
        from vrnet.app.main import main as run_command
    run_command()


def check_folder() -> None:
    """End if the working folder is gone: names could not be looked up, and MKL ends the process in its own words."""
    try:
        Path.cwd()
    except OSError:
        stop("the working folder is gone: go to another one", 2)


if __name__ == "__main__":
    sys.argv[0] = "vrnet"
    main()
