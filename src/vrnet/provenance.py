"""What made a result: versions, commit and device; and how to add to what is installed."""

import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__version__ = "0.5.0"
PINS = "constraints.txt"  # in a checkout: the versions of packages that vrnet is tested with


@cache
def commit() -> str | None:
    """The commit of the checkout that this code runs from, with "+" where files of src differ; None if none is."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        return git(folder, "rev-parse", "HEAD") + ("+" if git(folder, "status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def how_to_install(extra: str) -> str:
    """The command that adds an extra: in a checkout as its README has it, elsewhere by the name of the package."""
    root = Path(__file__).parents[2]
    if not (root / PINS).exists():
        return f"pip install 'vrnet[{extra}]'"
    folder = Path() if Path.cwd() == root else root
    pip = folder / ".venv" / "bin" / "pip" if Path(sys.prefix) == root / ".venv" else "pip"
    return shlex.join([str(pip), "install", "-c", str(folder / PINS), "-e", f"{folder}[{extra}]"])


def may_be_same_commit(one: str | None, other: str | None) -> bool:
    """Whether two commits, as `commit` tells them, may be the same code: what is not known is no difference."""
    return one is None or other is None or one == other


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def versions() -> dict[str, str | None]:
    import torch

    return {"vrnet": __version__, "commit": commit(), "torch": str(torch.__version__)}


def provenance(device: "torch.device") -> dict[str, str | None]:
    from vrnet.devices import describe_device

    return {**versions(), "device": describe_device(device)}
