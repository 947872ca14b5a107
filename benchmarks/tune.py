"""Parameters of TV-L1, FFD, Demons and SyN: every setting of a small grid on the validation subjects, best last.

    python benchmarks/tune.py FFD Demons --data acdc --root ACDC --out tuning.csv
    python benchmarks/tune.py SyN --data hippocampus.npz --subjects 8 --out tuning.csv

One row per setting is added to the file as soon as it is measured; a setting that is there is not measured again. Best
is the highest Dice − HD/100 mm. (What the chosen settings give on the test subjects: vrnet evaluate METHOD --data ...)
"""

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from rows import append_row, read_measured
from vrnet import parse
from vrnet.data.prepared import Source
from vrnet.evaluation.split import measure_subject, summarise
from vrnet.methods.parameters import value_in

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
"""{(method, dimension): grids}; every combination within a grid is tried, with the tuned values of what it lacks."""
MEASURES = "dice_mean", "hd_mean", "folding_percent", "seconds"
COLUMNS = "data", "method", "setting", *MEASURES, "subjects"


def describe_setting(name, method, d):
    """The parameters that the grids of a name vary, as a method has them: "sigma 1.0, iterations 100-50-20"."""
    names = dict.fromkeys(name for grid in GRIDS[name, d] for name in grid)
    values = {name: value_in(getattr(method, name), d) for name in names}
    words = {name: "-".join(map(str, v)) if isinstance(v, tuple) else v for name, v in values.items()}
    return ", ".join(f"{name} {word}" for name, word in words.items())


def tune(name, pairs, path):
    """The rows of a method's grids, means over the subjects, best last."""
    d, rows = len(pairs.samples[0].spacing), []
    settings = (dict(zip(grid, values, strict=True)) for grid in GRIDS[name, d] for values in product(*grid.values()))
    for method in dict.fromkeys(replace(parse(name), **values) for values in settings):
        row = {"data": pairs.data, "method": name, "setting": describe_setting(name, method, d)}
        row["subjects"] = str(len(pairs.samples))
        known = [other for other in read_measured(path) if row.items() <= other.items()]
        if not known:
            find = method.build(d)
            means = summarise([measure_subject(sample, find, pairs.structures) for sample in pairs.samples])
            row |= {key: f"{means[key]['mean']:.4f}" for key in MEASURES}
            append_row(row, path, COLUMNS)
        rows += known or [row]
        print(describe_row(rows[-1]), flush=True)
    return sorted(rows, key=score)


def score(row):
    """Dice − HD/100 mm: higher is better."""
    return float(row["dice_mean"]) - float(row["hd_mean"]) / 100


def describe_row(row):
    """A row as a line for the screen."""
    scores = f"Dice {row['dice_mean']}, HD {row['hd_mean']} mm, folding {row['folding_percent']} %, {row['seconds']} s"
    return f"{row['data']}, {row['method']} ({row['setting']}): {scores}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", choices=sorted({name for name, _ in GRIDS}))
    parser.add_argument("--data", required=True, help="a data set, or a file that vrnet prepare wrote")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--subjects", type=int, help="how many, the first ones; all if not given")
    parser.add_argument("--threads", type=int, default=1, help="for TV-L1; elastix and ANTs use as many as ITK does")
    parser.add_argument("--out", type=Path, default=Path("tuning.csv"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = Source(options.data, options.root).split("val", "evaluation", lambda name: lambda done: None, print)
    pairs = replace(pairs, samples=tuple(pairs.samples)[: options.subjects])
    best = [tune(name, pairs, options.out) for name in options.methods]
    for rows in best:
        print("\nbest last:", *map(describe_row, rows), sep="\n")


if __name__ == "__main__":
    main()
