"""The command `vrnet`, which is also `python -m vrnet`. Its parts are loaded within, so that Ctrl-C meanwhile, or too
little memory, ends in one line."""

import os
import resource
import sys
from pathlib import Path

MIN_MEMORY_BYTES = 1_250_000_000
"""Below this, PyTorch ends the process in words of its own while it is loaded."""


def main() -> None:
    """Load the command line and run it."""
    try:
        check_folder()
        check_limit()
        from vrnet.app.cli import main as run_command
    except KeyboardInterrupt:
        stop("interrupted; nothing is half-written", 130)
    except (MemoryError, ImportError, OSError) as error:
        stop(f"it could not be loaded ({str(error) or 'too little memory'}): is there enough memory?", 2)
    run_command()


def check_folder() -> None:
    """End if the working folder is gone: names could not be looked up, and MKL ends the process in its own words."""
    try:
        Path.cwd()
    except OSError:
        stop("the working folder is gone: go to another one", 2)


def check_limit() -> None:
    """MemoryError if `ulimit -v` allows too little to begin with."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_MEMORY_BYTES:
        raise MemoryError(f"ulimit -v allows {limit / 1e9:.3g} GB, and it needs {MIN_MEMORY_BYTES / 1e9:.3g} GB")


def stop(message: str, status: int) -> None:
    """End at once with a line on the error stream: what is half loaded may not be able to end in order."""
    os.write(2, f"vrnet: {message}\n".encode(errors="replace"))
    os._exit(status)


if __name__ == "__main__":
    sys.argv[0] = "vrnet"
    main()
