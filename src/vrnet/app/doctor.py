"""`vrnet doctor`: is everything installed as it should be?"""

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import distributions, requires
from pathlib import Path
from time import perf_counter

from vrnet.app.console import exit_if, print_line
from vrnet.errors import BadInput
from vrnet.provenance import __version__, commit, how_to_install


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check versions, extras, devices, threads and folders; then register a made-up heart whose motion is known.

    Where something is wrong, the line says what to do, and the exit status is 3.
    """

    json: bool = False
    """Print all of it as JSON, for a program or a bug report."""

    def run(self) -> None:
        checks = {"versions": [*check_versions()], "extras": [*check_extras()], "devices": [*check_devices()]}
        if all(check.is_fine for check in checks["devices"]):  # without PyTorch the others cannot be made
            checks |= {"folders": [*check_folders()], "self-test": [*check_registration()]}
        is_fine = all(check.is_fine for part in checks.values() for check in part)
        if self.json:
            found = {name: [asdict(check) for check in part] for name, part in checks.items()}
            print(json.dumps({"is_fine": is_fine, "checks": found}, indent=2))
        else:
            for part, lines in checks.items():
                print_line(part)
                for check in lines:
                    hint = f" → {check.hint}" if check.hint else ""
                    print_line(f"  {'ok   ' if check.is_fine else 'WRONG'} {check.name}: {check.found}{hint}")
            print_line("Everything is as it should be." if is_fine else "Not everything is as it should be.")
        exit_if(not is_fine)


EXTRAS = {
    "train": "vrnet train",
    "baselines": "the methods FFD and SyN",
    "cluster": "vrnet cohort in several processes, or on a Dask cluster",
    "peers": "other tools, for benchmarks",
    "docs": "the site of the documentation",
    "test": "the tests",
}
"""What each extra gives."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    found: str
    is_fine: bool = True
    hint: str = ""
    """What to do, where there is anything to be done."""


def check_versions() -> Iterator[Check]:
    """vrnet, Python, and every package that vrnet cannot do without."""
    source = commit()
    yield Check("vrnet", __version__ + (f", commit {source[:10]}" if source else ""))
    yield Check("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package, found in installed().items():
        yield Check(package, found or "missing", bool(found), "" if found else f"pip install {package}")


def installed(extra: str | None = None) -> dict[str, str]:
    """{package: version} of what vrnet, or one of its extras, needs by its metadata; "" where one is absent."""
    split = [(text.partition(";")[0], re.search("extra == ['\"](.+?)['\"]", text)) for text in requires("vrnet") or ()]
    named = [re.split(r"[^\w.-]", name.strip())[0] for name, marker in split if (marker and marker[1]) == extra]
    return {name: next((found.version for found in distributions(name=name)), "") for name in named if name != "vrnet"}


def check_extras() -> Iterator[Check]:
    """Which extras are there; without one, all that does not need it works."""
    for name, gives in EXTRAS.items():
        versions = installed(name)
        if "" in versions.values():
            yield Check(name, f"not installed; it gives {gives}", hint=f"if you need that: {how_to_install(name)}")
        else:
            yield Check(name, f"{gives} ({', '.join(f'{package} {found}' for package, found in versions.items())})")


def check_devices() -> Iterator[Check]:
    """Threads of the processor, and GPUs."""
    try:
        import torch

        from vrnet.devices import describe_device
    except (ImportError, OSError) as error:  # OSError: a library that it needs is missing
        yield Check("PyTorch", f"cannot be loaded: {error}", False, "pip install --force-reinstall torch")
        return
    limit = os.environ.get("OMP_NUM_THREADS")
    said = f" (OMP_NUM_THREADS={limit})" if limit else ""
    yield Check("CPU", f"{os.cpu_count()} cores; threads that PyTorch computes with: {torch.get_num_threads()}{said}")
    if not torch.cuda.is_available():
        yield Check("CUDA", "no device: everything runs on the CPU")
    for k in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(k).total_memory / 1e9
        yield Check(f"CUDA {k}", f"{describe_device(torch.device('cuda', k))}, {memory:.0f} GB")


def check_folders() -> Iterator[Check]:
    """Whether prepared subjects and temporary files, or what is nearest above their folders, can be written."""
    from vrnet.data.prepared import cache_folder

    for name, variable in {"cache": "XDG_CACHE_HOME", "temporary files": "TMPDIR"}.items():
        try:
            folder = cache_folder() if name == "cache" else Path(tempfile.gettempdir())
            there = next(place for place in (folder, *folder.parents) if place.exists())
            with tempfile.TemporaryFile(dir=there):
                free = shutil.disk_usage(there).free
        except (BadInput, OSError) as error:
            yield Check(name, f"cannot be written: {error}", False, f"set {variable} to a folder that you may write")
            continue
        hint = "make room there" if free < 1e9 else ""
        yield Check(name, f"{folder}, {free / 1e9:.1f} GB free", not hint, hint)


def check_registration() -> Iterator[Check]:
    """The model of hearts in the box and a solver, on a heart whose true motion is known."""
    for method in ("short-axis", "TV-L1"):
        start = perf_counter()
        try:
            from vrnet.evaluation.pair import motion_error
            from vrnet.phantom import phantom
            from vrnet.registration.arrays import register

            patient = phantom(7, (96, 96), 2.5)
            field = register(patient.fixed[0, 0], patient.moving[0, 0], method, spacing=patient.spacing).field
            heart = patient.fixed_labels[0, 0].numpy() > 0
            error = motion_error(field.numpy(), patient.field[0].numpy(), patient.spacing, heart)
        except Exception as broken:  # whatever is broken here is what the doctor was asked to find
            yield Check(method, f"{type(broken).__name__}: {broken}", False, "install vrnet again")
            continue
        before, after = (error[f"end_point_error_mm_{when}"] for when in ("before", "after"))
        found = f"{before:.2f} mm from the true motion before, {after:.2f} mm after; {perf_counter() - start:.1f} s"
        is_fine = after < 0.5 * before  # a working one leaves a fifth
        yield Check(method, found, is_fine, "" if is_fine else "install vrnet again, and report this if it stays")
