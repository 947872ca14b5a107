"""Do two versions of vrnet compute the same, at the same speed?

    PYTHONPATH=OLD/src python benchmarks/unchanged.py record old.json
    PYTHONPATH=NEW/src python benchmarks/unchanged.py record new.json
    python benchmarks/unchanged.py compare old.json new.json
    python benchmarks/unchanged.py speed OLD/src NEW/src

`record` writes numbers and verdicts of what is in PARTS, made with public names and commands only; it takes some four
minutes of one core. `compare` fails where a number differs by more than 1e-6, or is missing. `speed` runs commands with
one version and the other in turn, and compares seconds and peak memory. Real images are those of $VRNET_DATA.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from math import isclose
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import nibabel as nib
import numpy as np
import torch

TOLERANCE = 1e-6
DATA = Path(os.environ.get("VRNET_DATA", "../shared/data")).resolve()
SOLVERS = [f"{r}-{d}" for r in ("TV", "Diffusion", "Bending", "Gaussian") for d in ("L1", "L2", "LNCC", "MIND", "NMI")]
PHANTOMS = {2: ((80, 72), 2.4), 3: ((40, 40, 24), 3.6)}
"""Shape, and spacing in mm, of made-up hearts in 2D and 3D."""
PAIRS = {
    "acdc": [f"acdc/patient031/patient031_frame{part}.nii.gz" for part in ("01", "02", "01_gt", "02_gt")],
    "hippocampus": [
        f"hippocampus/{part}/hippocampus_{name}.nii.gz" for part in ("images", "labels") for name in ("001", "003")
    ],
    "mnms": [f"other_scanners/mnms_sax_{phase}.nii.gz" for phase in ("ed", "es")],
}
"""Fixed and moving images, and their labels if there are any."""
TRAININGS = {2: ("C-L2-2x1-w4", (64, 64)), 3: ("R-L1-2x1-w2", (32, 32, 16))}
"""Networks, and the shape of the made-up hearts that train them."""
PASSING = ("seconds", "provenance", "commit", "version", "files", "memory", "threads")
"""Parts of keys of JSON files that tell of the run, not of the images."""
Numbers = dict[str, float | str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare", "speed"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each command for `speed`")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="the parts to record")
    given = parser.parse_args()
    if given.action == "record":
        sys.exit(record(given.paths[0], given.only))
    if given.action == "compare":
        sys.exit(compare(*(json.loads(path.read_text()) for path in given.paths)))
    with TemporaryDirectory() as folder:
        speed(*(path.resolve() for path in given.paths), Path(folder), given.repeat)


def record(path: Path, parts: list[str]) -> None:
    """Write the numbers of these parts; those of others that the file has stay."""
    torch.set_num_threads(1)
    found: Numbers = json.loads(path.read_text()) if path.exists() else {}
    for part in parts:
        start = perf_counter()
        with TemporaryDirectory() as folder:
            made = PARTS[part](Path(folder))
        found = {key: value for key, value in found.items() if not key.startswith(f"{part}: ")}
        found |= {f"{part}: {key}": value for key, value in made.items()}
        path.write_text(json.dumps(found, indent=1))
        print(f"{part}: {len(made)} numbers, {perf_counter() - start:.0f} s", flush=True)


def solvers(folder: Path) -> Numbers:
    """Every solver on a made-up heart in 2D; in 3D each data term and each regulariser."""
    import vrnet

    few = ["TV-L1", "Diffusion-L2", "Bending-LNCC", "Gaussian-MIND", "TV-NMI"]
    found: Numbers = {}
    for d, methods in ((2, SOLVERS), (3, few)):
        shape, spacing = PHANTOMS[d]
        heart = vrnet.phantom.phantom(1, shape, spacing)
        for method in methods:
            result = vrnet.register(heart.fixed[0, 0], heart.moving[0, 0], method, spacing=(spacing,) * d)
            found |= moments(result.field, f"{method} {d}D") | {f"{method} {d}D energy": float(result.energies[-1])}
    return found


def models(folder: Path) -> Numbers:
    """Every model in the box, on the middle slice of a real heart or on two hippocampi."""
    import vrnet

    heart = [data[..., data.shape[2] // 2] for data in map(read, PAIRS["acdc"][:2])]
    hippocampi = [data[:33, :44, :32] for data in map(read, PAIRS["hippocampus"][:2])]
    found: Numbers = {}
    for method in ("short-axis", "short-axis-cine", "default"):
        found |= moments(vrnet.register(*heart, method, spacing=(1.5, 1.5)).field, f"{method} 2D")
    for method in ("hippocampus", "hippocampus-template"):
        found |= moments(vrnet.register(*hippocampi, method, spacing=(1.0, 1.0, 1.0)).field, f"{method} 3D")
    return found


def training(folder: Path) -> Numbers:
    """50 training steps in 2D and in 3D: every validation, and the norms of the weights."""
    from safetensors.torch import load_file

    import vrnet

    found: Numbers = {}
    for d, (method, shape) in TRAININGS.items():
        lines = ["fixed,moving,split"]
        for seed in range(6):
            heart = vrnet.phantom.phantom(seed, shape, 3.0)
            for name in ("fixed", "moving"):
                image = nib.Nifti1Image(getattr(heart, name)[0, 0].numpy(), np.diag([3.0, 3.0, 3.0, 1.0]))
                nib.save(image, folder / f"{name}_{d}_{seed}.nii.gz")
            lines.append(f"fixed_{d}_{seed}.nii.gz,moving_{d}_{seed}.nii.gz,{'train' if seed < 4 else 'val'}")
        (folder / "pairs.csv").write_text("\n".join(lines))
        data = "--data", "manifest", "--root", folder / "pairs.csv", "--cache", folder / f"cache{d}"
        steps = "--steps", 50, "--batch", 2, "--validate-every", 25, "--device", "cpu"
        vrnet_command("train", method, *data, "--out", folder / method, *steps)
        found |= cells(folder / method / "metrics.csv", f"{d}D")
        for key, weights in load_file(folder / method / "weights.safetensors").items():
            found[f"{d}D |{key}|"] = float(weights.double().norm())
    return found


def pairs(folder: Path) -> Numbers:
    """Real pairs registered by the command, and what `invert`, `apply` and `points` make of the last one."""
    found: Numbers = {}
    for name in PAIRS:
        out = folder / name
        vrnet_command("register", *pair_words(name), "--out", out)
        found |= leaves(json.loads((out / "metrics.json").read_text()), name)
        for part in ("transform", "warped"):
            found |= moments(read(out / f"{part}.nii.gz"), f"{name} {part}")
    fixed, moving = (DATA / file for file in PAIRS["hippocampus"][:2])
    transform, inverse, back = (folder / f"{name}.nii.gz" for name in ("hippocampus/transform", "inverse", "back"))
    vrnet_command("invert", transform, "--out", inverse)
    vrnet_command("apply", inverse, fixed, "--reference", moving, "--out", back)
    (folder / "points.csv").write_text("x,y,z\n-10.5,20.25,15\n-20,30,20\n")
    vrnet_command("points", transform, folder / "points.csv", "--out", folder / "moved.csv")
    found |= moments(read(inverse), "inverse") | moments(read(back), "applied")
    return found | cells(folder / "moved.csv", "points")


def cine(folder: Path) -> Numbers:
    """A made-up cine with labels, and six frames of a real one without, tracked by the command."""
    image, labels = made_up_cine(folder)
    real = nib.load(DATA / "cine/cine.nii.gz")
    nib.save(real.slicer[:, :, 5:8, ::5], folder / "real.nii.gz")
    found: Numbers = {}
    for name, words in {"phantom": (image, "--labels", labels), "real": (folder / "real.nii.gz",)}.items():
        out = folder / name
        vrnet_command("track", *words, "--out", out, "--device", "cpu")
        found |= leaves(json.loads((out / "summary.json").read_text()), name)
        for path in sorted(out.glob("*.csv")):
            found |= cells(path, f"{name} {path.stem}")
        found |= moments(read(sorted((out / "transforms").glob("*.nii.gz"))[3]), f"{name} frame 3")
    return found


PARTS = {"solvers": solvers, "models": models, "training": training, "pairs": pairs, "cine": cine}


def made_up_cine(folder: Path) -> tuple[Path, Path]:
    """Files of eight frames of a made-up beating heart, and of the labels of its first."""
    import vrnet

    beat = vrnet.phantom.cycle(3, (96, 96, 4), (1.8, 1.8, 10.0), frames=8)
    affine = np.diag([1.8, 1.8, 10.0, 1.0])
    nib.save(nib.Nifti1Image(beat.frames.permute(1, 2, 3, 0).numpy(), affine), folder / "cine.nii.gz")
    nib.save(nib.Nifti1Image(beat.labels.numpy(), affine), folder / "labels.nii.gz")
    return folder / "cine.nii.gz", folder / "labels.nii.gz"


def pair_words(name: str) -> list[object]:
    """The words of `vrnet register` for a real pair."""
    fixed, moving, *labels = (DATA / file for file in PAIRS[name])
    options = ("--fixed-labels", "--moving-labels")
    return [fixed, moving, *(word for pair in zip(options, labels, strict=False) for word in pair), "--device", "cpu"]


def vrnet_command(*words: object) -> None:
    """Run a command of the version that PYTHONPATH names; a verdict of failure (status 3) is a result."""
    done = subprocess.run([sys.executable, "-m", "vrnet", *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"vrnet {' '.join(map(str, words))}: {done.stderr}")


def read(path: Path | str) -> np.ndarray:
    return np.asarray(nib.load(DATA / path).dataobj, dtype=float).squeeze()


def moments(values: object, key: str) -> Numbers:
    """What an array comes to: moments, and a weighted sum that no exchange of voxels leaves as it is."""
    x = np.asarray(values, dtype=float)
    weights = np.cos(np.arange(x.size)).reshape(x.shape)
    voxels = x.flat[[x.size // 7, x.size // 2, x.size // 3 * 2]]
    parts = {"mean": x.mean(), "std": x.std(), "max": abs(x).max(), "checksum": (weights * x).mean()}
    parts |= zip(("voxel a", "voxel b", "voxel c"), voxels, strict=True)
    return {f"{key} {name}": float(value) for name, value in parts.items()}


def leaves(value: object, key: str) -> Numbers:
    """The numbers and words in nested JSON, but for those of the run itself."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inner = (
            leaves(item, f"{key}/{name}") for name, item in items if not any(word in str(name) for word in PASSING)
        )
        return {k: v for part in inner for k, v in part.items()}
    return {key: str(value) if value is None or isinstance(value, str | bool) else float(value)}


def cells(path: Path, key: str) -> Numbers:
    """The cells of a CSV file, by row and column."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    found: Numbers = {}
    for i, row in enumerate(rows):
        for column, cell in row.items():
            if cell and not any(word in column for word in PASSING):
                try:
                    found[f"{key} {i} {column}"] = float(cell)
                except ValueError:
                    found[f"{key} {i} {column}"] = cell
    return found


def compare(before: Numbers, after: Numbers) -> bool:
    """Print the largest difference of each part; True if anything differs or is missing."""
    print("| part | values | new | missing | different | largest difference |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    wrong: list[str] = []
    for part in dict.fromkeys(key.split(": ")[0] for key in before | after):
        old, new = ({key for key in found if key.startswith(f"{part}: ")} for found in (before, after))
        pairs = {key: (before[key], after[key]) for key in old & new}
        different = [key for key, (a, b) in pairs.items() if not is_same(a, b)]
        largest = max((abs(a - b) for a, b in pairs.values() if not isinstance(a, str) and a == a), default=0.0)
        counts = len(pairs), len(new - old), len(old - new), len(different)
        print("|", part, *(f"| {count}" for count in counts), f"| {largest:.1e} |")
        wrong += sorted(different) + sorted(old - new)
    for key in wrong[:40]:
        print(f"  {key}: {before[key]} became {after.get(key, '(nothing)')}")
    print(f"{len(wrong)} of {len(before)} values differ or are missing.")
    return bool(wrong)


def is_same(a: float | str, b: float | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or (a != a and b != b)


def speed(before: Path, after: Path, folder: Path, repeat: int) -> None:
    """Seconds (wall, CPU) and MiB of each command: medians of both versions, which take turns, and their ratios."""
    image, labels = made_up_cine(folder)
    commands = {
        "--version": ["--version"],
        "a pair": ["register", *pair_words("hippocampus")],
        "a stack": ["register", *pair_words("acdc")],
        "a cine": ["track", image, "--labels", labels, "--device", "cpu"],
    }
    print("| command | measure | before | after | ratio |\n| --- | --- | ---: | ---: | ---: |")
    for name, words in commands.items():
        found: dict[Path, list[tuple[float, ...]]] = {before: [], after: []}
        for i in range(repeat):
            for source in (before, after) if i % 2 else (after, before):
                out = [] if name == "--version" else ["--out", folder / f"{name} {i} {source.parts[-2]}"]
                found[source].append(measure([*words, *out], source))
        for k, measured in enumerate(("wall s", "CPU s", "MiB")):
            a, b = (median(run[k] for run in runs) for runs in found.values())
            print(f"| {name} | {measured} | {a:.2f} | {b:.2f} | {b / a:.3f} |", flush=True)


def measure(words: list[object], source: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MiB of a command, run with the package in this folder."""
    start = perf_counter()
    command = [sys.executable, "-m", "vrnet", *map(str, words)]
    child = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(source)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    error = child.stderr.read() if child.stderr else b""
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: {error.decode()}")
    return perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
