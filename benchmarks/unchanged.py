"""Do two versions of vrnet measure the same? Collect numbers with each, then compare them.

python benchmarks/unchanged.py collect OUT.json --data DIR [--command "python -m vrnet"]
python benchmarks/unchanged.py compare BEFORE.json AFTER.json

Collected: TV-L1 and the shipped model on the 20 ACDC test subjects, the eight solvers on five phantoms in 2D and two in
3D, a 50-step training run, and metrics.json of three real pairs. DIR is a folder with acdc/, ukbb_sample/
and hippocampus/. To measure another version, set PYTHONPATH to its src folder.
"""

import argparse
import csv
import json
import shlex
import subprocess
import sys
from inspect import signature
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import vrnet

TOLERANCE = 1e-6
RAW = {"folds": "keep"} if "folds" in signature(vrnet.register).parameters else {}
"""Fields as methods find them: 0.1.0 did not repair them."""
SOLVERS = [f"{r}-{d}" for r in ("TV", "Diffusion", "Bending", "Gaussian") for d in ("L1", "L2")]
PHANTOMS = {2: ((160, 160), 1.8, range(5)), 3: ((96, 96, 64), 1.6, range(2))}
PAIRS = {
    "acdc patient031": [f"acdc/patient031/patient031_frame{part}.nii.gz" for part in ("01", "02", "01_gt", "02_gt")],
    "ukbb": [f"ukbb_sample/0001/{part}_{phase}.nii.gz" for part in ("sa", "label_sa") for phase in ("ED", "ES")],
    "hippocampus": [
        f"hippocampus/{part}/hippocampus_{name}.nii.gz" for part in ("images", "labels") for name in ("001", "003")
    ],
}
Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("collect", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--command", default=f"{sys.executable} -m vrnet")
    given = parser.parse_args()
    if given.action == "compare":
        sys.exit(compare(*(json.loads(path.read_text()) for path in given.files)))
    numbers = solvers() | commands(shlex.split(given.command), given.data)
    given.files[0].write_text(json.dumps(numbers, indent=1))


def solvers() -> Numbers:
    """Moments of the field that each solver finds on each phantom."""
    try:
        from vrnet.phantom import phantom
    except ImportError:  # as it was in 0.1.0
        from vrnet.data.phantom import phantom
    found = {}
    for d, (shape, spacing, seeds) in PHANTOMS.items():
        for seed in seeds:
            patient = phantom(seed, shape, spacing)
            for name in SOLVERS:
                u = vrnet.register(patient.fixed[0, 0], patient.moving[0, 0], name, spacing=(spacing,) * d, **RAW).field
                error = (u - patient.field[0]).norm(dim=0).mean()
                key = f"solvers/{name}/{d}D/seed {seed}"
                moments = {"mean |u|": u.abs().mean(), "max |u|": u.abs().max(), "std": u.std(), "error": error}
                found |= {f"{key}/{moment}": value.item() for moment, value in moments.items()}
                print(key, f"{error.item():.4f}", flush=True)
    return found


def commands(command: list[str], data: Path) -> Numbers:
    """What the commands write, run as a user runs them."""
    found: Numbers = {}
    with TemporaryDirectory() as folder:
        out = Path(folder)

        def run(*words: object) -> None:
            print(*words, flush=True)
            subprocess.run([*command, *map(str, words)], check=True, stdout=subprocess.DEVNULL)

        acdc = "--data", "acdc", "--root", data / "acdc", "--cache", out / "cache"
        for method in ("TV-L1", "short-axis"):
            run("evaluate", method, *acdc, "--out", out / method, "--device", "cpu")
            found |= table(out / method / "metrics.csv", f"acdc/{method}")
        run(
            "train",
            "C-L2-2x1-w4",
            *acdc,
            "--out",
            out / "run",
            "--steps",
            50,
            "--validate-every",
            25,
            "--device",
            "cpu",
        )
        found |= table(out / "run" / "metrics.csv", "training")
        for name, files in PAIRS.items():
            fixed, moving, fixed_labels, moving_labels = (data / file for file in files)
            labels = "--fixed-labels", fixed_labels, "--moving-labels", moving_labels
            keep = ("--folds", "keep") if RAW else ()
            run("register", fixed, moving, "--out", out / name, *labels, "--device", "cpu", *keep)
            found |= numbers_in(json.loads((out / name / "metrics.json").read_text()), f"register/{name}")
    return {key: value for key, value in found.items() if "seconds" not in key}


def table(path: Path, key: str) -> Numbers:
    """The cells of a CSV file."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        f"{key}/{row.get('subject') or row.get('step')}/{column}": float(cell)
        for row in rows
        for column, cell in row.items()
        if column not in ("subject", "step") and cell
    }


def numbers_in(value: object, key: str) -> Numbers:
    """The numbers in nested JSON."""
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in numbers_in(item, f"{key}/{name}").items()}
    return {key: float(value)} if isinstance(value, (int, float)) and not isinstance(value, bool) else {}


def compare(before: Numbers, after: Numbers) -> int:
    """Print the largest difference of each group; 1 if any number differs or is missing."""
    groups: dict[str, list[str]] = {}
    for key in before | after:
        groups.setdefault("/".join(key.split("/")[:2]), []).append(key)
    print("| what | numbers | missing | largest difference |\n| --- | ---: | ---: | ---: |")
    failed = 0
    for group, keys in groups.items():
        missing = [key for key in keys if key not in before or key not in after]
        both = [(before[key], after[key]) for key in keys if key in before and key in after]
        largest = max((abs(a - b) for a, b in both), default=0.0)
        wrong = sum(not isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for a, b in both)
        failed += wrong + len(missing)
        print(f"| {group} | {len(both)} | {len(missing)} | {largest:.1e} |")
    print(f"\n{failed} of {len(before | after)} numbers differ by more than {TOLERANCE:g} or are missing.")
    return int(failed > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
