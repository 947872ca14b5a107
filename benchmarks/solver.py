"""TV-L1 beside scikit-image's, on the same phantom pairs, threads and functional.

    python benchmarks/solver.py [--pairs-2d 10] [--pairs-3d 1] [--threads 2]

Both minimise mean |I1(x + u) − I0| + λ mean |∇u| with the same λ (scikit-image's attachment is 1/λ). scikit-image runs
with its default tightness, 0.3, and with others that give it lower energies. Its TV treats the components of the field
separately; the energy is ours, which couples them. Each solver runs in a process of its own, which prints a row of the
table: its peak memory is what it adds to that of imports and a first small pair, on Linux.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from vrnet import parse, register
from vrnet.fields.calculus import squared_gradient, warp
from vrnet.phantom import phantom

SHAPES = {2: ((160, 160), 1.8), 3: ((128, 128, 96), 1.2)}
TIGHTNESSES = {2: (0.3, 0.1, 0.05, 0.025), 3: (0.3, 0.025)}
OURS = "TV-L1"


def solve(name, fixed, moving):
    """The field (1, d, *s) by TV-L1, or by scikit-image with a tightness."""
    if name == OURS:
        return register(fixed[0, 0], moving[0, 0], OURS, folds="keep").field[None]
    from skimage.registration import optical_flow_tvl1

    given = {"attachment": 1 / parse(OURS).lam, "tightness": float(name), "dtype": np.float32}
    return torch.from_numpy(optical_flow_tvl1(fixed[0, 0].numpy(), moving[0, 0].numpy(), **given))[None]


def peak_bytes():
    """The most memory that this process has held since the peak was forgotten, as Linux counts it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def row_of(name, d, pairs):
    """Seconds, energy, end-point errors and peak memory of one solver, means over pairs of phantoms."""
    patients = [phantom(seed, *SHAPES[d]) for seed in range(pairs)]
    solve(name, *torch.rand(2, 1, 1, *(20,) * d))  # imports and caches are not timed
    Path("/proc/self/clear_refs").write_text("5")  # the peak of making phantoms is forgotten
    before, found = peak_bytes(), []
    for patient in patients:
        start = perf_counter()
        u = solve(name, patient.fixed, patient.moving)
        seconds = perf_counter() - start
        data, rough = (
            (warp(patient.moving, u) - patient.fixed).abs().mean(),
            squared_gradient(u, (1.0,) * d).sqrt().mean(),
        )
        heart = patient.fixed_labels[0] > 0
        errors = [((v - patient.field).norm(dim=1) * SHAPES[d][1])[heart].mean() for v in (u, 0 * u)]
        found.append((seconds, data + parse(OURS).lam * rough, *errors))
    seconds, energy, error, still = np.mean(found, axis=0)
    memory = (peak_bytes() - before) / (4 * patients[0].fixed.numel())
    return f"| {name} | {seconds:.3f} | {energy:.5f} | {error:.2f} | {still:.2f} | {memory:.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs-2d", type=int, default=10)
    parser.add_argument("--pairs-3d", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        name, d, pairs = given.row
        print(row_of(name, int(d), int(pairs)), flush=True)
        return
    environment = os.environ | {"OMP_NUM_THREADS": str(given.threads)}
    for d, pairs in ((2, given.pairs_2d), (3, given.pairs_3d)):
        if not pairs:
            continue
        print(f"\n{d}D, {SHAPES[d][0]}, pairs: {pairs}, threads: {given.threads}\n")
        print(
            "| solver | s | energy | EPE mm | unregistered | memory, images |\n| --- | --- | --- | --- | --- | --- |",
            flush=True,
        )
        for name in (OURS, *map(str, TIGHTNESSES[d])):
            subprocess.run([sys.executable, __file__, "--row", name, str(d), str(pairs)], env=environment, check=True)


if __name__ == "__main__":
    main()
