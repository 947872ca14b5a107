"""Every package that `make` installs is locked by its hash, in the version of constraints.txt."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILES = "core", "test", "docs", "cpu", "cuda"


def locked(file):
    """{(package, version): hashes} of a file of requirements."""
    text = (ROOT / "requirements" / f"{file}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pins = [re.match(r"(\S+)==([^\s;]+)", line).groups() for line in lines]
    return {pin: re.findall(r"--hash=sha256:[0-9a-f]{64}", line) for pin, line in zip(pins, lines, strict=True)}


@pytest.mark.parametrize("file", FILES)
def test_every_package_has_a_hash(file):
    packages = locked(file)
    assert packages
    assert all(packages.values())


def test_versions_are_those_of_the_constraints():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    chosen = {}
    for pin in (Requirement(line) for line in lines if line):
        chosen.setdefault(canonicalize_name(pin.name), set()).add(str(pin.specifier).removeprefix("=="))
    found = {name: version.partition("+")[0] for file in FILES for name, version in locked(file)}
    assert found["torch"] == "2.13.0"
    assert {name: version for name, version in found.items() if version not in chosen.get(name, {version})} == {}


def test_the_demonstration_needs_nothing_that_is_not_locked():
    """Against what is installed: the packages that vrnet says it needs."""
    from importlib.metadata import requires

    names = [Requirement(line) for line in requires("vrnet") if "extra ==" not in line]
    assert {canonicalize_name(one.name) for one in names} <= {name for name, _ in [*locked("core"), *locked("cuda")]}
