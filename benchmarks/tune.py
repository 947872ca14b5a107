"""Parameters of TV-L1, FFD, Demons and SyN: every setting of a small grid on the validation subjects, best last.

    python benchmarks/tune.py FFD Demons --data acdc --root ACDC --out tuning.csv
    python benchmarks/tune.py SyN --data hippocampus.npz --subjects 8 --out tuning.csv

A row a setting is added to the file as soon as it is measured; one that is there already is not measured again. Best is
the highest Dice − HD/100 mm. (What the chosen ones give on the test subjects: vrnet evaluate METHOD --data ...)
"""

import argparse
import csv
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from vrnet import parse
from vrnet.data.source import Source
from vrnet.evaluation.cohort import measure_subject, summarise
from vrnet.methods.outside import at

TV_L1 = [{"lam": (0.06, 0.075, 0.09), "theta": ((0.05, 0.5), (0.1, 0.5), (0.2, 0.5), (0.1, 1.0))}]
GRIDS = {
    ("TV-L1", 2): TV_L1,
    ("TV-L1", 3): TV_L1,
    ("FFD", 2): [
        {"bending": (0.05, 0.1), "iterations": (200, 400), "step": (1.8,)},
        {"bending": (0.2,), "step": (1.8,)},
        {"step": (0.45, 0.9)},
    ],
    ("Demons", 2): [{"sigma": (1.5, 2.0, 2.5)}, {"step": (1.0,)}, {"iterations": ((200, 100, 50),)}],
    ("SyN", 2): [{"flow_sigma": (4.0, 5.0)}, {"total_sigma": (0.5,)}],
    ("FFD", 3): [
        {"spacing": (5.0, 8.0), "bending": (0.02, 0.1), "step": (0.9,)},
        {"spacing": (8.0,), "bending": (0.5, 2.0), "step": (0.9,)},
        {"step": (1.8,)},
    ],
    ("Demons", 3): [{"sigma": (0.7, 1.0, 1.5, 2.0)}],
    ("SyN", 3): [
        {"flow_sigma": (3.0,), "iterations": ((50, 20, 0),), "radius": (2, 4)},
        {"flow_sigma": (3.0, 5.0), "iterations": ((100, 50, 0),), "radius": (2,)},
        {"flow_sigma": (3.0,), "iterations": ((50, 20, 5),), "radius": (2,)},
    ],
}
"""{(method, dimension): grids}; of each grid, all combinations; what it does not name stays as it is."""
MEASURES = "dice_mean", "hd_mean", "folding_percent", "seconds"
COLUMNS = "data", "method", "setting", *MEASURES, "subjects"


def candidates(name, d):
    """The method with each combination of parameters."""
    method, found = parse(name), []
    for grid in GRIDS[name, d]:
        found += [replace(method, **dict(zip(grid, values, strict=True))) for values in product(*grid.values())]
    return list(dict.fromkeys(found))


def described(method, d):
    """The parameters that a grid varies: "sigma 1.0, iterations 100-50-20"."""
    names = dict.fromkeys(name for grid in GRIDS[str(method), d] for name in grid)
    values = {name: at(getattr(method, name), d) for name in names}
    words = {name: "-".join(map(str, v)) if isinstance(v, tuple) else v for name, v in values.items()}
    return ", ".join(f"{name} {word}" for name, word in words.items())


def row_of(method, pairs):
    """What a method scores: means over the subjects."""
    d, samples = len(pairs.samples[0].spacing), pairs.samples
    find = method.build(d)
    means = summarise([measure_subject(sample, find, pairs.structures) for sample in samples])
    what = {"data": pairs.data, "method": str(method), "setting": described(method, d)}
    return {**what, **{key: f"{means[key]['mean']:.4f}" for key in MEASURES}, "subjects": str(len(samples))}


def rows_in(path):
    """What was measured before."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add(row, path):
    """Put a row at the end of the file."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def tuned(name, pairs, path):
    """The rows of a method's grid, best last."""
    d, rows = len(pairs.samples[0].spacing), []
    for method in candidates(name, d):
        key = {"data": pairs.data, "method": name, "setting": described(method, d), "subjects": str(len(pairs.samples))}
        known = [row for row in rows_in(path) if key.items() <= row.items()]
        rows += known or [row_of(method, pairs)]
        if not known:
            add(rows[-1], path)
        print(line_of(rows[-1]), flush=True)
    return sorted(rows, key=score)


def score(row):
    """Higher is better."""
    return float(row["dice_mean"]) - float(row["hd_mean"]) / 100


def line_of(row):
    scores = f"Dice {row['dice_mean']}, HD {row['hd_mean']} mm, folding {row['folding_percent']} %, {row['seconds']} s"
    return f"{row['data']}, {row['method']} ({row['setting']}): {scores}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", choices=sorted({name for name, _ in GRIDS}))
    parser.add_argument("--data", required=True, help="a data set, or a file that vrnet prepare wrote")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--subjects", type=int, help="the first so many, where a method is slow")
    parser.add_argument("--threads", type=int, default=1, help="of TV-L1; elastix and ANTs take as many as ITK does")
    parser.add_argument("--out", type=Path, default=Path("tuning.csv"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pairs = Source(given.data, given.root).split("val", "evaluation", lambda name: lambda done: None, print)
    pairs = replace(pairs, samples=pairs.samples[: given.subjects]).load()
    best = [tuned(name, pairs, given.out) for name in given.methods]
    for rows in best:
        print("\nbest last:", *map(line_of, rows), sep="\n")


if __name__ == "__main__":
    main()
