"""Methods compared on the same subjects: every comparison that results/notes speaks of.

A run is named as in rows.csv: PROTOCOL/RUN, without its seed for the mean over all seeds. OUT/comparisons.csv has one
row per pair of runs, in families: what Holm's correction counts together."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vrnet.files import Row
from vrnet.paper.results import read_runs
from vrnet.paper.statistics import MARGINS, Estimate, estimate_mean, holm, p_value, units_of

Names = tuple[str, ...]
Pairs = list[tuple[str, ...]]
"""Of two runs each."""


class Found(NamedTuple):
    """A mean over subjects, or that of a paired difference, and what it is of."""

    estimate: Estimate
    p: float
    subjects: int
    seeds: str
    runs: list[str]


def find_runs(out: Path, data: str, name: str) -> list[str]:
    """PROTOCOL/RUN of a name: itself, or all its seeds; none where it is not measured."""
    wanted = re.compile(re.escape(name) + r"(_seed\d+)?")
    return [found for found in map("/".join, read_runs(out / data)) if wanted.fullmatch(found)]


def compare(out: Path, data: str, measure: str, ours: Names, others: Names = ()) -> Found | None:
    """The mean of `ours` minus that of `others`, paired by subject; None where a run is not measured."""
    known = {"/".join(key): run for key, run in read_runs(out / data).items()}
    runs = {name: find_runs(out, data, name) for name in (*ours, *others)}
    if not all(runs.values()):
        return None
    every = [run for found in runs.values() for run in found]
    subjects = [row["subject"] for row in known[every[0]].cells]
    cells = {run: {row["subject"]: float(row[measure] or "nan") for row in known[run].cells} for run in every}
    means = {name: np.mean([[cells[run][s] for s in subjects] for run in runs[name]], axis=0) for name in runs}
    x = np.mean([means[name] for name in ours], axis=0)
    if others:
        x = x - np.mean([means[name] for name in others], axis=0)
    units = units_of(data, subjects)
    seeds = sorted({len(found) for name, found in runs.items() if "alpha" in name})
    return Found(estimate_mean(x, units), p_value(x, units), len(x), " and ".join(map(str, seeds)) or "–", every)


# How sets of runs are named.


def names(protocol: str, methods: str, end: str = "") -> Names:
    """names("short", "R-L1-3x2 R-L2-6x1", "-w16_alpha0.1") are the runs of two methods."""
    return tuple(f"{protocol}/{method}{end}" for method in methods.split())


def cycles(methods: str) -> Names:
    """Runs at the paper's settings: every frame of the cycle, width 64, 20,000 steps."""
    return names("cycles", methods, "_alpha0.05")


def short(methods: str, end: str = "") -> Names:
    """Runs of width 16 and 3,000 steps."""
    return names("short", methods, f"-w16_alpha0.1{end}")


def tuned(methods: str) -> Names:
    """The same at the α that validation subjects chose."""
    low = "3xRC-Net", "5xRC-Net", "6xRC-Net", "7xRC-Net", "C-L2-3x1"
    return tuple(f"short/{method}-w16_alpha{0.05 if method in low else 0.1}" for method in methods.split())


def layouts(kinds: str, sizes: str) -> Names:
    """Small VR-Nets of each kind in each size."""
    return short(" ".join(f"{kind}-{size}" for kind, size in product(kinds.split(), sizes.split())))


def volumes(methods: str) -> Names:
    """Runs on volumes of ACDC, in place of the paper's 3D CMR: width 8, 1,500 steps."""
    return names("short", methods, "-w8_alpha0.1")


def against(first: Names, others: Names) -> Pairs:
    """The first with each of the others."""
    return [(*first, other) for other in others]


def each(first: Names, second: Names) -> Pairs:
    """The first with the first, the second with the second, and so on."""
    return list(zip(first, second, strict=True))


RC_NETS = "2xRC-Net 3xRC-Net 4xRC-Net 5xRC-Net 6xRC-Net"
ITERATIVE = names("iterative", "FFD TV-L1 Demons SyN")
FIVE, THREE, TWO = (
    "VoxelMorph 2xRC-Net 3xRC-Net R-L1-3x2 R-L2-6x1",
    "VoxelMorph 2xRC-Net 3xRC-Net",
    "VoxelMorph 3xRC-Net",
)
SIZES = "1x1 2x1 2x2 3x2 6x1"
FEWER = [f"_seed0_{n}subjects" for n in (5, 10, 20)]
NETWORKS = "4xRC-Net-w16_alpha0.05 4xRC-Net-half-w32_alpha0.02 D-L2-3x1-half-w32_alpha0.05"
"""Of the budgets consistent and long."""
HALF_3D = names("consistent", "D-L2-3x1-half-w16 4xRC-Net-half-w16", "_alpha0.5")
FAMILIES: dict[str, tuple[str, Pairs]] = {
    "every frame, R-L1-3x2":
        ("acdc", against(cycles("R-L1-3x2"), cycles(f"VoxelMorph {RC_NETS} R-L2-6x1") + ITERATIVE)),
    "every frame, R-L2-6x1":
        ("acdc", against(cycles("R-L2-6x1"), cycles(f"VoxelMorph {RC_NETS}") + ITERATIVE)),
    "every frame, cascades of RC-Net":
        ("acdc", against(cycles("2xRC-Net"), cycles("VoxelMorph 3xRC-Net 4xRC-Net 5xRC-Net 6xRC-Net"))),
    "every frame, or ED and ES alone":
        ("acdc", each(cycles(FIVE), names("paper", FIVE, "_alpha0.05"))),
    "ED and ES alone, R-L1-3x2":
        ("acdc", against(names("paper", "R-L1-3x2_alpha0.05"), names("paper", f"{THREE} R-L2-6x1", "_alpha0.05"))),
    "ED and ES alone, augmented or not":
        ("acdc", each(names("augmented", THREE, "_alpha0.05"), names("paper", THREE, "_alpha0.05"))),
    "every frame, augmented or not":
        ("acdc", each(names("cycles-augmented", TWO, "_alpha0.05"), cycles(TWO))),
    "small networks, R-L1-3x2":
        ("acdc", against(short("R-L1-3x2"), (
            "short/Siamese-w16_alpha0.02", *ITERATIVE,
            *tuned(f"VoxelMorph {RC_NETS} 7xRC-Net R-L2-6x1 C-L2-3x1 C-L2-6x1")))),
    "small networks, C-L2-6x1":
        ("acdc", against(tuned("C-L2-6x1"), tuned(f"VoxelMorph {RC_NETS} 7xRC-Net C-L2-3x1") + ITERATIVE)),
    "α .05 or .1, first seed":
        ("acdc", [(f"short/{name}-w16_alpha0.05_seed0", f"short/{name}-w16_alpha0.1_seed0")
                  for name in ("R-L1-3x2", "R-L2-6x1", "C-L2-3x1")]),
    "fewer subjects, or 40":
        ("acdc", [(*short(name, end), *short(name)) for name in f"{TWO} R-L1-3x2 D-L2-3x1".split() for end in FEWER]),
    "fewer subjects, over 3xRC-Net":
        ("acdc", [(*short(name, end), *short("3xRC-Net", end)) for name in ("R-L1-3x2", "D-L2-3x1")
                  for end in (*FEWER, "")]),
    "one size, D-L2-3x1":
        ("acdc", against(names("consistent", "D-L2-3x1-w16_alpha0.05"),
                         names("consistent", "4xRC-Net-w16_alpha0.05 VoxelMorph-w32_alpha0.05") + ITERATIVE)),
    "one size, this loss or that of small networks":
        ("acdc", each(names("consistent", "4xRC-Net-w16 D-L2-3x1-w16", "_alpha0.05"), short("4xRC-Net D-L2-3x1"))),
    "half resolution, D-L2-3x1-half":
        ("acdc", against(names("consistent", "D-L2-3x1-half-w32_alpha0.05"),
                         names("consistent", "4xRC-Net-half-w32_alpha0.02 D-L2-3x1-w16_alpha0.05"))),
    "9,000 steps, averaged D-L2-3x1-half":
        ("acdc", against(names("long", "D-L2-3x1-half-w32+average_alpha0.05"), ITERATIVE + names(
            "long", "4xRC-Net-w16+average_alpha0.05 4xRC-Net-half-w32+average_alpha0.02 4xRC-Net-w16_alpha0.05"))),
    "9,000 steps, or 3,000":
        ("acdc", each(names("long", NETWORKS), names("consistent", NETWORKS))),
    "9,000 steps, averaged or not":
        ("acdc", each(names("long", NETWORKS.replace("_alpha", "+average_alpha")), names("long", NETWORKS))),
    "residual, or plain":
        ("acdc", each(layouts("R-L1 R-L2", SIZES), layouts("U-L1 U-L2", SIZES))),
    "data steps, or none":
        ("acdc", each(short("C-L2-3x1 D-L2-3x1"), short("C-none-3x1 D-none-3x1"))),
    "parts, first seed":
        ("acdc", [(*run, *short(f"{kind}-L2-3x1", "_seed0")) for kind in "CD" for run in (
            names("short", f"{kind}-L2-3x1-w16(theta=1.0)_alpha0.1"), short(f"{kind}-L2-3x1-frozen"),
            short(f"{kind}-L2-3x1-released"))]),
    "central, or forward differences, first seed":
        ("acdc", each(names("central", "VoxelMorph R-L1-3x2 C-L2-3x1", "-w16_alpha0.1"),
                      short("VoxelMorph R-L1-3x2 C-L2-3x1", "_seed0"))),
    "whole stacks, slice by slice":
        ("stacks", [("whole/short-axis+average", "whole/short-axis")]),
    "volumes of ACDC, Gaussian-LNCC":
        ("acdc3d", against(names("iterative", "Gaussian-LNCC"), ITERATIVE + volumes(
            "VoxelMorph 2xRC-Net 3xRC-Net R-L2-2x1 R-L1-2x1 U-L2-2x1 U-L1-2x1 C-L1-2x1")
            + names("short", "4xRC-Net-half-w16 D-L2-3x1-half-w16", "_alpha0.1"))),
    "hippocampi, Gaussian-LNCC":
        ("hippocampus", against(names("iterative", "Gaussian-LNCC"), ITERATIVE + names(
            "short", "VoxelMorph 2xRC-Net R-L1-2x1 U-L1-2x1 C-L1-2x1", "-w8_alpha0.4") + HALF_3D)),
    "hippocampi, template":
        ("hippocampus", against(names("shipped", "hippocampus-template"),
                                (*names("iterative", "Gaussian-LNCC"), *ITERATIVE, *HALF_3D))),
    "hippocampi, one size": ("hippocampus", [(HALF_3D[0], HALF_3D[1])]),
}  # fmt: skip
"""{family: its data set, and the pairs of runs that are compared}"""


def comparison_rows(out: Path) -> Iterator[Row]:
    """The rows of comparisons.csv: the first run minus the second in Dice and in mm, with 95 % intervals, p with Holm's
    correction for the family, and whether both are equivalent. Pairs that are not measured are left out."""
    for family, (data, pairs) in FAMILIES.items():
        rows: dict[tuple[str, ...], Row] = {}
        for kind, margin in MARGINS.items():
            tried = {pair: compare(out, data, f"{kind}_mean", pair[:1], pair[1:]) for pair in pairs}
            found = {pair: one for pair, one in tried.items() if one}
            p = holm({pair: one.p for pair, one in found.items()})
            for pair, one in found.items():
                row = rows.setdefault(pair, {"family": family, "data": data, "first": pair[0], "second": pair[1]})
                mean, low, high, *_ = (round(value, 4) for value in one.estimate)
                row |= {"n": one.subjects, "seeds": one.seeds, kind: mean, f"{kind}_low": low, f"{kind}_high": high}
                row[f"{kind}_p"] = f"{p[pair]:.2g}"
                row[f"{kind}_equivalent"] = "yes" if one.estimate.is_within(margin) else "no"
        yield from rows.values()
