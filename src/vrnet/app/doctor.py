"""`vrnet doctor`: is everything installed as it should be?"""

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions, metadata, requires
from pathlib import Path
from typing import NamedTuple

from vrnet.app.console import exit_if, print_line
from vrnet.provenance import __version__, commit, how_to_install


class Check(NamedTuple):
    """One thing that was looked at; `hint` says what to do where there is anything to be done."""

    name: str
    found: str
    is_fine: bool = True
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check versions, extras, devices, threads and folders; then register a made-up heart whose motion is known.

    Where something is wrong, the line says what to do, and the exit status is 3.
    """

    json: bool = False
    """Print all of it as JSON, for a program or a bug report."""

    def run(self) -> None:
        checks: dict[str, list[Check]] = {}
        parts = {
            "versions": versions, "extras": extras, "devices": devices, "folders": folders, "self-test": registration,
        }  # fmt: skip
        for part, check in parts.items():
            try:
                checks[part] = [*check()]
            except Exception as error:  # whatever is broken here is what the doctor was asked to find
                said = f"{type(error).__name__}: {error}"
                checks[part] = [Check(part, said, False, "make that work, or install vrnet again")]
        is_fine = all(check.is_fine for lines in checks.values() for check in lines)
        if self.json:
            told = {part: [check._asdict() for check in lines] for part, lines in checks.items()}
            print(json.dumps({"is_fine": is_fine, "checks": told}, indent=2))
        else:
            for part, lines in checks.items():
                print_line(part)
                for name, found, is_right, hint in lines:
                    print_line(f"  {'ok   ' if is_right else 'WRONG'} {name}: {found}{hint and f' → {hint}'}")
            print_line("Everything is as it should be." if is_fine else "Not everything is as it should be.")
        exit_if(not is_fine)


def installed(extra: str | None = None) -> dict[str, str]:
    """{package: version} of what vrnet, or one of its extras, needs by its metadata; "" where one is absent."""
    split = [(text.partition(";")[0], re.search("extra == ['\"](.+?)['\"]", text)) for text in requires("vrnet") or ()]
    named = [re.split(r"[^\w.-]", name.strip())[0] for name, marker in split if (marker and marker[1]) == extra]
    return {name: next((found.version for found in distributions(name=name)), "") for name in named if name != "vrnet"}


def versions() -> Iterator[Check]:
    """vrnet, Python, and every package that vrnet cannot do without."""
    yield Check("vrnet", f"{__version__}, commit {(commit() or 'unknown')[:10]}")
    yield Check("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package, found in installed().items():
        yield Check(package, found or "missing", bool(found), "" if found else f"pip install {package}")


def extras() -> Iterator[Check]:
    """Which extras are there; without one, all that does not need it works."""
    for extra in metadata("vrnet").get_all("Provides-Extra") or ():
        absent = [package for package, found in installed(extra).items() if not found]
        found = f"not installed: lacks {', '.join(absent)}" if absent else "installed"
        yield Check(extra, found, hint=how_to_install(extra) if absent else "")


def devices() -> Iterator[Check]:
    import torch

    from vrnet.devices import describe_device

    yield Check("CPU", f"{os.cpu_count()} cores; PyTorch computes with {torch.get_num_threads()} threads")
    for k in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(k).total_memory / 1e9
        yield Check(f"CUDA {k}", f"{describe_device(torch.device('cuda', k))}, {memory:.0f} GB")


def folders() -> Iterator[Check]:
    """Whether prepared subjects and temporary files, or what is nearest above their folders, can be written."""
    from vrnet.data.prepared import cache_folder

    for name, folder in {"cache": cache_folder(), "temporary files": Path(tempfile.gettempdir())}.items():
        there = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free / 1e9
        yield Check(name, f"{folder}, {free:.1f} GB free", free > 1, "" if free > 1 else "make room there")


def registration() -> Iterator[Check]:
    """The model of hearts in the box and a solver, on a heart whose true motion is known."""
    from vrnet.evaluation.pair import motion_error
    from vrnet.phantom import phantom
    from vrnet.registration.arrays import register

    patient = phantom(7, (96, 96), 2.5)
    for method in ("short-axis", "TV-L1"):
        field = register(patient.fixed[0, 0], patient.moving[0, 0], method, spacing=patient.spacing).field
        heart = patient.fixed_labels[0, 0].numpy() > 0
        error = motion_error(field.numpy(), patient.field[0].numpy(), patient.spacing, heart)
        before, after = (error[f"end_point_error_mm_{when}"] for when in ("before", "after"))
        is_fine = after < 0.5 * before  # a working one leaves a fifth
        found = f"{before:.2f} mm from the true motion before, {after:.2f} mm after"
        yield Check(method, found, is_fine, "" if is_fine else "install vrnet again, and report this if it stays")
