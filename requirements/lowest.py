"""Print the lowest versions that pyproject.toml allows of what vrnet needs to run, as constraints of pip: for make
test-lowest. Plain Python, so that it runs before anything is installed."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def lowest(requirement: str) -> str:
    """numpy>=2.0 as numpy==2.0; an error where a requirement has no lowest version."""
    found = re.fullmatch(r"([\w.-]+)>=([\d.]+)(;.*)?", requirement)
    if found is None:
        raise SystemExit(f"{requirement} has no lowest version: write it as name>=version")
    return f"{found[1]}=={found[2]}{found[3] or ''}"


if __name__ == "__main__":
    print(*map(lowest, PROJECT["dependencies"]), sep="\n")
