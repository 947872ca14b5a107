"""Every package that `make` installs is locked by its hash, in the version of constraints.txt."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FILES = "core", "test", "docs", "cpu", "cuda"


def locked(file):
    """{(package, version): hashes} of a file of requirements."""
    text = (ROOT / "requirements" / f"{file}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pins = [re.match(r"(\S+)==([^\s;]+)", line).groups() for line in lines]
    return {pin: re.findall(r"--hash=sha256:[0-9a-f]{64}", line) for pin, line in zip(pins, lines, strict=True)}


def test_every_package_has_a_hash():
    for file in FILES:
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


def test_the_lowest_versions_are_those_that_the_project_allows_and_not_beyond_the_pinned_ones():
    script = [sys.executable, ROOT / "requirements" / "lowest.py"]
    printed = subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [line.replace("==", ">=") for line in printed] == project["dependencies"]
    pinned = dict([*locked("core"), *locked("cuda")])
    for pin in map(Requirement, printed):
        assert Version(str(pin.specifier).removeprefix("==")) <= Version(pinned[canonicalize_name(pin.name)])


def test_the_workflow_runs_targets_of_the_makefile():
    """On every version of Python that the project says it is for."""
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]["make"]["strategy"]
    jobs = matrix["matrix"]
    called = {*jobs["target"], *(job["target"] for job in jobs["include"])}
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)[1]
    assert called <= set(phony.split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert told == set(jobs["python"])


def test_the_demonstration_needs_nothing_that_is_not_locked():
    """Against what is installed: the packages that vrnet says it needs."""
    from importlib.metadata import requires

    names = [Requirement(line) for line in requires("vrnet") if "extra ==" not in line]
    assert {canonicalize_name(one.name) for one in names} <= {name for name, _ in [*locked("core"), *locked("cuda")]}


def test_the_build_without_cuda_is_locked_for_every_machine():
    """As install.sh has it: to install nothing, since a line is for another machine, would be no failure."""
    text = (ROOT / "requirements" / "cpu.txt").read_text(encoding="utf-8")
    pins = [Requirement(line.rstrip("\\ ")) for line in text.splitlines() if line[0] not in "# "]
    assert [(pin.name, pin.marker) for pin in pins] == [("torch", None)]
    assert text.count("--hash=sha256:") == len(("x86_64", "aarch64"))
