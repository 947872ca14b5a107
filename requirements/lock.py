"""Write core.txt, test.txt, docs.txt, cpu.txt and cuda.txt beside this file: every package that is installed for the
demo, the tests and the documents, with the SHA-256 of its wheels, for Python 3.11 on Linux, x86_64 and aarch64.

    .venv/bin/python requirements/lock.py          # with Python 3.11, on Linux; after a change of constraints.txt

Versions are those of constraints.txt; what that does not name is as pip resolves it. Packages are asked for where pip
is set up to look. Of PyTorch two builds are locked: in cpu.txt the one that pip prefers here, if that is without CUDA,
such as 2.13.0+cpu; in cuda.txt the plain version, with the packages that it needs."""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = {
    "core": ["vrnet", "editables", *PROJECT["build-system"]["requires"]],
    "test": ["vrnet[test]"],
    "docs": ["vrnet[docs]"],
}
CUDA = re.compile("nvidia-|cuda-|triton|torch$")
MACHINES = "x86_64", "aarch64"
GLIBC = range(17, 29)
HEAD = "# Written by requirements/lock.py; constraints.txt is for people to edit.\n"


def requirements_of(name, extras, metadata, environment):
    """What a package needs on a machine, with these of its extras."""
    if name == "vrnet":
        optional = PROJECT["project"]["optional-dependencies"]
        return map(
            Requirement, [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in optional[extra])]
        )
    needed = map(Requirement, metadata[name].get("requires_dist", []))
    wanted = [{**environment, "extra": extra} for extra in extras or {""}]
    return [one for one in needed if one.marker is None or any(map(one.marker.evaluate, wanted))]


def closure(roots, metadata, environment):
    """The names of all packages that the roots need, directly or not."""
    done, waiting = set(), [Requirement(root) for root in roots]
    while waiting:
        one = waiting.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key not in done:
            done.add(key)
            waiting += requirements_of(*key, metadata, environment)
    return {name for name, _ in done} - {"vrnet"}


def report(words, machine, constraints):
    """What pip would install for a machine: {name: (version, SHA-256, metadata)}."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in reversed(GLIBC)] + [f"manylinux2014_{machine}"]
    platform = [f"--platform={tag}" for tag in tags]
    with TemporaryDirectory() as folder:
        told = Path(folder) / "report.json"
        base = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--quiet",
            "--only-binary=:all:",
            "--target",
            folder,
        ]
        command = [*base, "--ignore-installed", "--report", told, *platform, "--constraint", constraints, *words]
        subprocess.run(command, check=True)
        found = json.loads(told.read_text(encoding="utf-8"))["install"]
    return {canonicalize_name(one["metadata"]["name"]): as_wheel(one) for one in found}


def as_wheel(found):
    """(version, SHA-256, metadata) of one part of pip's report."""
    metadata = found["metadata"]
    return metadata["version"], found["download_info"]["archive_info"]["hashes"]["sha256"], metadata


def constraints_for(machine, folder):
    """constraints.txt as it reads on a machine."""
    lines = [line.partition("#")[0].strip() for line in (HERE.parent / "constraints.txt").read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line]
    kept = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"platform_machine": machine})]
    path = Path(folder) / f"{machine}.txt"
    path.write_text("".join(f"{pin.name}{pin.specifier}\n" for pin in kept))
    return path


def lock():
    """{file: {(package, version): {machine: {SHA-256}}}}."""
    locked = defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
    with TemporaryDirectory() as folder:
        for machine in MACHINES:
            environment = {"platform_machine": machine, "platform_system": "Linux", "sys_platform": "linux"}
            roots = [*map(str, requirements_of("vrnet", ["test"], {}, environment)), *GROUPS["core"][1:]]
            words = [root for root in roots if not root.startswith("vrnet")]
            words += [
                line
                for extra in ("baselines", "cluster", "docs", "train")
                for line in PROJECT["project"]["optional-dependencies"][extra]
            ]
            constraints = constraints_for(machine, folder)
            plain = re.search("torch==(.*)", constraints.read_text())[1]
            found = report([*words, f"torch==={plain}"], machine, constraints)  # 2.13.0+cpu is == 2.13.0, but not ===
            metadata = {name: one[2] for name, one in found.items()}
            for group, names in GROUPS.items():
                for name in closure(names, metadata, environment):
                    version, digest, _ = found[name]
                    locked["cuda" if CUDA.match(name) else group][name, version][machine].add(digest)
            version, digest, _ = report(["--no-deps", "torch"], machine, constraints)["torch"]
            if "+" in version:
                locked["cpu"]["torch", version][machine].add(digest)
    return locked


def lines(packages):
    """The lines of a requirements file; a version for one machine alone says so."""
    for (name, version), digests in sorted(packages.items()):
        where = "" if len(digests) == len(MACHINES) else f'; platform_machine == "{next(iter(digests))}"'
        hashes = sorted(set().union(*digests.values()))
        yield " \\\n    ".join([f"{name}=={version}{where}", *(f"--hash=sha256:{digest}" for digest in hashes)]) + "\n"


if __name__ == "__main__":
    for file, packages in lock().items():
        (HERE / f"{file}.txt").write_text(HEAD + "".join(lines(packages)), encoding="utf-8")
