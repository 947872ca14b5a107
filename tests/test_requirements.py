"""Every package that `make` installs is locked by its hash, in the version of constraints.txt."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FILES = "core", "test", "docs", "cpu", "cuda"
PIP = """#!/usr/bin/env bash
[ "$1" = --version ] && echo "pip 25 (python 3.11)" && exit
echo "$*" >>"$CALLS"
case "$*" in *--require-hashes*/$REFUSED.txt) echo "$ANSWER" >&2; exit 1 ;; esac
"""
"""Refuses one file of requirements, with the words that it is given."""
UNAME = """#!/usr/bin/env bash
[ "${1-}" = -m ] && echo "$MACHINE" || echo Linux
"""


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


@pytest.fixture
def install(tmp_path):
    """Runs install.sh for a group with a pip that refuses one file: its status, what it says, and the calls of pip."""
    for name, text in {"pip": PIP, "uname": UNAME}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(group, refused="none", answer="No matching distribution found", machine="x86_64"):
        calls = tmp_path / "calls.txt"
        calls.write_text("")
        given = {"CALLS": str(calls), "REFUSED": refused, "ANSWER": answer, "MACHINE": machine}
        environment = {**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        script = ROOT / "requirements" / "install.sh"
        done = subprocess.run([script, tmp_path / "pip", group], env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr, calls.read_text().splitlines()

    return run


@pytest.mark.parametrize("group", ["core", "test", "docs"])
def test_where_a_locked_build_cannot_be_had_versions_are_pinned_and_vrnet_stays_editable(install, group):
    status, said, calls = install(group, refused=group)
    extra = "" if group == "core" else f"[{group}]"
    assert status == 0
    assert "versions alone are pinned" in said
    assert all("--constraint constraints.txt" in call for call in calls[1:])
    assert [call for call in calls if call.split()[-1].startswith(".")] == [calls[-1]]
    assert calls[-1].endswith(f"--editable .{extra}")


def test_another_hash_than_the_known_one_ends_the_installation(install):
    status, said, calls = install("core", refused="core", answer="THESE PACKAGES DO NOT MATCH THE HASHES")
    assert status == 1
    assert "DO NOT MATCH" in said
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("machine", "refused", "files"),
    [
        ("x86_64", "none", ["core", "cpu"]),
        ("x86_64", "cpu", ["core", "cpu", "cuda"]),
        ("aarch64", "none", ["core", "cpu"]),
        ("aarch64", "cpu", ["core", "cpu", "cuda"]),
    ],
)
def test_a_machine_gets_the_build_of_pytorch_that_is_locked_for_it(install, machine, refused, files):
    status, said, calls = install("core", refused=refused, machine=machine)
    assert (status, said) == (0, "")
    assert [Path(call.split()[-1]).stem for call in calls] == files


def test_the_build_without_cuda_is_locked_for_every_machine():
    """As install.sh has it: to install nothing, since a line is for another machine, would be no failure."""
    text = (ROOT / "requirements" / "cpu.txt").read_text(encoding="utf-8")
    pins = [Requirement(line.rstrip("\\ ")) for line in text.splitlines() if line[0] not in "# "]
    assert [(pin.name, pin.marker) for pin in pins] == [("torch", None)]
    assert text.count("--hash=sha256:") == len(("x86_64", "aarch64"))
