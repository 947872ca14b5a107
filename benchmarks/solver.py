"""TV-L1 beside scikit-image's, on the same phantom pairs, threads and functional.

    python benchmarks/solver.py [--pairs-2d 10] [--pairs-3d 1] [--threads 2] [--out solver.json]

Both minimise mean |I1(x + u) − I0| + λ mean |∇u| with the same λ (scikit-image's attachment is 1/λ). scikit-image runs
with its default tightness, 0.3, and with others that give it lower energies. Its TV treats the components of the field
separately; "energy" is ours, which couples them, and "uncoupled" is its own. Each solver runs in its own process, so
that the peak memory is its own.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter

SHAPES = {2: ((160, 160), 1.8), 3: ((128, 128, 96), 1.2)}
TIGHTNESSES = (0.3, 0.1, 0.05, 0.025)


def solvers(d):
    """Name and keyword arguments of each solver; in 3D only the two extreme tightnesses."""
    tightnesses = TIGHTNESSES if d == 2 else TIGHTNESSES[::3]
    return [("vrnet TV-L1", {})] + [(f"skimage, tightness {t:g}", {"tightness": t}) for t in tightnesses]


def solve(name, arguments, fixed, moving, lam):
    """The field (1, d, *s), and the seconds it took."""
    import numpy as np
    import torch

    start = perf_counter()
    if name.startswith("vrnet"):
        from vrnet import register

        u = register(fixed[0, 0], moving[0, 0], "TV-L1", folds="keep").field[None]
    else:
        from skimage.registration import optical_flow_tvl1

        I0, I1 = fixed[0, 0].numpy(), moving[0, 0].numpy()
        u = torch.from_numpy(optical_flow_tvl1(I0, I1, attachment=1 / lam, dtype=np.float32, **arguments))[None]
    return u, perf_counter() - start


def measure(name, arguments, d, files):
    """Time, energies, end-point error and peak memory of one solver, means over the pairs in the files."""
    import torch

    from vrnet import parse
    from vrnet.fields.calculus import forward_gradient, warp
    from vrnet.phantom import Phantom

    lam, spacing = parse("TV-L1").lam, SHAPES[d][1]
    warm_up = torch.rand(2, 1, 1, *(20,) * d)
    solve(name, arguments, *warm_up, lam)  # imports and caches are not timed
    rows = []
    for file in files:
        patient = Phantom(**torch.load(file))
        before = peak_bytes(reset=True)
        u, seconds = solve(name, arguments, patient.fixed, patient.moving, lam)
        peak = peak_bytes() - before
        gradient = forward_gradient(u)
        data = (warp(patient.moving, u) - patient.fixed).abs().mean().item()
        heart = patient.fixed_labels[0] > 0
        error, still = ((v - patient.field).norm(dim=1) * spacing for v in (u, torch.zeros_like(u)))
        rows.append(
            {
                "seconds": seconds,
                "energy": data + lam * gradient.square().sum((1, 2)).sqrt().mean().item(),
                "energy_uncoupled": data + lam * gradient.square().sum(2).sqrt().sum(1).mean().item(),
                "epe_mm": error[heart].mean().item(),
                "epe_unregistered_mm": still[heart].mean().item(),
                "epe_whole_image_mm": error.mean().item(),
                "epe_whole_image_unregistered_mm": still.mean().item(),
                "peak_images": peak / (4 * patient.fixed.numel()),
            }
        )
    means = {key: mean(row[key] for row in rows) for key in rows[0]}
    return {"solver": name, "d": d, **means, "peak_images": rows[0]["peak_images"]}


def save_phantoms(d, pairs, folder):
    """Write phantom pairs to files, so that the memory for making them is not counted as the solver's."""
    import torch

    from vrnet.phantom import phantom

    files = [str(folder / f"{d}d-{seed}.pt") for seed in range(pairs)]
    for seed, file in enumerate(files):
        torch.save(vars(phantom(seed, *SHAPES[d])), file)
    return files


def peak_bytes(reset=False):
    """The most memory that this process has held, in bytes; since the last reset, where the system can reset it."""
    if reset and os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")
    try:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_in_process(job, threads):
    """measure(*job) in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--measure", json.dumps(job)]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare_to_best(rows):
    """How many times faster vrnet is than the scikit-image run of lowest energy, and whether its energy is as low."""
    ours = next(row for row in rows if row["solver"].startswith("vrnet"))
    best = min((row for row in rows if row is not ours), key=lambda row: row["energy"])
    return best["seconds"] / ours["seconds"], ours["energy"] <= best["energy"]


def table(rows):
    """A Markdown table with one row per solver."""
    lines = [
        "| solver | s | energy | uncoupled | EPE mm | (unreg.) | memory, images |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['solver']} | {r['seconds']:.3f} | {r['energy']:.5f} | {r['energy_uncoupled']:.5f} "
            f"| {r['epe_mm']:.2f} | {r['epe_unregistered_mm']:.2f} | {r['peak_images']:.0f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs-2d", type=int, default=10)
    parser.add_argument("--pairs-3d", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("solver.json"))
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not find_spec("skimage"):
        sys.exit("scikit-image is missing: pip install --constraint constraints.txt '.[test]'")
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    with TemporaryDirectory() as folder:
        results = [
            compare(d, pairs, Path(folder), options.threads)
            for d, pairs in ((2, options.pairs_2d), (3, options.pairs_3d))
        ]
    options.out.write_text(json.dumps([row for rows in results for row in rows], indent=2) + "\n")


def compare(d, pairs, folder, threads):
    """Measure every solver in one dimension, and print the table."""
    if not pairs:
        return []
    files, rows = save_phantoms(d, pairs, folder), []
    for name, arguments in solvers(d):
        print(f"{d}D: {name} on {pairs} pairs of {SHAPES[d][0]} ...", file=sys.stderr)
        rows.append(measure_in_process((name, arguments, d, files), threads))
    speed_up, is_as_low = compare_to_best(rows)
    print(f"\n{d}D, {SHAPES[d][0]}, {threads} threads\n\n{table(rows)}\n")
    print(f"{speed_up:.1f} times faster than scikit-image at its best energy; energy equal or lower: {is_as_low}\n")
    return rows


if __name__ == "__main__":
    main()
