"""What made a result: the version, the commit where there is one, torch and the device."""

import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

__version__ = "0.2.0.dev0"


@cache
def commit() -> str | None:
    """The commit of the checkout that this code runs from, with "+" where files differ from it; None if installed."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        found, changed = (
            subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True, timeout=10).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.strip() + ("+" if changed.strip() else "")


def versions() -> dict[str, str | None]:
    """What a run, a result or a card records of the code that made it."""
    python = platform.python_version()
    return {"vrnet": __version__, "commit": commit(), "torch": str(torch.__version__), "python": python}


def hardware(device: torch.device) -> str:
    """The name of a GPU, or the kind of processor and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
